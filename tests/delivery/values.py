"""Hosts, images and certificates as values."""

from __future__ import annotations

from typing import Any

from validator.delivery.choose import Expected, Found, Offer
from validator.delivery.host import Host, asked_driver, asked_gpus
from validator.model.certificate import Certificate, GpuFacts
from validator.model.prediction import Outcome

GPUS = {
    "h100": ("NVIDIA H100 80GB HBM3", "9.0"),
    "a100": ("NVIDIA A100-SXM4-40GB", "8.0"),
    "t4": ("Tesla T4", "7.5"),
}
TAG = "2.21.0-cuda12.5-cudnn9.3-py3.12"
OLDER = "2.20.0-cuda12.5-cudnn9.3-py3.12"
WORKS = Expected(Outcome.WORKS, "the driver is new enough")
FAILS = Expected(Outcome.FAILS, "the driver is too old")
UNKNOWN = Expected(Outcome.UNKNOWN, "nobody knows that GPU")


def host(driver: str = "580.65.06", *gpus: str) -> Host:
    return Host(asked_driver(driver), asked_gpus(gpus or ("h100",)))


def offer(tag: str = TAG) -> Offer:
    found = Offer.of_tag(tag)
    assert found is not None
    return found


def found(*certificates: Certificate, tag: str = TAG, against: tuple[str, ...] = ()) -> Found:
    return Found(offer(tag), digest_of(1), certificates, against)


def digest_of(number: int) -> str:
    return f"sha256:{number:064x}"


def certificate(driver: str = "580.65.06", *gpus: str, **changes: Any) -> Certificate:
    """Of no measurement; only its values are looked at."""
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
        "signer": digest_of(9),
        "fixture": True,
    }
    return Certificate(**(fields | changes))
