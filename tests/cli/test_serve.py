"""Test `serve` as a process: its address, its end, and what it notices."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from validator import cli
from validator.errors import EXIT_INPUT, InputError
from validator.model.record import Verdict
from validator.records.store import Store

from ..reports.page.values import H100, image, measured

ROOT = Path(__file__).parents[2]
#: The image of the profile `quick`.
NEWEST = image(cuda="12.9", cudnn="9.28")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "matrix.yaml", tmp_path)
    return tmp_path


@contextmanager
def serving(project: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(project / "state")}
    environment.pop("VALIDATOR_STORE", None)
    with subprocess.Popen(
        [sys.executable, "-m", "validator", "serve", "--profile", "quick", "--port=0", "--answers=none"],
        cwd=project, env=environment, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stderr is not None
            line = next(line for line in process.stderr if "The page is at" in line)
            found = re.search(r"http://127\.0\.0\.1:\d+/", line)
            assert found
            yield found[0], process
        finally:
            process.kill()


@pytest.mark.slow
def test_it_shows_new_records_and_ends_cleanly(project: Path) -> None:
    with serving(project) as (address, process):
        with urllib.request.urlopen(address) as answer:
            page = answer.read().decode()
        version = re.search(r'data-version="(\w+)"', page)
        assert version and "No image was measured here yet." in page
        assert "connect-src 'self'" in page
        with urllib.request.urlopen(f"{address}events") as stream:
            assert version[1] in line_with(stream, b"data:")
            with Store(str(project / ".validator" / "records.db")) as store:
                store.add(measured(NEWEST, H100, Verdict.FAILED, 1))
            newer = line_with(stream, b'data: "', other_than=version[1])
        with urllib.request.urlopen(address) as answer:
            page = answer.read().decode()
        assert "found to be failed" in page
        assert re.search(r'data-version="(\w+)"', page)[1] in newer  # type: ignore[index]
        # Ctrl-C sends SIGINT, service managers SIGTERM.
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stderr is not None and "Stopped." in process.stderr.read()
    # Its temporary directory is gone.
    assert not list((project / "state").rglob("directory-*.json"))


def line_with(stream: IO[bytes], beginning: bytes, other_than: str | None = None) -> str:
    lines = (line.decode() for line in stream if line.startswith(beginning))
    return next(line for line in lines if other_than is None or other_than not in line)


def test_wrong_input_is_reported_before_anything_is_served(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    assert cli.run(["serve", "--port", "70000"]) == EXIT_INPUT
    with pytest.raises(InputError, match="no-such-profile"):
        cli.run(["serve", "--profile", "no-such-profile"])


def test_a_static_page_asks_no_server(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    assert cli.run(["report", "--profile", "quick", "--html", "site"]) == 0
    page = (project / "site" / "index.html").read_text()
    assert "EventSource" not in page and "connect-src" not in page and 'id="live"' not in page
