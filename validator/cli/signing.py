"""Choose who signs what `build-matrix --push` builds, and the list that `sbom --attach` attaches to it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from ..certify.machine import BUILDERS, RUNNERS, Ledger, own_signer, read_challenges, register, trusts_labels
from ..certify.signatures import Signer, is_installed, parse_bundle
from ..certify.trust import read_trust_file
from ..compat.gpus import model_of
from ..engines.protocol import Engine
from ..errors import MissingError, ValidatorError
from ..matrix.plan import Plan
from ..model.measurement import Unread
from ..model.spec import NO_GPU
from ..pipeline.run import Runner
from .options import print_status

_UNSIGNED = "What is built here can't be certified"


def builder_of(trust_path: Path, key: str | None, identity: str | None, issuer: str | None) -> Signer | None:
    """Return who signs what is built here; prints why nobody does, or whose signature will not count."""
    if key is None and identity is None:
        registration = register(trust_path, BUILDERS)
        if registration.said:
            print_status(registration.said)
        return registration.signer
    if not is_installed():
        print_status(f"{_UNSIGNED}: the program cosign is not installed")
        return None
    signer = _signer(key, identity, issuer)
    if (stranger := _stranger(signer, trust_path)) is not None:
        print_status(f"{_UNSIGNED}: {trust_path} has no builder {stranger}")
    return signer


def trusted_builder_of(trust_path: Path, key: str | None, identity: str | None, issuer: str | None) -> Signer:
    """Return the signer of statements about an image that is already in a registry.

    Raises MissingError if nobody can, and ValidatorError if the trust file does not list the signer.
    """
    if key is None and identity is None:
        registration = register(trust_path, BUILDERS)
        if registration.signer is None:
            raise MissingError(registration.said or "this machine has no key")
        if registration.said:
            print_status(registration.said)
        return registration.signer
    signer = _signer(key, identity, issuer)
    if (stranger := _stranger(signer, trust_path)) is not None:
        raise ValidatorError(
            f"{trust_path} has no builder {stranger}, so nobody would accept what it signs",
            hint="use the key of a builder in that file, or name another file with --trust",
        )
    return signer


def _signer(key: str | None, identity: str | None, issuer: str | None) -> Signer:
    return Signer(key, os.environ.get("COSIGN_PASSWORD", "") if key else None, identity, issuer)


def _stranger(signer: Signer, trust_path: Path) -> str | None:
    """Return the name of a signer that is not a builder in the trust file; None for a builder."""
    with signer.trust() as own:
        known = read_trust_file(trust_path).builders if trust_path.exists() else ()
        return None if any(one.signatory.signer == own.signer for one in known) else own.signer


# Set up `build-matrix` to sign what it measures: the machine's key, and the challenges that are answered.


def challenges_for(plan: Plan, challenge: str | None, file: Path | None) -> Mapping[str, str] | None:
    """Return the challenges that were given, by cell or by image spec; None if there are none.

    Raises UsageError or InputError.
    """
    if file is not None:
        return {entry.asked: value for value, entry in read_challenges(file).by_value.items()}
    if challenge is None:
        return None
    if len(plan.images) != 1:
        raise click.UsageError(
            f"--challenge is for one measurement, but {len(plan.images)} images are selected;"
            " use --select image=NAME, or --challenges FILE"
        )
    asked = plan.cells[0].cell.identifier if len(plan.cells) == 1 else plan.images[0].identifier
    return {asked: challenge}


def runner_of(engine: Engine, trust_path: Path, *, asked: bool) -> Runner | None:
    """Return what signs this machine's measurements, or None where nothing can be signed.

    If a measurement on a GPU can't be signed, one line says why. asked: somebody else will certify, who
    gave the challenges and has their own trust file. Otherwise, this machine is registered in `trust_path` if
    it was not yet. Raises InputError if the key or the file can't be used.
    """
    outside = engine.outside()
    if isinstance(outside, Unread):
        if outside not in (Unread.NO_GPU_OFFERED, Unread.NVML_SILENT):
            print_status(f"Measurements here are at most unproven: {outside.sentence}.")
        return None
    if not outside.gpus:
        return None
    if not engine.isolates:
        print_status(
            "What is measured here can't be certified: only the containers of --engine docker keep it away"
            " from this machine's key."
        )
        return None
    signer = _signer_of((model_of(gpu.name) for gpu in outside.gpus), trust_path, asked=asked)
    return _runner(signer, labels_trusted=False) if signer is not None else None


def fleet_runner_of(host_classes: Iterable[str], trust_path: Path, *, asked: bool) -> Runner | None:
    """Return what signs the measurements of a fleet: this machine's key, for the cluster as one runner.

    host_classes: those that will be measured. asked: see `runner_of`.
    """
    models = sorted({name.partition("-")[2] for name in host_classes if name != NO_GPU})
    if not models:
        return None
    signer = _signer_of(models, trust_path, asked=asked, remark=" Its key signs for all nodes.")
    if signer is None:
        return None
    return _runner(signer, labels_trusted=trusts_labels(trust_path, signer))


def _signer_of(models: Iterable[str], trust_path: Path, *, asked: bool, remark: str = "") -> Signer | None:
    """Return this machine's key, or print what is missing.

    Unless `asked`, register this machine for these GPU models in the trust file, and print that and `remark`.
    """
    if not asked:
        registration = register(trust_path, RUNNERS, tuple(dict.fromkeys(models)))
        if registration.said:
            print_status(f"{registration.said}.{remark}")
        return registration.signer
    signer = own_signer(RUNNERS)
    if signer is None:
        print_status(
            "What is measured here can't be certified: this machine has no key. Make one with `runner init`,"
            " and add the line that it prints to the trust.yaml of whoever certifies."
        )
    return signer


def _runner(signer: Signer, *, labels_trusted: bool) -> Runner:
    def sign(statement: bytes) -> str:
        return parse_bundle(signer.sign(statement)).canonical.decode()

    return Runner(sign, lambda cell: Ledger().issue(cell).value, labels_trusted)
