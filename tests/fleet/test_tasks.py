"""On how many nodes the units of a plan run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fleet.making import unit
from validator.fleet.protocol import ATTEMPTS, Unit, array_name
from validator.model.spec import Cell, HostClass, ImageSpec, Lock, Variant
from validator.pipeline.fleet import unit_of
from validator.pipeline.run import PublishedImage

from .fake import FakeFleet
from .making import digest

# The names of units: the same for the same work, and different for any other.


#: Every field that is part of the name, with another value than `unit()` has.
OTHER: dict[str, Any] = {
    "image": "tf2.21.0-cuda12.5-cudnn9.3-py311",
    "image_digest": "sha256:" + "e" * 64,
    "lock_digest": "sha256:" + "f" * 64,
    "probe_version": "1.0.0+ffffffffffff",
    "depth": "full",
    "host_class": "r535-t4",
    "attempt": 2,
    "after": "0" * 32,
    "tasks": 2,
}


def test_a_name_is_valid_everywhere() -> None:
    assert re.fullmatch(r"tfm-[0-9a-f]{16}", unit().name)


def test_a_name_stays_the_same_between_releases() -> None:
    # A submitter of another release has to find the jobs that run.
    assert unit().name == "tfm-411806ede518eef6"


def test_every_field_but_the_reference_changes_the_name() -> None:
    assert {"reference", *OTHER} == {field.name for field in msgspec.structs.fields(Unit)}
    for field, value in OTHER.items():
        changes = {field: value}
        if field == "image_digest":
            changes["reference"] = f"registry.test/ours@{value}"
        assert msgspec.structs.replace(unit(), **changes).name != unit().name, field


def test_another_registry_does_not_change_the_name() -> None:
    elsewhere = msgspec.structs.replace(unit(), reference="mirror.test/x@" + unit().image_digest)
    assert elsewhere.name == unit().name


@given(st.permutations([unit(number) for number in range(6)]))
def test_an_array_is_named_after_its_units_in_any_order(units: list[Unit]) -> None:
    assert array_name(units) == array_name(unit(number) for number in range(6))
    assert array_name(units) != array_name(units[1:])


def test_attempts_end() -> None:
    found: Unit | None = unit()
    attempts = []
    while found is not None:
        attempts.append(found.attempt)
        found = found.next_attempt()
    assert attempts == list(range(1, ATTEMPTS + 1))


@dataclass
class Wrong:
    changes: dict[str, Any]
    message: str


@pytest.mark.parametrize(
    "wrong",
    [
        Wrong({"attempt": 0}, "attempts 1 to 3, not 0"),
        Wrong({"attempt": 4}, "attempts 1 to 3, not 4"),
        Wrong({"reference": "registry.test/ours:latest"}, "does not name the image"),
        Wrong({"image_digest": "sha256:" + "e" * 64}, "does not name the image"),
    ],
)
def test_a_unit_that_contradicts_itself_is_refused(wrong: Wrong) -> None:
    with pytest.raises(ValueError, match=wrong.message):
        msgspec.structs.replace(unit(), **wrong.changes)


@pytest.mark.parametrize(
    ("workers", "depth", "tasks"), [(2, "full", 2), (2, "quick", 1), (1, "full", 1), (1, "quick", 1)]
)
def test_units_run_on_as_many_nodes_as_the_fleet_says(
    workers: int, depth: str, tasks: int, tmp_path: Path
) -> None:
    host = HostClass.without_gpu()
    published = PublishedImage("tag", f"registry.test/ours@{digest(1)}", digest(1), sent=True)
    spec = ImageSpec("2.21.0", "3.12", Variant.CPU)
    lock = Lock(spec.identifier, "3.12", "x86_64-manylinux_2_28", (), ())
    unit = unit_of(
        Cell(spec, host), published, lock, "2.2.0+0", depth, FakeFleet(tmp_path, (), workers=workers)
    )
    assert (unit.tasks, unit.depth, unit.host_class) == (tasks, depth, host.identifier)
