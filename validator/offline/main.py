"""`./measure`: receive the bundle that is next to it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .receive import Refused, receive


def main(arguments: Sequence[str]) -> int:
    directory = Path(sys.argv[0]).resolve().parent
    parser = argparse.ArgumentParser(prog="measure", description=__doc__)
    parser.add_argument("--receive-only", action="store_true", help="Only verify and unpack the volumes.")
    parser.add_argument("--wait", action="store_true", help="Wait for volumes that are not there yet.")
    parser.add_argument("--into", type=Path, default=directory / "received", metavar="DIRECTORY")
    given = parser.parse_args(arguments)
    try:
        receive(directory, given.into, given.wait, lambda text: print(text, file=sys.stderr, flush=True))
    except Refused as error:
        print(f"error: {error}\n  hint: {error.hint}", file=sys.stderr)
        return 1
    return 0
