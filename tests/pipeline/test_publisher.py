"""The main job with a fake engine and a fake registry: what is built, pushed, pulled and recorded."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from validator.cli.progress import totals
from validator.engines.base import Built, ImageEngine, Progress
from validator.engines.venv import VenvEngine
from validator.errors import MissingError, ValidatorError
from validator.model import codec
from validator.model.lock import Lock
from validator.model.record import Verdict
from validator.model.spec import ImageSpec
from validator.pipeline.build_matrix import build_matrix
from validator.pipeline.publisher import Publisher
from validator.pipeline.run import Event, Options, Phase, RegistryUse, Result, Run, Status
from validator.records.store import Store
from validator.registry.client import Registry
from validator.registry.documents import Descriptor, ImageConfig, Manifest
from validator.registry.names import Repository
from validator.system.sources import PackageSources

from .fakes import FakeEngine, report
from .test_build_matrix import OTHER, SPEC, write_lock

REPOSITORY = Repository.parse("registry.example/team/tensorflow")
TAG = "2.21.0-cpu-py3.11"


def digest(letter: str) -> str:
    return f"sha256:{letter * 64}"


class FakeRegistry(Registry):
    """Keeps tags and labels in dictionaries. `fails` is raised when a tag is looked up."""

    def __init__(self) -> None:
        super().__init__(REPOSITORY)
        self.held: dict[str, str] = {}
        self.labels: dict[str, dict[str, str]] = {}
        self.configurations: dict[str, str] = {}
        self.fails: ValidatorError | None = None

    def digest_of(self, tag: str) -> str | None:
        if self.fails is not None:
            raise self.fails
        return self.held.get(tag)

    def config(self, digest: str) -> ImageConfig:
        return codec.convert({"config": {"Labels": self.labels.get(digest, {})}}, ImageConfig)

    def manifest(self, digest: str) -> Manifest | None:
        configuration = self.configurations.get(digest)
        return Manifest(config=Descriptor(configuration, 1) if configuration else None)


@dataclasses.dataclass
class FakeImageEngine(FakeEngine):
    """Pushes to a FakeRegistry. `pushed_as` is the digest in the registry, by default the image's own."""

    registry: FakeRegistry = dataclasses.field(default_factory=FakeRegistry)
    pushes: list[str] = dataclasses.field(default_factory=list)
    pulls: list[str] = dataclasses.field(default_factory=list)
    probed: list[str | None] = dataclasses.field(default_factory=list)
    pushed_as: str | None = None
    push_error: ValidatorError | None = None
    recipe: str = "1"
    here: Built | None = None

    def existing(self, spec: ImageSpec, lock: Lock) -> Built | None:
        return self.here

    def made_from(self, spec: ImageSpec, lock: Lock, labels: Mapping[str, str]) -> bool:
        return labels.get("spec") == spec.identifier and labels.get("lock") == lock.digest

    def up_to_date(self, spec: ImageSpec, lock: Lock, labels: Mapping[str, str]) -> bool:
        return self.made_from(spec, lock, labels) and labels.get("recipe") == self.recipe

    def push(self, built: Built, lock: Lock, reference: str, progress: Progress) -> Built:
        self.pushes.append(reference)
        if self.push_error is not None:
            raise self.push_error
        held = self.pushed_as or str(built.digest)
        self.hold(built.spec, lock, held)
        return dataclasses.replace(built, digest=held, engine_id=built.digest)

    def hold(self, spec: ImageSpec, lock: Lock, held: str) -> None:
        """Put an image of this spec into the registry, as if another machine had pushed it."""
        tag = {SPEC.identifier: TAG, OTHER.identifier: "2.20.0-cpu-py3.11"}[spec.identifier]
        self.registry.held[tag] = held
        self.registry.labels[held] = {"spec": spec.identifier, "lock": lock.digest, "recipe": self.recipe}

    def pull(self, spec: ImageSpec, lock: Lock, reference: str, progress: Progress) -> Built:
        self.pulls.append(reference)
        return Built(spec, reference, lock.digest, reference.partition("@")[2], "registry:python")

    def probe(self, built: Built, request: Any, progress: Progress) -> bytes:
        self.probed.append(built.digest)
        return super().probe(built, request, progress)


@dataclasses.dataclass
class Bench:
    """A store, a lock and an engine with its registry."""

    store: Store
    locks: Path
    lock: Lock
    engine: FakeImageEngine
    events: list[Event] = dataclasses.field(default_factory=list)

    def run(self, *, pull: bool = False, retag: bool = False, **options: Any) -> Result:
        use = RegistryUse.PULL if pull else RegistryUse.PUSH
        [result] = build_matrix([SPEC], self.settings(use, retag, **options))
        return result

    def settings(self, use: RegistryUse, retag: bool = False, **options: Any) -> Run:
        publisher = Publisher(self.engine, self.engine.registry, retag)
        return Run(
            self.engine, self.store, PackageSources(), self.locks, (), Options(registry=use, **options),
            self.events.append, None if use is RegistryUse.NONE else publisher,
        )  # fmt: skip

    def phases(self) -> list[Phase]:
        return list(dict.fromkeys(event.phase for event in self.events))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    lock = write_lock(tmp_path, SPEC)
    with Store(str(tmp_path / "records.db")) as store:
        yield Bench(store, tmp_path, lock, FakeImageEngine(report(), digest=digest("a")))


def test_an_image_is_built_then_pushed_then_probed(bench: Bench) -> None:
    result = bench.run()
    assert bench.phases() == [Phase.LOCK, Phase.BUILD, Phase.PUSH, Phase.PROBE, Phase.DONE]
    assert bench.engine.pushes == [f"{REPOSITORY}:{TAG}"]
    assert result.status is Status.MEASURED and result.record is not None
    assert result.record.image_digest == digest("a")
    assert result.published is not None and result.published.sent
    assert result.published.reference == f"{REPOSITORY}@{digest('a')}"
    assert "1 pushed" in totals([result])


def test_the_record_names_the_digest_in_the_registry(bench: Bench) -> None:
    """An engine with the older image store identifies an image by its configuration, not by its manifest."""
    bench.engine.pushed_as = digest("b")
    result = bench.run()
    assert result.record is not None and result.record.image_digest == digest("b")
    # Built again, it has the same configuration, so nothing has to be pushed or measured.
    bench.engine.registry.configurations[digest("b")] = digest("a")
    bench.engine.registry.labels[digest("b")]["recipe"] = "0"
    again = bench.run()
    assert again.status is Status.UNCHANGED
    assert len(bench.engine.builds) == 2 and len(bench.engine.pushes) == 1
    forced = bench.run(force=True)
    assert forced.record is not None and forced.record.image_digest == digest("b")


def test_without_validation_an_image_is_built_and_pushed(bench: Bench) -> None:
    result = bench.run(validate=False)
    assert result.status is Status.BUILT
    assert result.detail == f"{REPOSITORY}@{digest('a')}"
    assert bench.engine.pushes and not bench.engine.probes
    assert list(bench.store.all()) == []


def test_an_image_in_the_registry_is_not_built_again(bench: Bench) -> None:
    """This is the case of a machine that has never built the image."""
    bench.engine.hold(SPEC, bench.lock, digest("c"))
    assert bench.run(validate=False).status is Status.BUILT
    assert (bench.engine.builds, bench.engine.pushes, bench.engine.pulls) == ([], [], [])
    result = bench.run()
    assert (bench.engine.builds, bench.engine.pushes) == ([], [])
    assert bench.engine.pulls == [f"{REPOSITORY}@{digest('c')}"]
    assert bench.engine.probed == [digest("c")]
    assert result.record is not None and result.record.image_digest == digest("c")
    assert bench.run().status is Status.UNCHANGED


def test_an_image_that_the_engine_has_is_not_pulled(bench: Bench) -> None:
    bench.engine.hold(SPEC, bench.lock, digest("c"))
    bench.engine.here = Built(SPEC, "here", bench.lock.digest, digest("c"))
    bench.run()
    assert bench.engine.pulls == []
    assert bench.engine.probed == [digest("c")]


def test_an_unchanged_cell_is_pushed_when_the_registry_lacks_it(bench: Bench) -> None:
    [first] = build_matrix([SPEC], bench.settings(RegistryUse.NONE))
    assert first.status is Status.MEASURED
    result = bench.run()
    assert result.status is Status.UNCHANGED
    assert bench.engine.pushes == [f"{REPOSITORY}:{TAG}"]
    assert len(bench.engine.probes) == 1


def test_an_image_with_another_digest_is_measured_again(bench: Bench) -> None:
    [first] = build_matrix([SPEC], bench.settings(RegistryUse.NONE))
    bench.engine.hold(SPEC, bench.lock, digest("c"))
    result = bench.run()
    assert result.status is Status.MEASURED
    assert first.record is not None and result.record is not None
    assert [first.record.image_digest, result.record.image_digest] == [digest("a"), digest("c")]


def test_a_tag_that_names_another_image_is_refused_and_nothing_is_recorded(bench: Bench) -> None:
    bench.engine.hold(SPEC, bench.lock, digest("c"))
    bench.engine.recipe = "2"
    result = bench.run()
    assert result.status is Status.REFUSED
    assert f"this tag names another image ({digest('c')})" in result.detail
    assert bench.engine.pushes == [] and bench.engine.probes == []
    assert list(bench.store.all()) == []
    moved = bench.run(retag=True)
    assert moved.status is Status.MEASURED
    assert bench.engine.registry.held[TAG] == digest("a")


def test_a_push_that_another_run_overtook_is_not_recorded(bench: Bench) -> None:
    bench.engine.pushed_as = digest("b")
    push = bench.engine.push

    def overtaken(built: Built, lock: Lock, reference: str, progress: Progress) -> Built:
        pushed = push(built, lock, reference, progress)
        bench.engine.registry.held[TAG] = digest("d")
        return pushed

    bench.engine.push = overtaken  # type: ignore[method-assign]
    result = bench.run()
    assert result.status is Status.REFUSED
    assert f"was pushed as {digest('b')}, but the registry now has {digest('d')}" in result.detail
    assert list(bench.store.all()) == []


@pytest.mark.parametrize("where", ["look", "push"])
def test_nothing_is_recorded_if_the_registry_fails(bench: Bench, where: str) -> None:
    error = MissingError("the registry is down", hint="wait")
    if where == "look":
        bench.engine.registry.fails = error
    else:
        bench.engine.push_error = error
    result = bench.run()
    assert (result.status, result.error) == (Status.MISSING, error)
    assert bench.engine.probes == []
    assert list(bench.store.all()) == []


def test_an_image_that_can_not_be_built_is_broken_and_not_pushed(bench: Bench) -> None:
    bench.engine.build_error = ValidatorError("a wheel is not what it was")
    result = bench.run()
    assert result.record is not None and result.record.verdict is Verdict.BROKEN
    assert bench.engine.pushes == []


def test_a_refusal_stops_the_others_only_with_fail_fast(bench: Bench) -> None:
    other = write_lock(bench.locks, OTHER)
    bench.engine.hold(SPEC, bench.lock, digest("c"))
    bench.engine.hold(OTHER, other, digest("e"))
    bench.engine.recipe = "2"
    results = build_matrix([SPEC, OTHER], bench.settings(RegistryUse.PUSH, keep_going=False))
    assert [result.status for result in results] == [Status.REFUSED, Status.STOPPED]
    results = build_matrix([SPEC, OTHER], bench.settings(RegistryUse.PUSH))
    assert [result.status for result in results] == [Status.REFUSED, Status.REFUSED]


def test_pulled_images_are_probed_and_never_built(bench: Bench) -> None:
    bench.engine.hold(SPEC, bench.lock, digest("c"))
    bench.engine.recipe = "2"
    result = bench.run(pull=True)
    assert bench.phases() == [Phase.LOCK, Phase.PULL, Phase.PROBE, Phase.DONE]
    assert bench.engine.builds == [] and bench.engine.pushes == []
    assert result.record is not None and result.record.image_digest == digest("c")
    assert result.published is not None and not result.published.sent
    assert bench.run(pull=True).status is Status.UNCHANGED
    # Another image under the same tag has to be measured.
    bench.engine.hold(SPEC, bench.lock, digest("d"))
    assert bench.run(pull=True).status is Status.MEASURED


def test_an_image_that_can_not_be_pulled_is_missing_and_another_lock_is_refused(bench: Bench) -> None:
    assert bench.run(pull=True).status is Status.MISSING
    other = dataclasses.replace(bench.lock, wheels=())
    bench.engine.hold(SPEC, other, digest("c"))
    result = bench.run(pull=True)
    assert result.status is Status.REFUSED
    assert "was built from another lock than the local one" in result.detail
    assert bench.engine.pulls == []
    assert list(bench.store.all()) == []


def test_only_an_engine_with_images_can_publish() -> None:
    assert isinstance(FakeImageEngine(), ImageEngine)
    assert not isinstance(VenvEngine(PackageSources()), ImageEngine)
