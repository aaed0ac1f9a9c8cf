"""`python -m lbgym` is the command `lbgym`."""

import sys

from lbgym.cli import main

if __name__ == "__main__":
    sys.exit(main())
