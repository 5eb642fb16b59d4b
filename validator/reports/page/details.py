"""Make the details of a measured cell: a separate file that the page loads when the cell is opened."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any

from ...model.codec import encode
from ...model.diagnosis import WAYS, Diagnosis
from ...model.record import Certificate, Record
from ...model.report import CheckResult, Host
from ..printable import printable
from .chart import factor, milliseconds
from .measurements import MODES, Past, speed_of

#: The page's function that receives the content of the file.
_FUNCTION = "cellDetail"


def detail(
    record: Record, history: Sequence[Past], certificates: Sequence[Certificate], diagnosis: Diagnosis | None
) -> dict[str, Any]:
    """Return the details of a record as the page's script reads them."""
    findings = encode(diagnosis) if diagnosis else {"causes": [], "unknown": []}
    return {
        "record": {
            name: getattr(record, name)
            for name in (
                *("id", "reason", "engine", "base", "image_digest", "lock_digest"),
                *("probe_version", "started", "finished", "versions"),
            )
        }
        | {"origin": record.origin.value},
        "host": _host(record.facts),
        "layers": encode(record.layers or ()),
        "packages": dict(sorted(record.environment.packages.items())),
        "speed": _speed(record),
        "checks": [_check(check) for check in record.results],
        "causes": [
            cause
            | {
                "remedies": [
                    remedy | {"way": WAYS.get(remedy["way"], remedy["way"])} for remedy in cause["remedies"]
                ]
            }
            for cause in findings["causes"]
        ],
        "unknown": findings["unknown"],
        "certificates": [_certificate(certificate) for certificate in certificates],
        "history": _history(history),
    }


def detail_file(content: dict[str, Any], mark: str) -> tuple[str, str]:
    """Return the file's name and content.

    The name is a digest, so that a page never loads the details of another version of the page. The file is a
    script, since a page that was opened from disk can't load anything else.
    """
    text = script_json(content)
    name = hashlib.sha256(text.encode("ascii")).hexdigest()[:20]
    return name, f"// {mark}\n{_FUNCTION}({script_json(name)}, {script_json(text)});\n"


def _host(host: Host) -> dict[str, str]:
    """Return the facts that people ask for first, as text."""
    facts = {
        "GPU": ", ".join(host.gpu_names),
        "driver": host.driver,
        "CUDA of the driver": host.driver_cuda,
        "system": host.os,
        "kernel": host.kernel,
        "container": host.container,
    }
    return {name: value for name, value in facts.items() if value}


def _speed(record: Record) -> dict[str, str]:
    """Return the measured times of a training step, as text."""
    speed = speed_of(record)
    if speed is None:
        return {}
    steps = {f"step, {mode}, on the {speed.device}": milliseconds(speed.steps[mode].median) for mode in MODES}
    return {**steps, "speedup by XLA": factor(speed.speedup.median)}


def _check(check: CheckResult) -> dict[str, Any]:
    return {
        "id": check.id,
        "outcome": check.outcome.value,
        "summary": check.sentence,
        "required": check.required,
        "evidence": check.evidence.raw,
        "duration_s": check.duration_s,
    }


def _history(history: Sequence[Past]) -> list[dict[str, Any]]:
    """Return the history, newest first, each entry with what else changed since the one before."""
    fields = ("record", "finished", "verdict", "reason", "driver")
    entries = [
        {name: getattr(past, name) for name in fields}
        | {"changed": list(past.changed_since(earlier)) if earlier else []}
        for earlier, past in zip((None, *history), history, strict=False)
    ]
    return entries[::-1]


def _certificate(certificate: Certificate) -> dict[str, Any]:
    return {
        "issued": certificate.issued,
        "measured": certificate.measured,
        "signer": certificate.signer,
        "host_class": certificate.host_class,
        "driver": certificate.driver,
        "gpus": [f"{gpu.name} ({gpu.compute_capability})" for gpu in certificate.gpus],
        "record": certificate.record_id,
        "fixture": certificate.fixture,
        "limits": [limit.sentence for limit in certificate.limits],
    }


#: Characters that could end a script.
_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def clean(value: Any) -> Any:
    """Make every text in a value printable, and turn numbers that JSON can't express into text."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(str(key)): clean(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def script_json(value: Any) -> str:
    """Return a value as ASCII JSON in which `<`, `>` and `&` are escaped."""
    text = json.dumps(clean(value), separators=(",", ":"), allow_nan=False)
    return text.translate(_ESCAPES)
