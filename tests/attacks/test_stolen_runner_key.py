"""Attacks by somebody who stole the key of one registered runner.

Protected are the certificates of every other host class at all times, and those of the stolen runner's own
host classes from the moment when it is revoked. The thief knows the challenges: they are not secret.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from validator.certify import signatures
from validator.certify.acceptance import NotCertifiable, accepted
from validator.certify.provenance import PREDICATE as PROVENANCE
from validator.certify.provenance import Refusal, provenance_of
from validator.certify.statement import PREDICATE as CERTIFICATE
from validator.certify.trust import Terms, Trust, TrustFile
from validator.certify.trust_file import read_trust_file, revoke
from validator.certify.verify import certificates
from validator.errors import InputError
from validator.model.codec import format_timestamp
from validator.model.record import STATEMENT_V1, Record
from validator.registry.client import Registry

from ..certify.fixtures import MEASURED_AT, record
from ..certify.measuring import Desk, Runner, make_runner, measured, trust_yaml
from ..loop import tiers

DIGEST = "sha256:" + "d" * 64
HOUR = timedelta(hours=1)
#: A night: the challenges are made, then the machines measure, then somebody certifies.
ASKED, CERTIFIED = MEASURED_AT - HOUR, MEASURED_AT + 2 * HOUR


@pytest.fixture(scope="module")
@tiers.service
def stolen(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    return make_runner(tmp_path_factory.mktemp("stolen"), "gpu-1", "*-h100")


@pytest.fixture
def desk(stolen: Runner) -> Desk:
    return Desk((stolen,))


def forged(desk: Desk, stolen: Runner, finished: datetime = MEASURED_AT, asked: datetime = ASKED) -> Record:
    """Return a measurement that never happened, signed with the stolen key."""
    moment = format_timestamp(finished)
    made = record(DIGEST, finished=moment)
    return measured(made, stolen, desk.ask(made.cell, asked))


def refused(made: Record, desk: Desk, now: datetime) -> str:
    with pytest.raises(NotCertifiable) as caught:
        accepted(made, desk.certifier, now)
    return str(caught.value)


def revoked(desk: Desk, at: datetime) -> Desk:
    """Return the desk after the stolen runner was revoked from that time on."""
    return replace(desk, runners=tuple(runner.changed(revoked=at) for runner in desk.runners))


def test_until_it_is_revoked_the_key_speaks_for_its_own_host_classes(desk: Desk, stolen: Runner) -> None:
    """This remains: nobody can tell the thief from the machine. The next tests say that it is all."""
    assert accepted(forged(desk, stolen), desk.certifier, CERTIFIED).host_class == "r580-h100"


def test_another_host_class(desk: Desk, stolen: Runner) -> None:
    """The thief of an H100's key can't certify anything for an A100."""
    made = record(DIGEST, gpu="a100")
    signed = measured(made, stolen, desk.ask(made.cell, ASKED))
    assert "may not sign for r580-a100" in refused(signed, desk, CERTIFIED)


def test_a_cell_that_nobody_asked_for(desk: Desk, stolen: Runner) -> None:
    """The thief can't choose the time: without a challenge of tonight there is nothing to answer."""
    signed = measured(record(DIGEST), stolen, None)
    assert "it answers no challenge" in refused(signed, desk, CERTIFIED)


def test_a_measurement_after_the_revocation(desk: Desk, stolen: Runner) -> None:
    """From the given time on, the key says nothing any more."""
    late = forged(desk, stolen, MEASURED_AT)
    at = MEASURED_AT - timedelta(minutes=1)
    assert "its runner gpu-1 was revoked from" in refused(late, revoked(desk, at), CERTIFIED)


def test_a_measurement_dated_back_before_the_revocation(desk: Desk, stolen: Runner) -> None:
    """The thief writes a time between the challenge and the revocation. The certifier sees it only
    afterwards, and can't know when it was signed."""
    early = forged(desk, stolen, MEASURED_AT - HOUR / 2)
    assert "its runner gpu-1 was revoked from" in refused(early, revoked(desk, MEASURED_AT), CERTIFIED)


def test_a_measurement_dated_back_before_its_challenge(desk: Desk, stolen: Runner) -> None:
    """The thief can't reach further back than the challenge, whose time the certifier knows."""
    early = forged(desk, stolen, ASKED - HOUR)
    assert "before its challenge was made" in refused(early, desk, CERTIFIED)


def test_a_challenge_of_an_earlier_night_that_nobody_answered(desk: Desk, stolen: Runner) -> None:
    """A runner was offline, and its challenge stayed open. The thief answers it after the revocation."""
    made = forged(desk, stolen, MEASURED_AT - timedelta(days=3), MEASURED_AT - timedelta(days=3, hours=1))
    assert "was revoked" in refused(made, revoked(desk, MEASURED_AT - timedelta(days=1)), CERTIFIED)


def test_a_measurement_kept_for_after_the_term(desk: Desk, stolen: Runner) -> None:
    """The end of the term is like a revocation: what arrives later does not count."""
    made = forged(desk, stolen)
    ended = replace(desk, runners=(stolen.changed(until=MEASURED_AT + HOUR),))
    assert "was registered until" in refused(made, ended, CERTIFIED)


def test_a_revocation_that_is_announced_counts_only_from_its_time(desk: Desk, stolen: Runner) -> None:
    """A machine that is taken out of service next week still measures tonight."""
    planned = revoked(desk, CERTIFIED + timedelta(days=7))
    assert accepted(forged(desk, stolen), planned.certifier, CERTIFIED)


def test_the_command_revokes_in_the_file_that_certify_reads(
    desk: Desk, stolen: Runner, tmp_path: Path
) -> None:
    """Once `certify revoke` has written the file, the key counts for nothing."""
    path = tmp_path / "trust.yaml"
    path.write_text(trust_yaml(stolen))
    made = forged(desk, stolen)
    certifier = replace(desk.certifier, parties=read_trust_file(path))
    assert accepted(made, certifier, CERTIFIED)
    revoke(path, "gpu-1", MEASURED_AT)
    certifier = replace(desk.certifier, parties=read_trust_file(path))
    with pytest.raises(NotCertifiable, match="its runner gpu-1 was revoked"):
        accepted(made, certifier, CERTIFIED)


def test_the_same_key_under_a_second_name(stolen: Runner, tmp_path: Path) -> None:
    """A revoked key can't come back through another entry by mistake."""
    again = replace(stolen.party, name="gpu-2")
    path = tmp_path / "trust.yaml"
    path.write_text(trust_yaml(stolen, replace(stolen, party=again)))
    with pytest.raises(InputError, match="this key is given twice"):
        read_trust_file(path)


def signed_statement(stolen: Runner, digest: str, kind: str) -> bytes:
    subject = {"name": "x", "digest": {"sha256": digest.removeprefix("sha256:")}}
    document = {"_type": STATEMENT_V1, "subject": [subject], "predicateType": kind, "predicate": {}}
    return stolen.sign(json.dumps(document).encode()).encode()


def test_a_certificate_signed_with_a_runners_key(
    registry: Registry, image: str, stolen: Runner, trust: Trust
) -> None:
    """A runner is not the release signer: people who pull don't know its key."""
    signatures.attach(registry, image, signed_statement(stolen, image, CERTIFICATE), CERTIFICATE)
    found = certificates(registry, image, Terms(trust))
    assert found.certificates == ()
    assert [entry.why for entry in found.refused] == ["it is not signed by the trusted key"]


def test_the_provenance_of_an_image_signed_with_a_runners_key(
    registry: Registry, image: str, stolen: Runner, tmp_path: Path
) -> None:
    """A runner is not a builder: it can't say where an image comes from."""
    signatures.attach(registry, image, signed_statement(stolen, image, PROVENANCE), PROVENANCE)
    builder = make_runner(tmp_path, "builder").party
    parties = TrustFile(builders=(replace(builder, host_classes=()),), runners=(stolen.party,))
    found = provenance_of(registry, image, parties)
    assert isinstance(found, Refusal)
    assert "does not count" in found.why
