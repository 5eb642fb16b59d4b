"""`scripts/refresh`: what it writes, what it says, and its exit codes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from validator.errors import InputError, MissingError
from validator.supply import __main__ as command
from validator.supply.__main__ import Options, Part, difference


def versions(text: str) -> dict[str, str]:
    return dict(line.split("==") for line in text.splitlines() if "==" in line)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(command, "ROOT", tmp_path)
    (tmp_path / "lock.txt").write_text("# old\na==1\nb==1\nc==1\n")
    (tmp_path / "same.txt").write_text("x==1\n")
    return tmp_path


def refresh(
    monkeypatch: pytest.MonkeyPatch, *arguments: str, **parts: Callable[[Options], dict[str, str]]
) -> Result:
    """Run the command with these parts instead of its own."""
    known = {name: Part(parts.get(name, lambda _: {}), versions) for name in command.PARTS}
    monkeypatch.setattr(command, "PARTS", known)
    return CliRunner().invoke(command.main, arguments)


def new(_: Options) -> dict[str, str]:
    return {"lock.txt": "# new\na==1\nb==2\nd==1\n", "same.txt": "x==1\n"}


def unreachable(_: Options) -> dict[str, str]:
    raise MissingError("the registry can't be reached", hint="check the proxy")


def test_the_difference_is_shown_and_written(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = refresh(monkeypatch, python=new)
    assert done.exit_code == 0
    assert done.output == "lock.txt:\n  b 1 -> 2\n  c 1 removed\n  d 1 added\n"
    assert (root / "lock.txt").read_text().startswith("# new\n")


def test_check_writes_nothing_and_fails_if_something_would_change(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = refresh(monkeypatch, "--check", python=new)
    assert (done.exit_code, "b 1 -> 2" in done.output) == (1, True)
    assert (root / "lock.txt").read_text().startswith("# old\n")


@pytest.mark.parametrize("arguments", [(), ("--check",)])
def test_nothing_to_do_is_a_success(
    root: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    done = refresh(monkeypatch, *arguments, python=lambda _: {"same.txt": "x==1\n"})
    assert (done.exit_code, done.output) == (0, "everything is up to date\n")


def test_other_hashes_of_the_same_versions_are_shown(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = refresh(monkeypatch, python=lambda _: {"same.txt": "# another hash\nx==1\n"})
    assert done.output == "same.txt:\n  the same versions, but other hashes or markers\n"


def test_a_part_that_cannot_be_refreshed_does_not_stop_the_others(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = refresh(monkeypatch, bases=unreachable, debian=new)
    assert done.exit_code == 3
    assert "bases: the registry can't be reached\n  check the proxy\n" in done.stderr
    assert (root / "lock.txt").read_text().startswith("# new\n")


def test_only_the_named_parts_are_refreshed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = refresh(monkeypatch, "debian", "--if-gone", bases=unreachable, debian=new)
    assert done.exit_code == 0
    seen: list[Options] = []

    def record(options: Options) -> dict[str, str]:
        seen.append(options)
        return {}

    refresh(monkeypatch, "python", "--keep", python=record)
    refresh(monkeypatch, "debian", "--if-gone", debian=record)
    assert seen == [Options(keep=True, if_gone=False), Options(keep=False, if_gone=True)]


def test_a_wrong_pyproject_is_an_input_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(_: Options) -> dict[str, str]:
        raise InputError("can't be resolved", hint="change it")

    done = refresh(monkeypatch, python=wrong)
    assert (done.exit_code, done.stderr) == (2, "can't be resolved\n  change it\n")


def test_an_unknown_part_is_a_usage_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refresh(monkeypatch, "everything").exit_code == 2


def test_a_difference_names_every_change_once() -> None:
    assert difference({}, {}) == []
    assert difference({"a": "1"}, {"a": "1"}) == []
    assert difference({"b": "1", "a": "1"}, {"b": "2", "c": "1"}) == ["a 1 removed", "b 1 -> 2", "c 1 added"]
