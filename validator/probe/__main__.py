"""Runs the probe from a source tree: `python -m validator.probe`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
