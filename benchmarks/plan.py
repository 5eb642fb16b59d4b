"""Measure the time and the memory of planning: `python benchmarks/plan.py`.

It prints four numbers of one run, each with its limit:
 - the `plan` command on the default matrix, as a whole process;
 - the `predict` command for one combination, as a whole process;
 - a generated matrix of 100,000 cells, read, expanded and predicted in one process: its time,
 - and its peak resident memory.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent

COMMAND_LIMIT_S = 0.5
PREDICT_LIMIT_S = 0.35
LARGE_LIMIT_S = 2.0
LARGE_LIMIT_MB = 500
RUNS = 5

#: Every release from 2.14 on under several bases, on every driver branch with every GPU: 100,000 cells.
LARGE = """\
images:
  - tensorflow: ">=2.14"
    python: all
    policy: [as-built, latest]
    base: [default, {bases}]
hosts:
  - driver: [{drivers}]
    gpu: [v100, t4, a100, a10, a30, l4, l40s, rtx-4090, h100, h200, gh200, b200, rtx-5090]
profiles:
  quick: {{description: Everything.}}
"""

#: Runs in a process of its own, so that its memory is only that of planning.
PLAN_LARGE = """\
import json, resource, sys, time
begin = time.perf_counter()
from validator.matrix.load import load_matrix
from validator.matrix.plan import plan
cells = len(plan(load_matrix(sys.argv[1])).cells)
seconds = time.perf_counter() - begin
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"cells": cells, "seconds": seconds, "megabytes": peak}))
"""

#: Prints the seconds that a command took, its start and end included.
TIMED = """\
import subprocess, sys, time
begin = time.perf_counter()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(time.perf_counter() - begin)
"""


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        # As an installation has it: with bytecode. The first run, which writes it, does not count.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = directory
        seconds = _median(["plan"])
        one = _median(["predict", "--tensorflow", "2.21.0", "--driver", "570", "--gpu", "a100"])
        large = _plan_large()
    rows = [
        (f"plan, default matrix, whole process (median of {RUNS})", seconds, COMMAND_LIMIT_S, "s"),
        (f"predict, whole process (median of {RUNS})", one, PREDICT_LIMIT_S, "s"),
        (f"plan, {large['cells']:,} cells: time", large["seconds"], LARGE_LIMIT_S, "s"),
        (f"plan, {large['cells']:,} cells: peak memory", large["megabytes"], LARGE_LIMIT_MB, "MB"),
    ]
    for name, value, limit, unit in rows:
        print(f"{name:55} {value:8.2f} {unit:2} of {limit:6} {unit:2}  ratio {value / limit:.2f}")
    return 0 if all(value <= limit for _, value, limit, _ in rows) else 1


def _median(arguments: list[str]) -> float:
    """Return the median time of a command, in seconds. The first run does not count."""
    command = [sys.executable, "-c", TIMED, sys.executable, "-m", "validator", *arguments]
    _run(command)
    return statistics.median(float(_run(command)) for _ in range(RUNS))


def _plan_large() -> dict[str, float]:
    bases = ", ".join(f"registry.example/base-{number}" for number in range(10))
    drivers = ", ".join(f'"{branch}"' for branch in (470, 525, 535, 545, 550, 555, 560, 570, 575, 580))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "matrix.yaml"
        path.write_text(LARGE.format(bases=bases, drivers=drivers), encoding="utf-8")
        measured: dict[str, float] = json.loads(_run([sys.executable, "-c", PLAN_LARGE, str(path)]))
    return measured


def _run(command: list[str]) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY).stdout


if __name__ == "__main__":
    raise SystemExit(main())
