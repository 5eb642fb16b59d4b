"""A repository with images and certificates made by tests and signed with throw-away keys."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from validator.certify.signatures import Signer
from validator.certify.trust import Terms, Trust
from validator.model.codec import format_timestamp, now_utc
from validator.model.prediction import Limit
from validator.model.record import Verdict
from validator.model.spec import LABEL_SPEC, build_of
from validator.registry.client import Registry
from validator.registry.names import Repository, identifier_of

from ..certify.fixtures import record, report, with_limits
from ..certify.measuring import certify_measured, note_proven
from ..registry.images import push_image
from ..registry.stock import Stock
from .values import TAG

H100 = ("580.65.06", "h100")
A100 = ("535.183.01", "a100")


def origin_in(tag: str) -> str | None:
    """Return where the wheel of TensorFlow in an image comes from, if no table lists it."""
    build = build_of(identifier_of(tag) or "")
    return f"wheels/ours.whl#sha256={build[-8:].ljust(64, '0')}" if build else None


@dataclass(frozen=True)
class Shelf:
    """A repository with the key that signs its certificates."""

    registry: Registry
    signer: Signer
    trust: Trust
    stock: Stock

    @property
    def terms(self) -> Terms:
        return Terms(self.trust)

    def push(
        self, tag: str = TAG, content: str = "", program: Path | None = None, ports: Sequence[str] = ()
    ) -> str:
        """Push a small image and return its digest. Pushing other content with the same tag moves it."""
        labels = {LABEL_SPEC: identifier_of(tag) or ""}
        return push_image(self.registry.repository, tag, labels, content, program, ports)

    def certify(
        self,
        digest: str,
        *hosts: tuple[str, str],
        tag: str = TAG,
        by: tuple[Signer, Trust] | None = None,
        age: timedelta = timedelta(hours=1),
        now: datetime | None = None,
        limits: Sequence[Limit] = (),
    ) -> None:
        """Certify an image as if it was measured on these hosts.

        by: who signs. age: of the measurement. limits: those that the probe found.
        """
        signer, trust = by or (self.signer, self.trust)
        at = now or now_utc()
        tensorflow, *_, python = tag.partition("_")[0].split("-")
        for driver, gpu in hosts:
            version = python.removeprefix("py")
            found = report(driver, gpu, tensorflow=tensorflow, python=f"{version}.7")
            made = record(
                digest,
                found=with_limits(found, *limits) if limits else None,
                tensorflow=tensorflow, python=version, driver=driver, gpu=gpu,
                finished=format_timestamp(at - age),
                tensorflow_wheel=origin_in(tag), image=identifier_of(tag),
                cell=f"{identifier_of(tag)}@r{driver.partition('.')[0]}-{gpu}",
            )  # fmt: skip
            certify_measured(self.registry, made, signer, trust, now=at)

    def fail(self, digest: str, *hosts: tuple[str, str]) -> None:
        """Sign that an image failed on these hosts a moment ago."""
        for driver, gpu in hosts:
            found = copy.deepcopy(report(driver, gpu))
            next(check for check in found["checks"] if check["id"] == "gpu_compute")["outcome"] = "fail"
            made = record(
                digest, driver=driver, gpu=gpu, found=found,
                verdict=Verdict.FAILED, finished=format_timestamp(now_utc()),
            )  # fmt: skip
            certify_measured(self.registry, made, self.signer, self.trust)

    def push_certified(self, *hosts: tuple[str, str], tag: str = TAG) -> str:
        """Push an image and certify it for these hosts. Returns its digest."""

        def fill(place: Repository) -> str:
            shelf = replace(self, registry=Registry(place))
            digest = shelf.push(tag)
            shelf.certify(digest, *hosts, tag=tag)
            return digest

        digest = self.stock.put(self.registry.repository, ("shelf", tag, hosts), fill)
        note_proven(self.registry, digest, str(identifier_of(tag)))
        return digest
