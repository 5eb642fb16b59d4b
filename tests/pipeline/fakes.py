"""A fake engine, for tests of the pipeline that build nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from validator.engines.protocol import Built, ProbeRequest
from validator.errors import ValidatorError
from validator.model.record import GpuIdentity, Outside, Unread
from validator.model.report import COMPUTING_CHECKS
from validator.model.spec import ImageSpec, Lock
from validator.model.verdict import PROBE_VERSION, REQUIRED_CHECKS
from validator.system.processes import Progress

from ..support import said

H100: dict[str, Any] = {
    "driver": "580.95.05",
    "kernel_driver": "580.95.05",
    "gpus": [{"name": "NVIDIA H100 80GB HBM3", "compute_capability": "9.0", "uuid": "GPU-H100"}],
}
NO_GPU: dict[str, Any] = {"driver": None, "gpus": []}


def report(host: dict[str, Any] = NO_GPU, **outcomes: str) -> bytes:
    """Return a probe's report in which every required check passes, except those named."""
    checks = [
        {
            "id": name,
            "outcome": outcomes.get(name, "pass" if host["gpus"] or name == "xla_train_step" else "skip"),
            **said(f"about {name}", outcomes.get(name, "pass")),
            "required": True,
            "evidence": {"device_type": "GPU" if host["gpus"] else "CPU"} if name in COMPUTING_CHECKS else {},
        }
        for name in REQUIRED_CHECKS
    ]
    document = {
        "format": 2,
        "probe": {"version": f"{PROBE_VERSION}+test"},
        "started": "2026-01-01T00:00:00Z",
        "finished": "2026-01-01T00:00:09Z",
        "host": host,
        "environment": {"python": "3.11.2", "tensorflow": "2.21.0"},
        "checks": checks,
    }
    return json.dumps(document).encode()


def outside_of(host: dict[str, Any]) -> Outside | Unread:
    """Return what a host says that agrees with this `host` of a report."""
    if not host["gpus"]:
        return Unread.NO_GPU_OFFERED
    gpus = tuple(GpuIdentity(gpu["uuid"], gpu["name"], gpu["compute_capability"]) for gpu in host["gpus"])
    return Outside(host["driver"], host["kernel_driver"], gpus)


@dataclass
class FakeEngine:
    """Returns or raises what it was given. `builds`, `probes` and `requests` list the calls.

    images: what it has built, by lock.
    """

    answer: bytes | ValidatorError | Callable[[], bytes] = b""
    build_error: ValidatorError | None = None
    lacks: str = ""
    facts: dict[str, Any] = field(default_factory=lambda: {"kernel": "6.1"})
    digest: str | None = "sha256:image"
    name: str = "docker"
    isolates: bool = True
    seen: Outside | Unread = Unread.NO_GPU_OFFERED
    builds: list[str] = field(default_factory=list)
    images: dict[str, Built] = field(default_factory=dict)
    probes: list[str] = field(default_factory=list)
    requests: list[ProbeRequest] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    guard: threading.Lock = field(default_factory=threading.Lock)

    def describe(self) -> str:
        return "a fake"

    def provides(self, python: str) -> str | None:
        return f"Python {python} is not installed" if python == self.lacks else None

    def host_facts(self) -> dict[str, Any]:
        return self.facts

    def outside(self) -> Outside | Unread:
        return self.seen

    def existing(self, spec: ImageSpec, lock: Lock) -> Built | None:
        return self.images.get(f"{spec} {lock.digest}")

    def build(self, spec: ImageSpec, lock: Lock, progress: Progress) -> Built:
        self.builds.append(spec.identifier)
        progress("building")
        if self.build_error is not None:
            raise self.build_error
        built = Built(spec, f"image:{spec}", lock.digest, self.digest, "registry:python")
        return self.images.setdefault(f"{spec} {lock.digest}", built)

    def probe(self, built: Built, request: ProbeRequest, progress: Progress) -> bytes:
        with self.guard:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            self.probes.append(built.spec.identifier)
            self.requests.append(request)
            if isinstance(self.answer, ValidatorError):
                raise self.answer
            return self.answer() if callable(self.answer) else self.answer
        finally:
            with self.guard:
                self.at_once -= 1

    def close(self) -> None:
        pass
