"""The content of a certificate or of a failure, read from a statement whose signature was verified."""

from __future__ import annotations

import msgspec

from ..versions import ComputeCapability, DriverRelease
from . import codec
from .own_checks import OwnCheck


class GpuFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One GPU of the machine that measured. compute_capability: `9.0`."""

    name: str
    compute_capability: str

    @property
    def capability(self) -> ComputeCapability:
        return ComputeCapability.parse(self.compute_capability)


class Certificate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Signed evidence that an image's required checks passed on a real GPU.

    image_digest: of the image's manifest in the registry.
    image: the image spec's identifier, `tf2.21.0-cuda12.5-cudnn9.3-py312`.
    host_class: of the machine that measured, `r580-h100`. driver: its release, `580.65.06`.
    tensorflow, python, cuda, cudnn: versions, as the probe read them inside the image.
    passed, skipped, failed: the probe's checks by name; a failed one was not required.
    record_id: of the record that was certified.
    measured, issued, expires: when the probe ended, when it was signed, and until when it counts; UTC,
        ISO 8601.
    signer: the fingerprint of the key, or the identity, that signed.
    fixture: made by a test; proves nothing.
    checks: the user's own that the probe ran; their outcomes are among the others.
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
    expires: str
    signer: str
    fixture: bool = False
    checks: tuple[OwnCheck, ...] = ()

    @property
    def own_passed(self) -> tuple[str, ...]:
        """The ids of the user's own checks that passed."""
        return tuple(check.id for check in self.checks if check.id in self.passed)

    @property
    def driver_release(self) -> DriverRelease:
        return DriverRelease.parse(self.driver)


class Failure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Signed evidence that an image failed on a host class. It invalidates older certificates for that class.

    driver: None, and gpus: empty, if the probe could not read them. failed: the checks that went wrong, by
    name; empty if the probe wrote no report. The other fields are those of a certificate. A failure does not
    expire: only a newer certificate for the same host class replaces it.
    """

    image_digest: str
    image: str
    host_class: str
    driver: str | None
    gpus: tuple[GpuFacts, ...]
    failed: tuple[str, ...]
    record_id: str
    measured: str
    issued: str
    signer: str
    fixture: bool = False

    @property
    def why(self) -> str:
        """The reason, for an image that is rejected because of it."""
        what = ", ".join(self.failed) or "the probe wrote no report"
        return f"it failed on {self.host_class} ({what}), measured {self.measured}"


class Verification(msgspec.Struct, frozen=True):
    """The part of the output of `verify --format json` that other commands read."""

    certificates: tuple[Certificate, ...]


def read_verification(data: bytes | str) -> Verification:
    """Read the output of `verify --format json`. Raises DocumentError with the place and the reason."""
    return codec.convert(codec.parse(data), Verification)
