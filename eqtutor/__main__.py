"""The command `eqtutor`, also as `python -m eqtutor`."""
# Plain module: edited by hand, no notebook exports it.
from .interpreter import leave_current_folder


def main()->None:
    "Run the command."
    leave_current_folder()   # before anything else is imported: `python -m` looks there first
    from .cli import app
    app(prog_name='eqtutor')


if __name__ == '__main__': main()
