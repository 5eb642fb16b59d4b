"""`python -m tests.emulation --fault NAME --tensorflow VERSION` prints a log; `--write` makes the corpus."""

from __future__ import annotations

import argparse
import sys

from . import corpus
from .faults import faults
from .run import run


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.emulation", description=__doc__)
    parser.add_argument("--fault", action="append", help="a fault's id; repeatable; all when left out")
    parser.add_argument(
        "--tensorflow", action="append", help="a release; repeatable; all of the fault's when left out"
    )
    parser.add_argument("--write", action="store_true", help="write the logs and their rows in tests/corpus")
    parser.add_argument("--missing", action="store_true", help="with --write: only logs that are not there")
    parser.add_argument("--list", action="store_true", help="name the faults")
    options = parser.parse_args()
    chosen = [faults()[name] for name in options.fault or faults()]
    if options.list:
        for fault in chosen:
            print(f"{fault.id:40} {fault.cause:40} {' '.join(fault.releases)}")
        return
    # Release by release, so that its files are read from disk once.
    releases = options.tensorflow or sorted({each for fault in chosen for each in fault.releases})
    for release in releases:
        for fault in chosen:
            if release not in fault.releases or (options.missing and corpus.path(fault, release).exists()):
                continue
            if not options.write:
                sys.stdout.write(run(fault, release))
                continue
            print(release, fault.id, file=sys.stderr, flush=True)
            try:
                corpus.write(fault, release, run(fault, release))
            except Exception as error:  # the others are still made
                print(f"  not made: {error}", file=sys.stderr, flush=True)
    if options.write:
        corpus.write_index()


if __name__ == "__main__":
    main()
