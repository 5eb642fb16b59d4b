"""What a certificate says. It is read from a statement whose signature was found good."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..versions import ComputeCapability, DriverRelease


@dataclass(frozen=True)
class GpuFacts:
    """One GPU of the machine that measured. compute_capability: `9.0`."""

    name: str
    compute_capability: str

    @property
    def capability(self) -> ComputeCapability:
        return ComputeCapability.parse(self.compute_capability)


@dataclass(frozen=True)
class Certificate:
    """Signed evidence that an image's required checks passed on a real GPU.

    image_digest: of the image's manifest in the registry.
    image: the image spec's identifier, `tf2.21.0-cuda12.5-cudnn9.3-py312`.
    host_class: of the machine that measured, `r580-h100`. driver: its release, `580.65.06`.
    tensorflow, python, cuda, cudnn: versions, as the probe read them inside the image.
    passed, skipped, failed: the probe's checks by name; a failed one was not required.
    record_id: of the record that was certified.
    measured, issued: when the probe ended and when it was signed; UTC, ISO 8601.
    signer: the fingerprint of the key, or the identity, that signed.
    fixture: made by a test; proves nothing.
    """

    image_digest: str
    image: str
    host_class: str
    driver: str
    gpus: tuple[GpuFacts, ...]
    lock_digest: str
    probe_version: str
    tensorflow: str
    python: str
    cuda: str
    cudnn: str
    passed: tuple[str, ...]
    skipped: tuple[str, ...]
    failed: tuple[str, ...]
    record_id: str
    measured: str
    issued: str
    signer: str
    fixture: bool = False

    @property
    def driver_release(self) -> DriverRelease:
        return DriverRelease.parse(self.driver)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Certificate:
        """The inverse of `as_json`. Raises ValueError for anything else."""
        try:
            fields = dict(document)
            fields["gpus"] = tuple(GpuFacts(**gpu) for gpu in fields["gpus"])
            for name in ("passed", "skipped", "failed"):
                fields[name] = tuple(fields[name])
            return cls(**fields)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a certificate: {error}") from None
