"""A push leaves everything with the image that its builder says about it, and cosign accepts each of it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from validator.assemble.base_finder import contents
from validator.assemble.configuration import ARTIFACT
from validator.assemble.image import Assembled, Destination, RegistryDestination
from validator.certify import provenance
from validator.certify.signatures import Signer
from validator.certify.trust import Trust
from validator.model.spec import Choice, ImageSpec, Lock, Variant
from validator.pipeline.build_matrix import Publisher
from validator.registry.client import Registry
from validator.registry.names import Repository
from validator.sbom import document_of_lock
from validator.system.processes import Progress

from ..pipeline.test_publisher import FakeMaker
from ..registry.images import push_image
from ..sbom.images import LOCK
from .attestations import cosign, payload
from .building import trusting
from .conftest import TAG

pytestmark = pytest.mark.service

SPEC = ImageSpec("2.21.0", "3.12", Variant.GPU, Choice("12.5", "12.5"), Choice("9.3", "9.3"))
OURS = replace(LOCK, identifier=SPEC.identifier, python="3.12")
TYPES = {
    "slsaprovenance1": provenance.PREDICATE,
    "cyclonedx": provenance.SBOM_PREDICATE,
}


class Maker(FakeMaker):
    """Pushes a small image."""

    def __init__(self, repository: Repository, status: bytes) -> None:
        super().__init__(status)
        self.repository = repository

    def make(self, spec: ImageSpec, lock: Lock, destination: Destination, progress: Progress) -> Assembled:
        self.makes.append(spec.identifier)
        return Assembled(push_image(self.repository, TAG), b"", b"", (), self.made_from())


def test_a_push_leaves_provenance_a_list_and_what_the_image_needs(
    repository: Repository, registry: Registry, signer: Signer, trust: Trust
) -> None:
    status = b"Package: bash\nStatus: install ok installed\nArchitecture: amd64\nVersion: 5.2.15-2+b13\n"
    maker = Maker(repository, status)
    destination = RegistryDestination(repository, tag=None)
    publisher = Publisher(maker, lambda spec: destination, registry, trusting(trust), signer=signer)
    pushed = publisher.push(SPEC, OURS, lambda _: None)
    listed = document_of_lock(OURS, contents(maker.made_from()))
    assert "5.2.15-2+b13" in str(listed)
    for name, kind in TYPES.items():
        done = cosign(
            "verify-attestation", "--key", str(trust.key), "--type", name, "--insecure-ignore-tlog",
            "--allow-http-registry", pushed.reference,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        (line,) = done.stdout.splitlines()
        statement = payload(json.dumps({"dsseEnvelope": json.loads(line)}).encode())
        assert statement["predicateType"] == kind
        if kind != provenance.PREDICATE:
            assert statement["predicate"] == listed
    assert len(registry.attached(pushed.digest, ARTIFACT)) == 1
    # The image has all of it, so the next run neither makes it nor attaches anything.
    assert publisher.current(SPEC, OURS) is not None
    assert maker.makes == [SPEC.identifier]
