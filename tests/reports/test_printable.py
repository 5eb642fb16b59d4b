"""Test that text from elsewhere never controls the terminal."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from validator.cli.options import print_status
from validator.model.prediction import Outcome
from validator.reports.overview import overview
from validator.reports.printable import one_line, printable
from validator.reports.terminal import overview_text, plan_table, record_text, records_table, show

from ..records.values import record
from ..support import said
from .test_overview import IMAGES, planned

#: Red, the window's title, the clipboard, eight-bit CSI, backspaces, text that reads from the right.
HOSTILE = "\x1b[31mred\x1b]0;title\x07\x1b]52;c;eA==\x1b\\ \x9b2J \b\b\b \u202eevil \udc80"


def test_control_characters_are_escaped() -> None:
    assert printable("\x1b[2J\x9b1m\u202e\udc80\r") == "\\x1b[2J\\x9b1m\\u202e\\udc80\\x0d"
    assert printable("one\n\ttwo, größer → 日本") == "one\n\ttwo, größer → 日本"
    assert one_line("one\ntwo\tthree") == "one\\ntwo three"


@given(st.text(st.characters()))
def test_nothing_else_is_changed(text: str) -> None:
    shown = printable(text)
    assert re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", shown) is None
    assert printable(shown) == shown
    shown.encode()
    if text.isprintable():
        assert shown == text


def test_no_control_passes_for_printable_text() -> None:
    controls = "".join(
        map(chr, (*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F))
    )
    controls += "\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ud800\udfff"
    assert [char for char in controls if printable(f"a{char}b") == f"a{char}b"] == []


@pytest.mark.parametrize("terminal", [False, True])
def test_no_text_of_a_record_controls_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setattr(Console, "is_terminal", terminal)
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setenv("NO_COLOR", "1")
    check = {"id": HOSTILE, "outcome": "skip", **said(HOSTILE, "skip"), "duration_s": 0.25}
    found = record(
        1, cell=HOSTILE, image=HOSTILE, reason=HOSTILE, engine=HOSTILE, base=HOSTILE, started=HOSTILE,
        versions={HOSTILE: HOSTILE}, checks=[check], image_digest=HOSTILE, probe_version=HOSTILE,
    )  # fmt: skip
    row = planned(IMAGES[0], Outcome.FAILS, HOSTILE)
    for content in (
        plan_table([row]),
        records_table([found]),
        record_text(found),
        overview_text(overview([row], {found.cell: found})),
    ):
        show(content)
    print_status(HOSTILE)
    shown = capsys.readouterr()
    text = shown.out + shown.err
    # Bold headers are rich's own.
    text = re.sub(r"\x1b\[[0-9;]*m", "", text) if terminal else text
    assert text.count("\\x1b[31mred") > 10
    assert re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\udc80]", text) is None


@pytest.mark.slow
def test_an_error_does_not_control_the_terminal() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "validator", "records", "import", "\x1b[31mabsent"], capture_output=True
    )
    assert done.returncode == 2
    assert b"\\x1b[31mabsent" in done.stderr
    assert b"\x1b" not in done.stderr
