"""Measure the time and the memory of `data export`: `python -m benchmarks.dataset`.

It exports a small and a large generated matrix, and then the large one in each format alone, each in a
process of its own. It prints the time, the peak resident memory and the size of the predictions. A limited
number of rows is in memory at once, so the large export may need only the list of its cells in addition.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.plan import LARGE

REPOSITORY = Path(__file__).resolve().parent.parent

#: Bases of the images. Each one adds some 10,000 cells.
SMALL_BASES, LARGE_BASES = 1, 10
DRIVERS = (470, 525, 535, 545, 550, 555, 560, 570, 575, 580)
ALL = "json,csv,parquet"
LIMIT_S = 25.0
#: The memory of the large export as a multiple of that of the small one.
LIMIT_RATIO = 2.0

#: Runs in a process of its own, so that its memory is only that of one export.
EXPORT = """\
import json, resource, sys, time
from pathlib import Path
begin = time.perf_counter()
from validator.cli.planning import load_cells
from validator.dataset.export import export
matrix, target, formats = sys.argv[1:]
cells = load_cells(Path(matrix), "quick", ())
done = export(Path(target), cells, lambda: iter(()), formats.split(","), profile="quick")
seconds = time.perf_counter() - begin
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
[predictions] = [table for table in done.tables if table.table.name == "predictions"]
sizes = {file["format"]: file["bytes"] for file in predictions.resources}
print(json.dumps({"rows": predictions.rows, "seconds": seconds, "megabytes": peak, "sizes": sizes}))
"""


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        small = _export(place, SMALL_BASES, ALL)
        large = _export(place, LARGE_BASES, ALL)
        print(f"{'formats':18} {'predictions':>11} {'time':>8} {'peak memory':>12}  size of the predictions")
        for formats, found in ((ALL, small), (ALL, large)):
            _show(formats, found)
        for name in ALL.split(","):
            _show(name, _export(place, LARGE_BASES, name))
    ratio = large["megabytes"] / small["megabytes"]
    rows = large["rows"] / small["rows"]
    print(f"{rows:.1f} times the rows take {ratio:.2f} times the memory; limit {LIMIT_RATIO}")
    print(f"the large export takes {large['seconds']:.1f} s; limit {LIMIT_S:.0f} s")
    return 0 if ratio <= LIMIT_RATIO and large["seconds"] <= LIMIT_S else 1


def _export(place: Path, bases: int, formats: str) -> dict[str, Any]:
    matrix = place / f"matrix-{bases}.yaml"
    listed = ", ".join(f"registry.example/base-{number}" for number in range(bases))
    drivers = ", ".join(f'"{branch}"' for branch in DRIVERS)
    matrix.write_text(LARGE.format(bases=listed, drivers=drivers), encoding="utf-8")
    target = place / f"{bases}-{formats}"
    command = [sys.executable, "-c", EXPORT, str(matrix), str(target), formats]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def _show(formats: str, found: dict[str, Any]) -> None:
    sizes = ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in found["sizes"].items())
    print(f"{formats:18} {found['rows']:11,} {found['seconds']:6.1f} s {found['megabytes']:9.0f} MB  {sizes}")


if __name__ == "__main__":
    raise SystemExit(main())
