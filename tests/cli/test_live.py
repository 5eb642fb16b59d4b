"""The live tables on a terminal; other tests have no terminal, where there are only lines."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter

import pytest

from validator.cli.progress import FleetProgress, Progress
from validator.pipeline.run import Event, Phase

from ..pipeline.test_build_matrix import SPEC


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")


def test_a_terminal_shows_the_cells_of_each_host_class(capsys: pytest.CaptureFixture[str]) -> None:
    with FleetProgress() as progress:
        progress.show({"r580-h100": Counter(waiting=2)})
        progress.say("a line")
    shown = capsys.readouterr().err
    assert "r580-h100" in shown and "waiting" in shown and "a line" in shown


def test_a_line_for_a_closed_pipe_raises_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not end the process or thread that prints, as rich does by default."""
    reading, writing = os.pipe()
    os.close(reading)
    stream = open(writing, "w", encoding="utf-8")  # noqa: SIM115
    monkeypatch.setattr(sys, "stderr", stream)
    try:
        with pytest.raises(BrokenPipeError):
            Progress(1).say("a line")
    finally:
        # The stream tries once more to write what it has.
        with contextlib.suppress(BrokenPipeError):
            stream.close()


def test_what_takes_long_is_said_again_with_its_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FORCE_COLOR")
    now = [100.0]
    monkeypatch.setattr("validator.cli.progress.time.monotonic", lambda: now[0])
    progress = Progress(1)
    progress(Event(SPEC, Phase.BUILD))
    now[0] += 5
    progress(Event(SPEC, Phase.BUILD, "the engine unpacks the image"))
    for _ in range(60):
        now[0] += 1
        progress.beat()
    progress(Event(SPEC, Phase.DONE))
    now[0] += 60
    progress.beat()
    assert capsys.readouterr().err.splitlines() == [
        f"[00:00] {SPEC}: build",
        f"[00:20] {SPEC}: build the engine unpacks the image (for 00:15)",
        f"[00:40] {SPEC}: build the engine unpacks the image (for 00:35)",
        f"[01:00] {SPEC}: build the engine unpacks the image (for 00:55)",
    ]


def test_a_terminal_shows_how_many_images_are_done(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(3):
        pass
    assert "0 of 3 done" in capsys.readouterr().err
