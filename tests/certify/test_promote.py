"""Aliases in a real registry: where they go, where they never go, and who wins when two move them at once."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from validator.certify.signatures import Signer
from validator.certify.trust import Terms, Trust
from validator.certify.verify import Move, promote
from validator.errors import MissingError, ValidatorError
from validator.model.codec import format_timestamp
from validator.model.record import Record, Verdict
from validator.model.spec import build_of
from validator.registry.client import Registry
from validator.registry.names import Repository

from ..registry.images import push_image
from ..registry.proxy import Fault, Proxy
from ..registry.server import RunningRegistry
from ..registry.stock import Stock
from .fixtures import MEASURED_AT, record, report
from .measuring import certify_measured, note_proven, parties

#: Pushes and certifies an image of a TensorFlow release, and gives back its digest.
Certified = Callable[..., str]


@pytest.fixture
def certified(stock: Stock, registry: Registry, signer: Signer, trust: Trust) -> Certified:
    def make(tensorflow: str, python: str = "3.12", additions: str = "", **measured: Any) -> str:
        image = f"tf{tensorflow}-cuda12.5-cudnn9.3-py{python.replace('.', '')}{additions}"
        what = ("promote", image, *sorted(measured.items()))
        named = tensorflow.replace("+", "-")
        if build_of(image):
            tensorflow = tensorflow.partition("+")[0]
            measured |= {"tensorflow_wheel": f"wheels/ours.whl#sha256={build_of(image)}{'0' * 56}"}
        if additions or build_of(image):
            measured |= {"image": image, "cell": f"{image}@r580-h100"}

        def fill(place: Repository) -> str:
            digest = pushed(Registry(place), named, python + additions)
            made = record(digest, tensorflow=tensorflow, python=python, **measured)
            certify_measured(Registry(place), made, signer, trust)
            return digest

        digest = stock.put(registry.repository, what, fill)
        note_proven(registry, digest, image)
        return digest

    return make


def later(**delta: float) -> str:
    """Return a time relative to that of the made-up measurements."""
    return format_timestamp(MEASURED_AT + timedelta(**delta))


def failed(digest: str, **measured: Any) -> Record:
    """Return the record of a measurement in which a required check failed."""
    found = copy.deepcopy(report(tensorflow="2.21.0"))
    next(check for check in found["checks"] if check["id"] == "gpu_compute")["outcome"] = "fail"
    return record(digest, found=found, verdict=Verdict.FAILED, **measured)


def pushed(registry: Registry, tensorflow: str, python: str = "3.12") -> str:
    tag = f"{tensorflow}-cuda12.5-cudnn9.3-py{python}"
    return push_image(registry.repository, tag, {"org.opencontainers.image.version": tensorflow})


def aliases(server: RunningRegistry, registry: Registry) -> dict[str, str]:
    """Return the aliases in the registry's storage."""
    tags = server.tags(registry.repository.path)
    return {tag: digest for tag, digest in tags.items() if "-py" not in tag and "sha256" not in tag}


def test_aliases_are_made_and_moved(
    server: RunningRegistry, registry: Registry, trust: Trust, certified: Certified
) -> None:
    old = certified("2.20.0", driver="535.183.01")
    first = {
        move.alias: (move.was, move.now, move.moves) for move in promote(registry, Terms(trust), parties())
    }
    assert first == dict.fromkeys(("latest", "2.20", "2.20-driver535"), (None, old, True))
    assert aliases(server, registry) == dict.fromkeys(("latest", "2.20", "2.20-driver535"), old)

    new = certified("2.21.0")
    told: list[Move] = []
    moved = promote(registry, Terms(trust), parties(), on_move=told.append)
    assert {move.alias: move.was for move in moved if move.moves} == {
        "latest": old, "2.21": None, "2.21-driver580": None,
    }  # fmt: skip
    assert {move.alias for move in told} == {"latest", "2.21", "2.21-driver580"}
    assert aliases(server, registry) == {
        "latest": new, "2.21": new, "2.21-driver580": new, "2.20": old, "2.20-driver535": old,
    }  # fmt: skip
    assert not any(move.moves or move.why for move in promote(registry, Terms(trust), parties()))


def test_images_with_additions_get_aliases_of_their_own_and_only_when_they_are_named(
    server: RunningRegistry, registry: Registry, trust: Trust, certified: Certified
) -> None:
    ours = certified("2.21.0", additions="_ours")
    assert promote(registry, Terms(trust), parties()) == []
    plain = certified("2.20.0")
    promote(registry, Terms(trust), parties())
    assert aliases(server, registry) == dict.fromkeys(("latest", "2.20", "2.20-driver580"), plain)

    promote(registry, Terms(trust), parties(), additions="ours")
    named = dict.fromkeys(("latest_ours", "2.21_ours", "2.21-driver580_ours"), ours)
    assert aliases(server, registry).items() >= named.items()
    assert aliases(server, registry)["latest"] == plain
    assert not any(move.moves or move.why for move in promote(registry, Terms(trust), parties()))


def test_images_of_a_wheel_get_aliases_of_their_own_and_only_when_they_are_named(
    server: RunningRegistry, registry: Registry, trust: Trust, certified: Certified
) -> None:
    ours = certified("2.21.0+b3f1c2d4")
    assert promote(registry, Terms(trust), parties()) == []
    promote(registry, Terms(trust), parties(), additions="b3f1c2d4")
    named = dict.fromkeys(("latest_b3f1c2d4", "2.21_b3f1c2d4", "2.21-driver580_b3f1c2d4"), ours)
    assert aliases(server, registry) == named
    assert not any(move.moves or move.why for move in promote(registry, Terms(trust), parties()))


def test_an_alias_that_points_at_an_image_with_additions_is_corrected(
    server: RunningRegistry, registry: Registry, trust: Trust, certified: Certified
) -> None:
    plain, ours = certified("2.20.0"), certified("2.21.0", additions="_ours")
    registry.tag(ours, "latest")
    [latest] = [move for move in promote(registry, Terms(trust), parties()) if move.alias == "latest"]
    assert (latest.was, latest.now) == (ours, plain)
    assert "tf2.21.0-cuda12.5-cudnn9.3-py312_ours" in latest.lost


def test_a_dry_run_moves_nothing(
    server: RunningRegistry, registry: Registry, trust: Trust, certified: Certified
) -> None:
    digest = certified("2.21.0")
    planned = promote(registry, Terms(trust), parties(), dry_run=True)
    assert [(move.alias, move.now, move.moves) for move in planned] == [
        ("latest", digest, True), ("2.21", digest, True), ("2.21-driver580", digest, True),
    ]  # fmt: skip
    assert aliases(server, registry) == {}


def test_an_image_without_a_certificate_gets_no_alias(
    server: RunningRegistry, registry: Registry, trust: Trust, certified: Certified
) -> None:
    good = certified("2.20.0")
    pushed(registry, "2.21.0")
    promote(registry, Terms(trust), parties())
    assert set(aliases(server, registry).values()) == {good}
    assert "2.21" not in aliases(server, registry)


@pytest.mark.parametrize("kind", ["foreign", "fixture", "old"])
def test_an_image_whose_certificate_does_not_count_gets_no_alias(
    server: RunningRegistry, registry: Registry, trust: Trust, certified: Certified,
    foreign: tuple[Signer, Trust], kind: str,
) -> None:  # fmt: skip
    certified("2.21.0", finished=format_timestamp(MEASURED_AT - timedelta(days=8)))
    rules = {
        "foreign": (Terms(foreign[1]), parties()),
        "fixture": (Terms(Trust(key=trust.key)), parties()),
        "old": (Terms(trust, timedelta(days=7)), parties()),
    }[kind]
    assert promote(registry, *rules) == []
    assert aliases(server, registry) == {}


def test_an_alias_stays_while_the_newer_build_of_its_image_is_not_certified(
    server: RunningRegistry, registry: Registry, signer: Signer, trust: Trust, certified: Certified
) -> None:
    certified("2.21.0", python="3.11")
    good = certified("2.21.0")
    promote(registry, Terms(trust), parties())
    tag = "2.21.0-cuda12.5-cudnn9.3-py3.12"
    newer = push_image(registry.repository, tag, content="of a newer lock")
    result = promote(registry, Terms(trust), parties())
    assert not any(move.moves or move.why for move in result)
    assert set(aliases(server, registry).values()) == {good}
    certify_measured(
        registry, record(newer, finished=format_timestamp(MEASURED_AT + timedelta(minutes=1))), signer, trust
    )
    promote(registry, Terms(trust), parties())
    assert set(aliases(server, registry).values()) == {newer}


def test_a_tag_that_contradicts_the_certificate_makes_no_alias(
    server: RunningRegistry, registry: Registry, trust: Trust, certified: Certified
) -> None:
    digest = certified("2.20.0")
    registry.tag(digest, "2.21.0-cuda12.5-cudnn9.3-py3.12")
    promote(registry, Terms(trust), parties())
    assert set(aliases(server, registry)) == {"latest", "2.20", "2.20-driver580"}


def test_an_alias_that_was_moved_by_hand_is_corrected(
    server: RunningRegistry, registry: Registry, trust: Trust, certified: Certified
) -> None:
    good = certified("2.21.0")
    wrong = push_image(registry.repository, "theirs-py")
    for alias in ("latest", "2.21", "2.21-driver580"):
        registry.tag(wrong, alias)
    moved = promote(registry, Terms(trust), parties())
    assert {(move.was, move.now) for move in moved} == {(wrong, good)}
    assert set(aliases(server, registry).values()) == {good}


def test_a_label_does_not_keep_an_alias_on_an_image_without_a_certificate(
    server: RunningRegistry, registry: Registry, trust: Trust, certified: Certified
) -> None:
    older = certified("2.20.0")
    newer = pushed(registry, "99.0.0")
    registry.tag(newer, "latest")
    (latest,) = [move for move in promote(registry, Terms(trust), parties()) if move.alias == "latest"]
    assert (latest.was, latest.now, latest.moves) == (newer, older, True)
    assert latest.lost == "no certificate is attached"
    assert aliases(server, registry)["latest"] == older


def test_the_aliases_leave_an_image_that_failed_tonight_for_the_last_good_one(
    server: RunningRegistry, registry: Registry, signer: Signer, trust: Trust, certified: Certified
) -> None:
    older, newer = certified("2.20.0"), certified("2.21.0")
    promote(registry, Terms(trust), parties())
    certify_measured(registry, failed(newer, finished=later(minutes=1)), signer, trust)
    moves = {move.alias: move for move in promote(registry, Terms(trust), parties())}
    assert (moves["latest"].was, moves["latest"].now) == (newer, older)
    assert moves["latest"].lost.startswith("it failed on r580-h100 (gpu_compute, xla_speedup), measured ")
    # No other image fits these, and most registries can't remove a tag without its image.
    assert {alias for alias, move in moves.items() if move.why} == {"2.21", "2.21-driver580"}
    assert "it failed on r580-h100" in moves["2.21"].why
    assert aliases(server, registry) == {
        "latest": older, "2.20": older, "2.20-driver580": older, "2.21": newer, "2.21-driver580": newer,
    }  # fmt: skip
    # A newer measurement that passes brings them back.
    certify_measured(registry, record(newer, finished=later(minutes=2)), signer, trust)
    promote(registry, Terms(trust), parties())
    assert aliases(server, registry)["latest"] == newer


def test_a_failure_that_somebody_deletes_is_hidden_only_until_the_certificate_expires(
    server: RunningRegistry, registry: Registry, trust: Trust, signer: Signer, certified: Certified
) -> None:
    newer = certified("2.21.0", finished=later(days=-13))
    older = certified("2.20.0")
    promote(registry, Terms(trust), parties())
    # The failure of tonight was deleted, so the registry looks as before.
    assert aliases(server, registry)["latest"] == newer
    promote(registry, Terms(trust), parties(), now=MEASURED_AT + timedelta(days=1, minutes=1))
    assert aliases(server, registry)["latest"] == older


def test_an_alias_without_a_certified_image_any_more_stays_and_is_reported(
    server: RunningRegistry, registry: Registry, trust: Trust, certified: Certified
) -> None:
    certified("2.20.0")
    promote(registry, Terms(trust), parties())
    before = aliases(server, registry)
    late = MEASURED_AT + timedelta(days=15)
    result = promote(registry, Terms(trust), parties(), now=late)
    assert {move.alias for move in result if move.why} == {"latest", "2.20", "2.20-driver580"}
    assert all("its own image has none: it expired on" in move.why for move in result)
    assert aliases(server, registry) == before
    assert not any(
        move.why for move in promote(registry, Terms(trust, accept_expired=True), parties(), now=late)
    )


def test_of_two_processes_at_once_the_one_with_older_knowledge_does_not_win(
    server: RunningRegistry, registry: Registry, through: Registry, proxy: Proxy, trust: Trust,
    certified: Certified,
) -> None:  # fmt: skip
    """The slow process decides before the newer image is certified, and writes after the other one."""
    older = certified("2.20.0")
    written = threading.Event()
    proxy.faults = [Fault(method="PUT", path="manifests/latest", status=None, until=written, times=1)]
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(promote, through, Terms(trust), parties())
        while not proxy.faults[0].happened:
            time.sleep(0.01)
        newer = certified("2.21.0")
        promote(registry, Terms(trust), parties())
        assert server.tags(registry.repository.path)["latest"] == newer
        written.set()
        result = slow.result()
    assert any(asked.path.endswith("manifests/latest") for asked in proxy.asked if asked.method == "PUT")
    assert aliases(server, registry) == {
        "latest": newer, "2.21": newer, "2.21-driver580": newer, "2.20": older, "2.20-driver580": older,
    }  # fmt: skip
    assert {move.alias: move.now for move in result}["latest"] == newer


def test_many_processes_at_once_agree_in_the_end(
    server: RunningRegistry, registry: Registry, trust: Trust, certified: Certified
) -> None:
    certified("2.20.0")
    newest = certified("2.21.0")
    with ThreadPoolExecutor(4) as pool:
        for _ in pool.map(lambda _: promote(registry, Terms(trust), parties()), range(4)):
            pass
    assert aliases(server, registry)["latest"] == newest


def test_aliases_that_keep_changing_are_an_error(
    through: Registry, proxy: Proxy, trust: Trust, certified: Certified
) -> None:
    """The registry accepts every write and does nothing, as if somebody undid it."""
    certified("2.21.0")
    proxy.faults = [Fault(method="PUT", path="manifests/latest", status=201)]
    with pytest.raises(ValidatorError, match="keep changing"):
        promote(through, Terms(trust), parties())


@pytest.mark.parametrize("status", [401, 403, 0])
def test_a_registry_that_rejects_writes_leaves_the_aliases_unchanged(
    server: RunningRegistry, registry: Registry, through: Registry, proxy: Proxy, trust: Trust,
    certified: Certified, status: int,
) -> None:  # fmt: skip
    old = certified("2.20.0")
    promote(registry, Terms(trust), parties())
    certified("2.21.0")
    proxy.faults = [Fault(method="PUT", status=status)]
    with pytest.raises(MissingError):
        promote(through, Terms(trust), parties())
    assert set(aliases(server, registry).values()) == {old}
    proxy.faults = []
    promote(through, Terms(trust), parties())
    assert "2.21" in aliases(server, registry)


def test_an_altered_image_gets_no_alias(
    server: RunningRegistry, registry: Registry, through: Registry, proxy: Proxy, trust: Trust,
    certified: Certified,
) -> None:  # fmt: skip
    digest = certified("2.21.0")
    proxy.faults = [Fault(method="GET", path=f"manifests/{digest}", replace=(b"1970", b"1971"))]
    with pytest.raises(ValidatorError, match="digest"):
        promote(through, Terms(trust), parties())
    assert aliases(server, registry) == {}


def test_an_empty_repository(repository: Repository, trust: Trust) -> None:
    assert promote(Registry(repository), Terms(trust), parties()) == []
