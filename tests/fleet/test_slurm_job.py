"""The script that runs on nodes of Slurm: what it chooses to run images with."""

from __future__ import annotations

import pytest

from validator.fleet import slurm_job
from validator.fleet.settings import CONTAINERS, UNSIGNED
from validator.fleet.slurm_job import Failed


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the set of the container engines that the node has, to be changed by the test."""
    names: set[str] = set()
    monkeypatch.setattr(slurm_job, "_is_there", names.__contains__)
    return names


@pytest.mark.parametrize("wanted", ["auto", "auto-or-venv"])
def test_the_first_container_engine_of_the_node_is_used(there: set[str], wanted: str) -> None:
    there |= {"docker", "podman"}
    assert slurm_job.choose_runner(wanted) is slurm_job.Podman


def test_a_node_without_a_container_engine_measures_in_an_environment_only_on_request(
    there: set[str],
) -> None:
    assert slurm_job.choose_runner("auto-or-venv") is slurm_job.Venv
    with pytest.raises(Failed, match="no container engine") as caught:
        slurm_job.choose_runner("auto")
    assert caught.value.code == "not_started"


def test_nothing_is_signed_where_something_may_run_without_isolation(there: set[str]) -> None:
    """An environment runs as the user who submits, who could change every result of the cluster."""
    may_run = {}
    for wanted in CONTAINERS:
        try:
            may_run[wanted] = slurm_job.choose_runner(wanted)
        except Failed:
            continue
    assert {wanted for wanted, runner in may_run.items() if not runner.isolates} == set(UNSIGNED)
    assert not there
