"""Public files with pins: every finding was checked by hand, so that a wrong one is noticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from .support import found, write

CASES: list[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "real_files.yaml").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in CASES])
def test_a_real_file(case: dict[str, Any], tmp_path: Path) -> None:
    path = write(tmp_path, case["file"], case["text"])
    assert [one.code for one in found(path)] == case.get("finds", [])
