"""The probe watches GPUs that change under it, through a driver that we control."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from validator.probe.check import Context, Result
from validator.probe.checks import environment

from .stubs import Stubs

#: Starts a watch, changes the health of the GPU while it lasts, and prints what was seen.
WATCHED = """
import json, os, sys, time
from validator.probe.watch import Watch
before, during, after = json.loads(sys.argv[1])
def say(health):
    # Replaced at once, so that nobody reads half of it.
    with open(os.environ["STUB_HEALTH"] + ".new", "w") as file:
        file.write("".join(f"{name}={value}\\n" for name, value in health.items()))
    os.replace(file.name, os.environ["STUB_HEALTH"])
say(before)
with Watch() as watch:
    watch.begun()
    say({**before, **during})
    time.sleep(1)
    say({**before, **after})
    print(json.dumps(watch.end()))
"""
HEALTHY = {"errors": 3, "pending": 0, "failed": 0, "reasons": 4, "process": 0, "xid": 0}


def watched(
    stubs: Stubs,
    directory: Path,
    before: Mapping[str, Any] = HEALTHY,
    during: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    **variables: str,
) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, json.dumps([before, during or {}, after or during or {}])],
        env={
            **os.environ,
            "LD_LIBRARY_PATH": str(stubs.place("driver")),
            "STUB_HEALTH": str(directory / "health"),
            **variables,
        },
        capture_output=True,
        text=True,
        check=True,
    )
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def judged(seen: dict[str, Any]) -> Result:
    return environment.gpu_health.run(
        Context({"health": seen, "host": {"driver_libraries": {"cuda": {"gpus": None}}}})
    )


def test_a_gpu_that_stays_healthy(stubs: Stubs, tmp_path: Path) -> None:
    seen = watched(stubs, tmp_path)
    (gpu,) = seen["gpus"]
    assert gpu["before"] == gpu["after"]
    assert gpu["before"]["uncorrected_errors"] == 3
    assert (seen["begun"], seen["ended"], seen["error"]) == (True, True, None)
    assert "nvml" in seen["xid_sources"]
    assert gpu["reasons"]["sw_power_cap"]["readings"] == gpu["readings"] >= 3
    assert judged(seen).outcome == "pass"


@pytest.mark.parametrize(
    ("during", "after", "code"),
    [
        ({"errors": 5}, None, "gpu_memory_errors"),
        ({"pending": 1}, None, "gpu_remapping"),
        ({"failed": 1}, None, "gpu_remapping"),
        ({"xid": 79}, None, "gpu_xid"),
        ({"xid": 79}, {}, "gpu_xid"),
        ({"xid": 13}, {}, "gpu_program_xid"),
        ({"reasons": 0x40}, {}, "gpu_slowed"),
        ({"reasons": 0x08}, {}, "gpu_slowed"),
        ({"reasons": 0x80}, {}, "gpu_slowed"),
        ({}, {"process": 4_000_001}, "gpu_shared"),
        ({"lost": 1}, None, "gpu_lost"),
    ],
)
def test_what_changes_during_the_run_is_seen(
    during: dict[str, int], after: dict[str, int] | None, code: str, stubs: Stubs, tmp_path: Path
) -> None:
    result = judged(watched(stubs, tmp_path, HEALTHY, during, after))
    assert result.outcome == "fail"
    assert [problem["code"] for problem in result.problems] == [code]


def test_a_process_that_was_there_before_is_seen(stubs: Stubs, tmp_path: Path) -> None:
    result = judged(watched(stubs, tmp_path, {**HEALTHY, "process": 4_000_001}, {"process": 0}))
    assert [(problem["code"], problem["times"]) for problem in result.problems] == [
        ("gpu_shared", ["before"])
    ]


def test_without_answers_everything_is_unknown(stubs: Stubs, tmp_path: Path) -> None:
    seen = watched(stubs, tmp_path, {})
    assert seen["gpus"][0]["before"] == dict.fromkeys(
        ["uncorrected_errors", "remapping_pending", "remapping_failed", "clocks", "processes"]
    )
    result = judged(seen)
    assert result.outcome == "pass"
    assert "memory errors" in result.evidence["unknown"]


@pytest.mark.parametrize("fault", ["nvmlInit=9", "nvmlDeviceGetCount=999"])
def test_a_driver_that_does_not_answer_is_not_taken_for_health(
    fault: str, stubs: Stubs, tmp_path: Path
) -> None:
    result = judged(watched(stubs, tmp_path, STUB_FAIL=fault))
    assert [problem["code"] for problem in result.problems] == ["gpu_not_watched"]


def test_a_watch_that_is_killed_is_not_taken_for_health(stubs: Stubs, tmp_path: Path) -> None:
    killed = WATCHED.replace("    time.sleep(1)\n", "    watch._process.kill()\n")
    assert killed != WATCHED
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(stubs.place("driver")),
        "STUB_HEALTH": str(tmp_path / "health"),
    }
    done = subprocess.run(
        [sys.executable, "-c", killed, json.dumps([HEALTHY, {}, {}])],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    seen = json.loads(done.stdout)
    assert (seen["begun"], seen["ended"]) == (True, False)
    assert [problem["code"] for problem in judged(seen).problems] == ["gpu_not_watched"]
