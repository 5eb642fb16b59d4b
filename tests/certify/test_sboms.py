"""The list of what is in an image is attached to it, signed by its builder, and read back."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from validator.assemble import bootstrap
from validator.certify import signatures
from validator.certify import signatures as bundle_module
from validator.certify.provenance import SBOM_PREDICATE, Refusal, attach_sbom, sbom_of
from validator.certify.signatures import Signer
from validator.certify.trust import Signatory, Trust, read_key
from validator.certify.trust_file import entry_line, read_trust_file
from validator.errors import ValidatorError
from validator.locks.lock_files import parse
from validator.model.codec import now_utc
from validator.model.record import BaseOrigin
from validator.registry.client import Registry
from validator.registry.names import Repository, tag_of
from validator.resources import images_directory
from validator.sbom import document, render

from .. import commands
from ..loop import tiers
from ..registry.images import push_image
from ..registry.stock import Stock
from ..sbom.images import BASE, LOCK
from .attestations import cosign, payload
from .building import INPUTS, Builder, make_builder, trusting
from .conftest import put_image
from .private_keys import signed

pytestmark = pytest.mark.service

DOCUMENT = document(LOCK, BASE, {})


@pytest.fixture
def listed(stock: Stock, repository: Repository, image: str, signer: Signer) -> str:
    """Return the digest of an image that the signer has built."""

    def fill(place: Repository) -> str:
        digest = put_image(stock, place)
        attach_sbom(Registry(place), digest, DOCUMENT, signer)
        return digest

    return stock.put(repository, "listed", fill)


@dataclass(frozen=True)
class Unlisted:
    """An image that a builder pushed without its list. name: in the registry. trust: the trust file."""

    registry: Registry
    digest: str
    name: str
    trust: Path
    key: Signer

    def attach(self, *options: str, key: Signer | None = None, trust: Path | None = None) -> commands.Done:
        signer = key or self.key
        return commands.run(
            "sbom", self.name, "--attach", "--builder-key", signer.key, "--trust", trust or self.trust,
            *options, environment={**os.environ, "COSIGN_PASSWORD": signer.password or ""},
        )  # fmt: skip

    def list(self) -> dict[str, Any] | None:
        """Return the signed list that the image has."""
        found = sbom_of(self.registry, self.digest, read_trust_file(self.trust))
        return None if isinstance(found, Refusal) else found


BOOTSTRAPPED = "tf2.21.0-cuda12.5-cudnn9.3-py313"


@pytest.fixture
def unlisted(repository: Repository, by_cosign: Signer, trust: Trust, stranger: Builder) -> Unlisted:
    digest = push_image(repository, tag_of(BOOTSTRAPPED))
    lock = parse((images_directory() / "locks" / f"{BOOTSTRAPPED}.txt").read_text())
    base = BaseOrigin("bootstrap", "trixie", f"sha256:{bootstrap.digest('trixie')}")
    assert str(base) == bootstrap.origin("trixie")
    inputs = replace(INPUTS, image=BOOTSTRAPPED, lock_digest=lock.digest, base=base)
    stranger.prove(Registry(repository), digest, inputs)
    return Unlisted(
        Registry(repository), digest, repository.tagged(tag_of(BOOTSTRAPPED)),
        trust_file(stranger.key.parent, trust, stranger), by_cosign,
    )  # fmt: skip


def trust_file(directory: Path, trust: Trust, *builders: Builder) -> Path:
    """Write a trust file that lists the signer of the tests and these builders."""
    (signer,) = trusting(trust).builders
    assert trust.key is not None
    listed = replace(signer, name="signer", signatory=Signatory(key=read_key(trust.key)))
    entries = [listed, *(builder.party for builder in builders)]
    path = directory / "trust.yaml"
    path.write_text("".join(["builders:\n", *(f"  - {entry_line(one)}\n" for one in entries)]))
    return path


@pytest.fixture(scope="module")
@tiers.service
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    return make_builder(tmp_path_factory.mktemp("stranger"), "stranger")


def test_it_is_read_back(registry: Registry, listed: str, trust: Trust) -> None:
    assert sbom_of(registry, listed, trusting(trust)) == DOCUMENT


def test_cosign_verifies_it_by_its_own_name_of_the_format(
    repository: Repository, listed: str, trust: Trust
) -> None:
    done = cosign(
        "verify-attestation", "--key", str(trust.key), "--type", "cyclonedx", "--insecure-ignore-tlog",
        "--allow-http-registry", repository.at(listed),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    statement = payload(json.dumps({"dsseEnvelope": json.loads(done.stdout)}).encode())
    assert statement["predicateType"] == SBOM_PREDICATE
    assert statement["predicate"] == DOCUMENT


def test_the_same_list_is_attached_once(
    registry: Registry, listed: str, signer: Signer, trust: Trust
) -> None:
    attach_sbom(registry, listed, DOCUMENT, signer)
    assert len(list(signatures.candidates(registry, listed, SBOM_PREDICATE))) == 1
    newer = document(LOCK, BASE, {"SOURCE_DATE_EPOCH": "1"})
    attach_sbom(registry, listed, newer, signer)
    assert len(list(signatures.candidates(registry, listed, SBOM_PREDICATE))) == 2


def test_what_nobody_in_the_trust_file_signed_does_not_count(
    registry: Registry, image: str, listed: str, trust: Trust, stranger: Builder
) -> None:
    found = sbom_of(registry, listed, trusting(stranger.party.signatory))
    assert isinstance(found, Refusal) and "not signed by a builder in the trust file" in found.why
    revoked = trusting(trust)
    gone = [
        party.__class__(party.name, party.signatory, party.until, now_utc()) for party in revoked.builders
    ]
    found = sbom_of(registry, listed, revoked.__class__(builders=tuple(gone)))
    assert isinstance(found, Refusal) and "was revoked" in found.why


def test_an_image_without_a_list_says_so(registry: Registry, image: str, trust: Trust) -> None:
    found = sbom_of(registry, image, trusting(trust))
    assert found == Refusal("it has no list of packages that its builder signed")


@pytest.mark.parametrize("change", [{"predicate": []}, {"subject": [{"digest": {"sha256": "0" * 64}}]}])
def test_a_signed_statement_that_is_no_list_of_this_image_does_not_count(
    registry: Registry, image: str, stranger: Builder, change: dict[str, object]
) -> None:
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "x", "digest": {"sha256": image.removeprefix("sha256:")}}],
        "predicateType": SBOM_PREDICATE,
        "predicate": {},
        **change,
    }
    signatures.attach(registry, image, signed(json.dumps(statement).encode(), stranger.key), SBOM_PREDICATE)
    found = sbom_of(registry, image, trusting(stranger.party.signatory))
    assert isinstance(found, Refusal) and "does not count" in found.why


def test_a_list_that_nobody_could_read_back_is_not_attached(
    registry: Registry, image: str, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_module, "LARGEST", 1000)
    with pytest.raises(
        ValidatorError, match=r"list of packages of sha256:.* can't be attached: .*larger than"
    ):
        attach_sbom(registry, image, DOCUMENT, signer)
    assert list(signatures.candidates(registry, image, SBOM_PREDICATE)) == []


def test_the_command_prints_what_the_builder_signed(
    repository: Repository, listed: str, trust: Trust, tmp_path: Path
) -> None:
    key = json.dumps(read_key(trust.key or ""))
    file = tmp_path / "trust.yaml"
    file.write_text(f"builders:\n  - {{name: ci, until: 2100-01-01, key: {key}}}\n")
    out = tmp_path / "image.cdx.json"
    done = commands.run("sbom", repository.at(listed), "--trust", file, "--output", out)
    assert done.returncode == 0, done.stderr
    assert out.read_text() == render(DOCUMENT)
    file.write_text("builders: []\n")
    done = commands.run("sbom", repository.at(listed), "--trust", file)
    assert done.returncode == 1
    assert "not signed by a builder in the trust file" in done.stderr


def test_an_image_without_a_list_gets_that_of_its_lock_once(unlisted: Unlisted) -> None:
    assert unlisted.list() is None
    done = unlisted.attach()
    assert done.returncode == 0, done.stderr
    assert f"Attached its list to {unlisted.registry.repository.at(unlisted.digest)}." in done.stderr
    found = unlisted.list()
    made = commands.run("sbom", BOOTSTRAPPED, "--base", "bootstrap")
    assert found is not None and render(found) == made.stdout
    done = unlisted.attach()
    assert done.returncode == 0 and "has its list already" in done.stderr
    assert len(list(signatures.candidates(unlisted.registry, unlisted.digest, SBOM_PREDICATE))) == 1


def test_the_packages_of_a_base_that_nobody_can_read_are_left_out_only_on_demand(
    unlisted: Unlisted, stranger: Builder, repository: Repository
) -> None:
    digest = push_image(repository, "again", {"made": "again"})
    lock = parse((images_directory() / "locks" / f"{BOOTSTRAPPED}.txt").read_text())
    gone = BaseOrigin("bootstrap", "trixie", f"sha256:{'7' * 64}")
    stranger.prove(
        Registry(repository), digest,
        replace(INPUTS, image=BOOTSTRAPPED, lock_digest=lock.digest, base=gone),
    )  # fmt: skip
    Registry(repository).tag(digest, tag_of(BOOTSTRAPPED))
    other = replace(unlisted, digest=digest)
    done = other.attach()
    assert done.returncode == 3 and f"the packages of the base {gone} can't be listed here" in done.stderr
    assert other.list() is None
    assert other.attach("--base", "unlisted").returncode == 0
    found = other.list()
    assert found is not None
    (base,) = (one for one in found["components"] if one["bom-ref"] == "base")
    assert base["description"] == "The packages of this base are not listed."


def test_a_list_is_attached_only_to_what_the_lock_made_and_only_by_a_builder(
    unlisted: Unlisted, stranger: Builder, trust: Trust, tmp_path: Path, release: tuple[Signer, Trust]
) -> None:
    unproven = trust_file(tmp_path, trust)
    done = unlisted.attach(trust=unproven)
    assert done.returncode == 1 and "its provenance does not count" in done.stderr
    done = unlisted.attach(key=release[0])
    assert done.returncode == 1 and "has no builder" in done.stderr
    for option in (("--output", "x"), ("--base", "registry")):
        assert unlisted.attach(*option).returncode == 2
    assert unlisted.list() is None
    digest = push_image(unlisted.registry.repository, tag_of(BOOTSTRAPPED), {"made": "otherwise"})
    wrong = replace(INPUTS, image=BOOTSTRAPPED)
    stranger.prove(unlisted.registry, digest, wrong)
    done = unlisted.attach()
    assert (
        done.returncode == 1 and f"it was built from the lock {INPUTS.lock_digest}, not from" in done.stderr
    )


def test_a_list_is_attached_to_images_in_a_registry_only() -> None:
    done = commands.run("sbom", BOOTSTRAPPED, "--attach")
    assert done.returncode == 2 and "--attach needs an image in a registry" in done.stderr
    done = commands.run("sbom", BOOTSTRAPPED, "--builder-key", "x")
    assert done.returncode == 2 and "--builder-key has no effect without --attach" in done.stderr
