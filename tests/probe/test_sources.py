"""The hardest wall: standard library only, relative imports only, and readable by Python 3.9."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

PROBE = Path(__file__).parents[2] / "validator" / "probe"
SOURCES = sorted(PROBE.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PROBE)))
def test_imports_and_syntax(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    depth = len(path.relative_to(PROBE).parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level <= depth, f"{path}:{node.lineno} reaches out of the package"
            names = [] if node.level else [node.module or ""]
        else:
            continue
        foreign = {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names)
        assert not foreign, f"{path}:{node.lineno} imports {foreign}"


def test_there_are_sources() -> None:
    assert len(SOURCES) > 20
