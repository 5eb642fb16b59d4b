"""Choose who signs what is built and measured here, and measure the images of a received bundle."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from ..certify.signatures import Signer, is_installed, parse_bundle
from ..certify.trust import Ledger, read_challenges
from ..certify.trust_file import BUILDERS, RUNNERS, own_signer, read_trust_file, register, trusts_labels
from ..compat.hardware import model_of
from ..engines.docker import DockerEngine
from ..engines.endpoint import connect, connect_podman
from ..engines.images import load_from_layout
from ..engines.protocol import Engine
from ..errors import EXIT_OK, InputError, MissingError, ValidatorError
from ..matrix.plan import Plan
from ..model.record import Unread
from ..model.spec import NO_GPU
from ..offline.receive import MANIFEST, read_bundle
from ..pipeline.bundle import measure
from ..pipeline.run import Runner
from ..records import record_files
from ..system.files import read_file, write_atomically
from .options import Builder, print_status

_UNSIGNED = "What is built here can't be certified"


def builder_of(trust_path: Path, builder: Builder, *, needed: bool = False) -> Signer | None:
    """Return who signs what is built here; prints why nobody does, or whose signature will not count.

    needed: for an image that is already in a registry. Then what would be printed is a MissingError or a
    ValidatorError, and there is always a signer.
    """
    if not builder.is_named:
        registration = register(trust_path, BUILDERS)
        if needed and registration.signer is None:
            raise MissingError(registration.said or "this machine has no key")
        if registration.said:
            print_status(registration.said)
        return registration.signer
    if not needed and not is_installed():
        print_status(f"{_UNSIGNED}: the program cosign is not installed")
        return None
    password = os.environ.get("COSIGN_PASSWORD", "") if builder.builder_key else None
    signer = Signer(builder.builder_key, password, builder.identity, builder.issuer)
    with signer.trust() as own:
        name = own.signer
    known = read_trust_file(trust_path).builders if trust_path.exists() else ()
    if any(one.signatory.signer == name for one in known):
        return signer
    stranger = f"{trust_path} has no builder {name}"
    if needed:
        raise ValidatorError(
            f"{stranger}, so nobody would accept what it signs",
            hint="use the key of a builder in that file, or name another file with --trust",
        )
    print_status(f"{_UNSIGNED}: {stranger}")
    return signer


# Set up `build-matrix` to sign what it measures: the machine's key, and the challenges that are answered.


def challenges_for(plan: Plan, challenge: str | None, file: Path | None) -> Mapping[str, str] | None:
    """Return the challenges that were given, by cell or by image spec; None if there are none."""
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


# `./measure` of a received bundle starts this with the tool that is in the bundle.


def measure_received() -> int:
    """Measure an image, and add each record to a file as soon as it is there.

    Its arguments: the bundle's directory, the tag, `docker` or `podman`, the name to load under, the file.
    """
    directory, tag, choice, reference, file = sys.argv[1:]
    received, output = Path(directory), Path(file)
    bundle = read_bundle(read_file(received / MANIFEST))
    image = next(image for image in bundle.images if image.tag == tag)
    endpoint = connect_podman() if choice == "podman" else connect()
    engine = DockerEngine(endpoint)
    with contextlib.closing(engine):
        print_status(f"Engine: {engine.describe()}")
        load_from_layout(endpoint, reference, received / "images", image.digest, print_status)
        name = endpoint.client.images.get(reference).id
        if name is None:
            raise InputError(f"{reference}: the engine does not say which image it has loaded")
        runner = runner_of(engine, received / "trust" / "trust.yaml", asked=True)
        for record in measure(
            received, bundle, image, engine, lambda asked: engine.probe_image(name, asked, print_status),
            runner, print_status,
        ):  # fmt: skip
            text = io.StringIO()
            record_files.write([record], text)
            before = output.read_bytes() if output.exists() else b""
            write_atomically(output, before + text.getvalue().encode())
    return EXIT_OK
