"""Compile the facts that people edit, `data/*.yaml`, and `measurements/` to JSON that is read at run time.

    python -m validator.compat.compile           writes the compiled files
    python -m validator.compat.compile --check   fails if one of them is not current

The rules read `data/compiled.json`, because that needs only the standard library. The probe cannot import the
rules. It reads `probe/data/kernels.json`, which says which GPUs the device code of each release runs on.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from ..versions import CudaVersion
from . import facts, measurements, policies
from .releases import build, releases

PROBE_TABLE = Path(__file__).parent.parent / "probe" / "data" / "kernels.json"
_PROBE_TABLE_KEYS = (
    "Written by scripts/compile-data. tensorflow: of each measured release, translation units with the"
    " same device code, the targets that they have machine code for, and their PTX with its ISA version;"
    " library: whose code it is, if not TensorFlow's own. ptx: the driver branch and its CUDA version that"
    " first compiles an ISA version. families: compute capabilities that share the code of targets with the"
    " suffix f. cudnn: the oldest compute capability that releases of cuDNN have kernels for."
)


def compiled_facts(*, with_recommended: bool = True) -> str:
    """Return all facts, one row a line; and the recommended versions, which follow from `facts.COMPILED`."""
    documents = []
    for path in sorted(facts.DATA.glob("*.yaml")):
        sections = [
            f"{_json(name)}: {_lines(rows) if isinstance(rows, list) else _json(rows)}"
            for name, rows in read_yaml(path).items()
        ]
        documents.append(f"{_json(path.stem)}: {{\n" + ",\n".join(sections) + "\n}")
    measured = f"{_json(facts.MEASUREMENTS)}: {_lines(measurements.rows())}"
    documents.append(f"{_json(facts.MEASUREMENTS)}: {{\n{measured}\n}}")
    if with_recommended:
        recommended = {known.version: policies.recommendation(known) for known in releases()}
        documents.append(f'{_json(facts.RECOMMENDED)}: {{\n"releases": {_entries(recommended)}\n}}')
    return "{\n" + ",\n".join(documents) + "\n}\n"


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file. Raises OSError and yaml.YAMLError."""
    # With libyaml it takes a fifth of the time.
    return yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def probe_table() -> str:
    """Return the compiled facts that the probe needs as JSON, one row per line."""
    tensorflow = {}
    for row in facts.rows("builds", "builds"):
        measured = build(row["tensorflow"])
        tensorflow[row["tensorflow"]] = [
            {
                "units": group.count,
                "sass": [str(one) for one in sorted(group.sass)],
                "ptx": {str(one): ".".join(map(str, isa)) for one, isa in sorted(group.ptx.items()) if isa},
            }
            | ({"library": group.library} if group.library else {})
            for group in (measured.kernels if measured else ())
        ]
    # The wheels that were opened have no PTX of an older CUDA.
    oldest = CudaVersion.parse(releases()[0].cuda).major
    ptx = {
        row["isa"]: {"branch": row["branch"], "cuda": row["cuda"][0]}
        for row in facts.rows("drivers", "ptx")
        if CudaVersion.parse(row["cuda"][0]).major >= oldest
    }
    families = [row["compute_capabilities"] for row in facts.rows("drivers", "families")]
    cudnn = [{key: row[key] for key in ("from", "below", "minimum")} for row in facts.rows("cudnn", "cudnn")]
    parts = [
        f'"_": {_json(_PROBE_TABLE_KEYS)}',
        f'"tensorflow": {_entries(tensorflow)}',
        f'"ptx": {_entries(ptx)}',
        f'"families": {_lines(families)}',
        f'"cudnn": {_lines(cudnn)}',
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _entries(rows: Mapping[str, Any]) -> str:
    return "{\n" + ",\n".join(f"{_json(key)}: {_json(row)}" for key, row in rows.items()) + "\n}"


def _lines(rows: Iterable[Any]) -> str:
    return "[\n" + ",\n".join(map(_json, rows)) + "\n]"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


#: The compiled files, in the order in which they are made: each from the facts in the first.
FILES: Mapping[Path, Callable[[], str]] = {facts.COMPILED: compiled_facts, PROBE_TABLE: probe_table}
#: Asks a new process, which has not read the old facts, for what follows from the new ones.
_FOLLOWS = "--what-follows"


def stale() -> list[Path]:
    """Return the compiled files that are not current."""
    return [path for path, text in FILES.items() if path.read_text(encoding="utf-8") != text()]


def main(arguments: list[str]) -> int:
    """Write the compiled files, or check them. Return the exit code."""
    if _FOLLOWS in arguments:
        for path, text in FILES.items():
            path.write_text(text(), encoding="utf-8")
        return 0
    if "--check" not in arguments:
        facts.COMPILED.write_text(compiled_facts(with_recommended=False), encoding="utf-8")
        return subprocess.run(
            [sys.executable, "-m", "validator.compat.compile", _FOLLOWS], check=False
        ).returncode
    found = stale()
    for path in found:
        print(f"{path} is not current: run scripts/compile-data", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
