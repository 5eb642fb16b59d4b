"""`python -m validator.probe`: the probe from a source tree, as `probe.pyz` from its archive."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
