"""`refresh`: its parts, what they write, what it says, and its exit codes."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from validator import cli
from validator.cli import project as command
from validator.errors import InputError, MissingError
from validator.supply import parts, recall
from validator.supply.news import Asked
from validator.supply.parts import Changes, Options, difference, pinned
from validator.supply.release_facts import copied
from validator.system.files import cache_directory

from ..locks.local_index import LINUX, LocalIndex

TODAY = datetime.date(2099, 1, 2)


def versions(text: str) -> dict[str, str]:
    return dict(line.split("==") for line in text.splitlines() if "==" in line)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(parts, "ROOT", tmp_path)
    (tmp_path / "lock.txt").write_text("# old\na==1\nb==1\nc==1\n")
    (tmp_path / "same.txt").write_text("x==1\n")
    return tmp_path


@dataclass
class Done:
    code: int
    shown: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


def refresh(
    root: Path, *, check: bool = False, write: bool = True, **named: Callable[[Options], Changes]
) -> Done:
    done = Done(0)
    options = Options(check, TODAY, lambda _: None)
    done.code = parts.refresh(
        named, options, root=root, write=write, show=done.shown.append, complain=done.complaints.append
    )
    return done


def new(_: Options) -> Changes:
    changed = {"lock.txt": "# new\na==1\nb==2\nd==1\n", "same.txt": "x==1\n"}
    return pinned(changed, versions, parts.ROOT)


def nothing(_: Options) -> Changes:
    return Changes({}, ())


def unreachable(_: Options) -> Changes:
    raise MissingError("the registry can't be reached", hint="check the proxy")


# -- the parts -------------------------------------------------------------------------------------------


def test_the_difference_is_shown_and_written(root: Path) -> None:
    done = refresh(root, python=new)
    assert done == Done(0, ["lock.txt:", "  b 1 -> 2", "  c 1 removed", "  d 1 added"])
    assert (root / "lock.txt").read_text().startswith("# new\n")


@pytest.mark.parametrize(("check", "code"), [(True, 1), (False, 0)])
def test_nothing_is_written_on_request(root: Path, check: bool, code: int) -> None:
    done = refresh(root, check=check, write=False, python=new)
    assert (done.code, "  b 1 -> 2" in done.shown) == (code, True)
    assert (root / "lock.txt").read_text().startswith("# old\n")


@pytest.mark.parametrize("check", [False, True])
def test_nothing_to_do_is_a_success(root: Path, check: bool) -> None:
    assert refresh(root, check=check, python=nothing) == Done(0, ["up to date: python"])


def test_other_hashes_of_the_same_versions_are_shown(root: Path) -> None:
    found = pinned({"same.txt": "# another hash\nx==1\n"}, versions, root)
    assert found.lines == ("same.txt:", "  the same versions, but other hashes or markers")


def test_a_part_that_cannot_be_refreshed_does_not_stop_the_others(root: Path) -> None:
    done = refresh(root, bases=unreachable, debian=new)
    assert done.code == 3
    assert done.complaints == ["bases: the registry can't be reached\n  check the proxy"]
    assert (root / "lock.txt").read_text().startswith("# new\n")


def test_a_file_that_cannot_be_written_does_not_stop_the_others(root: Path) -> None:
    done = refresh(root, facts=lambda _: Changes({"lock.txt/below": b""}, ("x",)), debian=new)
    assert (done.code, len(done.complaints)) == (3, 1)
    assert "can't be written" in done.complaints[0]
    assert (root / "lock.txt").read_text().startswith("# new\n")


def test_a_wrong_pyproject_is_an_input_error(root: Path) -> None:
    def wrong(_: Options) -> Changes:
        raise InputError("can't be resolved", hint="change it")

    with pytest.raises(InputError, match="can't be resolved"):
        refresh(root, python=wrong)


def test_a_difference_names_every_change_once() -> None:
    assert difference({}, {}) == []
    assert difference({"a": "1"}, {"a": "1"}) == []
    assert difference({"b": "1", "a": "1"}, {"b": "2", "c": "1"}) == ["a 1 removed", "b 1 -> 2", "c 1 added"]


# -- the command line ------------------------------------------------------------------------------------


@pytest.fixture
def asked(root: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Options]]:
    """Replace the parts; return which of them were asked, with their options."""
    seen: list[tuple[str, Options]] = []

    def recording(name: str) -> parts.Part:
        def part(options: Options) -> Changes:
            seen.append((name, options))
            return Changes({}, ())

        return part

    monkeypatch.setattr(parts, "PARTS", {name: recording(name) for name in parts.PARTS})
    return seen


def test_the_command_knows_every_part() -> None:
    assert tuple(parts.PARTS) == command.PARTS


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ([], ["facts"]),
        (["debian", "python", "debian"], ["debian", "python"]),
        (["all"], ["facts", "python", "bases", "debian", "layers"]),
    ],
)
def test_only_the_named_parts_are_refreshed(
    asked: list[tuple[str, Options]], words: list[str], names: list[str]
) -> None:
    assert cli.run(["refresh", *words]) == 0
    assert [name for name, _ in asked] == names


def test_options_reach_the_parts(asked: list[tuple[str, Options]]) -> None:
    cli.run(["refresh", "all", "--check", "--pre", "--nightly", "--keep", "--if-gone"])
    _, options = asked[0]
    assert (options.check, options.keep, options.if_gone) == (True, True, True)
    assert options.asked == Asked(candidates=True, nightlies=True)


@pytest.mark.parametrize(
    "words",
    [
        ["everything"],
        ["--check", "--dry-run"],
        ["--keep"],
        ["python", "--pre"],
        ["debian", "--nightly"],
        ["facts", "--if-gone"],
    ],
)
def test_options_without_an_effect_are_usage_errors(
    asked: list[tuple[str, Options]], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["refresh", *words]) == 2
    assert asked == []


# -- refresh --check -------------------------------------------------------------------------------------


@pytest.fixture
def configured(index: LocalIndex, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LocalIndex:
    """Make this index the one of this machine."""
    monkeypatch.setenv("UV_DEFAULT_INDEX", str(index.sources.index_url))
    for variable in ("UV_INDEX", "UV_EXTRA_INDEX_URL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("VALIDATOR_CACHE", str(tmp_path / "cache"))
    return index


def test_check_only_asks_and_remembers_what_is_new(
    configured: LocalIndex, capsys: pytest.CaptureFixture[str]
) -> None:
    configured.add(f"tensorflow-99.1.0-cp312-cp312-{LINUX}.whl")
    assert cli.run(["refresh", "--check"]) == 1
    assert capsys.readouterr().out == "TensorFlow 99.1.0: new on the package index\n"
    assert configured.downloads() == []
    assert recall() == {"TensorFlow": ["99.1.0"]}
    asked = json.loads((cache_directory() / "refresh.json").read_bytes())["asked"]
    assert datetime.datetime.fromisoformat(asked).date() == datetime.date.today()
    configured.files = {name: body for name, body in configured.files.items() if "99.1.0" not in name}
    assert cli.run(["refresh", "--check"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "up to date: facts" and shown[1].startswith(
        "not asked: what NVIDIA publishes about drivers"
    )
    assert recall() == {}


def test_check_without_an_index_is_an_error_that_forgets_nothing(
    configured: LocalIndex, capsys: pytest.CaptureFixture[str]
) -> None:
    configured.add(f"tensorflow-99.1.0-cp312-cp312-{LINUX}.whl")
    cli.run(["refresh", "--check"])
    capsys.readouterr()
    configured.answers["nvidia-cudnn-cu12"] = (500, "text/plain", b"")
    assert cli.run(["refresh", "--check"]) == 3
    assert "facts: nvidia-cudnn-cu12: the package index can't be reached" in capsys.readouterr().err
    assert recall() == {"TensorFlow": ["99.1.0"]}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"new": 3}', b'{"new": {"TensorFlow": 3}}', b"\xff"])
def test_a_damaged_memory_is_as_good_as_none(configured: LocalIndex, content: bytes) -> None:
    cache_directory().mkdir(parents=True)
    (cache_directory() / "refresh.json").write_bytes(content)
    assert recall() == {}


@pytest.mark.slow
def test_a_copy_of_the_checkout_names_the_python_as_the_pages_do() -> None:
    with copied(parts.ROOT) as copy:
        done = subprocess.run(
            [".venv/bin/python", "-m", "validator", "predict", "--gpu", "a100", "--driver", "580"],
            cwd=copy.path,
            env={**os.environ, "PYTHONPATH": str(copy.path)},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 0, done.stderr
    assert ".venv/bin/validator build-matrix" in done.stdout
    assert str(parts.ROOT) not in done.stdout
