"""Attacks by files that people name: without an end, without a beginning, of no regular kind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from validator.__main__ import main
from validator.certify import signatures
from validator.certify.trust_file import read_trust_file
from validator.errors import InputError
from validator.registry.client import Registry
from validator.system.files import read_file, read_text

from ..commands import run, run_forked

#: Bytes of memory that a command may use, besides the libraries.
MEMORY = 900 << 20


@pytest.fixture(params=["zero", "pipe", "sparse", "directory", "kernel"])
def strange(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Make a file that is not one to read."""
    path = tmp_path / "strange"
    if request.param == "zero":
        path.symlink_to("/dev/zero")
    elif request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "sparse":
        path.touch()
        os.truncate(path, 9 << 27)
    elif request.param == "directory":
        path.mkdir()
    else:
        path.symlink_to("/proc/kmsg")
    return path


COMMANDS = {
    "matrix": ("plan", "--matrix", "{}"),
    "trust file": ("certify", "revoke", "x", "--trust", "{}"),
    "fleet file": ("fleet", "inventory", "--on", "slurm", "--fleet", "{}"),
    "lock": ("sbom", "{}"),
    "key": ("verify", "--registry", "example.invalid/x", "--key", "{}", "sha256:" + "0" * 64),
    "cells": ("records", "merge", ".", "--cells", "{}"),
    "refused": ("records", "regressions", "--refused", "{}"),
    "records": ("records", "import", "{}"),
    "log": ("doctor", "{}"),
    "damaged store": ("records", "salvage", "--store", "{}", "--output", "x"),
    "older records": ("records", "compare", "{}", "0h"),
    "certificates": ("report", "--html", "x", "--certificates", "{}"),
    "challenges": (
        "certify", "--registry", "example.invalid/x", "--signing-key", "x", "--challenges", "{}",
    ),
    "report": ("records", "publish", "{}", "--how", "x"),
    "imported report": ("records", "import", "--report", "{}"),
}  # fmt: skip


#: Files that `lint` finds by their names.
PROJECT = ("requirements.txt", "uv.lock", "Dockerfile", "environment.yml", "Pipfile.lock")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let every command read a file that has no fault but its content, so that forks have what it loads."""
    directory = tmp_path_factory.mktemp("loaded")
    for name in ("file", *PROJECT):
        (directory / name).write_text("no content\n")
    for command in (*COMMANDS.values(), *(("lint", name) for name in PROJECT)):
        done = run(*(word.replace("{}", "file") for word in command), cwd=directory)
        assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_no_file_blocks_a_command_or_fills_the_memory(strange: Path, loaded: None, tmp_path: Path) -> None:
    wrong = {}
    for name, command in COMMANDS.items():
        done = run_forked(
            *(word.replace("{}", str(strange)) for word in command), memory=MEMORY, cwd=tmp_path
        )
        ended = done.returncode in (1, 2, 3) or (done.returncode == 0 and _is_kernel_log(strange))
        if not ended or "Traceback" in done.stderr:
            wrong[name] = done
    assert wrong == {}


@pytest.mark.slow
def test_no_file_of_a_project_blocks_lint(strange: Path, loaded: None, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    wrong = {}
    for name in PROJECT:
        path = tmp_path / "project" / name
        path.symlink_to(strange)
        done = run_forked("lint", path, memory=MEMORY)
        ended = done.returncode == 2 or (done.returncode in (0, 1) and _is_kernel_log(strange))
        if not ended or "Traceback" in done.stderr:
            wrong[name] = done
    assert wrong == {}


def _is_kernel_log(strange: Path) -> bool:
    """Return True for the kernel's log, which is text like any other while there is something in it."""
    return strange.is_symlink() and strange.readlink() == Path("/proc/kmsg")


def test_a_pipe_that_the_shell_made_is_read(tmp_path: Path) -> None:
    """`<(command)` is a pipe under /dev/fd."""
    reading, writing = os.pipe()
    try:
        os.write(writing, b"content")
        os.close(writing)
        assert read_file(Path(f"/dev/fd/{reading}")) == b"content"
    finally:
        os.close(reading)


@pytest.mark.parametrize(
    ("name", "reason"), [("a\0b", "NUL"), ("a" * 5000, "too long"), ("text", "not UTF-8")]
)
def test_each_reason_is_an_error_with_the_path(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "text").write_bytes(b"\xff")
    with pytest.raises(OSError, match=reason) as caught:
        read_text(tmp_path / name)
    assert caught.value.filename == str(tmp_path / name)


def test_a_file_that_grows_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 11)
    with pytest.raises(OSError, match="larger than 10 bytes"):
        read_file(tmp_path / "a", 10)
    assert len(read_file(tmp_path / "a", 11)) == 11


LONG = "x" * 5000


@pytest.mark.parametrize(
    "words",
    [
        ("records", "list", "--store", LONG), ("report", "--html", LONG), ("plan", "--matrix", LONG),
        ("lint", LONG), ("doctor", LONG), ("sbom", LONG), ("data", "export", LONG),
        ("init", "--directory", LONG),
        ("certify", "revoke", "a", "--trust", LONG), ("certify", "keygen", "--output-prefix", LONG),
        ("fleet", "inventory", "--on", "slurm", "--fleet", LONG), ("records", "salvage", "--output", LONG),
    ],
    ids=lambda words: " ".join(words[:2])[:30],
)  # fmt: skip
def test_a_path_that_no_system_accepts_is_an_error(words: tuple[str, ...], tmp_path: Path) -> None:
    done = run(*words, cwd=tmp_path)
    assert done.returncode in (2, 3)
    assert len(done.stderr) < 15_000


def test_the_variable_of_the_store_is_a_path_too(tmp_path: Path) -> None:
    environment = {**os.environ, "VALIDATOR_STORE": LONG}
    assert run("records", "list", cwd=tmp_path, environment=environment).returncode in (2, 3)


@pytest.mark.parametrize(
    ("error", "code"), [(PermissionError(13, "no", "/a"), 3), (OSError(36, "long", "/a"), 2)]
)
def test_an_error_about_a_path_ends_the_program_with_its_name(
    error: OSError, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> int:
        raise error

    monkeypatch.setattr("validator.cli.run", fail)
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == code
    assert "error: /a: " in capsys.readouterr().err


def test_an_error_without_a_path_is_a_fault_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise OSError(5, "fault")

    monkeypatch.setattr("validator.cli.run", fail)
    with pytest.raises(OSError, match="fault"):
        main()


RELEASE = "release: {identity: me, issuer: 'https://issuer.example'}\n"
BUILDER = "{{name: {}, identity: me, issuer: 'https://issuer.example', until: 2030-01-01{}}}"


@pytest.mark.parametrize("comment", ["# a\u2028", "# a\u2029", "# a\u0085", "# x\r"])
def test_no_comment_hides_the_release_signer(tmp_path: Path, comment: str) -> None:
    path = tmp_path / "trust.yaml"
    path.write_text(comment + RELEASE, newline="")
    assert read_trust_file(path).release is not None


def test_a_long_comment_does_not_empty_the_trust_file(tmp_path: Path) -> None:
    path = tmp_path / "trust.yaml"
    path.write_text(f"#{'x' * (2 << 20)}\n{RELEASE}")
    with pytest.raises(InputError, match="larger than"):
        read_trust_file(path)
    path.write_text("# only a comment\n")
    assert read_trust_file(path).release is None


def test_an_identity_stands_only_once(tmp_path: Path) -> None:
    path = tmp_path / "trust.yaml"
    entries = ", ".join((BUILDER.format("a", ", revoked: 2026-01-01"), BUILDER.format("b", "")))
    path.write_text(f"builders: [{entries}]\n")
    with pytest.raises(InputError, match="this identity is given twice"):
        read_trust_file(path)


def test_only_the_newest_attachments_are_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        def __init__(self, number: int) -> None:
            self.digest = f"sha256:{number}"
            self.annotations = {"org.opencontainers.image.created": f"2026-01-01T00:{number:04}"}

    monkeypatch.setattr(Registry, "attached", lambda *_: [Entry(number) for number in range(500, 0, -1)])
    found = [one.what for one in signatures.candidates(Registry.__new__(Registry), "sha256:x", "type")]
    assert found == [f"sha256:{number}" for number in range(500, 400, -1)]


def endless(line: str) -> str:
    return f"import sys\nwhile True: sys.stdout.write({line!r} * 10_000)"


ENDLESS = {
    "records with empty lines": (["records", "import", "{}", "--store", ":memory:"], "\n", "lines"),
    "records in one line": (["records", "import", "{}", "--store", ":memory:"], "\0" * 100, "64 MiB"),
    "a log": (["doctor", "{}"], "2026-01-01 12:00:00 a line of a log\n" * 20, "1,024 MiB"),
    "a report": (["doctor", "--report", "{}"], "[" * 1000, "64 MiB"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("words", "line", "limit"), ENDLESS.values(), ids=ENDLESS.keys())
@pytest.mark.parametrize("name", ["-", "/proc/self/fd/0"])
def test_a_pipe_without_an_end_is_an_error(words: list[str], line: str, limit: str, name: str) -> None:
    with subprocess.Popen([sys.executable, "-c", endless(line)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        given = (word.replace("{}", name) for word in words)
        done = run_forked(*given, memory=MEMORY, stdin=writer.stdout.fileno())
        writer.kill()
    assert done.returncode == 2 and limit in done.stderr and "Traceback" not in done.stderr, done.stderr
