"""The main job with a real engine and a real registry, on tiny images: one run pushes, another measures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from validator.assemble.image import Assembler, RegistryDestination
from validator.certify.signatures import Signer
from validator.certify.trust import Trust
from validator.compat.policies import requirements
from validator.engines.docker import DockerEngine
from validator.engines.endpoint import Endpoint
from validator.engines.images import list_images
from validator.locks import lock_files
from validator.model.spec import ImageSpec, Lock, Variant, image_reference
from validator.pipeline.build_matrix import Publisher, build_matrix
from validator.pipeline.run import Options, RegistryUse, Result, Run, Status
from validator.records.store import Store
from validator.registry.client import Registry
from validator.registry.names import Repository
from validator.system.package_sources import PackageSources

from ...certify.building import trusting
from ...registry.proxy import Proxy
from ...registry.server import RunningRegistry, running_registry
from .conftest import KERAS, PYTHON, maker_at, new_cache, tensorflow
from .package_index import Index, TinyWheel

NAME = "team/tensorflow"
#: A release of which other tests, and people, have no image.
SPEC = ImageSpec("2.13.0", PYTHON, Variant.CPU)
PIP = TinyWheel.make("pip", "25.0", {"pip/__init__.py": b""})
TAG = f"2.13.0-cpu-py{PYTHON}"


def images(registry: RunningRegistry) -> dict[str, str]:
    """Return the tags of images, without the lists of what is attached to them."""
    return {tag: digest for tag, digest in registry.tags(NAME).items() if not tag.startswith("sha256-")}


class Machine:
    """One machine's engine, store and locks."""

    def __init__(
        self,
        maker: Assembler,
        endpoint: Endpoint,
        directory: Path,
        keys: tuple[Signer, Trust],
    ) -> None:
        self.maker, self.engine = maker, DockerEngine(endpoint, maker)
        self.keys = keys
        self.directory = directory
        wheels = (tensorflow(SPEC.tensorflow), KERAS, PIP)
        found = tuple(sorted((tiny.wheel for tiny in wheels), key=lambda wheel: wheel.name))
        self.lock = Lock(SPEC.identifier, PYTHON, "x86_64-manylinux_2_28", requirements(SPEC), found)
        lock_files.write(directory, self.lock)

    def run(self, address: str, *, pull: bool = False, validate: bool = True) -> Result:
        repository = Repository.parse(f"{address}/{NAME}")
        options = Options(validate=validate, registry=RegistryUse.PULL if pull else RegistryUse.PUSH)
        with Store(str(self.directory / "records.db")) as store:
            run = Run(
                self.engine, store, PackageSources(), lock_files.LockDirectory(self.directory), (),
                options, lambda event: None,
                Publisher(
                    self.maker, lambda spec: RegistryDestination(repository, None), Registry(repository),
                    trusting(self.keys[1]), self.engine, self.keys[0],
                ),
            )  # fmt: skip
            [result] = build_matrix([SPEC], run)
            return result


@pytest.fixture
def builder(
    cache: Path, endpoint: Endpoint, index: Index, tmp_path: Path, keys: tuple[Signer, Trust]
) -> Iterator[Machine]:
    directory = tmp_path / "builder"
    directory.mkdir()
    index.add(tensorflow(SPEC.tensorflow), PIP)
    maker = maker_at(cache, index.url, endpoint)
    if reason := maker.bases.provides(PYTHON):
        pytest.skip(reason)
    yield Machine(maker, endpoint, directory, keys)
    for image in list_images(endpoint.client):
        mine = [name for name in (*image.tags, *image.attrs["RepoDigests"]) if NAME in name]
        if image_reference(SPEC.identifier) in image.tags or mine:
            endpoint.client.images.remove(str(image.id), force=True)


def test_an_image_is_pushed_by_one_run_and_measured_by_another(
    builder: Machine,
    registry: RunningRegistry,
    proxy: Proxy,
    endpoint: Endpoint,
    tmp_path: Path,
) -> None:
    pushed = builder.run(proxy.address, validate=False)
    assert (pushed.status, pushed.built) == (Status.BUILT, True)
    assert pushed.published is not None and pushed.published.sent
    held = images(registry)
    assert held == {TAG: pushed.published.digest}

    # Nothing to do: neither built nor sent.
    proxy.asked.clear()
    again = builder.run(proxy.address, validate=False)
    assert (again.status, again.built) == (Status.BUILT, False)
    assert proxy.sent() == 0

    # It went to the registry, and not to the engine.
    assert not endpoint.client.images.list(image_reference(SPEC.identifier))
    # Another machine, which never made a layer and can't reach an index.
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    other = maker_at(new_cache(elsewhere / "cache"), "http://127.0.0.1:9/simple", endpoint)
    runner = Machine(other, endpoint, elsewhere, builder.keys)
    measured = runner.run(proxy.address, pull=True)
    assert measured.status is Status.MEASURED and measured.record is not None, measured.detail
    assert measured.record.image_digest == held[TAG]
    assert measured.record.lock_digest == runner.lock.digest
    assert measured.record.report is not None
    assert json.loads(json.dumps(measured.record.document()))["engine"] == "docker"
    # It had no GPU, and its TensorFlow is one line of code.
    assert measured.record.verdict.value in ("failed", "unproven")
    assert not endpoint.client.images.list(image_reference(SPEC.identifier)), "it was built"
    assert runner.run(proxy.address, pull=True).status is Status.UNCHANGED
    assert images(registry) == held


def test_a_measured_image_is_pushed_to_a_registry_that_lacks_it(
    builder: Machine, registry: RunningRegistry, tmp_path: Path
) -> None:
    first = builder.run(registry.address)
    assert first.status is Status.MEASURED and first.record is not None
    with running_registry(tmp_path / "second") as second:
        again = builder.run(second.address)
        assert again.status is Status.UNCHANGED
        assert images(second) == images(registry) == {TAG: first.record.image_digest}
