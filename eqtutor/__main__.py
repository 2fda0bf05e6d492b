"""The command `eqtutor`, also as `python -m eqtutor`."""
# Plain module: edited by hand, no notebook exports it.
import sys
from importlib import import_module


def main()->None:
    "Run the command; what grades a class is loaded without the rest of the package."
    if sys.argv[1:3] == ['labs', 'grade']:
        import_module('eqtutor.labs.commands').labs(sys.argv[2:], prog_name='eqtutor labs')
    else: import_module('eqtutor.cli').app(prog_name='eqtutor')


if __name__ == '__main__': main()
