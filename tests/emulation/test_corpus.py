"""The committed logs are those of the faults. `tests/diagnosis/test_corpus.py` has the laws about each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ..corpus import reader
from . import corpus
from .faults import RELEASES, faults
from .redact import LIMIT, redact, shorten


def test_every_fault_has_a_log_for_each_of_its_releases() -> None:
    missing = [
        f"{release} {fault.id}"
        for fault in faults().values()
        for release in fault.releases
        if not corpus.path(fault, release).exists()
    ]
    assert not missing


@pytest.mark.slow
def test_the_index_agrees_with_the_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = tmp_path / "index.yaml"
    index.write_bytes(reader.INDEX.read_bytes())
    before = reader.entries()
    causes = {(entry.tensorflow, entry.fault): entry.cause for entry in before}
    for fault in faults().values():
        for release in fault.releases:
            assert causes[release, fault.id] == fault.cause_in(release)
    monkeypatch.setattr(reader, "INDEX", index)
    corpus.write_index()
    after = {entry.name: entry for entry in reader.entries()}
    assert after == {entry.name: entry for entry in before}


def test_the_three_releases_have_the_common_faults() -> None:
    for release in RELEASES:
        assert sum(entry.tensorflow == release for entry in reader.entries("captured")) >= 80, release


def test_redacting_keeps_the_output_of_software() -> None:
    text = "File /x/venv/lib/a.py\nhost: here\nSee https://www.tensorflow.org/install and https://mirror.corp/simple/x\n"
    assert redact(text, {Path("/x/venv"): "/home/user/venv"}) == (
        "File /home/user/venv/lib/a.py\nhost: here\n"
        "See https://www.tensorflow.org/install and https://index.example/simple\n"
    )


def test_shortening_removes_the_middle() -> None:
    lines = [f"line {number}\n" for number in range(20_000)]
    short = shorten("".join(lines))
    assert len(short) < LIMIT
    assert short.startswith("line 0\n") and short.endswith("line 19999\n")
    left = int(re.search(r"\[\.\.\. (\d+) lines \.\.\.\]", short).group(1))  # type: ignore[union-attr]
    assert short.count("\n") - 1 + left == 20_000
