"""A rehearsal ends with an error if anything accepts what it made."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from validator.certify.acceptance import NotCertifiable
from validator.certify.signatures import Signer
from validator.certify.trust import Trust, TrustFile
from validator.certify.verify import Refused, Verified
from validator.delivery import rehearsal
from validator.delivery.choose import Host, Standing, parse_driver, parse_gpus
from validator.delivery.pull import NotCertified
from validator.delivery.rehearsal import Accepted, Rehearsed, Stage, steps
from validator.errors import ValidatorError
from validator.model.codec import now_utc
from validator.model.record import Origin
from validator.registry.client import Registry
from validator.registry.names import Repository

from ..records.values import record

IMAGE = "tf2.21.0-cuda12.5-cudnn9.3-py312"
MADE = record(image=IMAGE, image_digest="sha256:" + "d" * 64, origin=Origin.REHEARSAL)
DONE = Rehearsed(MADE, "REHEARSAL-2.21.0-cuda12.5-cudnn9.3-py3.12")
REJECTED = Verified((), (Refused("sha256:a", "it is the statement of a REHEARSAL"),))


class Tags(Registry):
    """Remembers the tags that were set."""

    def __init__(self) -> None:
        super().__init__(Repository.parse("registry.example/team/tf"))
        self.set: dict[str, str] = {}

    def tag(self, digest: str, tag: str) -> None:
        self.set[tag] = digest


@dataclasses.dataclass
class Pulls:
    """Remembers what was pulled."""

    pulled: list[str] = dataclasses.field(default_factory=list)

    def pull(self, selected: Any, ids: frozenset[str], progress: Any) -> None:
        self.pulled.append(selected.reference)


def raising(error: Exception) -> Any:
    def function(*arguments: Any, **options: Any) -> Any:
        raise error

    return function


@pytest.fixture
def gates(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Let every gate reject the image, as the real ones do."""
    for name, answer in (
        ("certify", raising(NotCertifiable("made by a REHEARSAL"))),
        ("attach_rehearsal", lambda *_: "sha256:a"),
        ("rehearsed", lambda *_: (MADE.id,)),
        ("certificates", lambda *_, **__: REJECTED),
        ("promote", lambda *_, **__: []),
        ("recommend", lambda *_: [SimpleNamespace(standing=Standing.UNFIT, why="a REHEARSAL")]),
        ("select_named", raising(NotCertified("rejected"))),
        ("local_ids", lambda *_: frozenset()),
    ):
        monkeypatch.setattr(rehearsal, name, answer)
    return monkeypatch


def walk(registry: Tags, engine: Pulls) -> Iterator[rehearsal.Step]:
    host = Host(parse_driver("580"), parse_gpus(["h100"]))
    stage = Stage(registry, Signer(), Trust(), TrustFile(), host, now_utc())
    return steps(stage, [DONE], engine, lambda line: None)  # type: ignore[arg-type]


def test_every_gate_rejects_it(gates: pytest.MonkeyPatch) -> None:
    registry, engine = Tags(), Pulls()
    names = [step.name for step in walk(registry, engine)]
    assert names == ["certify", "verify", "promote", "recommend", "pull"]
    assert registry.set == {"REHEARSAL-latest": DONE.digest}
    assert engine.pulled == [registry.repository.at(DONE.digest)]


@pytest.mark.parametrize(
    ("gate", "answer", "step"),
    [
        ("certify", lambda *_: None, "certify"),
        ("certificates", lambda *_, **__: Verified(("a certificate",), ()), "verify"),  # type: ignore[arg-type]
        ("certificates", lambda *_, **__: Verified((), (), ("a failure",)), "verify"),  # type: ignore[arg-type]
        ("promote", lambda *_, **__: [SimpleNamespace(alias="latest", moves=True)], "promote"),
        ("recommend", lambda *_: [SimpleNamespace(standing=Standing.PREDICTED, why="")], "recommend"),
        ("recommend", lambda *_: [SimpleNamespace(standing=Standing.CERTIFIED, why="")], "recommend"),
        ("select_named", lambda *_: None, "pull"),
    ],
)
def test_a_gate_that_accepts_it_ends_the_rehearsal(
    gate: str, answer: Any, step: str, gates: pytest.MonkeyPatch
) -> None:
    gates.setattr(rehearsal, gate, answer)
    engine = Pulls()
    with pytest.raises(Accepted, match=f"REHEARSAL: {step} accepted"):
        list(walk(Tags(), engine))
    assert engine.pulled == []


@pytest.mark.parametrize(
    ("gate", "answer", "says"),
    [
        ("rehearsed", lambda *_: (), "can't be read back"),
        ("certificates", lambda *_, **__: Verified((), ()), "verify does not see the statement"),
    ],
)
def test_a_registry_that_loses_the_statement_is_an_error(
    gate: str, answer: Any, says: str, gates: pytest.MonkeyPatch
) -> None:
    gates.setattr(rehearsal, gate, answer)
    with pytest.raises(ValidatorError, match=says):
        list(walk(Tags(), Pulls()))
