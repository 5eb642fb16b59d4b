"""What the facts say of an image on a host, as far as choosing needs it."""

from __future__ import annotations

import pytest

from validator.delivery.choose import Expected, expected
from validator.model.prediction import Outcome

from .values import TAG, certificate, host, offer

FLOATING = "2.21.0-cudalatest-cudnnlatest-py3.12"


@pytest.mark.parametrize(
    ("tag", "on", "outcome"),
    [
        (TAG, host("580.65.06", "h100"), Outcome.WORKS),
        # CUDA 12 needs R525 (minor-version compatibility).
        (TAG, host("470.256.02", "a100"), Outcome.FAILS),
        # TensorFlow 2.21 has no code for Kepler.
        (TAG, host("535.183.01", "3.5"), Outcome.FAILS),
        (TAG, host("580.65.06", "h100", "3.5"), Outcome.FAILS),
        # A pin that is not what the release was built with.
        ("2.20.0-cuda12.8-cudnn9.10-py3.12", host("580.65.06", "h100"), Outcome.WORKS),
        (FLOATING, host("580.65.06", "h100"), Outcome.WORKS),
        # A base changes nothing that the facts speak of.
        (f"{TAG}-slim-trixie", host("580.65.06", "h100"), Outcome.WORKS),
    ],
)
def test_the_worst_gpu_decides(tag: str, on: object, outcome: Outcome) -> None:
    assert expected(offer(tag), (), on).outcome is outcome  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "tag",
    [
        "2.99.0-cuda12.5-cudnn9.3-py3.12",
        "2.21.0-cuda99.1-cudnn9.3-py3.12",
        "2.21.0-cuda12.5-cudnn99.1-py3.12",
    ],
)
def test_what_the_facts_have_never_heard_of_is_unknown(tag: str) -> None:
    found = expected(offer(tag), (), host())
    assert found.outcome is Outcome.UNKNOWN
    assert found.why.startswith("the facts don't know this image: ")


def test_what_latest_was_stands_in_the_certificate() -> None:
    # cuDNN 9.11 dropped the GPUs before Turing; an image that was built before holds an older one.
    old = certificate(image=offer(FLOATING).identifier, cudnn="9.3.0")
    new = certificate(image=offer(FLOATING).identifier, cudnn="9.12.0")
    volta = host("580.65.06", "v100")
    answers = [expected(offer(FLOATING), [one], volta).outcome for one in (old, new)]
    assert answers == [Outcome.WORKS, Outcome.FAILS]
    # Of an image whose tag says it, the certificate changes nothing.
    assert expected(offer(TAG), [new], volta) == expected(offer(TAG), (), volta)


def test_a_certificate_with_a_strange_version_ends_nothing() -> None:
    strange = certificate(image=offer(FLOATING).identifier, cuda="twelve")
    assert expected(offer(FLOATING), [strange], host()) == Expected(
        Outcome.UNKNOWN,
        'the facts don\'t know this image: "twelve" is not a CUDA version (expected something like 12.5)',
    )
