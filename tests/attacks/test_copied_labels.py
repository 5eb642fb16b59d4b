"""Somebody who may write to the registry puts an image of their own where the build looks for ours.

Its labels are copied from a good image, and its entry point prints a perfect report. Protected is what the
verdict and the certificate are about: only an image that a registered builder made is measured for us.
"""

from __future__ import annotations

import pytest

from validator.assemble.image import RegistryDestination
from validator.assemble.wheel_layers import recipe_digest
from validator.certify.acceptance import NotCertifiable
from validator.certify.signatures import Signer
from validator.certify.trust import Terms, Trust
from validator.certify.verify import promote
from validator.errors import ValidatorError
from validator.model.spec import (
    LABEL_BASE,
    LABEL_LOCK,
    LABEL_RECIPE,
    LABEL_SPEC,
    Choice,
    ImageSpec,
    Lock,
    Variant,
)
from validator.pipeline.build_matrix import Publisher
from validator.registry.client import Registry
from validator.registry.names import Repository

from ..certify.building import INPUTS
from ..certify.conftest import TAG, signer
from ..certify.fixtures import record
from ..certify.measuring import as_measured, certifier, certify_measured, parties, prove
from ..pipeline.test_publisher import FakeMaker
from ..registry.images import push_image

__all__ = ["signer"]

SPEC = ImageSpec("2.21.0", "3.12", Variant.GPU, Choice("12.5", "12.5"), Choice("9.3", "9.3"))
LOCK = Lock(SPEC.identifier, "3.12", "x86_64-manylinux_2_28", (), ())
#: What a good image of this lock says about itself. Anybody can read it there.
LABELS = {
    LABEL_SPEC: SPEC.identifier,
    LABEL_LOCK: LOCK.digest,
    LABEL_RECIPE: recipe_digest(SPEC.variant),
    LABEL_BASE: str(INPUTS.base),
    "org.opencontainers.image.version": "2.21.0",
}


class Maker(FakeMaker):
    """Makes images with today's recipe and base."""

    def __init__(self) -> None:
        super().__init__()
        self.base = str(INPUTS.base)

    def recipe(self, spec: ImageSpec) -> str:
        return recipe_digest(spec.variant)


@pytest.fixture
def theirs(repository: Repository) -> str:
    """Push the hostile image with copied labels under our tag, and return its digest."""
    assert SPEC.identifier == INPUTS.image
    return push_image(repository, TAG, LABELS, content="prints a perfect report")


@pytest.fixture
def publisher(registry: Registry) -> Publisher:
    destination = RegistryDestination(registry.repository, tag=None)
    return Publisher(Maker(), lambda spec: destination, registry, parties())


def test_it_is_put_where_pull_from_looks(publisher: Publisher, theirs: str) -> None:
    """`build-matrix --pull-from` measures nothing that has only labels to show."""
    with pytest.raises(ValidatorError, match="is rejected: it has no provenance"):
        publisher.find(SPEC, LOCK)


def test_it_is_put_where_push_looks_for_an_existing_image(publisher: Publisher, theirs: str) -> None:
    """`build-matrix --push` builds again, instead of measuring it."""
    assert publisher.current(SPEC, LOCK) is None


def test_it_takes_the_place_of_a_good_image(
    publisher: Publisher, registry: Registry, repository: Repository
) -> None:
    """The provenance of the good image, attached to theirs as well, is about the other digest."""
    good = push_image(repository, TAG, LABELS)
    prove(registry, good, SPEC.identifier)
    theirs = push_image(repository, TAG, LABELS, content="prints a perfect report")
    assert theirs != good
    with pytest.raises(ValidatorError, match="is rejected: it has no provenance"):
        publisher.find(SPEC, LOCK)


def test_it_is_certified(registry: Registry, theirs: str, signer: Signer, trust: Trust) -> None:
    """`certify` signs nothing about it, even if a runner was made to measure it."""
    from validator.certify.acceptance import certify

    with pytest.raises(NotCertifiable, match=f"the image {theirs}: it has no provenance"):
        certify(registry, as_measured(record(theirs)), signer, trust, certifier())


def test_it_gets_an_alias(registry: Registry, theirs: str, signer: Signer, trust: Trust) -> None:
    """`promote` moves no alias to it, even if it got a certificate somehow."""
    certify_measured(registry, record(theirs), signer, trust)
    assert [move.alias for move in promote(registry, Terms(trust), parties(), dry_run=True)]
    other = (Terms(trust), parties().__class__(runners=parties().runners))
    assert promote(registry, *other) == []
    assert set(registry.tags()) & {"latest", "2.21", "2.21-driver580"} == set()


def test_its_label_holds_an_alias(registry: Registry, repository: Repository, trust: Trust) -> None:
    """A label that claims a newer TensorFlow does not keep an alias where somebody put it."""
    theirs = push_image(repository, "theirs", {"org.opencontainers.image.version": "99.0.0"})
    registry.tag(theirs, "latest")
    (move,) = promote(registry, Terms(trust), parties(), dry_run=True)
    assert (move.was, move.moves, move.why) == (
        theirs, False,
        "no image with a valid certificate fits it, and its own image has none: no certificate is attached",
    )  # fmt: skip
