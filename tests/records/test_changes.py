"""The changes between two records: everything that differs, and nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from validator.model.record import Record
from validator.records.history import Change, changed_checks, changes

from ..support import said
from .values import record

GPU = {"name": "NVIDIA H100 PCIe", "uuid": "GPU-1f", "compute_capability": "9.0", "memory_bytes": 1}


def measured(**changes: Any) -> Record:
    """Return a record with a report. packages, variables and host facts are given by name."""
    packages = {"keras": "3.11.0", "nvidia-cudnn-cu12": "9.3.0.75"} | changes.pop("packages", {})
    variables = changes.pop("variables", {"TF_XLA_FLAGS": "--a"})
    host = {"driver": "535.183.01", "gpus": [GPU], "cpu": {"model": "EPYC", "count": 8}} | changes.pop(
        "host", {}
    )
    environment = {"packages": {name: it for name, it in packages.items() if it}, "variables": variables}
    values = {
        "host": host,
        "versions": {"tensorflow": "2.21.0", "cudnn": "9.3.0"},
        "image_digest": "sha256:aa",
        "base": "registry:python@sha256:01",
        "report": {"environment": environment},
    }
    return record(1, **(values | changes))


def told(before: Record, after: Record) -> list[tuple[str, str | None, str | None, str | None]]:
    return [(change.kind, change.name, change.before, change.after) for change in changes(before, after)]


def test_nothing_changed() -> None:
    assert changes(measured(), measured()) == ()
    assert changed_checks(measured(), measured()) == ()


def test_everything_changed_and_the_likely_causes_come_first() -> None:
    after = measured(
        lock_digest="sha256:ff",
        packages={"keras": "3.12.0", "nvidia-cudnn-cu12": None, "h5py": "3.14"},
        versions={"tensorflow": "2.21.0", "cudnn": "9.10.0", "cuda": "12.5"},
        base="bootstrap:bookworm",
        host={
            "driver": "580.65.06",
            "gpus": [GPU | {"uuid": "GPU-2"}, GPU | {"uuid": "GPU-3"}],
            "cpu": {"model": "Xeon", "count": 4},
        },
        variables={"XLA_FLAGS": "--b"},
        engine="docker",
        probe_version="2+def",
        image_digest="sha256:bb",
    )
    found = told(measured(), after)
    machine = [row for row in found if row[0] == "machine"]
    assert [row for row in found if row not in machine] == [
        ("lock", None, "sha256:00", "sha256:ff"),
        ("package", "keras", "3.11.0", "3.12.0"),
        ("package", "nvidia-cudnn-cu12", "9.3.0.75", None),
        ("package", "h5py", None, "3.14"),
        ("version", "cudnn", "9.3.0", "9.10.0"),
        ("version", "cuda", None, "12.5"),
        ("base", None, "registry:python@sha256:01", "bootstrap:bookworm"),
        ("driver", None, "535.183.01", "580.65.06"),
        ("gpu", None, "1 NVIDIA H100 PCIe (9.0)", "2 NVIDIA H100 PCIe (9.0)"),
        ("cpu", None, "EPYC", "Xeon"),
        ("variable", "TF_XLA_FLAGS", "--a", None),
        ("variable", "XLA_FLAGS", None, "--b"),
        ("engine", None, "venv", "docker"),
        ("probe", None, "1+abc", "2+def"),
        ("image", None, "sha256:aa", "sha256:bb"),
    ]
    assert len(machine) == 1
    assert "GPU-" not in str(machine)


def test_without_a_probe_no_change_is_reported() -> None:
    broken = record(1, host={}, versions={}, report=None, probe_version=None, image_digest=None, base=None)
    assert told(measured(), broken) == told(broken, measured()) == []


def test_a_record_with_odd_facts_can_be_compared() -> None:
    odd = msgspec.structs.replace(
        measured(), host={"gpus": 7, "driver": [1], "cpu": "x", "kernel": "6.1"}, report={"environment": []}
    )
    found = [row for row in told(measured(), odd) if row[0] != "machine"]
    assert found == [
        ("driver", None, "535.183.01", None),
        ("kernel", None, None, "6.1"),
        ("gpu", None, "1 NVIDIA H100 PCIe (9.0)", None),
        ("cpu", None, "EPYC", None),
    ]
    assert told(odd, msgspec.structs.replace(odd, report={"environment": {"packages": [1]}})) == []


def test_checks_whose_outcome_differs() -> None:
    def check(name: str, outcome: str) -> dict[str, Any]:
        return {"id": name, "outcome": outcome, **said(f"{name} {outcome}", outcome)}

    before = record(1, checks=[check("driver", "pass"), check("old", "pass"), check("cudnn_load", "pass")])
    after = record(1, checks=[check("new", "skip"), check("driver", "pass"), check("cudnn_load", "fail")])
    assert [tuple(vars(each).values()) for each in changed_checks(before, after)] == [
        ("new", None, "skip", "new skip"),
        ("cudnn_load", "pass", "fail", "cudnn_load fail"),
        ("old", "pass", None, None),
    ]


names = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["1", "2"]), min_size=1)
records = st.builds(
    lambda packages, versions, driver, lock: measured(
        packages=packages, versions=versions, host={"driver": driver}, lock_digest=lock
    ),
    names,
    names,
    st.sampled_from(["535", "580", None]),
    st.sampled_from(["sha256:1", "sha256:2", None]),
)


@given(records, records)
def test_comparing_backwards_reverses_every_change(one: Record, two: Record) -> None:
    reversed_ = {Change(each.kind, each.name, each.after, each.before) for each in changes(two, one)}
    assert set(changes(one, two)) == reversed_
    assert all(each.before != each.after for each in changes(one, two))
    assert changes(one, one) == ()
