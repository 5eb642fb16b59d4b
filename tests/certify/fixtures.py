"""Records of made-up measurements, each marked as a fixture, and throw-away keys.

Nothing of this exists outside a test's own directory and its own registry.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from validator.certify.trust import THROW_AWAY, Trust
from validator.model.codec import encode, format_timestamp, now_utc
from validator.model.prediction import Limit
from validator.model.record import Record, Verdict
from validator.model.report import COMPUTING_CHECKS
from validator.model.verdict import PROBE_VERSION, REQUIRED_CHECKS
from validator.registry.names import additions_of

from ..support import said
from .private_keys import KeyOwner, make_key

PASSWORD = "c0b6-a-password-of-these-tests-9f31"
LOCK = "sha256:" + "5" * 64
#: The made-up measurements ended an hour ago, since certificates expire.
MEASURED_AT = now_utc().replace(microsecond=0) - timedelta(hours=1)
MEASURED = format_timestamp(MEASURED_AT)
GPUS = {
    "h100": {"name": "NVIDIA H100 80GB HBM3", "compute_capability": "9.0"},
    "a100": {"name": "NVIDIA A100-SXM4-40GB", "compute_capability": "8.0"},
    "t4": {"name": "Tesla T4", "compute_capability": "7.5"},
}
EVIDENCE: dict[str, dict[str, Any]] = {
    **{name: {"device_type": "GPU"} for name in COMPUTING_CHECKS},
    "cuda_libraries": {"libraries": [{"soname": "libcudart.so.12", "version": "12.5.82"}]},
    "cudnn_load": {"library": {"soname": "libcudnn.so.9", "version": "9.3.0"}},
}
#: Not required, so that it may fail or be skipped in a certified record.
OPTIONAL = ("xla_speedup", "multi_gpu")


def report(driver: str = "580.65.06", gpu: str = "h100", **environment: str) -> dict[str, Any]:
    """Return a report as a probe would write it on such a machine, marked as a fixture."""
    card = {**GPUS[gpu], "uuid": "GPU-00000000-0000-0000-0000-000000000000", "memory_bytes": 80 << 30}
    library = {"answered": True, "error": None, "path": "/usr/lib/x86_64-linux-gnu/libcuda.so.1"}
    node = {"path": "/dev/nvidia0", "device": True, "registered": True, "opens": True, "error": None}
    outcomes = [(name, "pass", True) for name in REQUIRED_CHECKS]
    outcomes += [("xla_speedup", "fail", False), ("multi_gpu", "skip", False)]
    return {
        "format": 2,
        "probe": {"version": f"{PROBE_VERSION}+fixture"},
        "fixture": True,
        "started": "2026-11-20T01:00:00Z",
        "finished": "2026-11-20T01:02:00Z",
        "host": {
            "driver": driver,
            "driver_cuda": "13.0",
            "gpus": [card],
            "kernel": "6.8.0-generic",
            "machine": "x86_64",
            "os": "Debian GNU/Linux 12 (bookworm)",
            "glibc": "2.36",
            "container": "docker",
            "wsl": False,
            "kernel_driver": driver,
            "device_nodes": [node],
            "driver_libraries": {"nvml": library, "cuda": library},
        },
        "environment": {"python": "3.12.7", "tensorflow": "2.21.0", "packages": {}, "variables": {}}
        | environment,
        "checks": [
            {
                "id": name,
                "outcome": outcome,
                **said(f"about {name}", outcome),
                "required": required,
                "evidence": EVIDENCE.get(name, {}),
                "duration_s": 0.0,
            }
            for name, outcome, required in outcomes
        ],
    }


#: What a probe saw fail only with TensorFloat-32 off.
LIMIT = Limit("xla_convolution_float32", "NVIDIA H100 80GB HBM3", "no algorithm worked")


def limited_check(*limits: Limit) -> dict[str, Any]:
    """Return a check that passed and found these limits."""
    return {
        "id": "xla_convolution",
        "outcome": "pass",
        "statement": None,
        "problems": [{"severity": "limit", **encode(limit)} for limit in limits],
        "required": True,
        "evidence": EVIDENCE["xla_convolution"],
        "duration_s": 0.0,
    }


def with_limits(found: Mapping[str, Any], *limits: Limit) -> dict[str, Any]:
    """Return a report in whose check `xla_convolution` these limits were found."""
    limited = limited_check(*limits)
    checks = [limited if check["id"] == limited["id"] else check for check in found["checks"]]
    return {**found, "checks": checks}


def record(
    digest: str,
    *,
    tensorflow: str = "2.21.0",
    python: str = "3.12",
    driver: str = "580.65.06",
    gpu: str = "h100",
    finished: str = MEASURED,
    found: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Record:
    """Return a record of a fixture. found: its report, if not that of such a machine."""
    made = dict(found or report(driver, gpu, tensorflow=tensorflow, python=f"{python}.7"))
    image = f"tf{tensorflow}-cuda12.5-cudnn9.3-py{python.replace('.', '')}"
    if found is None and additions_of(changes.get("image", image)) is not None:
        made["checks"] = [*made["checks"], {**made["checks"][0], "id": "packages"}]
    host_class = f"r{driver.partition('.')[0]}-{gpu}"
    fields: dict[str, Any] = {
        "cell": f"{image}@{host_class}",
        "image": image,
        "host_class": host_class,
        "verdict": Verdict.CERTIFIED,
        "reason": "a fixture",
        "engine": "docker",
        "lock_digest": LOCK,
        "image_digest": digest,
        "probe_version": made["probe"]["version"],
        "started": finished,
        "finished": finished,
        "key": "fixture",
        "host": made["host"],
        "versions": {"tensorflow": tensorflow, "python": f"{python}.7", "cuda": "12.5.82", "cudnn": "9.3.0"},
        "checks": made["checks"],
        "report": made,
    }
    return Record(**(fields | changes))


def throw_away_key(directory: Path, name: str = "throw-away") -> tuple[KeyOwner, Trust]:
    """Return a key pair for a test, and the trust that accepts its signatures."""
    plain, prefix = directory / f"{name}.pem", directory / name
    make_key(plain)
    subprocess.run(
        ["cosign", "import-key-pair", "--key", plain, "--output-key-prefix", prefix],
        env=os.environ | {"COSIGN_PASSWORD": PASSWORD}, capture_output=True, check=True,
    )  # fmt: skip
    private, public = prefix.with_suffix(".key"), prefix.with_suffix(".pub")
    for file in (private, public):
        file.write_text(f"{THROW_AWAY}\n{file.read_text(encoding='ascii')}", encoding="ascii")
    return KeyOwner(key=str(private), password=PASSWORD, plain=plain), Trust(key=public, fixtures=True)
