"""The lists of what is in an image are attached to it, signed by its builder, and read back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from validator.certify import attached
from validator.certify import bundle as bundle_module
from validator.certify.provenance import Refusal
from validator.certify.sboms import attach_sboms, sbom_of
from validator.certify.signing import Signer
from validator.certify.trust import Trust, read_key
from validator.errors import ValidatorError
from validator.model.timestamps import now_utc
from validator.registry.client import Registry
from validator.registry.names import Repository
from validator.sbom.bill import bill
from validator.sbom.documents import PREDICATES, documents, render

from .. import commands
from ..loop import tiers
from ..sbom.images import BASE, LOCK
from .attestations import cosign, payload
from .building import Builder, make_builder, trusting
from .private_keys import signed

pytestmark = pytest.mark.service

DOCUMENTS = documents(bill(LOCK, BASE, {}))
CYCLONEDX, SPDX = PREDICATES.values()


@pytest.fixture
def listed(registry: Registry, image: str, signer: Signer) -> str:
    """Return the digest of an image that the signer has built."""
    attach_sboms(registry, image, DOCUMENTS, signer)
    return image


@pytest.fixture(scope="module")
@tiers.service
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    return make_builder(tmp_path_factory.mktemp("stranger"), "stranger")


def test_both_are_read_back(registry: Registry, listed: str, trust: Trust) -> None:
    for kind, document in DOCUMENTS.items():
        assert sbom_of(registry, listed, kind, trusting(trust)) == document


@pytest.mark.parametrize(("name", "kind"), [("cyclonedx", CYCLONEDX), ("spdxjson", SPDX)])
def test_cosign_verifies_them_by_its_own_names_of_the_formats(
    repository: Repository, listed: str, trust: Trust, name: str, kind: str
) -> None:
    done = cosign(
        "verify-attestation", "--key", str(trust.key), "--type", name, "--insecure-ignore-tlog",
        "--allow-http-registry", repository.at(listed),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    statement = payload(json.dumps({"dsseEnvelope": json.loads(done.stdout)}).encode())
    assert statement["predicateType"] == kind
    assert statement["predicate"] == DOCUMENTS[kind]


def test_the_same_list_is_attached_once(
    registry: Registry, listed: str, signer: Signer, trust: Trust
) -> None:
    attach_sboms(registry, listed, DOCUMENTS, signer)
    assert len(list(attached.candidates(registry, listed, CYCLONEDX))) == 1
    newer = documents(bill(LOCK, BASE, {"SOURCE_DATE_EPOCH": "1"}))
    attach_sboms(registry, listed, newer, signer)
    assert len(list(attached.candidates(registry, listed, CYCLONEDX))) == 2


def test_what_nobody_in_the_trust_file_signed_does_not_count(
    registry: Registry, image: str, listed: str, trust: Trust, stranger: Builder
) -> None:
    found = sbom_of(registry, listed, CYCLONEDX, trusting(stranger.party.signatory))
    assert isinstance(found, Refusal) and "not signed by a builder in the trust file" in found.why
    revoked = trusting(trust)
    gone = [
        party.__class__(party.name, party.signatory, party.until, now_utc()) for party in revoked.builders
    ]
    found = sbom_of(registry, listed, CYCLONEDX, revoked.__class__(builders=tuple(gone)))
    assert isinstance(found, Refusal) and "was revoked" in found.why


def test_an_image_without_a_list_says_so(registry: Registry, image: str, trust: Trust) -> None:
    found = sbom_of(registry, image, CYCLONEDX, trusting(trust))
    assert found == Refusal("it has no list of packages that its builder signed")


@pytest.mark.parametrize("change", [{"predicate": []}, {"subject": [{"digest": {"sha256": "0" * 64}}]}])
def test_a_signed_statement_that_is_no_list_of_this_image_does_not_count(
    registry: Registry, image: str, stranger: Builder, change: dict[str, object]
) -> None:
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "x", "digest": {"sha256": image.removeprefix("sha256:")}}],
        "predicateType": CYCLONEDX,
        "predicate": {},
        **change,
    }
    attached.attach(registry, image, signed(json.dumps(statement).encode(), stranger.key), CYCLONEDX)
    found = sbom_of(registry, image, CYCLONEDX, trusting(stranger.party.signatory))
    assert isinstance(found, Refusal) and "does not count" in found.why


def test_a_list_that_nobody_could_read_back_is_not_attached(
    registry: Registry, image: str, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_module, "LARGEST", 1000)
    with pytest.raises(
        ValidatorError, match=r"list of packages of sha256:.* can't be attached: .*larger than"
    ):
        attach_sboms(registry, image, DOCUMENTS, signer)
    assert list(attached.candidates(registry, image, CYCLONEDX)) == []


def test_the_command_prints_what_the_builder_signed(
    repository: Repository, listed: str, trust: Trust, tmp_path: Path
) -> None:
    key = json.dumps(read_key(trust.key or ""))
    file = tmp_path / "trust.yaml"
    file.write_text(f"builders:\n  - {{name: ci, until: 2100-01-01, key: {key}}}\n")
    for format_, kind in PREDICATES.items():
        out = tmp_path / format_
        done = commands.run(
            "sbom", repository.at(listed), "--trust", file, "--format", format_, "--output", out
        )
        assert done.returncode == 0, done.stderr
        assert out.read_text() == render(DOCUMENTS[kind])
    file.write_text("builders: []\n")
    done = commands.run("sbom", repository.at(listed), "--trust", file)
    assert done.returncode == 1
    assert "not signed by a builder in the trust file" in done.stderr
