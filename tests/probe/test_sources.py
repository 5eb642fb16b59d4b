"""The hardest wall: what runs elsewhere needs only the standard library, its archive and Python 3.9."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Set
from pathlib import Path

import pytest

VALIDATOR = Path(__file__).parents[2] / "validator"
SOURCES = [
    VALIDATOR / "problems.py",
    VALIDATOR / "version_numbers.py",
    *sorted((VALIDATOR / "probe").rglob("*.py")),
]
#: This project's modules in the archive.
PACKED = {"probe", "problems", "version_numbers", "_vendor"}


def faults(path: Path, packed: Set[str]) -> Iterator[str]:
    """Imports that would fail in the archive, and syntax that Python 3.9 doesn't have."""
    package = ("validator", *path.relative_to(VALIDATOR).parent.parts)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))):
        where = f"{path.relative_to(VALIDATOR)}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1]
            if node.level and (base[:1] != ("validator",) or node.level > len(package)):
                yield f"{where} reaches out of the package"
            elif node.level:
                module = [*base, *(node.module or "").split(".")]
                inside = [module[1]] if len(module) > 1 and module[1] else [one.name for one in node.names]
                yield from (f"{where} imports {name}" for name in inside if name not in packed)
            names = [] if node.level else [node.module or ""]
        else:
            continue
        foreign = {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names)
        yield from (f"{where} imports {name}" for name in sorted(foreign))


@pytest.mark.slow
def test_the_probe_imports_only_the_standard_library_and_its_archive() -> None:
    assert len(SOURCES) > 20
    assert [fault for path in SOURCES for fault in faults(path, PACKED)] == []


def test_the_program_of_a_bundle_imports_only_the_standard_library_and_itself() -> None:
    sources = sorted((VALIDATOR / "offline").glob("*.py"))
    assert len(sources) > 2
    assert [fault for path in sources for fault in faults(path, {"fleet", "offline"})] == []
