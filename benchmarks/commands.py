"""Measure the time of the command line: `python benchmarks/commands.py [--engine venv|docker]`.

Two numbers of one run, each beside its limit and beside the start of a bare interpreter:
 - `--help`, whole process;
 - a second `build-matrix` of the default profile, with nothing changed, whole process. The first one, which
   builds and probes, runs before and does not count.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent

HELP_LIMIT_S = 0.2
UNCHANGED_LIMIT_S = 2.0
RUNS = 7


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=["auto", "venv", "docker"], default="auto")
    engine = parser.parse_args().engine
    # As an installation has it: with bytecode. The first run, which writes it, does not count.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    validator = [sys.executable, "-m", "validator"]
    with tempfile.TemporaryDirectory() as directory:
        os.environ["PYTHONPYCACHEPREFIX"] = directory
        build = [*validator, "build-matrix", "--engine", engine, "--store", f"{directory}/records.db"]
        seconds(build)
        rows = [
            ("--help", median([*validator, "--help"]), HELP_LIMIT_S),
            (f"build-matrix --engine {engine}, unchanged", median(build), UNCHANGED_LIMIT_S),
        ]
    bare = median([sys.executable, "-c", "pass"])
    for name, value, limit in rows:
        print(
            f"{name:42} {value:5.2f} s of {limit} s  ratio {value / limit:.2f},"
            f" {value / bare:.1f} x a bare interpreter"
        )
    return 0 if all(value <= limit for _, value, limit in rows) else 1


def median(command: list[str]) -> float:
    """Seconds of a whole process, the median of several runs after one that does not count."""
    seconds(command)
    return statistics.median(seconds(command) for _ in range(RUNS))


def seconds(command: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=REPOSITORY)
    return time.perf_counter() - begin


if __name__ == "__main__":
    raise SystemExit(main())
