"""Make hosts, images and certificates as plain values."""

from __future__ import annotations

from typing import Any

from validator.delivery.choose import Candidate, Forecast, Host, TaggedImage, parse_driver, parse_gpus
from validator.model.prediction import Outcome
from validator.model.record import Certificate, Failure, GpuFacts

GPUS = {
    "h100": ("NVIDIA H100 80GB HBM3", "9.0"),
    "a100": ("NVIDIA A100-SXM4-40GB", "8.0"),
    "t4": ("Tesla T4", "7.5"),
}
TAG = "2.21.0-cuda12.5-cudnn9.3-py3.12"
#: The image spec of that tag, by which people name the image.
NAMED = "tf2.21.0-cuda12.5-cudnn9.3-py312"
OLDER = "2.20.0-cuda12.5-cudnn9.3-py3.12"
WORKS = Forecast(Outcome.WORKS, "the driver is new enough")
FAILS = Forecast(Outcome.FAILS, "the driver is too old")
UNKNOWN = Forecast(Outcome.UNKNOWN, "nobody knows that GPU")


def host(driver: str = "580.65.06", *gpus: str) -> Host:
    return Host(parse_driver(driver), parse_gpus(gpus or ("h100",)))


def tagged_image(tag: str = TAG) -> TaggedImage:
    image = TaggedImage.of_tag(tag)
    assert image is not None
    return image


def candidate(
    *certificates: Certificate,
    tag: str = TAG,
    problems: tuple[str, ...] = (),
    failures: tuple[Failure, ...] = (),
) -> Candidate:
    return Candidate(tagged_image(tag), digest_of(1), certificates, problems, failures)


def failure(branch: str = "580.65.06", *models: str, **changes: Any) -> Failure:
    """Return a failure without a measurement."""
    one = certificate(branch, *models)
    names = (
        "image_digest",
        "image",
        "host_class",
        "driver",
        "gpus",
        "record_id",
        "measured",
        "issued",
        "signer",
    )
    fields = {name: getattr(one, name) for name in names}
    return Failure(**(fields | {"failed": ("gpu_compute",)} | changes))


def digest_of(number: int) -> str:
    return f"sha256:{number:064x}"


def certificate(driver: str = "580.65.06", *gpus: str, **changes: Any) -> Certificate:
    """Return a certificate without a measurement; these tests only read its values."""
    fields: dict[str, Any] = {
        "image_digest": digest_of(1),
        "image": "tf2.21.0-cuda12.5-cudnn9.3-py312",
        "host_class": f"r{driver.partition('.')[0]}-{(gpus or ('h100',))[0]}",
        "driver": driver,
        "gpus": tuple(GpuFacts(*GPUS[name]) for name in gpus or ("h100",)),
        "lock_digest": digest_of(5),
        "probe_version": "1.0.0+fixture",
        "tensorflow": "2.21.0",
        "python": "3.12.7",
        "cuda": "12.5.82",
        "cudnn": "9.3.0",
        "passed": ("xla_train_step",),
        "skipped": (),
        "failed": (),
        "record_id": "f" * 32,
        "measured": "2026-11-20T01:02:00+00:00",
        "issued": "2026-11-20T02:00:00+00:00",
        "expires": "2026-12-04T01:02:00+00:00",
        "signer": digest_of(9),
        "fixture": True,
    }
    return Certificate(**(fields | changes))
