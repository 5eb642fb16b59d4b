"""Engines are found by name, without a list of them anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

import validator.fleet
from validator.errors import InputError
from validator.fleet.protocol import engine_of


def test_a_new_engine_needs_only_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "third.py").write_text("def open_fleet(settings):\n    return ['third', settings]\n")
    monkeypatch.setattr(validator.fleet, "__path__", [*validator.fleet.__path__, str(tmp_path)])
    opened: object = engine_of("third").open_fleet("settings")
    assert opened == ["third", "settings"]


@pytest.mark.parametrize("name", ["fourth", "units", "", "../slurm", "a.b"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="there is no fleet engine"):
        engine_of(name)


def test_an_engine_that_lacks_a_package_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lacking.py").write_text("import package_that_is_not_installed\n")
    monkeypatch.setattr(validator.fleet, "__path__", [*validator.fleet.__path__, str(tmp_path)])
    with pytest.raises(ModuleNotFoundError, match="package_that_is_not_installed"):
        engine_of("lacking")
