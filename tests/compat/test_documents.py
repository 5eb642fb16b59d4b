"""The project's own data files are read as PyYAML reads them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import yaml

import validator
from validator.compat import documents

FILES = sorted(Path(validator.__file__).parent.rglob("data/**/*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_says_what_yaml_says(path: Path) -> None:
    # As text, so that 1, 1.0 and true are three things.
    assert repr(documents.read(path)) == repr(yaml.safe_load(path.read_bytes()))


@pytest.mark.parametrize(
    "content",
    [
        "",
        "a: 1\nb: [1.5, ~, yes, no, 'yes', \"1\", 0x10, 012, 1e3, .inf, 2024-05-01, 1:30]\n",
        "a: |\n  1\nb: >\n  true\n",
        "? 1\n: x\ntrue: y\n",
        "a: &here [1, 2]\nb: *here\n",
    ],
)
def test_scalars_are_what_yaml_takes_them_for(tmp_path: Path, content: str) -> None:
    path = tmp_path / "data.yaml"
    path.write_text(content)
    assert repr(documents.read(path)) == repr(yaml.safe_load(content))


def test_without_libyaml_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml, "__with_libyaml__", False)
    monkeypatch.delattr(yaml, "_yaml")
    spec = importlib.util.spec_from_file_location("without_libyaml", documents.__file__)
    assert spec and spec.loader
    slow = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(slow)
    assert repr(slow.read(FILES[0])) == repr(documents.read(FILES[0]))


def test_what_is_no_yaml_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.yaml"
    path.write_text("a: [1\n")
    with pytest.raises(yaml.YAMLError):
        documents.read(path)
