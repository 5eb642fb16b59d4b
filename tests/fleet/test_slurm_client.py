"""The client reads the output of Slurm's programs, and this machine's environment changes nothing."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from validator.errors import InputError, MissingError, ValidatorError
from validator.fleet import slurm_client
from validator.fleet.protocol import FleetDown
from validator.fleet.slurm_client import Node, QueueEntry, Refusal, gpus_of, satisfies


def node(features: str = "r580,h100", gres: str = "gpu:h100:4(S:0-1)", state: str = "idle") -> Node:
    return Node("node1", "batch", True, state, frozenset(features.split(",")), gpus_of(gres))


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("(null)", {}),
        ("gpu:4", {"": 4}),
        ("gpu:h100:4(S:0-1)", {"h100": 4}),
        ("gpu:h100", {"h100": 1}),
        ("gpu", {"": 1}),
        ("gpu:a100:2(S:0,2),gpu:t4:1,nvme:3", {"a100": 2, "t4": 1}),
        ("gpu:nvidia_h100_80gb_hbm3:8(IDX:0-7)", {"nvidia_h100_80gb_hbm3": 8}),
    ],
)
def test_gpus_of_a_node(gres: str, gpus: dict[str, int]) -> None:
    assert gpus_of(gres) == gpus


@pytest.mark.parametrize(
    ("constraint", "fits"),
    [
        ("", True),
        ("r580", True),
        ("r580&h100", True),
        ("r580,h100", True),
        ("r580&l4", False),
        ("r535|r580", True),
        ("r535|r550", False),
        ("(r535|r580)&h100", True),
        ("[r535|r580]&l4", False),
        ("h100&(r535|r550)", False),
        ("h100*2", True),
        ("r580*2&[h100|l4]", True),
        # & binds as strongly as Slurm's comma, and more strongly than |.
        ("l4|r580&h100", True),
        ("r580&l4|t4", False),
    ],
)
def test_constraints(constraint: str, fits: bool) -> None:
    assert satisfies(node(), constraint, "") is fits


@pytest.mark.parametrize("constraint", ["(r580", "r580)", "r580&h100]"])
def test_a_constraint_that_is_no_constraint_is_refused(constraint: str) -> None:
    with pytest.raises(InputError, match="constraint"):
        satisfies(node(), constraint, "")


@pytest.mark.parametrize(
    ("gres", "fits"),
    [("gpu:h100:4", True), ("gpu:h100:5", False), ("gpu:l4:1", False), ("gpu:4", True), ("gpu:5", False)],
)
def test_gpus_that_a_job_asks_for(gres: str, fits: bool) -> None:
    assert satisfies(node(), "", gres) is fits


@pytest.mark.parametrize(
    ("state", "usable"),
    [
        ("idle", True),
        ("mixed", True),
        ("allocated", True),
        ("idle~", True),
        ("drained", False),
        ("draining", False),
        ("down", False),
        ("down*", False),
        ("idle*", False),
        ("maint", False),
        ("unknown", False),
    ],
)
def test_nodes_that_run_jobs_now(state: str, usable: bool) -> None:
    assert node(state=state).usable is usable


@pytest.fixture
def bin_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def program(bin_: Path, name: str, script: str) -> None:
    path = bin_ / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.service
def test_the_queue_has_only_tasks_of_this_project(bin_: Path) -> None:
    lines = (
        "12_3|3|RUNNING|None|node1|tfm-0123456789abcdef",
        "13|N/A|RUNNING|None|node1|tfm-single",
        "14_0|0|PENDING|ReqNodeNotAvail, UnavailableNodes:node3||tfm-fedcba9876543210",
        "15_0|0|RUNNING|None|node1|theirs|with a bar",
    )
    quoted = "\\n".join(lines)
    program(bin_, "squeue", f"printf '{quoted}\\n'")
    assert slurm_client.queue() == [
        QueueEntry("12_3", 3, "RUNNING", "None", "node1", "tfm-0123456789abcdef"),
        QueueEntry(
            "14_0", 0, "PENDING", "ReqNodeNotAvail, UnavailableNodes:node3", "", "tfm-fedcba9876543210"
        ),
    ]


@pytest.mark.service
@pytest.mark.parametrize(
    ("message", "error", "said"),
    [
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", FleetDown, "Unable"),
        (
            "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
            FleetDown,
            "Socket",
        ),
        ('sbatch: error: Munge encode failed: Failed to access "socket"', FleetDown, "Munge"),
        (
            "sbatch: fatal: Could not establish a configuration source",
            MissingError,
            "SLURM_CONF|configuration",
        ),
        (
            "sbatch: error: Batch job submission failed: Invalid feature specification",
            Refusal,
            "^Invalid feature",
        ),
    ],
)
def test_errors_are_told_apart(bin_: Path, message: str, error: type[Exception], said: str) -> None:
    program(bin_, "sbatch", f"echo '{message}' >&2; exit 1")
    with pytest.raises(error, match=said) as raised:
        slurm_client.run(["sbatch", "--parsable", "job.sh"])
    # FleetDown is waited for, so that nothing else may be one.
    assert isinstance(raised.value, FleetDown) is (error is FleetDown)


@pytest.mark.service
def test_every_call_has_a_time_limit(bin_: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(bin_, "squeue", "sleep 60")
    monkeypatch.setattr(slurm_client, "LIMIT_S", 0.3)
    with pytest.raises(FleetDown, match=r"squeue took more than 0 s"):
        slurm_client.queue()


@pytest.mark.service
def test_variables_of_slurm_do_not_change_what_is_submitted(
    bin_: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(bin_, "sbatch", f"env >{bin_}/seen")
    monkeypatch.setenv("SBATCH_PARTITION", "other")
    monkeypatch.setenv("REGISTRY_TOKEN", "s3cret")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    slurm_client.run(["sbatch", "--parsable", "job.sh"])
    seen = (bin_ / "seen").read_text(encoding="utf-8")
    assert "SLURM_CONF=/etc/slurm/slurm.conf" in seen
    assert "SBATCH" not in seen and "s3cret" not in seen


@pytest.mark.service
def test_a_machine_without_slurm_says_so(bin_: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(bin_))
    with pytest.raises(MissingError, match="sinfo is not installed on this machine"):
        slurm_client.nodes()


@pytest.mark.service
def test_jobs_are_cancelled_without_a_filter(bin_: Path) -> None:
    program(bin_, "scancel", f'echo "$@" >>{bin_}/calls')
    slurm_client.cancel(QueueEntry(f"7_{index}", index, "RUNNING", "", "", "tfm-a") for index in range(250))
    calls = (bin_ / "calls").read_text(encoding="utf-8").split("\n")
    assert [len(call.split()) for call in calls] == [201, 51, 0]
    # A filter would make Slurm end the whole array.
    assert all(call.split()[:2] == ["--quiet", f"7_{200 * number}"] for number, call in enumerate(calls[:2]))


@pytest.mark.service
def test_jobs_that_are_not_cancelled_are_an_error(bin_: Path) -> None:
    program(bin_, "scancel", "echo 'scancel: error: Kill job error on job id 7: Access denied' >&2; exit 1")
    with pytest.raises(ValidatorError, match="does not end the jobs: Kill job error"):
        slurm_client.cancel([QueueEntry("7_0", 0, "RUNNING", "", "", "tfm-a")])
