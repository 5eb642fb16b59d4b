"""Images between a real engine and a real registry: pushed once, resumed, refused, pulled."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from validator.certify.signing import Signer
from validator.certify.trust import Trust
from validator.certify.trust_file import TrustFile
from validator.engines.base import Built
from validator.engines.docker import DockerEngine, transfer
from validator.engines.docker.endpoint import Endpoint, connect
from validator.errors import MissingError, ValidatorError
from validator.model.lock import Lock
from validator.pipeline.publisher import Publisher, TagTaken
from validator.registry.client import Registry
from validator.registry.names import Repository
from validator.system.sources import PackageSources

from ...certify.building import trusting
from ...registry.proxy import Fault, Proxy
from ...registry.server import RunningRegistry, running_registry
from ...support import small_disk
from .conftest import CPU, cpu_lock, quiet, tensorflow
from .package_index import Index, TinyWheel, lock_of
from .private_engine import private_engine
from .test_probe import request

NAME = "team/tensorflow"
KEPT = "tensorflow-gpu-matrix-test:kept"
TAG = "2.99.0-cpu-py3.11"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def publisher(tiny_engine: DockerEngine, proxy: Proxy) -> Publisher:
    """Return a publisher without a key, to which nothing in a registry counts."""
    return Publisher(tiny_engine, Registry(Repository.parse(f"{proxy.address}/{NAME}")), TrustFile())


@pytest.fixture
def proving(publisher: Publisher, keys: tuple[Signer, Trust]) -> Publisher:
    """Return a publisher that signs what it pushes, and accepts what it signed."""
    return dataclasses.replace(publisher, signer=keys[0], trust=trusting(keys[1]))


@pytest.fixture
def lock(index: Index) -> Lock:
    return cpu_lock(index)


@pytest.fixture(scope="module")
def other(tiny_engine: DockerEngine, endpoint: Endpoint, index: Index, cpu_image: Built) -> Iterator[Built]:
    """The same image spec from another lock: another image for the same tag."""
    wheels = (tensorflow(), TinyWheel.make("keras", "2.0.0", {"keras/__init__.py": b"X = 2\n"}))
    index.add(*wheels)
    # Both have the same name here, and an image without a name is removed.
    images = endpoint.client.images
    images.get(str(cpu_image.digest)).tag(KEPT)
    built = tiny_engine.build(CPU, lock_of(CPU, *wheels), quiet)
    images.get(str(built.digest)).tag(f"{KEPT}-other")
    images.get(str(cpu_image.digest)).tag(cpu_image.reference)
    images.remove(KEPT)
    yield built
    images.remove(f"{KEPT}-other")


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "_PAUSES_S", (0.1, 0.1))


def layers(manifest: dict[str, Any]) -> list[str]:
    return [str(layer["digest"]) for layer in manifest["layers"]]


def test_the_pushed_image_is_the_built_one(
    publisher: Publisher, registry: RunningRegistry, cpu_image: Built, lock: Lock, endpoint: Endpoint
) -> None:
    published, held = publisher.push(cpu_image, lock, quiet)
    assert published.sent
    assert published.tag == TAG
    assert registry.tags(NAME) == {TAG: cpu_image.digest}
    assert published.digest == held.digest == cpu_image.digest
    assert published.reference.endswith(f"/{NAME}@{cpu_image.digest}")
    manifest: dict[str, Any] = registry.manifest(NAME, TAG)
    # The base's layer comes from its own registry or bootstrap; all of ours are zstd.
    assert {layer["mediaType"] for layer in manifest["layers"][1:]} == {
        "application/vnd.oci.image.layer.v1.tar+zstd"
    }
    # The engine is unchanged.
    assert endpoint.client.images.get(str(cpu_image.digest)).tags == [cpu_image.reference]


def test_pushing_again_sends_nothing(proving: Publisher, proxy: Proxy, cpu_image: Built, lock: Lock) -> None:
    publisher = proving
    publisher.push(cpu_image, lock, quiet)
    assert proxy.sent() > 0
    proxy.asked.clear()
    published, _ = publisher.push(cpu_image, lock, quiet)
    assert not published.sent
    assert proxy.sent() == 0
    assert publisher.current(CPU, lock) == published
    # Under another tag, only the manifest goes over the wire.
    proxy.asked.clear()
    publisher.engine.push(cpu_image, lock, f"{proxy.address}/{NAME}:another", quiet)
    assert proxy.uploads() == []


def test_shared_layers_are_sent_and_stored_once(
    publisher: Publisher, registry: RunningRegistry, proxy: Proxy, cpu_image: Built, other: Built, lock: Lock
) -> None:
    publisher.push(cpu_image, lock, quiet)
    first, before = set(layers(registry.manifest(NAME, TAG))), registry.blobs()
    proxy.asked.clear()
    publisher.engine.push(other, lock, f"{proxy.address}/{NAME}:other", quiet)
    second = set(layers(registry.manifest(NAME, "other")))
    assert first & second and second - first
    new = registry.blobs().keys() - before.keys()
    # The layers that differ, one configuration, one manifest.
    assert len(new) == len(second - first) + 2
    assert sum(asked.sent for asked in proxy.uploads()) < sum(before.values()) / 10


def test_a_tag_of_another_image_is_only_moved_on_request(
    publisher: Publisher, registry: RunningRegistry, proxy: Proxy, cpu_image: Built, other: Built, lock: Lock
) -> None:
    publisher.push(other, lock, quiet)
    proxy.asked.clear()
    with pytest.raises(TagTaken, match=rf"{TAG} was not pushed: in the registry, .*{other.digest}") as caught:
        publisher.push(cpu_image, lock, quiet)
    assert caught.value.hint is not None and "--retag" in caught.value.hint
    assert proxy.sent() == 0
    assert registry.tags(NAME) == {TAG: other.digest}
    published, _ = dataclasses.replace(publisher, retag=True).push(cpu_image, lock, quiet)
    assert published.sent
    assert registry.tags(NAME) == {TAG: cpu_image.digest}
    assert registry.manifest(NAME, str(other.digest))


def test_a_killed_push_leaves_no_tag_and_can_be_continued(
    publisher: Publisher, registry: RunningRegistry, proxy: Proxy, cpu_image: Built, lock: Lock
) -> None:
    """Killed when all layers are there and the manifest is about to be."""
    proxy.faults.append(Fault("PUT", "/manifests/", status=None, delay_s=60))
    script = textwrap.dedent(f"""
        import sys
        from validator.engines.base import Built
        from validator.engines.docker import find
        from validator.model.spec import ImageSpec, Variant
        from validator.system.sources import PackageSources
        spec = ImageSpec({CPU.tensorflow!r}, {CPU.python!r}, Variant.CPU)
        built = Built(spec, {cpu_image.reference!r}, {lock.digest!r}, {cpu_image.digest!r})
        find(PackageSources()).push(built, None, {f"{proxy.address}/{NAME}:{TAG}"!r}, print)
    """)
    child = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, start_new_session=True)
    try:
        wait_for(lambda: bool(proxy.faults[0].happened))
    finally:
        child.kill()
        child.wait()
    assert registry.tags(NAME) == {}
    proxy.faults.clear()
    proxy.asked.clear()
    published, _ = publisher.push(cpu_image, lock, quiet)
    assert published.sent
    assert proxy.uploads() == []
    assert registry.tags(NAME) == {TAG: cpu_image.digest}


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_push_continues_after_a_broken_connection(
    publisher: Publisher,
    registry: RunningRegistry,
    proxy: Proxy,
    cpu_image: Built,
    lock: Lock,
    no_pauses: None,
) -> None:
    broken = Fault("PUT|PATCH", "/blobs/uploads/", after_bytes=1_000_000, times=1)
    proxy.faults.append(broken)
    said: list[str] = []
    published, _ = publisher.push(cpu_image, lock, said.append)
    assert broken.happened == 1
    assert published.sent
    assert [line for line in said if line.startswith("retrying in")]
    assert registry.tags(NAME) == {TAG: cpu_image.digest}
    # Layers that had arrived were not sent a second time.
    finished = [asked.path.partition("?")[0] for asked in proxy.uploads() if asked.status == 201]
    assert len(finished) == len(set(finished))


@pytest.mark.parametrize(
    ("fault", "text", "hint"),
    [
        (Fault("PUT", "/manifests/", status=500, message="boom"), "boom", None),
        (
            Fault("POST", "/uploads/", status=503, message="service unavailable"),
            "an internal error",
            "later",
        ),
        (
            Fault("PUT", "/manifests/", status=429, message="too many requests"),
            "because there were too many",
            "later",
        ),
        # A token that expired while layers were sent.
        (
            Fault("PUT", "/manifests/", status=401, headers={"WWW-Authenticate": 'Basic realm="x"'}),
            "requires a login",
            "docker login 127.0.0.1",
        ),
        (
            Fault("POST", "/uploads/", status=403, message="requested access to the resource is denied"),
            "denies access",
            "docker login 127.0.0.1",
        ),
        (Fault("PUT", "/manifests/"), "can't be reached", None),
    ],
    ids=["500", "503", "429", "token-expired", "403", "dropped"],
)
def test_a_failing_registry_is_named_and_gets_no_tag(
    publisher: Publisher,
    registry: RunningRegistry,
    proxy: Proxy,
    cpu_image: Built,
    lock: Lock,
    no_pauses: None,
    fault: Fault,
    text: str,
    hint: str | None,
) -> None:
    proxy.faults.append(fault)
    with pytest.raises(MissingError, match=text) as caught:
        publisher.push(cpu_image, lock, quiet)
    assert hint is None or (caught.value.hint is not None and hint in caught.value.hint)
    assert fault.happened
    assert registry.tags(NAME) == {}
    proxy.faults.clear()
    publisher.push(cpu_image, lock, quiet)
    assert registry.tags(NAME) == {TAG: cpu_image.digest}


def test_temporary_failures_are_retried(
    publisher: Publisher,
    registry: RunningRegistry,
    proxy: Proxy,
    cpu_image: Built,
    lock: Lock,
    no_pauses: None,
) -> None:
    proxy.faults.append(Fault("PUT", "/manifests/", status=500, times=3))
    assert publisher.push(cpu_image, lock, quiet)[0].sent
    assert registry.tags(NAME) == {TAG: cpu_image.digest}


def test_a_registry_that_is_down_is_named(
    publisher: Publisher, registry: RunningRegistry, cpu_image: Built, lock: Lock, no_pauses: None
) -> None:
    registry.stop()
    with pytest.raises(MissingError, match="can't be reached"):
        publisher.engine.push(cpu_image, lock, f"{registry.address}/{NAME}:{TAG}", quiet)
    registry.start()
    publisher.engine.push(cpu_image, lock, f"{registry.address}/{NAME}:{TAG}", quiet)
    assert registry.tags(NAME) == {TAG: cpu_image.digest}


def test_a_full_registry_gets_no_tag(
    tiny_engine: DockerEngine, cpu_image: Built, lock: Lock, tmp_path: Path, no_pauses: None
) -> None:
    with small_disk(tmp_path / "disk", "8m") as disk, running_registry(disk) as registry:
        publisher = Publisher(
            tiny_engine, Registry(Repository.parse(f"{registry.address}/{NAME}")), TrustFile()
        )
        with pytest.raises(MissingError):
            publisher.push(cpu_image, lock, quiet)
        assert registry.tags(NAME) == {}


def test_a_registry_that_rejects_zstd_gets_gzip(
    proving: Publisher,
    registry: RunningRegistry,
    proxy: Proxy,
    cpu_image: Built,
    lock: Lock,
    endpoint: Endpoint,
) -> None:
    proxy.faults.append(Fault("PUT", "/manifests/", rb"tar\+zstd", status=400, message="manifest invalid"))
    published, held = proving.push(cpu_image, lock, quiet)
    try:
        assert published.sent
        assert held.digest == published.digest != cpu_image.digest
        assert registry.tags(NAME)[TAG] == held.digest
        manifest: dict[str, Any] = registry.manifest(NAME, TAG)
        assert {layer["mediaType"] for layer in manifest["layers"]} == {
            "application/vnd.oci.image.layer.v1.tar+gzip"
        }
        # The engine runs the image from the registry.
        assert endpoint.client.images.get(held.engine_id or str(held.digest)).id == held.digest
        assert proving.current(CPU, lock) == dataclasses.replace(published, sent=False)
    finally:
        endpoint.client.images.remove(str(held.digest), force=True)
        endpoint.client.images.get(str(cpu_image.digest)).tag(cpu_image.reference)


# --- pulling ------------------------------------------------------------------------------------------


def test_an_image_is_pulled_by_its_digest(
    proving: Publisher, cpu_image: Built, other: Built, lock: Lock, endpoint: Endpoint
) -> None:
    published, _ = proving.push(cpu_image, lock, quiet)
    found = proving.find(CPU, lock)
    assert found == dataclasses.replace(published, sent=False)
    pulled = proving.engine.pull(CPU, lock, found.reference, quiet)
    try:
        assert pulled.digest == cpu_image.digest
        assert pulled.lock_digest == lock.digest
        assert pulled.layers == cpu_image.layers
        assert endpoint.client.images.get(pulled.engine_id or str(pulled.digest)).labels
    finally:
        endpoint.client.images.remove(found.reference)


def test_an_image_of_another_lock_is_rejected(
    proving: Publisher, cpu_image: Built, lock: Lock, index: Index
) -> None:
    proving.push(cpu_image, dataclasses.replace(lock, wheels=lock.wheels[:1]), quiet)
    with pytest.raises(ValidatorError, match=r"is rejected: its provenance .* it was built from the lock"):
        proving.find(CPU, lock)
    assert proving.current(CPU, lock) is None


def test_what_was_pushed_without_a_signature_is_rejected_whatever_its_labels_say(
    publisher: Publisher, proving: Publisher, cpu_image: Built, lock: Lock
) -> None:
    publisher.push(cpu_image, lock, quiet)
    assert proving.current(CPU, lock) is None
    with pytest.raises(ValidatorError, match="it has no provenance"):
        proving.find(CPU, lock)
    # Whoever builds the same bytes signs them later.
    assert not proving.push(cpu_image, lock, quiet)[0].sent
    assert proving.find(CPU, lock).digest == cpu_image.digest


def test_an_image_that_was_never_pushed_is_missing(publisher: Publisher, lock: Lock) -> None:
    with pytest.raises(MissingError, match=rf"{TAG} is not in the registry"):
        publisher.find(CPU, lock)
    reference = publisher.registry.repository.at(f"sha256:{'0' * 64}")
    with pytest.raises(MissingError, match="the image is not in"):
        publisher.engine.pull(CPU, lock, reference, quiet)


# --- the older image store ----------------------------------------------------------------------------


def test_the_older_image_store_gets_its_digest_from_the_registry(
    endpoint: Endpoint,
    docker_engine: DockerEngine,
    index: Index,
    registry: RunningRegistry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It knows an image by its configuration; a certificate is about what a registry holds."""
    base = docker_engine._bases.base(CPU, quiet)
    if "@" in base.reference:
        endpoint.client.images.pull(base.name)
    name = base.name if "@" in base.reference else base.reference
    with (
        tempfile.TemporaryDirectory(prefix="v-", ignore_cleanup_errors=True) as directory,
        private_engine(Path(directory), Path(directory) / "data", image_store=False) as own,
    ):
        monkeypatch.setenv("DOCKER_HOST", own.url)
        other = connect()
        assert not other.has_image_store
        other.client.api.load_image(endpoint.client.api.get_image(name))
        engine = DockerEngine(other, PackageSources(index_url=index.url))
        try:
            lock = cpu_lock(index)
            built = engine.build(CPU, lock, quiet)
            publisher = Publisher(
                engine, Registry(Repository.parse(f"{registry.address}/{NAME}")), TrustFile()
            )
            published, held = publisher.push(built, lock, quiet)
            assert registry.tags(NAME) == {TAG: published.digest}
            assert held.digest == published.digest != built.digest
            assert engine.probe(held, request("print('reported')"), quiet) == b"reported\n"
            again, same = publisher.push(built, lock, quiet)
            assert (again.sent, same) == (False, held)
            other.client.images.remove(built.reference, force=True)
            pulled = publisher.pull(CPU, lock, published, quiet)
            assert pulled.digest == published.digest
            assert engine.probe(pulled, request("print('reported')"), quiet) == b"reported\n"
        finally:
            engine.close()
