"""Parsing of buildx's plain output. The logs in `logs/` are real ones, shortened to the relevant lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.engines.docker.buildlog import BuildLog
from validator.engines.docker.failures import explain_build
from validator.errors import BuildError, InputError, MissingError
from validator.system.sources import PackageSources

LOGS = Path(__file__).parent / "logs"
WHAT = "tf2.21.0-cpu-py311"


def read(name: str, said: list[str] | None = None) -> BuildLog:
    log = BuildLog((said if said is not None else []).append)
    for line in (LOGS / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        log.feed(line)
    return log


@pytest.mark.parametrize(
    ("name", "kind", "stage", "words"),
    [
        ("pin-gone", InputError, "tensorflow", "does not have tensorflow-cpu==2.99.0"),
        ("hash-differs", InputError, "python", "file for six==1.17.0 has a different hash than the lock"),
        ("index-unreachable", MissingError, "tensorflow", "the package index can't be reached"),
        ("certificate-unknown", MissingError, "tensorflow", "certificate is not trusted"),
        ("base-unreachable", MissingError, None, "the registry can't be reached"),
        ("other-python", BuildError, "venv", "the base image has Python 3.11; Python 3.12 is needed"),
        ("disk-full", MissingError, "tensorflow", "no space left on the engine's disk"),
        ("engine-killed", MissingError, "tensorflow", "the Docker Engine stopped responding"),
    ],
)
def test_each_failure_gets_its_own_error(name: str, kind: type, stage: str | None, words: str) -> None:
    log = read(name)
    error = explain_build(WHAT, log, PackageSources(), answers=True)
    assert type(error) is kind
    assert words in str(error)
    assert str(error).startswith(f"{WHAT}: ")
    if name != "engine-killed":
        assert log.failed_stage == stage


def test_an_engine_that_no_longer_responds_takes_precedence_over_the_log() -> None:
    error = explain_build(WHAT, read("pin-gone"), PackageSources(), answers=False)
    assert isinstance(error, MissingError)
    assert "stopped responding" in str(error)


def test_addresses_are_not_shown() -> None:
    sources = PackageSources(index_url="http://127.0.0.1:9/simple")
    log = read("index-unreachable")
    assert "127.0.0.1:9" in log.tail
    error = explain_build(WHAT, log, sources, answers=True)
    assert "127.0.0.1" not in str(error)


def test_an_unknown_failure_keeps_the_last_lines() -> None:
    log = BuildLog(lambda _: None)
    log.feed("ERROR: failed to build: something new")
    error = explain_build(WHAT, log, PackageSources(), answers=True)
    assert isinstance(error, BuildError)
    assert "something new" in str(error)
    assert error.log == "ERROR: failed to build: something new"


def test_progress_names_layers_and_phases_once() -> None:
    said: list[str] = []
    log = read("success", said)
    assert log.failed_stage is None
    assert said == [
        "layer venv",
        "layer python",
        "layer python: done in 5 s",
        "layer tensorflow",
        "layer runtime",
        "layer tensorflow: done in 12 s",
        "exporting layers",
        "unpacking the image",
    ]


def test_a_name_taken_by_another_process_is_recognized() -> None:
    assert read("name-taken").name_was_taken
    assert not read("disk-full").name_was_taken


def test_only_the_last_lines_are_kept() -> None:
    log = BuildLog(lambda _: None)
    for number in range(10_000):
        log.feed(f"#7 {number}.0 line {number}")
    assert len(log.tail.splitlines()) == 120
    assert log.tail.endswith("line 9999")
