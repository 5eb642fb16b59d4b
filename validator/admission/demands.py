"""Collect the demands that a cluster makes on the certificate of an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from ..certify.statement import PREDICATE
from ..certify.trust import Signatory
from ..certify.trust_file import TrustFile
from ..compat.errors import UnknownGpu
from ..compat.gpus import gpu
from ..errors import InputError
from ..model.additions import PREFIX
from ..model.own_checks import PACKAGES
from ..model.timestamps import TOLERANCE
from ..model.verdict import REQUIRED_CHECKS
from ..versions import ComputeCapability, DriverRelease


@dataclass(frozen=True)
class Demands:
    """The demands on a certificate.

    signatory: who must have signed it. drivers: the driver branches of the cluster. capabilities: the compute
    capabilities of its GPUs. max_age: the highest age of the measurement, or None. fixtures: True to accept
    only certificates that a test made up. refuse_limits: codes of limits that no certificate may have.
    """

    signatory: Signatory
    drivers: tuple[int, ...]
    capabilities: tuple[ComputeCapability, ...]
    max_age: timedelta | None = None
    fixtures: bool = False
    refuse_limits: tuple[str, ...] = ()

    def document(self) -> dict[str, object]:
        """Return the demands as JSON, for policies in languages that can read it."""
        return {
            "predicateType": PREDICATE,
            "drivers": [str(driver) for driver in self.drivers],
            "capabilities": [str(one) for one in self.capabilities],
            "checks": list(REQUIRED_CHECKS),
            "addedPackages": PACKAGES,
            "ownChecks": PREFIX,
            "refusedLimits": list(self.refuse_limits),
            "fixture": self.fixtures,
            "maxAgeSeconds": None if self.max_age is None else int(self.max_age.total_seconds()),
            "toleranceSeconds": int(TOLERANCE.total_seconds()),
        }


def demands(
    trust: TrustFile,
    drivers: Sequence[str],
    gpus: Sequence[str],
    max_age: timedelta | None = None,
    *,
    fixtures: bool = False,
) -> Demands:
    """Return what a cluster demands.

    drivers: releases or branches. gpus: models or compute capabilities. Raises InputError if the trust file
    does not say who signs certificates, for names that are not known, and for a throw-away key without
    `fixtures`.
    """
    signatory = trust.release
    if signatory is None:
        raise InputError(
            "the trust file does not say who signs certificates, so there is nobody to trust",
            hint="name the key or the identity under `release`",
        )
    if signatory.throw_away and not fixtures:
        raise InputError(
            "the release key of the trust file is a throw-away key, which only signs what tests make up",
            hint="use --fixtures for a test",
        )
    if fixtures and not signatory.throw_away:
        raise InputError("--fixtures needs a throw-away key under `release` in the trust file")
    return Demands(
        signatory,
        tuple(sorted({_branch(driver) for driver in drivers})),
        tuple(sorted({_capability(model) for model in gpus})),
        max_age,
        fixtures,
        trust.refuse_limits,
    )


def _branch(text: str) -> int:
    try:
        return DriverRelease.parse(text).branch
    except ValueError as error:
        raise InputError(f"--driver: {error}") from None


def _capability(text: str) -> ComputeCapability:
    try:
        return ComputeCapability.parse(text)
    except ValueError:
        pass
    try:
        return gpu(text).compute_capability
    except UnknownGpu as error:
        raise InputError(f"--gpu: {error}", hint=error.hint) from None
