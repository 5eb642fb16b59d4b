"""The committed logs and their index."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from . import corpus
from .faults import RELEASES, faults
from .redact import redact, shorten

#: Paths of any machine that makes logs: its temporary files, the cache, an interpreter's own place.
FOREIGN = re.compile(r"/tmp/emulation-|/root/|\.cache/|\.pyenv|partial-\w+/|/opt/wheels|file:///")
LARGEST = 60_000


def test_index_and_files_are_one() -> None:
    listed = [row.file for row in corpus.rows()]
    there = {str(path.relative_to(corpus.LOGS)) for path in corpus.LOGS.glob("*/*.log")}
    assert len(listed) == len(set(listed))
    assert set(listed) == there


def test_every_fault_has_a_log_in_every_release_of_it() -> None:
    missing = [
        f"{release} {fault.id}"
        for fault in faults().values()
        for release in fault.releases
        if not corpus.path(fault, release).exists()
    ]
    assert not missing


def test_the_index_says_what_the_faults_say() -> None:
    causes = {(row.tensorflow, row.fault): row.cause for row in corpus.rows()}
    for fault in faults().values():
        for release in fault.releases:
            assert causes[release, fault.id] == fault.cause_in(release)


def test_the_three_releases_hold_the_common_faults() -> None:
    for release in RELEASES:
        assert sum(row.tensorflow == release for row in corpus.rows()) >= 80, release


@pytest.mark.parametrize(
    "path", sorted(corpus.LOGS.glob("*/*.log")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_a_log_is_small_and_names_no_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert 0 < len(text) < LARGEST
    assert not FOREIGN.search(text), FOREIGN.search(text)
    assert f"host: {socket.gethostname()}\n" not in text


def test_redacting_leaves_what_software_says() -> None:
    text = "File /x/venv/lib/a.py\nhost: here\nSee https://www.tensorflow.org/install and https://mirror.corp/simple/x\n"
    assert redact(text, {Path("/x/venv"): "/home/user/venv"}) == (
        "File /home/user/venv/lib/a.py\nhost: here\n"
        "See https://www.tensorflow.org/install and https://index.example/simple\n"
    )


def test_shortening_leaves_out_the_middle() -> None:
    lines = [f"line {number}\n" for number in range(20_000)]
    short = shorten("".join(lines))
    assert len(short) < LARGEST
    assert short.startswith("line 0\n") and short.endswith("line 19999\n")
    left = int(re.search(r"\[\.\.\. (\d+) lines \.\.\.\]", short).group(1))  # type: ignore[union-attr]
    assert short.count("\n") - 1 + left == 20_000
