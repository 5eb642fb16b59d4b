"""Test the file that says how far a run is, for other processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from validator.model.codec import RunProgress
from validator.model.spec import Choice, ImageSpec, Variant
from validator.pipeline import run
from validator.pipeline.run import Event, Phase, ProgressFile, Result, Status, read_progress

ROOT = Path(__file__).parents[2]
SPEC = ImageSpec("2.21.0", "3.12", Variant.GPU, Choice("as-built", "12.5"), Choice("as-built", "9.3"))


def only(directory: Path) -> RunProgress:
    [found] = read_progress(directory)
    return found


def rewrite(directory: Path, **changes: Any) -> None:
    [path] = directory.glob("*.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_run_is_running_until_it_ends(tmp_path: Path) -> None:
    with ProgressFile(tmp_path, "nightly", 2) as file:
        assert (only(tmp_path).state, only(tmp_path).total, only(tmp_path).finished) == ("running", 2, 0)
        file(Event(SPEC, Phase.BUILD, "layer 1"))
        file(Event(SPEC, Phase.BUILD, "layer 2 \udcff"))
        file._write()
        [working] = only(tmp_path).working
        assert (working.image, working.phase, working.detail) == (SPEC.identifier, "build", "layer 2 \udcff")
        file(Event(SPEC, Phase.DONE, result=Result(SPEC, Status.BUILT, detail="no GPU")))
    found = only(tmp_path)
    assert (found.state, found.finished, found.working) == ("finished", 1, ())
    assert [msgspec.structs.astuple(done) for done in found.done] == [(SPEC.identifier, "built", "no GPU")]


@pytest.mark.parametrize(
    ("error", "state"), [(KeyboardInterrupt, "stopped"), (ValueError, "failed")], ids=["Ctrl-C", "a fault"]
)
def test_a_run_that_ends_early_says_so(tmp_path: Path, error: type[BaseException], state: str) -> None:
    with pytest.raises(error), ProgressFile(tmp_path, "nightly", 1):
        raise error
    assert only(tmp_path).state == state


def test_images_that_were_stopped_make_a_stopped_run(tmp_path: Path) -> None:
    with ProgressFile(tmp_path, "nightly", 1) as file:
        file(Event(SPEC, Phase.DONE, result=Result(SPEC, Status.STOPPED)))
    assert only(tmp_path).state == "stopped"


@pytest.mark.slow
def test_a_killed_run_is_not_shown_as_running(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path\n"
        "from validator.pipeline.run import ProgressFile\n"
        "with ProgressFile(Path(sys.argv[1]), 'nightly', 1): print('up', flush=True); time.sleep(600)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(tmp_path / "state")}
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "progress")], env=environment, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        assert only(tmp_path / "progress").state == "running"
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert only(tmp_path / "progress").state == "vanished"


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"boot": "another machine"}, "running"),
        ({"boot": "another machine", "updated": "2026-01-01T00:00:00+00:00"}, "unknown"),
        ({"run": "/nowhere", "updated": "2026-01-01T00:00:00+00:00"}, "vanished"),
        ({"run": "", "updated": "not a time"}, "vanished"),
        ({"state": "made up"}, "unknown"),
    ],
)
def test_without_its_lock_only_a_recent_sign_of_life_counts(
    tmp_path: Path, changes: dict[str, Any], state: str
) -> None:
    with ProgressFile(tmp_path, "nightly", 1):
        rewrite(tmp_path, **changes)
        assert only(tmp_path).state == state


def test_files_that_are_not_progress_are_left_alone(tmp_path: Path) -> None:
    for name, content in (("a.json", "{"), ("b.json", "[]"), ("c.json", '{"total": "x"}'), ("d.txt", "d")):
        (tmp_path / name).write_text(content)
    assert read_progress(tmp_path) == []
    assert read_progress(tmp_path / "missing") == []
    with ProgressFile(tmp_path, "nightly", 1):
        assert len(read_progress(tmp_path)) == 1
    assert len(list(tmp_path.iterdir())) == 5


def test_only_the_newest_runs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ProgressFile(tmp_path, "first", 1):
        for _ in range(run._KEPT + 3):
            with ProgressFile(tmp_path, "nightly", 1):
                pass
        kept = read_progress(tmp_path)
        assert len(kept) == run._KEPT + 1
        # A run that goes on is never removed.
        assert [each.state for each in kept if each.profile == "first"] == ["running"]


def test_a_run_goes_on_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with ProgressFile(tmp_path / "file" / "progress", "nightly", 1) as file:
        file(Event(SPEC, Phase.BUILD))
    assert (tmp_path / "file").read_text() == "in the way"
