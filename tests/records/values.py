"""Make records and reports for the tests."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import msgspec

from validator.model.record import GpuIdentity, Measurement, Outside, Record, Verdict, statement_of
from validator.model.report import COMPUTING_CHECKS, Report, report_of
from validator.model.verdict import PROBE_VERSION, REQUIRED_CHECKS
from validator.records import record_files

from ..support import said

DRIVER = "580.65.06"
UUID = "GPU-11111111-2222-3333-4444-555555555555"
H100 = {"name": "NVIDIA H100 80GB HBM3", "compute_capability": "9.0", "uuid": UUID}
#: What the host says outside of the image that writes `report()`.
OUTSIDE = Outside(DRIVER, DRIVER, (GpuIdentity(UUID, H100["name"], "9.0"),))


def record(number: int = 0, **changes: Any) -> Record:
    fields: dict[str, Any] = {
        "cell": f"tf2.21.0-cpu-py3{number % 4}@no-gpu",
        "image": f"tf2.21.0-cpu-py3{number % 4}",
        "host_class": "no-gpu",
        "verdict": Verdict.UNPROVEN,
        "reason": "no GPU",
        "engine": "venv",
        "lock_digest": "sha256:00",
        "image_digest": None,
        "probe_version": "1+abc",
        "started": "2026-01-01T00:00:00+00:00",
        "finished": f"2026-01-01T00:{number // 60:02d}:{number % 60:02d}+00:00",
        "key": f"key{number}",
        "report": {"text": "x" * 200, "é": "ü\u2028"},
    }
    return Record(**(fields | changes))


def bundle(finished: str, started: str = "2026-01-01T00:00:00+00:00") -> str:
    """Return a bundle around the statement of a measurement. Its signature is not one."""
    cell = record(1)
    statement = statement_of(
        Measurement(
            image_digest=f"sha256:{1:064x}",
            image=cell.image,
            host_class=cell.host_class,
            cell=cell.cell,
            lock_digest=f"sha256:{2:064x}",
            report_digest=None,
            challenge=None,
            outside=Outside(DRIVER, DRIVER, ()),
            probe_version="1+abc",
            started=started,
            finished=finished,
            depth="quick",
            fixture=True,
        )
    )
    envelope = {"payload": base64.b64encode(statement).decode(), "signatures": [{"sig": "AAAA"}]}
    return json.dumps({"dsseEnvelope": envelope})


def report(gpus: list[dict[str, str]] | None = None, device: str = "GPU", **outcomes: str) -> Report:
    """Return a report in which every required check passes except those named; `missing` leaves one out."""
    return report_of(document(gpus, device, **outcomes))


def document(
    gpus: list[dict[str, str]] | None = None, device: str = "GPU", **outcomes: str
) -> dict[str, Any]:
    """Return the same as JSON."""
    checks = [
        {
            "id": name,
            "outcome": outcomes.get(name, "pass"),
            **said(f"about {name}"),
            "required": True,
            "evidence": {"device_type": device} if name in COMPUTING_CHECKS else {},
        }
        for name in REQUIRED_CHECKS
        if outcomes.get(name) != "missing"
    ]
    return {
        "format": 2,
        "probe": {"version": f"{PROBE_VERSION}+test"},
        "started": "",
        "finished": "",
        "host": {"driver": DRIVER, "kernel_driver": DRIVER, "gpus": [H100] if gpus is None else gpus},
        "environment": {},
        "checks": checks,
    }


def proven(made: Record, *gpus: dict[str, str]) -> Record:
    """Return a record with a report that gives its verdict."""
    written = document(list(gpus), "GPU" if gpus else "CPU")
    checks = [check.recorded() for check in report_of(written).checks]
    return msgspec.structs.replace(made, report=written, checks=checks)


def lines(*records: Record) -> bytes:
    """Return records as JSON Lines."""
    stream = io.StringIO()
    record_files.write(records, stream)
    return stream.getvalue().encode()
