"""Measure how much longer the whole probe takes than its unavoidable part.

    python benchmarks/probe_overhead.py --python ENVIRONMENT/bin/python

Compares, in one run and by turns, the probe (all checks that make sense here) with a bare script that
imports TensorFlow and takes the same compiled training steps, and nothing else. Prints the median of each
and the ratio of the medians. The limit is 1.25.
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

from validator.engines.protocol import probe_archive

LIMIT = 1.25
BARE = """
import sys
sys.path.insert(0, sys.argv[1])
from validator.probe import training
from validator.probe.checks.compute import STEPS
import tensorflow as tf
images, labels = training.batch(tf)
run = training.run(training.step(tf, compiled=True), images, labels, STEPS)
assert run.losses[-1] < run.losses[0]
"""


def seconds(command: list[str], environment: dict[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Compare the probe with a bare script of the same XLA steps."
    )
    parser.add_argument("--python", required=True, help="the Python of an environment with TensorFlow")
    parser.add_argument("--repeats", type=int, default=7, help="turns, after one that is not counted")
    options = parser.parse_args()
    site = Path(options.python).parents[1] / "lib"
    libraries = os.pathsep.join(str(path) for path in sorted(site.glob("python*/site-packages/nvidia/*/lib")))
    environment = {**os.environ, "LD_LIBRARY_PATH": libraries}
    with tempfile.TemporaryDirectory() as directory:
        archive = Path(directory) / "probe.pyz"
        archive.write_bytes(probe_archive())
        commands = {
            "bare": [options.python, "-c", BARE, str(archive)],
            "probe": [options.python, str(archive)],
        }
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for turn in range(options.repeats + 1):
            for name, command in commands.items():
                spent = seconds(command, environment)
                if turn:
                    taken[name].append(spent)
    for name, values in taken.items():
        print(
            f"{name:5}  median {statistics.median(values):6.2f} s  ({min(values):.2f} to {max(values):.2f})"
        )
    ratio = statistics.median(taken["probe"]) / statistics.median(taken["bare"])
    print(f"ratio  {ratio:.2f} (limit {LIMIT})")
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
