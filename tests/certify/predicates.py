"""Predicates of certificates, changed in ways that policies have to notice."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from validator.certify.statement import statement
from validator.model.codec import format_timestamp
from validator.model.report import report_of

from .fixtures import MEASURED_AT, record
from .measuring import measurement_of_record

Predicate = dict[str, Any]
Change = Callable[[Predicate], object]


def part(predicate: Predicate, name: str) -> dict[str, Any]:
    """Return the annotations of an entry of the configuration."""
    found: dict[str, Any] = next(one for one in predicate["configuration"] if one["name"] == name)
    return found["annotations"]  # type: ignore[no-any-return]


def at(hours: float) -> str:
    """Return a time, counted from the end of the measurement, which was an hour ago."""
    return format_timestamp(MEASURED_AT + timedelta(hours=hours))


def with_more_checks(predicate: Predicate) -> None:
    """Add packages to the image, and checks of the user's own, all of which passed if they are required."""
    predicate["configuration"].append({"name": "ours/loss", "annotations": {"required": True}})
    predicate["configuration"].append({"name": "ours/more", "annotations": {"required": False}})
    part(predicate, "image").update(spec="tf2.21.0-cuda12.5-cudnn9.3-py312_ours")
    predicate["passedTests"].extend(["ours/loss", "packages"])


#: What makes a certificate for R580 and H100 one that a cluster with these must reject.
REJECTED: tuple[Change, ...] = (
    lambda p: part(p, "host").update(driver="535.183.01"),
    lambda p: part(p, "host").update(driver="5801.1"),
    lambda p: part(p, "host")["gpus"][0].update(compute_capability="8.0"),
    lambda p: part(p, "host")["gpus"].append({"name": "A100", "compute_capability": "8.0"}),
    lambda p: part(p, "host").update(gpus=[]),
    lambda p: p.update(result="FAILED"),
    lambda p: p["passedTests"].remove("gpu_compute"),
    lambda p: part(p, "certificate").update(fixture=False),
    lambda p: part(p, "certificate").update(expires=at(0.5)),
    lambda p: part(p, "certificate").update(issued=at(3)),
    lambda p: part(p, "certificate").update(issued=at(-1)),
    lambda p: part(p, "certificate").update(expires="later"),
    lambda p: part(p, "image").update(spec="tf2.21.0-cuda12.5-cudnn9.3-py312_ours"),
    lambda p: p["configuration"].append({"name": "ours/loss", "annotations": {"required": True}}),
    lambda p: p["configuration"].append({"name": "host", "annotations": {"driver": "580.1"}}),
    lambda p: p["configuration"].clear(),
)


def predicate() -> Predicate:
    """Return the predicate of a good certificate of a fixture: R580 and H100, issued now."""
    made = record("sha256:" + "1" * 64)
    assert made.report is not None
    text = statement(
        made,
        report_of(made.report),
        measurement_of_record(made, None),
        "registry.example/tensorflow",
        issued=at(1),
        expires=at(1000),
    )
    found: Predicate = json.loads(text)["predicate"]
    return found


def changed(good: Predicate, change: Change) -> Predicate:
    """Return a copy of a predicate with a change."""
    found = copy.deepcopy(good)
    change(found)
    return found
