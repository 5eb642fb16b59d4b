"""A verdict with everything that explains it. Written once, never changed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from .report import check_of_json


class Verdict(str, Enum):
    """certified: all required checks passed on a real GPU. failed: a check failed. unproven: nothing
    failed, but no GPU was there. broken: it did not build."""

    CERTIFIED = "certified"
    FAILED = "failed"
    UNPROVEN = "unproven"
    BROKEN = "broken"


class Origin(str, Enum):
    """`here`: built and probed by this installation. `elsewhere`: a report that a person brought."""

    HERE = "here"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True)
class Layer:
    """One layer of an image. digest: of its uncompressed content. size: bytes, unpacked."""

    digest: str
    size: int

    def as_json(self) -> dict[str, Any]:
        return {"digest": self.digest, "size": self.size}


@dataclass(frozen=True)
class Record:
    """One measured cell.

    cell: image spec and host class identifiers, joined (`tf2.21.0-cuda12.5-cudnn9.3-py312@no-gpu`).
    reason: one sentence that explains the verdict.
    engine: `docker`, `venv`, or `none` for a report brought from elsewhere.
    image_digest: of the image that was probed, or None when there was no image.
    key: what must be unchanged for the cell not to be measured again (spec, lock, probe, host, engine).
    host: the host facts of the probe.
    checks: the probe's checks, as in the report.
    report: the whole report, or None when nothing could be probed.
    started, finished: UTC, ISO 8601.
    layers: of the image, lowest first, as `Layer.as_json` gives them; None where they are not known.
    """

    cell: str
    image: str
    host_class: str
    verdict: Verdict
    reason: str
    engine: str
    lock_digest: str | None
    image_digest: str | None
    probe_version: str | None
    started: str
    finished: str
    key: str
    origin: Origin = Origin.HERE
    base: str | None = None
    host: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    checks: list[dict[str, Any]] = field(default_factory=list)
    report: dict[str, Any] | None = None
    layers: list[dict[str, Any]] | None = None

    @property
    def id(self) -> str:
        """The first 32 hex digits of the SHA-256 over the record's content: the same content is the same
        record, wherever it is imported."""
        text = json.dumps(self._content(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def _content(self) -> dict[str, Any]:
        content: dict[str, Any] = dict(vars(self))
        content["verdict"] = self.verdict.value
        content["origin"] = self.origin.value
        if self.layers is None:
            # Records from before there was this field keep their ids.
            del content["layers"]
        return content

    def as_json(self) -> dict[str, Any]:
        return {"id": self.id, **self._content()}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Record:
        """The inverse of `as_json`. Raises ValueError when a field is missing, unknown or altered."""
        fields = dict(document)
        claimed = fields.pop("id", None)
        try:
            fields["verdict"] = Verdict(fields["verdict"])
            fields["origin"] = Origin(fields["origin"])
            record = cls(**fields)
            for name in ("cell", "image", "host_class", "reason", "engine", "started", "finished", "key"):
                if not isinstance(fields[name], str):
                    raise TypeError(f"{name} is not text")
            if not isinstance(record.host, dict) or not isinstance(record.checks, list):
                raise TypeError("host and checks are not an object and an array")
            if not all(isinstance(version, str) for version in dict(record.versions).values()):
                raise TypeError("versions are not text")
            for layer in [] if record.layers is None else record.layers:
                if layer != Layer(str(layer["digest"]), int(layer["size"])).as_json():
                    raise TypeError("layers are not digests with sizes")
            for number, check in enumerate(record.checks):
                check_of_json(check, f"checks[{number}]")
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a record: {error}") from None
        if claimed != record.id:
            raise ValueError(f"record {claimed}: its content gives the id {record.id}; it was altered")
        return record
