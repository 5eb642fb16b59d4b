"""The judgement of workers that train together, with real connections and a TensorFlow that is made up."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from validator.probe import child, workers
from validator.probe.check import Context, Result
from validator.probe.checks import distribution
from validator.probe.checks.distribution import batch_of, digest_of
from validator.probe.child import EXCEPTION, SIGNAL, STOPPED, TIMED_OUT, Answer, Failure
from validator.probe.workers import Settings

from ..test_workers import free_ports

STAGES = [{"stage": "connect"}, {"stage": "train"}]
NCCL_LOG = "node:1:1 [0] NCCL INFO Bootstrap : Using docker0:172.17.0.1<0>"
UNAVAILABLE = Failure(EXCEPTION, "UnavailableError: Collective ops is aborted by: Socket closed", True)


def step(**changes: Any) -> list[dict[str, Any]]:
    done = {
        "replicas": 2,
        "losses": [2.0, 1.0],
        "largest_difference": 1e-7,
        "tolerance": 1e-4,
        "replicas_equal": True,
        "weights": "same",
        "collectives": ["ring"],
    }
    return [*STAGES, {"step": {**done, **changes}}, {"stage": "end"}]


class Gone(Exception):
    """The process of a worker has ended."""


@dataclass
class Script:
    """The behaviour of one worker: its training values, and how it ends. leaves: its process ends early."""

    values: list[dict[str, Any]] = field(default_factory=step)
    failure: Failure | None = None
    stderr: str = "last line"
    leaves: bool = False
    tensorflow: str = "2.21.0"
    gpus: int = 0


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Result]]:
    """Run the check on two workers of this process."""
    monkeypatch.setattr(distribution, "_GRACE_S", 0.2)
    monkeypatch.setattr(distribution, "_PARTING_S", 1.0)
    monkeypatch.setattr(distribution, "_TRAIN_S", 1.0)

    def run(*scripts: Script) -> list[Result]:
        addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(len(scripts)))
        results: dict[int, Result] = {}

        def call(
            function: Any, replicas: int, limit_s: float, environment: dict[str, str], attend: Any
        ) -> Answer:
            config = json.loads(environment["TF_CONFIG"])
            assert config["cluster"] == {"worker": list(addresses)}
            script = scripts[config["task"]["index"]]
            for count in range(len(script.values) + 1):
                if attend(script.values[:count]):
                    return Answer(script.values[:count], Failure(STOPPED), script.stderr)
                time.sleep(0.02)
            if script.leaves:
                raise Gone
            if script.failure is not None and script.failure.kind != TIMED_OUT:
                return Answer(script.values, script.failure, script.stderr)
            end = time.monotonic() + limit_s
            while time.monotonic() < end:
                if attend(script.values):
                    return Answer(script.values, Failure(STOPPED), script.stderr)
                time.sleep(0.02)
            return Answer(script.values, Failure(TIMED_OUT), script.stderr)

        def measure(rank: int) -> None:
            gpus = [f"GPU:{number}" for number in range(scripts[rank].gpus)]
            grow = SimpleNamespace(set_memory_growth=lambda gpu, on: None)
            config = SimpleNamespace(list_physical_devices=lambda kind: gpus, experimental=grow)
            tf = SimpleNamespace(__version__=scripts[rank].tensorflow, config=config)
            with contextlib.suppress(Gone):
                results[rank] = distribution.train_with(Settings(addresses, rank, 20.0), tf)

        monkeypatch.setattr(child, "fresh", call)
        threads = [threading.Thread(target=measure, args=(rank,)) for rank in range(len(scripts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [results[rank] for rank in sorted(results)]

    return run


Run = Callable[..., "list[Result]"]


def codes(result: Result) -> list[str]:
    return [problem["code"] for problem in result.problems]


def test_without_a_second_worker_the_check_is_skipped_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(workers.WORKERS, raising=False)
    result = distribution.multi_worker.run(Context({}))
    assert (result.outcome, result.statement) == ("skip", {"code": "no_other_worker"})


def test_wrong_settings_fail_and_say_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(workers.WORKERS, "a:1,b:2")
    monkeypatch.delenv(workers.RANK, raising=False)
    result = distribution.multi_worker.run(Context({}))
    assert (result.outcome, codes(result)) == ("fail", ["worker_settings_wrong"])
    assert "VALIDATOR_WORKER_RANK is '', not a number from 0 to 1" in result.sentence


def test_no_certificate_requires_it() -> None:
    assert not distribution.multi_worker.required
    assert distribution.multi_worker.depth == "full"


@pytest.mark.parametrize("count", [2, 3])
def test_workers_that_agree(count: int, run: Run) -> None:
    results = run(*[Script() for _ in range(count)])
    for rank, result in enumerate(results):
        assert result.outcome == "pass", result
        assert result.sentence == (
            f"{count} workers train together over RING (2 replicas), and their gradients agree with those of"
            " one worker (difference 1.0e-07)"
        )
        evidence = result.evidence
        assert (evidence["workers"], evidence["rank"], evidence["communication"]) == (count, rank, "RING")
        assert {(entry["stage"], entry["lost"]) for entry in evidence["ranks"]} == {("end", None)}
        assert evidence["seconds"]["train"] > 0


def test_gpus_use_nccl(run: Run) -> None:
    of_gpus = Script(values=step(collectives=["nccl"]), stderr=NCCL_LOG, gpus=1)
    for result in run(of_gpus, of_gpus):
        assert result.outcome == "pass"
        assert result.evidence["communication"] == "NCCL"
        # Another interface than the one of the connections is no fault where everything works.
        assert result.evidence["nccl_interface"] == {"interface": "docker0", "address": "172.17.0.1"}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"largest_difference": 1e-2}, "gradients_differ"),
        ({"largest_difference": float("nan")}, "gradients_differ"),
        ({"replicas_equal": False}, "replicas_differ"),
        ({"losses": [2.0, 2.0]}, "loss_does_not_fall"),
    ],
)
def test_a_wrong_step_fails(changes: dict[str, Any], code: str, run: Run) -> None:
    results = run(Script(values=step(**changes)), Script())
    assert [codes(result) for result in results] == [[code], []]


def test_workers_with_different_weights_fail_on_both(run: Run) -> None:
    results = run(Script(), Script(values=step(weights="other")))
    assert [codes(result) for result in results] == [["replicas_differ"]] * 2


@pytest.mark.parametrize(("collectives", "log"), [(["ring"], NCCL_LOG), (["nccl"], "nothing")])
def test_gpus_without_nccl_fail(collectives: list[str], log: str, run: Run) -> None:
    script = Script(values=step(collectives=collectives), stderr=log, gpus=1)
    assert [codes(result) for result in run(script, script)] == [["nccl_not_used"]] * 2


def test_different_releases_and_devices_are_named_before_training(run: Run) -> None:
    for result in run(Script(), Script(tensorflow="2.20.0")):
        assert result.sentence == (
            "the workers have different releases of TensorFlow: worker 0 has 2.21.0, worker 1 has 2.20.0;"
            " start all from the same image"
        )
    for result in run(Script(gpus=2), Script(gpus=1)):
        assert "different devices: worker 0 has 2 GPU, worker 1 has 1 GPU;" in result.sentence


def test_different_data_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = iter(["one", "other"])
    monkeypatch.setattr(distribution, "digest_of", lambda batch: next(digests))
    assert [codes(result) for result in run(Script(), Script())] == [["workers_with_different_data"]] * 2


def test_a_worker_that_goes_away_is_named_with_what_tensorflow_says(run: Run) -> None:
    (result,) = run(Script(values=STAGES, failure=UNAVAILABLE), Script(values=STAGES, leaves=True))
    (problem,) = result.problems
    assert (problem["code"], problem["rank"], problem["stage"], problem["how"]) == (
        "worker_lost", 1, "train", "closed",
    )  # fmt: skip
    assert "was lost in a training step: its process ended; this worker's TensorFlow says" in result.sentence
    assert result.evidence["last_lines"] == ["last line"]
    assert [(entry["rank"], entry["lost"]) for entry in result.evidence["ranks"]] == [(1, "closed")]


def test_a_worker_that_goes_away_ends_a_training_that_hangs(run: Run) -> None:
    (result,) = run(Script(values=STAGES, failure=Failure(TIMED_OUT)), Script(values=STAGES, leaves=True))
    assert codes(result) == ["worker_lost"]
    assert result.evidence["failure"] == "stopped"


def test_a_worker_that_goes_away_after_the_own_step_is_named(run: Run) -> None:
    (result,) = run(Script(), Script(values=STAGES, leaves=True))
    assert codes(result) == ["worker_lost"]


@pytest.mark.parametrize(
    "failure", [Failure(SIGNAL, "SIGKILL"), Failure(EXCEPTION, "ResourceExhaustedError: OOM", True)]
)
def test_the_worker_that_failed_first_is_named_by_the_others(failure: Failure, run: Run) -> None:
    first, second = run(
        Script(values=STAGES, failure=UNAVAILABLE), Script(values=STAGES[:1], failure=failure)
    )
    (problem,) = first.problems
    assert (problem["code"], problem["rank"], problem["stage"]) == ("worker_failed", 1, "connect")
    assert str(failure) in first.sentence
    # The worker itself says what happened to it.
    assert second.outcome == ("crash" if failure.kind == SIGNAL else "fail")
    assert codes(second) == ([] if failure.kind == SIGNAL else ["trial_failed"])


def test_the_worker_that_hangs_is_named_by_all(run: Run) -> None:
    hang = Failure(TIMED_OUT)
    for result in run(Script(values=STAGES, failure=hang), Script(values=STAGES[:1], failure=hang)):
        (problem,) = result.problems
        assert (problem["code"], problem["rank"], problem["stage"]) == ("worker_hangs", 1, "connect")


def test_a_worker_that_never_finishes_is_named_by_one_that_did(run: Run) -> None:
    first, _ = run(Script(), Script(values=STAGES, failure=Failure(TIMED_OUT)))
    assert [(one["code"], one["rank"]) for one in first.problems] == [("worker_hangs", 1)]


def test_if_all_hang_at_the_same_place_it_is_the_network(run: Run) -> None:
    script = Script(values=STAGES, failure=Failure(TIMED_OUT))
    assert [codes(result) for result in run(script, script)] == [["collective_hangs"]] * 2


def test_a_stage_of_another_version_does_not_matter_if_nothing_hangs(run: Run) -> None:
    script = Script(values=[*STAGES, {"stage": "later"}], failure=UNAVAILABLE)
    assert [codes(result) for result in run(script, script)] == [["collective_failed"]] * 2


def test_if_all_fail_for_another_reason_it_is_the_network(run: Run) -> None:
    script = Script(values=STAGES, failure=UNAVAILABLE)
    for result in run(script, script):
        assert codes(result) == ["collective_failed"]
        assert "RING between them failed: UnavailableError: Collective ops is aborted" in result.sentence


@pytest.mark.parametrize(
    "failure", [Failure(TIMED_OUT), Failure(EXCEPTION, "InternalError: NCCL: unhandled system error", True)]
)
def test_nccl_on_the_wrong_interface_is_named_with_the_variable(failure: Failure, run: Run) -> None:
    script = Script(values=STAGES, failure=failure, stderr=NCCL_LOG, gpus=1)
    for rank, result in enumerate(run(script, script)):
        assert result.sentence == (
            f"on worker {rank}, NCCL uses the network interface docker0 (172.17.0.1), which does not reach"
            " the other workers; 127.0.0.1 is the address that reaches them: set NCCL_SOCKET_IFNAME=lo"
        )


def test_nccl_on_the_right_interface_is_not_blamed(run: Run) -> None:
    log = NCCL_LOG.replace("docker0:172.17.0.1", "lo:127.0.0.1")
    script = Script(values=STAGES, failure=Failure(TIMED_OUT), stderr=log, gpus=1)
    assert [codes(result) for result in run(script, script)] == [["collective_hangs"]] * 2


@pytest.mark.parametrize(
    ("line", "interface", "address"),
    [
        (NCCL_LOG, "docker0", "172.17.0.1"),
        ("n:1:2 [3] NCCL INFO Bootstrap : Using [0]eth0:10.0.0.5<0>", "eth0", "10.0.0.5"),
        ("n:1:2 [3] NCCL INFO Bootstrap: Using ib0.8001:10.1.0.5<0>", "ib0.8001", "10.1.0.5"),
        ("n:1:2 [3] NCCL INFO Bootstrap : Using eth1:fe80::1%eth1<0>", "eth1", "fe80::1"),
    ],
)
def test_the_interface_is_read_from_the_log_of_nccl(line: str, interface: str, address: str) -> None:
    assert workers.nccl(f"first\n{line}\nlast") == {"interface": interface, "address": address}
    assert workers.nccl("NCCL INFO NET/Plugin: none") is None


def test_the_interface_with_an_address() -> None:
    assert workers.with_address("127.0.0.1") == "lo"
    assert workers.with_address("192.0.2.1") is None


def test_the_data_is_the_same_everywhere_and_a_longer_batch_begins_with_the_shorter() -> None:
    short, long = batch_of(4), batch_of(32)
    assert long[:4] == short
    digest = "b596a59b7bc94a68202b1fea4ef2d971a2e53cae5f2c96d597262dbf8ff05bd5"
    assert digest_of(short) == digest
