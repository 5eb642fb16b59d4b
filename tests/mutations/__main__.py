"""Run mutated inputs: `scripts/mutate --help`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .harness import Harness, next_of, remember
from .targets import TARGETS


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/mutate",
        description="Change valid inputs of every kind that comes from outside, and check that the program"
        " ends as documented for each: with a result or an error, never with a traceback, and in bounded"
        " time and memory. Every kind gets the same share of the time.",
    )
    parser.add_argument("--count", type=int, default=100_000, help="how many inputs of each kind to run")
    parser.add_argument("--seconds", type=float, default=280, help="stop after this time")
    parser.add_argument("--seed", type=int, default=0, help="the inputs follow from this number")
    parser.add_argument(
        "--first", type=int, help="the number of the first input of each kind; by default, go on"
    )
    parser.add_argument("--kinds", default=",".join(TARGETS), help="what to mutate, separated by commas")
    parser.add_argument("--every", type=int, default=500, help="the share that the command line reads too")
    parser.add_argument("--state", type=Path, default=Path("mutations/state.json"), help="where to go on")
    parser.add_argument(
        "--failures", type=Path, default=Path("mutations"), help="where to write failing inputs"
    )
    given = parser.parse_args()

    kinds = tuple(given.kinds.split(","))
    harness = Harness(given.seed, given.failures, given.every, kinds)
    fixed = None if given.first is None else dict.fromkeys(kinds, given.first)
    first = next_of(given.state, given.seed) if fixed is None else fixed
    following = harness.run(first, given.count, given.seconds)
    if fixed is None:
        given.state.parent.mkdir(parents=True, exist_ok=True)
        remember(given.state, given.seed, following)
    print(f"seed {given.seed}: {harness.summary.text()}")
    for problem, name in harness.summary.failures.items():
        print(f"FAILED {given.failures / name}: {problem}")
    return 1 if harness.summary.failures else 0


sys.exit(main())
