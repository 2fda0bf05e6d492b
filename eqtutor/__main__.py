"""The command `eqtutor`, also as `python -m eqtutor`."""
# Plain module: edited by hand, no notebook exports it.
import sys

from .interpreter import leave_current_folder


def main()->None:
    "Run the command; what grades a class is loaded without the rest of the package."
    leave_current_folder()   # before anything else is imported: `python -m` looks there first
    from importlib import import_module
    if sys.argv[1:3] == ['labs', 'grade']:
        import_module('eqtutor.labs.commands').labs(sys.argv[2:], prog_name='eqtutor labs')
    else: import_module('eqtutor.cli').app(prog_name='eqtutor')


if __name__ == '__main__': main()
