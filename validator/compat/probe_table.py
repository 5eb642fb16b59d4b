"""The facts that the probe carries along, which can't import them: which GPUs device code runs on.

Run as a program, writes it where the probe has it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from . import facts
from .builds import build

FILE = Path(__file__).parent.parent / "probe" / "data" / "kernels.json"
_MEANING = (
    "Written by scripts/update-probe-data. tensorflow: of each measured release, translation units with the"
    " same device code, the compute capabilities that they have machine code for, and their PTX with its ISA"
    " version. ptx: the driver branch and its CUDA version that first compiles an ISA version. cudnn: the"
    " oldest compute capability that releases of cuDNN have kernels for."
)


def probe_table() -> str:
    """The table as JSON, one row a line."""
    tensorflow = {row["tensorflow"]: _kernels(row["tensorflow"]) for row in facts.rows("builds", "builds")}
    ptx = {
        row["isa"]: {"branch": row["branch"], "cuda": row["cuda"][0]} for row in facts.rows("drivers", "ptx")
    }
    cudnn = [{key: row[key] for key in ("from", "below", "minimum")} for row in facts.rows("cudnn", "cudnn")]
    parts = [
        f'"_": {json.dumps(_MEANING)}',
        f'"tensorflow": {_lines(tensorflow)}',
        f'"ptx": {_lines(ptx)}',
        '"cudnn": [\n' + ",\n".join(f"    {json.dumps(row)}" for row in cudnn) + "\n  ]",
    ]
    return "{\n" + ",\n".join(f"  {part}" for part in parts) + "\n}\n"


def _kernels(release: str) -> list[dict[str, Any]]:
    measured = build(release)
    return [
        {
            "units": group.count,
            "sass": [str(one) for one in sorted(group.sass)],
            "ptx": {str(one): ".".join(map(str, isa)) for one, isa in sorted(group.ptx.items()) if isa},
        }
        for group in (measured.kernels if measured else ())
    ]


def _lines(rows: dict[str, Any]) -> str:
    inner = ",\n".join(f"    {json.dumps(key)}: {json.dumps(value)}" for key, value in rows.items())
    return "{\n" + inner + "\n  }"


if __name__ == "__main__":
    FILE.write_text(probe_table(), encoding="utf-8")
