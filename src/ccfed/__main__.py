"""`python -m ccfed` is `ccfed`."""

import sys

from ccfed.cli import main

if __name__ == "__main__":
    sys.exit(main())
