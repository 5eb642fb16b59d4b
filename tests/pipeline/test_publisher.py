"""The main job with a fake engine and a fake registry: what is built, pushed, pulled and recorded."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from validator.assemble.base import Base, BaseFile, BaseFiles, Interpreter
from validator.assemble.base_finder import Bases
from validator.assemble.image import Assembled, Assembler, Destination
from validator.assemble.layers import Encoded, Write
from validator.certify import signatures
from validator.certify.provenance import Inputs, Provenance, Refusal
from validator.certify.signatures import Signer
from validator.certify.trust import Party, Signatory, TrustFile
from validator.cli.progress import totals
from validator.engines.protocol import Built, ImageEngine
from validator.engines.venv import VenvEngine
from validator.errors import MissingError, ValidatorError
from validator.locks.lock_files import LockDirectory
from validator.model.record import BaseOrigin, Verdict
from validator.model.spec import ImageSpec, Lock
from validator.pipeline import build_matrix as publishing
from validator.pipeline.build_matrix import Publisher, build_matrix
from validator.pipeline.run import Event, Options, Phase, RegistryUse, Result, Run, Status
from validator.records.store import Store
from validator.registry.client import Registry
from validator.registry.names import Repository, tag_of
from validator.system.package_sources import PackageSources
from validator.system.processes import Progress

from .fakes import FakeEngine, report
from .test_build_matrix import OTHER, SPEC, write_lock

REPOSITORY = Repository.parse("registry.example/team/tensorflow")
TAG = "2.21.0-cuda12.5-cudnn9.3-py3.11"
TRUST = TrustFile(
    builders=(Party("ci", Signatory(identity="ci", issuer="x"), datetime(2999, 1, 1, tzinfo=timezone.utc)),)
)


def digest(letter: str) -> str:
    """Return the digest of the image that `FakeMaker` makes if its manifest is this letter."""
    return f"sha256:{hashlib.sha256(letter.encode()).hexdigest()}"


class FakeRegistry(Registry):
    """Keeps tags, labels and provenance in dictionaries. `fails` is raised when a tag is looked up."""

    def __init__(self) -> None:
        super().__init__(REPOSITORY)
        self.held: dict[str, str] = {}
        self.manifests: set[str] = set()
        self.proven: dict[str, Inputs] = {}
        self.listed: dict[str, Mapping[str, object]] = {}
        self.described: list[str] = []
        self.fails: ValidatorError | None = None

    def digest_of(self, tag: str) -> str | None:
        if self.fails is not None:
            raise self.fails
        return self.held.get(tag)

    def tag(self, digest: str, tag: str) -> None:
        assert digest in self.manifests
        self.held[tag] = digest


@dataclasses.dataclass
class FakeDestination:
    """A repository of a FakeRegistry that has all blobs."""

    registry: FakeRegistry

    def has(self, blob: Encoded) -> bool:
        return True

    def receive(self, encode: Callable[[Write], Encoded], known: Encoded | None) -> Encoded:
        raise AssertionError("every blob is there")

    def finish(self, manifest: bytes, media_type: str) -> str:
        found = digest(manifest.decode())
        self.registry.manifests.add(found)
        return found


class FakeBases(Bases):
    def __init__(self, maker: FakeMaker) -> None:
        self.maker = maker

    def is_current(self, spec: ImageSpec, origin: str) -> bool:
        return origin == self.maker.base

    def repository(self, spec: ImageSpec) -> Repository | None:
        return None

    def warn_if_moved(self, spec: ImageSpec, origin: str) -> None:
        self.maker.warned.append((spec.identifier, origin))


class FakeMaker(Assembler):
    """Makes images whose manifest is one letter. `makes` lists them. status: dpkg's list in their base."""

    def __init__(self, status: bytes | None = None) -> None:
        self.manifest = "a"
        self.followed = digest("1")
        self.base = f"registry:python:3.11@{digest('9')}"
        self.status = status
        self.error: ValidatorError | None = None
        self.makes: list[str] = []
        self.warned: list[tuple[str, str]] = []
        object.__setattr__(self, "bases", FakeBases(self))

    def recipe(self, spec: ImageSpec) -> str:
        return self.followed

    def make(self, spec: ImageSpec, lock: Lock, destination: Destination, progress: Progress) -> Assembled:
        self.makes.append(spec.identifier)
        if self.error is not None:
            raise self.error
        found = destination.finish(self.manifest.encode(), "an image")
        return Assembled(found, self.manifest.encode(), b"", (), self.made_from())

    def made_from(self) -> Base:
        files = {} if self.status is None else {"var/lib/dpkg/status": BaseFile(self.status)}
        interpreter = Interpreter("/usr/bin/python3.11", "3.11.2")
        return Base(self.base, "python:3.11", None, {}, (), BaseFiles(interpreter, "2.36", files))


@dataclasses.dataclass
class FakeImageEngine(FakeEngine):
    """Pulls from a FakeRegistry."""

    pulls: list[str] = dataclasses.field(default_factory=list)
    probed: list[str | None] = dataclasses.field(default_factory=list)
    here: Built | None = None

    def existing(self, spec: ImageSpec, lock: Lock) -> Built | None:
        return self.here

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
    maker: FakeMaker = dataclasses.field(default_factory=FakeMaker)
    registry: FakeRegistry = dataclasses.field(default_factory=FakeRegistry)
    signer: Signer | None = None
    rehearsal: bool = False
    events: list[Event] = dataclasses.field(default_factory=list)

    def run(self, *, pull: bool = False, retag: bool = False, **options: Any) -> Result:
        use = RegistryUse.PULL if pull else RegistryUse.PUSH
        [result] = build_matrix([SPEC], self.settings(use, retag, **options))
        return result

    def settings(self, use: RegistryUse, retag: bool = False, **options: Any) -> Run:
        into = FakeDestination(self.registry)
        publisher = Publisher(
            self.maker, lambda _: into, self.registry, TRUST, self.engine, self.signer,
            retag, self.rehearsal,
        )  # fmt: skip
        return Run(
            self.engine, self.store, PackageSources(), LockDirectory(self.locks), (),
            Options(registry=use, **options), self.events.append,
            None if use is RegistryUse.NONE else publisher,
        )  # fmt: skip

    def hold(self, spec: ImageSpec, lock: Lock, held: str) -> None:
        """Put an image of this spec into the registry, as if a trusted builder had pushed it."""
        origin = BaseOrigin.parse(self.maker.base)
        assert origin is not None
        self.registry.held[tag_of(spec.identifier)] = held
        self.registry.proven[held] = Inputs(
            spec.identifier, lock.digest, self.maker.followed, origin, None, "1.0"
        )

    def phases(self) -> list[Phase]:
        return list(dict.fromkeys(event.phase for event in self.events))


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Return a bench on which provenance is a value in the registry: nothing is signed."""

    def provenance_of(
        registry: FakeRegistry, held: str, trust: TrustFile, *, image: str, lock_digest: str
    ) -> Provenance | Refusal:
        found = registry.proven.get(held)
        if trust is not TRUST or found is None:
            return Refusal("it has no provenance")
        if (found.image, found.lock_digest) != (image, lock_digest):
            return Refusal("it was built from the lock " + found.lock_digest)
        return Provenance(held, found, "ci", "2026-01-01", fixture=True)

    def attach_provenance(registry: FakeRegistry, held: str, inputs: Inputs, signer: Signer) -> None:
        registry.proven[held] = inputs

    monkeypatch.setattr(publishing, "provenance_of", provenance_of)

    def attach_sbom(
        registry: FakeRegistry, held: str, document: Mapping[str, object], signer: Signer
    ) -> None:
        registry.listed[held] = document

    monkeypatch.setattr(publishing, "attach_provenance", attach_provenance)
    monkeypatch.setattr(publishing, "attach_sbom", attach_sbom)
    monkeypatch.setattr(
        publishing, "attach_compatibility", lambda registry, held, spec: registry.described.append(held)
    )
    monkeypatch.setattr(signatures, "is_installed", lambda: True)
    lock = write_lock(tmp_path, SPEC)
    with Store(str(tmp_path / "records.db")) as store:
        yield Bench(store, tmp_path, lock, FakeImageEngine(report()))


def test_an_image_is_assembled_in_the_registry_then_pulled_and_probed(bench: Bench) -> None:
    result = bench.run()
    assert bench.phases() == [Phase.LOCK, Phase.PUSH, Phase.PULL, Phase.PROBE, Phase.DONE]
    assert bench.registry.held == {TAG: digest("a")}
    assert bench.engine.builds == []
    assert result.status is Status.MEASURED and result.record is not None
    assert result.record.image_digest == digest("a")
    assert result.published is not None and result.published.sent and result.built
    assert result.published.reference == f"{REPOSITORY}@{digest('a')}"
    assert "1 pushed" in totals([result])


def test_an_image_that_is_there_already_is_neither_sent_nor_measured_again(bench: Bench) -> None:
    """Nobody signed what it was made from, so it is assembled, which finds that all of it is there."""
    bench.run()
    again = bench.run()
    assert again.status is Status.UNCHANGED and not again.built
    assert again.published is not None and not again.published.sent
    assert len(bench.maker.makes) == 2 and len(bench.engine.probes) == 1
    forced = bench.run(force=True)
    assert forced.record is not None and forced.record.image_digest == digest("a")


def test_without_validation_an_image_is_built_and_pushed(bench: Bench) -> None:
    result = bench.run(validate=False)
    assert result.status is Status.BUILT
    assert result.detail == f"{REPOSITORY}@{digest('a')}"
    assert bench.registry.held and not bench.engine.probes and not bench.engine.pulls
    assert list(bench.store.all()) == []


def test_an_image_in_the_registry_is_not_built_again(bench: Bench) -> None:
    """This is the case of a machine that has never built the image."""
    bench.hold(SPEC, bench.lock, digest("c"))
    assert bench.run(validate=False).status is Status.BUILT
    assert (bench.maker.makes, bench.engine.pulls) == ([], [])
    assert set(bench.maker.warned) == {(SPEC.identifier, bench.maker.base)}
    result = bench.run()
    assert bench.maker.makes == []
    assert bench.engine.pulls == [f"{REPOSITORY}@{digest('c')}"]
    assert bench.engine.probed == [digest("c")]
    assert result.record is not None and result.record.image_digest == digest("c")
    assert bench.run().status is Status.UNCHANGED


def test_an_image_that_the_engine_has_is_not_pulled(bench: Bench) -> None:
    bench.hold(SPEC, bench.lock, digest("c"))
    bench.engine.here = Built(SPEC, "here", bench.lock.digest, digest("c"))
    bench.run()
    assert bench.engine.pulls == []
    assert bench.engine.probed == [digest("c")]


@pytest.mark.parametrize("differs", ["recipe", "base", "lock", "image", "nothing signed"])
def test_an_image_that_nobody_made_from_the_same_inputs_does_not_count_as_up_to_date(
    bench: Bench, differs: str
) -> None:
    bench.hold(SPEC, bench.lock, digest("c"))
    proven = bench.registry.proven
    if differs == "nothing signed":
        del proven[digest("c")]
    else:
        changes: dict[str, dict[str, Any]] = {
            "recipe": {"recipe_digest": digest("2")},
            "base": {"base": BaseOrigin("registry", "python:3.11", digest("8"))},
            "lock": {"lock_digest": digest("3")},
            "image": {"image": OTHER.identifier},
        }
        proven[digest("c")] = dataclasses.replace(proven[digest("c")], **changes[differs])
    assert bench.run(retag=True).status is Status.MEASURED
    assert bench.maker.warned == []
    assert bench.maker.makes and bench.engine.probed == [digest("a")]


def test_what_a_pushed_image_was_made_from_is_signed(bench: Bench) -> None:
    bench.signer = Signer(key="the builder's")
    bench.run()
    made = bench.registry.proven[digest("a")]
    assert (made.image, made.lock_digest) == (SPEC.identifier, bench.lock.digest)
    assert (made.recipe_digest, str(made.base)) == (bench.maker.followed, bench.maker.base)
    assert bench.registry.listed[digest("a")]["bomFormat"] == "CycloneDX"
    assert bench.registry.described == [digest("a")]
    # So another machine need not make it.
    assert bench.run().status is Status.UNCHANGED
    assert len(bench.maker.makes) == 1


def test_an_image_whose_packages_could_not_be_listed_is_signed_by_the_next_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.signer = Signer(key="the builder's")
    with monkeypatch.context() as patch:

        def fails(*_: object) -> None:
            raise MissingError("the registry is full")

        patch.setattr(publishing, "attach_sbom", fails)
        assert bench.run(validate=False).status is Status.MISSING
    assert bench.registry.proven == {}, "otherwise the next run would take it for finished"
    assert bench.run(validate=False).status is Status.BUILT
    assert bench.registry.listed and bench.registry.proven


def test_only_what_is_signed_needs_a_list_of_packages(bench: Bench) -> None:
    bench.maker.status = b"Package: ../x\nVersion: 1\n"
    assert bench.run(validate=False).status is Status.BUILT
    bench.signer = Signer(key="the builder's")
    result = bench.run(validate=False)
    assert result.status is not Status.BUILT and "list of packages" in result.detail
    assert bench.registry.proven == {}


def test_an_image_that_is_in_the_registry_already_is_signed_by_whoever_builds_the_same(bench: Bench) -> None:
    bench.signer = Signer(key="the builder's")
    bench.registry.held[TAG] = digest("a")
    result = bench.run()
    assert result.published is not None and not result.published.sent
    assert set(bench.registry.proven) == {digest("a")}


def test_nothing_is_signed_without_a_key_or_a_base_with_a_digest(bench: Bench) -> None:
    bench.run()
    bench.signer = Signer(key="the builder's")
    bench.maker.base = "registry:mine:latest"
    assert bench.run(force=True).status is Status.MEASURED
    assert bench.registry.proven == {}
    assert any(
        "it can't be certified: its base registry:mine:latest" in event.detail for event in bench.events
    )


@pytest.mark.parametrize("lacking", ["cosign", "builders"])
def test_without_cosign_or_a_builder_to_trust_images_are_built(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    bench.hold(SPEC, bench.lock, digest("a"))
    if lacking == "cosign":
        monkeypatch.setattr(signatures, "is_installed", lambda: False)
    else:
        monkeypatch.setattr(f"{__name__}.TRUST", TrustFile())
    assert bench.run().status is Status.MEASURED
    assert bench.maker.makes


def test_an_image_without_provenance_is_not_pulled(bench: Bench) -> None:
    bench.hold(SPEC, bench.lock, digest("c"))
    del bench.registry.proven[digest("c")]
    result = bench.run(pull=True)
    assert result.status is Status.REFUSED
    assert result.detail == f"{REPOSITORY}:{TAG} is rejected: it has no provenance"
    assert (bench.engine.pulls, bench.engine.probes) == ([], [])


def test_an_unchanged_cell_is_pushed_when_the_registry_lacks_it(bench: Bench) -> None:
    bench.engine.digest = digest("a")
    [first] = build_matrix([SPEC], bench.settings(RegistryUse.NONE))
    assert first.status is Status.MEASURED
    result = bench.run()
    assert result.status is Status.UNCHANGED
    assert bench.registry.held == {TAG: digest("a")}
    assert len(bench.engine.probes) == 1


def test_an_image_with_another_digest_is_measured_again(bench: Bench) -> None:
    bench.engine.digest = digest("a")
    [first] = build_matrix([SPEC], bench.settings(RegistryUse.NONE))
    bench.hold(SPEC, bench.lock, digest("c"))
    result = bench.run()
    assert result.status is Status.MEASURED
    assert first.record is not None and result.record is not None
    assert [first.record.image_digest, result.record.image_digest] == [digest("a"), digest("c")]


def test_a_tag_that_names_another_image_is_refused_and_nothing_is_recorded(bench: Bench) -> None:
    bench.hold(SPEC, bench.lock, digest("c"))
    bench.maker.followed = digest("2")
    result = bench.run()
    assert result.status is Status.REFUSED
    assert f"this tag names another image ({digest('c')})" in result.detail
    assert bench.registry.held == {TAG: digest("c")} and bench.registry.manifests == set()
    assert bench.engine.probes == []
    assert list(bench.store.all()) == []
    moved = bench.run(retag=True)
    assert moved.status is Status.MEASURED
    assert bench.registry.held[TAG] == digest("a")


def test_a_push_that_another_run_overtook_is_not_recorded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtaken(found: str, tag: str) -> None:
        bench.registry.held[tag] = digest("d")

    monkeypatch.setattr(bench.registry, "tag", overtaken)
    result = bench.run()
    assert result.status is Status.REFUSED
    assert f"was pushed as {digest('a')}, but the registry now has {digest('d')}" in result.detail
    assert list(bench.store.all()) == []


@pytest.mark.parametrize("where", ["look", "push"])
def test_nothing_is_recorded_if_the_registry_fails(bench: Bench, where: str) -> None:
    error = MissingError("the registry is down", hint="wait")
    if where == "look":
        bench.registry.fails = error
    else:
        bench.maker.error = error
    result = bench.run()
    assert (result.status, result.error) == (Status.MISSING, error)
    assert bench.engine.probes == []
    assert list(bench.store.all()) == []


def test_an_image_that_can_not_be_built_is_broken_and_not_pushed(bench: Bench) -> None:
    bench.maker.error = ValidatorError("a wheel is not what it was")
    result = bench.run()
    assert result.record is not None and result.record.verdict is Verdict.BROKEN
    assert bench.registry.held == {}


def test_a_refusal_stops_the_others_only_with_fail_fast(bench: Bench) -> None:
    other = write_lock(bench.locks, OTHER)
    bench.hold(SPEC, bench.lock, digest("c"))
    bench.hold(OTHER, other, digest("e"))
    bench.maker.followed = digest("2")
    results = build_matrix([SPEC, OTHER], bench.settings(RegistryUse.PUSH, keep_going=False))
    assert [result.status for result in results] == [Status.REFUSED, Status.STOPPED]
    results = build_matrix([SPEC, OTHER], bench.settings(RegistryUse.PUSH))
    assert [result.status for result in results] == [Status.REFUSED, Status.REFUSED]


def test_pulled_images_are_probed_and_never_built(bench: Bench) -> None:
    bench.hold(SPEC, bench.lock, digest("c"))
    bench.maker.followed = digest("2")
    result = bench.run(pull=True)
    assert bench.phases() == [Phase.LOCK, Phase.PULL, Phase.PROBE, Phase.DONE]
    assert bench.maker.makes == []
    assert result.record is not None and result.record.image_digest == digest("c")
    assert result.published is not None and not result.published.sent
    assert bench.run(pull=True).status is Status.UNCHANGED
    # Another image under the same tag has to be measured.
    bench.hold(SPEC, bench.lock, digest("d"))
    assert bench.run(pull=True).status is Status.MEASURED


def test_an_image_that_can_not_be_pulled_is_missing_and_another_lock_is_refused(bench: Bench) -> None:
    assert bench.run(pull=True).status is Status.MISSING
    other = dataclasses.replace(bench.lock, wheels=())
    bench.hold(SPEC, other, digest("c"))
    result = bench.run(pull=True)
    assert result.status is Status.REFUSED
    assert f"is rejected: it was built from the lock {other.digest}" in result.detail
    assert bench.engine.pulls == []
    assert list(bench.store.all()) == []


def test_only_an_engine_with_images_can_publish() -> None:
    assert isinstance(FakeImageEngine(), ImageEngine)
    assert not isinstance(VenvEngine(PackageSources()), ImageEngine)
