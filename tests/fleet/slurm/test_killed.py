"""The submitter is killed at random moments, and the same command goes on."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from .cluster import Cluster, until

#: In one run. When it ends before the last kill, another run of other cells follows.
CELLS = 12


@pytest.mark.parametrize("wanted", [5, 20])
def test_every_cell_has_one_record_after_so_many_kills(cluster: Cluster, tmp_path: Path, wanted: int) -> None:
    setup = f"export PATH={Path(sys.base_prefix, 'bin')}:$PATH\n"
    command = [sys.executable, "-m", "tests.fleet.slurm.submit_run", str(tmp_path), setup, str(CELLS)]
    seed = random.randrange(1 << 32)
    moments = random.Random(seed)
    kills = rounds = 0
    while kills < wanted or rounds == 0:
        while not _ended([*command, str(rounds)], moments, last=kills == wanted):
            kills += 1
        rounds += 1
    print(f"seed {seed}: {kills} kills in {rounds} runs")
    # A file whose name begins with a dot was not yet renamed when its writer was killed.
    names = [path.name for path in (tmp_path / "records").iterdir() if not path.name.startswith(".")]
    records = Counter(name.partition("@")[0] for name in names)
    assert set(records.values()) == {1}
    assert len(records) == CELLS * rounds
    # No cell was measured twice either. A result is there a moment before its job ends. A job that Slurm
    # itself ends, because a node of a loaded machine does not answer, is repeated.
    until(lambda: len(measured(cluster, tmp_path)) >= CELLS * rounds, "the end of the jobs")
    found = measured(cluster, tmp_path)
    runs = Counter((run["Name"], run["ArrayTaskId"]) for run in found)
    assert set(runs.values()) == {1}
    assert len(runs) == CELLS * rounds, found


def measured(cluster: Cluster, directory: Path) -> list[dict[str, str]]:
    """Return the runs below a directory that ended by themselves.

    A job of the test before may end only now, and the log of the cluster has all jobs.
    """
    own = [run for run in cluster.finished() if run["WorkDir"].startswith(f"{directory}/")]
    return [run for run in own if run["JobState"] == "COMPLETED"]


def _ended(command: list[str], moments: random.Random, last: bool) -> bool:
    """Start the submitter. Return True if it ended by itself, and False if it was killed."""
    child = subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        output, _ = child.communicate(timeout=400 if last else moments.uniform(0.3, 2.0))
    except subprocess.TimeoutExpired:
        assert not last, "the last submitter does not end"
        # The programs that it started go on for a moment, or end with it.
        if moments.random() < 0.5:
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
        child.communicate()
        time.sleep(moments.uniform(0, 0.2))
        return False
    assert child.returncode == 0, output.decode()
    return True
