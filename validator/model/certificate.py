"""The content of a certificate or of a failure, read from a statement whose signature was verified."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ..versions import ComputeCapability, DriverRelease
from . import codec
from .own_checks import OwnCheck
from .prediction import Limit


class GpuFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One GPU of the machine that measured."""

    name: Annotated[str, Meta(description="The model.")]
    compute_capability: Annotated[str, Meta(description="Such as `9.0`.")]

    @property
    def capability(self) -> ComputeCapability:
        return ComputeCapability.parse(self.compute_capability)


class Certificate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Signed evidence that an image's required checks passed on a real GPU."""

    image_digest: Annotated[str, Meta(description="The digest of the image's manifest in the registry.")]
    image: Annotated[str, Meta(description="The identifier of the image spec.")]
    host_class: Annotated[
        str,
        Meta(description="The host class of the machine that measured, such as `r580-h100`."),
    ]
    driver: Annotated[str, Meta(description="The release of the driver, such as `580.65.06`.")]
    gpus: Annotated[
        tuple[GpuFacts, ...],
        Meta(description="The `name` and `compute_capability` of each GPU."),
    ]
    lock_digest: Annotated[str, Meta(description="As in the record.")]
    probe_version: Annotated[str, Meta(description="As in the record.")]
    tensorflow: Annotated[
        str,
        Meta(description="The version, as the probe read it inside the image, like the next three."),
    ]
    python: Annotated[str, Meta(description="The version.")]
    cuda: Annotated[str, Meta(description="The version.")]
    cudnn: Annotated[str, Meta(description="The version.")]
    passed: Annotated[tuple[str, ...], Meta(description="The names of the probe's checks that passed.")]
    skipped: Annotated[tuple[str, ...], Meta(description="Those that were skipped.")]
    failed: Annotated[tuple[str, ...], Meta(description="Those that failed; none of them was required.")]
    record_id: Annotated[str, Meta(description="The id of the record.")]
    measured: Annotated[str, Meta(description="When the probe ended. UTC, ISO 8601, as the other times.")]
    issued: Annotated[str, Meta(description="When it was signed.")]
    expires: Annotated[str, Meta(description="Until when it counts.")]
    signer: Annotated[
        str,
        Meta(
            description="The fingerprint of the public key (`sha256:` over its DER encoding), or the"
            " identity."
        ),
    ]
    fixture: Annotated[bool, Meta(description="Made by a test; proves nothing.")] = False
    checks: Annotated[
        tuple[OwnCheck, ...],
        Meta(
            description="The user's own checks that the probe ran: the `id` (`ours/our_check`), the"
            " `sha256` of its file, and whether it was `required`."
        ),
    ] = ()
    limits: Annotated[
        tuple[Limit, ...],
        Meta(
            description="What failed only in full float32, with TensorFloat-32 off: the `code`, the `gpu`"
            " and the `error` of each."
        ),
    ] = ()

    @property
    def own_passed(self) -> tuple[str, ...]:
        """The ids of the user's own checks that passed."""
        return tuple(check.id for check in self.checks if check.id in self.passed)

    @property
    def driver_release(self) -> DriverRelease:
        return DriverRelease.parse(self.driver)


class Failure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Signed evidence that an image failed on a host class. It invalidates older certificates for that class.

    A failure does not expire: only a newer certificate for the same host class replaces it.
    """

    image_digest: Annotated[str, Meta(description="The digest of the image's manifest in the registry.")]
    image: Annotated[str, Meta(description="The identifier of the image spec.")]
    host_class: Annotated[
        str,
        Meta(description="The host class of the machine that measured, such as `r580-h100`."),
    ]
    driver: Annotated[
        str | None,
        Meta(description="As in a certificate; null if the probe could not read it."),
    ]
    gpus: Annotated[
        tuple[GpuFacts, ...],
        Meta(description="As in a certificate; empty if the probe could not read them."),
    ]
    failed: Annotated[
        tuple[str, ...],
        Meta(description="The names of the checks that went wrong; empty if the probe wrote no report."),
    ]
    record_id: Annotated[str, Meta(description="The id of the record.")]
    measured: Annotated[str, Meta(description="When the probe ended. UTC, ISO 8601, as the other times.")]
    issued: Annotated[str, Meta(description="When it was signed.")]
    signer: Annotated[
        str,
        Meta(
            description="The fingerprint of the public key (`sha256:` over its DER encoding), or the"
            " identity."
        ),
    ]
    fixture: Annotated[bool, Meta(description="Made by a test; proves nothing.")] = False

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
