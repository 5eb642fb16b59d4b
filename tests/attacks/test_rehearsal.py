"""Somebody rehearses, and tries to pass the result off as a certificate.

A rehearsal signs statements, tags images and writes records without a GPU. Protected is that none of this
counts anywhere: not with its own keys, not with any option, and not after it was changed or copied.
"""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from validator import cli
from validator.certify import signatures
from validator.certify.acceptance import NotCertifiable, certify
from validator.certify.signatures import Signer, parse_bundle
from validator.certify.statement import (
    PREDICATE,
    REHEARSAL_PREDICATE,
    NoCertificate,
    read_statement,
    statement,
)
from validator.certify.trust import Terms, Trust
from validator.certify.verify import certificates, promote
from validator.delivery.choose import Host, parse_driver, parse_gpus
from validator.delivery.pull import NotCertified, select_best, select_named
from validator.delivery.rehearsal import attach_rehearsal, rehearsal_statement, rehearsed
from validator.errors import InputError, ValidatorError
from validator.model.codec import format_timestamp
from validator.model.record import Origin, Record, Verdict
from validator.records import record_files
from validator.registry.client import Registry
from validator.registry.names import Repository, Wanted

from ..certify.attestations import attach_by_hand, cosign_attest, payload, with_payload
from ..certify.conftest import put_image, release, signer
from ..certify.fixtures import MEASURED, MEASURED_AT, record
from ..certify.measuring import as_measured, certifier, measurement_of_record, parties
from ..registry.stock import Stock

__all__ = ["release", "signer"]

IMAGE = "tf2.21.0-cuda12.5-cudnn9.3-py312"
WHY = "it is the statement of a REHEARSAL, which proves nothing and never counts"
AGES: list[dict[str, Any]] = [{}, {"accept_expired": True}, {"max_age": timedelta(days=9999)}]


def of_rehearsal(digest: str, **changes: Any) -> Record:
    """Return what a rehearsal would record if every check had passed on a GPU."""
    changes = {"verdict": Verdict.UNPROVEN, "origin": Origin.REHEARSAL} | changes
    return record(digest, **changes)


@pytest.fixture
def bundle(stock: Stock, repository: Repository, image: str, signer: Signer) -> bytes:
    """Return the bundle of a rehearsal that is attached to the image."""

    def fill(place: Repository) -> bytes:
        registry = Registry(place)
        attach_rehearsal(registry, of_rehearsal(put_image(stock, place)), signer, MEASURED)
        (candidate,) = signatures.candidates(registry, image, REHEARSAL_PREDICATE)
        return candidate.read().canonical

    return stock.put(repository, "rehearsed", fill)


def refusals(registry: Registry, image: str, trust: Trust, **rules: Any) -> list[str]:
    found = certificates(registry, image, Terms(trust, **rules))
    assert (found.certificates, found.failures, found.records) == ((), (), frozenset())
    return [one.why for one in found.refused]


@pytest.mark.usefixtures("bundle")
@pytest.mark.parametrize("rules", AGES)
def test_its_own_key_is_trusted(registry: Registry, image: str, trust: Trust, rules: dict[str, Any]) -> None:
    assert trust.fixtures and trust.key is not None
    assert rehearsed(registry, image, trust) == (of_rehearsal(image).id,)
    for each in (trust, Trust(key=trust.key), Trust(identity="a", issuer="b")):
        assert refusals(registry, image, each, **rules) == [WHY]


def test_a_release_key_signs_it(
    registry: Registry, repository: Repository, image: str, release: tuple[Signer, Trust], tmp_path: Path
) -> None:
    """The key of real certificates doesn't help either, whatever the predicate says."""
    with pytest.raises(ValidatorError, match="only with a throw-away key"):
        attach_rehearsal(registry, of_rehearsal(image), release[0], MEASURED)
    made = record(image)
    certificate = statement(
        made, made.read_report(), measurement_of_record(made, None), str(repository),
        issued=MEASURED, expires=format_timestamp(MEASURED_AT + timedelta(days=14)),
    )  # fmt: skip
    predicate = json.loads(certificate)["predicate"]
    cosign_attest(repository, image, predicate, release[0], tmp_path, kind=REHEARSAL_PREDICATE)
    assert refusals(registry, image, release[1]) == [WHY]


def test_it_is_marked_as_a_certificate(
    registry: Registry, repository: Repository, image: str, bundle: bytes, trust: Trust, tmp_path: Path
) -> None:
    """The mark on an attachment is not signed."""
    signatures.attach(registry, image, bundle, PREDICATE)
    attach_by_hand(repository, image, bundle)
    assert refusals(registry, image, trust) == [WHY, WHY, WHY]


def test_its_type_is_changed(registry: Registry, image: str, bundle: bytes, trust: Trust) -> None:
    """Under the same signature, with the predicate type of certificates."""
    changed = with_payload(bundle, payload(bundle) | {"predicateType": PREDICATE})
    signatures.attach(registry, image, parse_bundle(changed).canonical, PREDICATE)
    assert sorted(refusals(registry, image, trust)) == sorted([WHY, "it is not signed by the trusted key"])


@pytest.mark.parametrize("predicate", ["its own", "that of a certificate"])
def test_its_statement_is_read_as_a_certificate(predicate: str) -> None:
    digest = "sha256:" + "d" * 64
    made = record(digest)
    own = json.loads(rehearsal_statement(of_rehearsal(digest), "registry.example/tf", MEASURED))
    assert own["predicate"]["notice"].startswith("REHEARSAL: ")
    certificate = json.loads(
        statement(
            made, made.read_report(), measurement_of_record(made, None), "registry.example/tf",
            issued=MEASURED, expires=MEASURED,
        )
    )  # fmt: skip
    assert read_statement(json.dumps(certificate).encode(), digest, "key")
    document = own if predicate == "its own" else certificate | {"predicateType": REHEARSAL_PREDICATE}
    with pytest.raises(NoCertificate, match=WHY):
        read_statement(json.dumps(document).encode(), digest, "key")
    # As a test result, what a rehearsal says is not a certificate.
    with pytest.raises(NoCertificate, match="not a certificate of this project"):
        read_statement(json.dumps(own | {"predicateType": PREDICATE}).encode(), digest, "key")


def test_a_real_record_gets_the_statement_of_a_rehearsal(
    registry: Registry, image: str, signer: Signer
) -> None:
    for changes in ({"origin": Origin.HERE}, {"image_digest": None}):
        with pytest.raises(ValidatorError, match="was not made by a REHEARSAL of an image"):
            attach_rehearsal(registry, of_rehearsal(image, **changes), signer, MEASURED)


@pytest.mark.parametrize("verdict", list(Verdict))
def test_its_record_is_certified(
    registry: Registry, image: str, signer: Signer, trust: Trust, verdict: Verdict
) -> None:
    """Even if it says `certified`, a registered runner signed it, and it answers a challenge."""
    made = as_measured(of_rehearsal(image, verdict=verdict))
    with pytest.raises(NotCertifiable, match="it was made by a REHEARSAL, which proves nothing"):
        certify(registry, made, signer, trust, certifier())
    assert certificates(registry, image, Terms(trust)).certificates == ()


def test_its_record_says_that_it_is_real(
    registry: Registry, image: str, signer: Signer, trust: Trust
) -> None:
    """A rehearsal signs no measurement, so a changed record rests on nothing."""
    made = msgspec.structs.replace(of_rehearsal(image), origin=Origin.HERE, verdict=Verdict.CERTIFIED)
    with pytest.raises(NotCertifiable, match="no runner signed its measurement"):
        certify(registry, made, signer, trust, certifier())


def test_its_record_is_imported(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps(of_rehearsal("sha256:" + "d" * 64).document()) + "\n")
    with pytest.raises(InputError, match="made by a REHEARSAL"):
        list(record_files.read_file(path))
    # With its origin changed, it is an altered record.
    path.write_text(path.read_text().replace('"rehearsal"', '"here"'))
    with pytest.raises(InputError, match="it was altered"):
        list(record_files.read_file(path))


@pytest.mark.usefixtures("bundle")
def test_its_image_gets_an_alias(registry: Registry, image: str, trust: Trust) -> None:
    assert promote(registry, Terms(trust, accept_expired=True), parties()) == []
    registry.tag(image, "latest")
    (move,) = promote(registry, Terms(trust, accept_expired=True), parties())
    assert (move.moves, WHY in move.why) == (False, True)


@pytest.mark.usefixtures("bundle")
def test_its_image_is_pulled_or_run(registry: Registry, image: str, trust: Trust) -> None:
    """Both select an image in the same way."""
    host = Host(parse_driver("580"), parse_gpus(["h100"]))
    for terms in (Terms(trust), Terms(trust, accept_expired=True), Terms(Trust(key=trust.key))):
        with pytest.raises(NotCertified, match=WHY):
            select_named(registry, host, terms, IMAGE, print)
        said: list[str] = []
        with pytest.raises(NotCertified, match="nothing was pulled"):
            select_best(registry, host, terms, Wanted(), said.append)
        assert any(WHY in line for line in said)


@pytest.mark.usefixtures("bundle")
@pytest.mark.parametrize(
    "options", [[], ["--fixtures"], ["--fixtures", "--accept-expired"], ["--fixtures", "--max-age", "9999d"]]
)
@pytest.mark.parametrize(
    "command",
    [
        ["verify", IMAGE],
        ["recommend", "--driver", "580", "--gpu", "h100"],
        ["promote"],
    ],
)
def test_the_commands_accept_it(
    command: list[str], options: list[str], registry: Registry, image: str, trust: Trust,
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    registry.tag(image, "latest")
    if command == ["promote"]:
        (tmp_path / "trust.yaml").write_text("# nobody\n")
        command = ["promote", "--trust", str(tmp_path / "trust.yaml")]
    where = ["--registry", str(registry.repository), "--key", str(trust.key)]
    assert cli.run([*command, *where, *options]) == 1
    said = capsys.readouterr()
    assert "REHEARSAL" in " ".join((said.out + said.err).split())
    assert registry.digest_of("latest") == image
    assert "2.21" not in registry.tags()
