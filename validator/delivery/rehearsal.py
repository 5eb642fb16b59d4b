"""Rehearse the way from a measured image to a pull: every gate must reject it, and then it goes on.

Each step first asks what a user would ask, with the options that accept the most: trust in the rehearsal's
own keys, fixtures, expired certificates. If anything is accepted, `Accepted` ends the rehearsal. Then the
step does the same work in the rehearsal's own name: it signs, sets a tag, pulls by digest. The registry is
the program `docker-registry`, which runs on this machine for as long as the rehearsal.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from ..certify import signatures
from ..certify.acceptance import Certifier, NotCertifiable, certify
from ..certify.signatures import BundleError, NotVerified, Signer, parse_bundle
from ..certify.statement import REHEARSAL_PREDICATE, STATEMENT_V1
from ..certify.trust import IssuedChallenges, Terms, Trust, TrustFile
from ..certify.verify import certificates, promote
from ..errors import MissingError, ValidatorError
from ..model import codec
from ..model.codec import DocumentError, format_timestamp
from ..model.record import REHEARSAL, Origin, Record
from ..registry.client import Registry
from ..registry.names import tag_of
from ..system import processes, runs
from .choose import Host, Standing, TaggedImage, recommend
from .pull import Engine, NotCertified, SelectedImage, local_ids, select_named

PROGRAM = "docker-registry"
_ANSWER_WITHIN_S = 30.0
_POLL_S = 0.05
#: Another program may take the free port before the registry does.
_TRIES = 3
_CONFIGURATION, _LOG = "config.json", "log"


@contextlib.contextmanager
def loopback_registry(directory: Path) -> Iterator[str]:
    """Run a registry that keeps everything in `directory`, and return its address (`127.0.0.1:41234`).

    Only this machine can reach it, and it needs no login. Raises MissingError if the program is not installed
    or does not start.
    """
    program = shutil.which(PROGRAM)
    if program is None:
        raise MissingError(
            f"the program {PROGRAM} is not installed, so no registry can be started on this machine",
            hint=f"install it (Debian: apt-get install {PROGRAM}), or use a registry that is running already",
        )
    directory.mkdir(parents=True, exist_ok=True)
    process, address = _start(program, directory)
    try:
        yield address
    finally:
        process.terminate()
        try:
            process.wait(processes.GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def serve_command(directory: Path) -> list[str]:
    """Return the command that serves what a registry left in its directory, at the same address."""
    return [PROGRAM, "serve", str(directory / _CONFIGURATION)]


def _start(program: str, directory: Path) -> tuple[subprocess.Popen[bytes], str]:
    for _ in range(_TRIES):
        address = f"127.0.0.1:{_free_port()}"
        configuration = {
            "version": 0.1,
            "log": {"level": "warn"},
            "storage": {"filesystem": {"rootdirectory": str(directory / "storage")}},
            "http": {"addr": address},
        }
        # JSON is YAML too.
        (directory / _CONFIGURATION).write_text(json.dumps(configuration), encoding="utf-8")
        with open(directory / _LOG, "wb") as log:
            process = subprocess.Popen(
                [program, "serve", str(directory / _CONFIGURATION)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, **runs.environment_of_children()},
                # Ctrl-C reaches only this process, which ends the registry last.
                start_new_session=True,
            )  # fmt: skip
        if _answers(process, address):
            return process, address
        process.kill()
        process.wait()
    said = (directory / _LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    raise MissingError(f"{PROGRAM} did not start: {said[-1][:300] if said else 'it printed nothing'}")


def _answers(process: subprocess.Popen[bytes], address: str) -> bool:
    """Wait until the registry answers. Return False if it ends, as it does where its port is taken."""
    deadline = time.monotonic() + _ANSWER_WITHIN_S
    while process.poll() is None and time.monotonic() < deadline:
        processes.check_stopping()
        # Not urllib: a proxy of the environment can't reach this address.
        connection = http.client.HTTPConnection(address, timeout=1)
        with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
            connection.request("GET", "/v2/")
            if connection.getresponse().status == http.client.OK:
                return process.poll() is None
        time.sleep(_POLL_S)
    return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


#: The alias of a rehearsal. No command pulls by it.
ALIAS = f"{REHEARSAL}-latest"


class Accepted(ValidatorError):
    """Something accepted what a rehearsal made. That must never happen."""

    def __init__(self, step: str, what: str) -> None:
        super().__init__(
            f"{REHEARSAL}: {step} accepted {what}, which proves nothing",
            hint="don't rely on certificates until this is understood: it is an error in this program",
        )


@dataclass(frozen=True)
class Rehearsed:
    """An image that a rehearsal pushed and measured. tag: its tag in the registry."""

    record: Record
    tag: str

    @property
    def digest(self) -> str:
        return str(self.record.image_digest)

    @property
    def described(self) -> TaggedImage:
        """The image as its tag without the rehearsal's mark describes it."""
        found = TaggedImage.of_tag(tag_of(self.record.image))
        assert found is not None
        return replace(found, tag=self.tag)


@dataclass(frozen=True)
class Step:
    """A step of a rehearsal. did: a sentence without a capital letter."""

    image: str
    name: str
    did: str


@dataclass(frozen=True)
class Stage:
    """What a rehearsal works with. signer, trust, parties: made for it, and thrown away afterwards."""

    registry: Registry
    signer: Signer
    trust: Trust
    parties: TrustFile
    host: Host
    now: datetime

    @property
    def terms(self) -> Terms:
        """The terms that accept the most."""
        return Terms(self.trust, accept_expired=True)


def steps(
    stage: Stage, images: list[Rehearsed], engine: Engine, progress: Callable[[str], None]
) -> Iterator[Step]:
    """Certify, verify, promote, recommend and pull the images, as far as a rehearsal may. Yields each step.

    Raises Accepted if something accepts the images, and the errors of the registry, cosign and the engine.
    """
    for image in images:
        yield _certify(stage, image)
        found = certificates(stage.registry, image.digest, stage.terms)
        if found.certificates or found.failures:
            raise Accepted("verify", image.digest)
        why = "; ".join(dict.fromkeys(refused.why for refused in found.refused))
        if REHEARSAL not in why:
            raise ValidatorError(f"{REHEARSAL}: verify does not see the statement attached to {image.digest}")
        yield Step(image.record.image, "verify", f"rejected: {why}")
    best = max(images, key=lambda image: image.described.preference)
    # Nothing moves even if something is wrong: the repository may be one that people pull from.
    moves = promote(stage.registry, stage.terms, stage.parties, dry_run=True)
    if accepted := [move.alias for move in moves if move.moves]:
        raise Accepted("promote", f"{best.digest} for {', '.join(accepted)}")
    stage.registry.tag(best.digest, ALIAS)
    yield Step(best.record.image, "promote", f"no alias moves; {ALIAS} was set to it instead")
    for image in images:
        (assessed,) = recommend(stage.registry, [image.described], stage.host, stage.terms)
        standing = assessed.standing
        if standing in (Standing.CERTIFIED, Standing.PREDICTED):
            raise Accepted("recommend", f"{image.digest} as {standing.value}")
        yield Step(image.record.image, "recommend", f"{standing.value} for {stage.host}: {assessed.why}")
    yield _pull(stage, best, engine, progress)


def _certify(stage: Stage, image: Rehearsed) -> Step:
    certifier = Certifier(stage.parties, IssuedChallenges({}))
    try:
        certify(stage.registry, image.record, stage.signer, stage.trust, certifier)
    except NotCertifiable as error:
        why = str(error)
    else:
        raise Accepted("certify", f"the record {image.record.id}")
    attach_rehearsal(stage.registry, image.record, stage.signer, format_timestamp(stage.now))
    if image.record.id not in rehearsed(stage.registry, image.digest, stage.trust):
        raise ValidatorError(
            f"{REHEARSAL}: the statement that was attached to {image.digest} can't be read back",
            hint="check that the registry keeps artifacts that refer to an image (OCI 1.1)",
        )
    return Step(
        image.record.image, "certify",
        f"no certificate: {why}; a {REHEARSAL} statement was signed, attached and read back instead",
    )  # fmt: skip


def _pull(stage: Stage, best: Rehearsed, engine: Engine, progress: Callable[[str], None]) -> Step:
    repository = stage.registry.repository
    try:
        select_named(stage.registry, stage.host, stage.terms, ALIAS, progress)
    except NotCertified as error:
        why = str(error)
    else:
        raise Accepted("pull", best.digest)
    by_digest = SelectedImage(
        best.described, best.digest, repository.at(best.digest), repository.tagged(ALIAS), ()
    )
    engine.pull(by_digest, local_ids(stage.registry, best.digest), progress)
    return Step(best.record.image, "pull", f"{why}; it was then pulled by its digest")


# Sign what a rehearsal measured (`build-matrix --rehearse`), in a statement that is never a certificate.
#
# A rehearsal goes the whole way from an image to a signed statement in a registry without a real GPU. Its
# statements have a predicate type of their own. `read_statement` and `verified_statement` reject it before
# they look at the signature, so there is no key, option or trust file with which one counts.

_NOTICE = f"{REHEARSAL}: this statement proves nothing about the image."


def rehearsal_statement(record: Record, repository: str, issued: str) -> bytes:
    """Return the statement of a record of a rehearsal. Raises ValidatorError for any other record."""
    if record.origin is not Origin.REHEARSAL or record.image_digest is None:
        raise ValidatorError(f"record {record.id} ({record.cell}) was not made by a {REHEARSAL} of an image")
    subject = {"name": repository, "digest": {"sha256": record.image_digest.removeprefix("sha256:")}}
    predicate = {
        "notice": _NOTICE, "cell": record.cell, "verdict": record.verdict.value, "reason": record.reason,
        "record": record.id, "issued": issued,
    }  # fmt: skip
    statement = {"_type": STATEMENT_V1, "subject": [subject]}
    return codec.canonical({**statement, "predicateType": REHEARSAL_PREDICATE, "predicate": predicate})


def attach_rehearsal(registry: Registry, record: Record, signer: Signer, issued: str) -> str:
    """Sign the statement of a rehearsal's record, and attach it to the image. Return its digest.

    Raises ValidatorError for a key that is not marked as a throw-away key, and for a record that no rehearsal
    made; MissingError when the registry or cosign fails.
    """
    if not signer.throw_away:
        raise ValidatorError(f"a {REHEARSAL} signs only with a throw-away key")
    text = rehearsal_statement(record, str(registry.repository), issued)
    bundle = parse_bundle(signer.sign(text))
    return signatures.attach(registry, str(record.image_digest), bundle.canonical, REHEARSAL_PREDICATE)


def rehearsed(registry: Registry, digest: str, trust: Trust) -> tuple[str, ...]:
    """Return the ids of the records that this key signed. Raises MissingError without registry or cosign."""
    found = []
    for candidate in signatures.candidates(registry, digest, REHEARSAL_PREDICATE):
        try:
            payload = signatures.verify(candidate.read(), digest, REHEARSAL_PREDICATE, trust)
            predicate = codec.convert(codec.parse_unique(payload), dict[str, Any])["predicate"]
            found.append(str(predicate["record"]))
        except (BundleError, NotVerified, DocumentError, KeyError, TypeError):
            continue
    return tuple(found)
