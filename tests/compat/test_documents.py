"""The project's own data files are read as PyYAML reads them, with libyaml and without."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import validator
from validator.compat import documents

FILES = sorted(Path(validator.__file__).parent.rglob("data/**/*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_says_the_same_without_libyaml(path: Path) -> None:
    # As text, so that 1, 1.0 and true are three things.
    assert repr(documents.read(path)) == repr(yaml.safe_load(path.read_bytes()))


def test_what_is_no_yaml_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.yaml"
    path.write_text("a: [1\n")
    with pytest.raises(yaml.YAMLError):
        documents.read(path)
