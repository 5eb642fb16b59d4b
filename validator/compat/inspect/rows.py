"""Write rows of `data/builds.yaml`: one block for each release, one line for each group of facts."""

from __future__ import annotations

import datetime
import os
import re
import tempfile
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import yaml

from ...versions import Version
from ..targets import Target
from .build import TensorFlowBuild

#: The file of measured builds that ships with the package.
BUILDS = Path(__file__).resolve().parent.parent / "data" / "builds.yaml"

# With libyaml it takes a fifth of the time.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: Read in the wheel itself on this project's own machine, without a GPU.
STATUS = "verified-local"


def row(build: TensorFlowBuild, date: datetime.date) -> dict[str, Any]:
    """Return the row of a build, as plain data in the order in which it is written."""
    info = build.build_info
    cells: dict[str, Any] = {
        "tensorflow": build.version,
        "wheel": {"file": build.wheel, "size": build.size, "sha256": build.sha256},
        "requires": {"python": build.requires_python}
        | {name: list(specifiers) for name, specifiers in build.requires.items() if specifiers},
        "and_cuda": list(build.and_cuda),
        "build": {
            "cuda": info.get("cuda_version"),
            "cudnn": info.get("cudnn_version"),
            "cudnn_headers": build.cudnn_headers,
            "compute_capabilities": info.get("cuda_compute_capabilities", []),
            "tensorrt": info.get("is_tensorrt_build"),
            "cuda_build": info.get("is_cuda_build"),
            "compiler": info.get("cpu_compiler"),
        },
        "opens": list(build.opens),
    }
    if build.pip_libraries is not None:
        cells["pip_libraries"] = {
            "opener": build.pip_libraries.opener,
            "folders": list(build.pip_libraries.folders),
            "missing_required": list(build.pip_libraries.missing_required),
            "missing_optional": list(build.pip_libraries.missing_optional),
        }
    cells["kernels"] = [
        {
            "fatbins": group.fatbins,
            "sass": [_number(target) for target in group.sass],
            "ptx": {_number(target): isa for target, isa in group.ptx},
        }
        | ({"library": "nccl"} if group.nccl else {})
        for group in build.kernels
    ]
    cells["relocatable_fatbins"] = build.relocatable
    cells["status"] = STATUS
    cells["date"] = date.isoformat()
    return cells


def _number(target: Target) -> int | str:
    return target.number if target.suffix else int(target.number)


def render(cells: dict[str, Any]) -> str:
    """Return a row as YAML: a block whose values are in flow style, so that each fact is on one line."""
    lines = []
    for key, value in cells.items():
        if key == "kernels" and value:
            lines.append(f"  {key}:")
            lines += [f"  - {_flow(group)}" for group in value]
        else:
            lines.append(f"  {key}: {_flow(value)}")
    return "-" + "\n".join(lines)[1:] + "\n"


def merge(text: str, rows: Iterable[dict[str, Any]], without: Collection[str] = ()) -> str:
    """Return the text of builds.yaml with these rows added, in place of those of the same releases, sorted.

    without: releases whose rows are removed. The comment at the top of the file is kept.
    """
    head, _, _ = text.partition("\nbuilds:")
    present = (yaml.load(text, Loader=_LOADER) or {}).get("builds") or []
    kept = [cells for cells in present if cells["tensorflow"] not in without]
    by_release = {cells["tensorflow"]: cells for cells in [*kept, *rows]}
    ordered = sorted(by_release.values(), key=lambda cells: Version(cells["tensorflow"]))
    return head + "\nbuilds:\n" + "".join(render(cells) for cells in ordered)


def write(path: Path, rows: Iterable[dict[str, Any]], without: Collection[str] = ()) -> None:
    """Merge rows into a file, which is replaced as a whole or not at all."""
    merged = merge(path.read_text("utf-8"), rows, without)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(merged)
        os.chmod(name, path.stat().st_mode & 0o777)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _flow(value: Any) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, width=1_000_000, sort_keys=False)
    return re.sub(r"\n(\.\.\.\n)?$", "", text)
