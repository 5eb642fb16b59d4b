"""A repository with images and certificates, all made by tests and signed by keys that are thrown away."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from validator.certify.issue import certify
from validator.certify.signing import Signer
from validator.certify.trust import Trust
from validator.delivery.candidates import Terms
from validator.engines.docker.names import LABEL_SPEC
from validator.model.timestamps import now_utc, stamp
from validator.registry.client import Registry
from validator.registry.names import identifier_of

from ..certify.fixtures import record
from ..registry.images import push_image
from .values import TAG

H100 = ("580.65.06", "h100")
A100 = ("535.183.01", "a100")


@dataclass(frozen=True)
class Shelf:
    """One repository, and who signs for it."""

    registry: Registry
    signer: Signer
    trust: Trust

    @property
    def terms(self) -> Terms:
        return Terms(self.trust)

    def push(self, tag: str = TAG, content: str = "", program: Path | None = None) -> str:
        """An image of few bytes; its digest. Other contents under the same tag move the tag."""
        labels = {LABEL_SPEC: identifier_of(tag) or ""}
        return push_image(self.registry.repository, tag, labels, content, program)

    def certify(
        self,
        digest: str,
        *hosts: tuple[str, str],
        tag: str = TAG,
        by: tuple[Signer, Trust] | None = None,
        age: timedelta = timedelta(hours=1),
        now: datetime | None = None,
    ) -> None:
        """As if it had been measured on these hosts. by: who signs. age: of the measurement."""
        signer, trust = by or (self.signer, self.trust)
        at = now or now_utc()
        tensorflow, *_, python = tag.split("-")
        for driver, gpu in hosts:
            made = record(
                digest,
                tensorflow=tensorflow, python=python.removeprefix("py"), driver=driver, gpu=gpu,
                finished=stamp(at - age),
            )  # fmt: skip
            certify(self.registry, made, signer, trust, now=at)

    def put(self, *hosts: tuple[str, str], tag: str = TAG) -> str:
        """An image that is certified for these hosts."""
        digest = self.push(tag)
        self.certify(digest, *hosts, tag=tag)
        return digest
