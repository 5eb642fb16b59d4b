"""Images between a real engine and a real registry: pushed once, resumed, refused, pulled."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from validator.assemble.image import Assembler, RegistryDestination, put_base
from validator.certify.signatures import Signer
from validator.certify.trust import Trust, TrustFile
from validator.engines import images
from validator.engines.docker import DockerEngine
from validator.engines.endpoint import Endpoint, connect
from validator.engines.protocol import Built
from validator.errors import MissingError, ValidatorError
from validator.model.spec import ImageSpec, Lock
from validator.pipeline.build_matrix import Publisher, TagTaken
from validator.registry import session
from validator.registry.client import Registry
from validator.registry.names import Repository

from ...certify.building import trusting
from ...registry.proxy import Fault, Proxy
from ...registry.server import RunningRegistry, running_registry
from ...support import small_disk
from .conftest import CPU, OTHER_KERAS, cpu_lock, maker_at, new_cache, quiet, tensorflow
from .package_index import Index, lock_of
from .private_engine import private_engine
from .test_probe import request

NAME = "team/tensorflow"
TAG = "2.99.0-cpu-py3.11"
ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.engine


@pytest.fixture
def publisher(maker: Assembler, tiny_engine: DockerEngine, proxy: Proxy) -> Publisher:
    """Return a publisher without a key, to which nothing in a registry counts."""
    return publisher_to(proxy.address, maker, tiny_engine)


def publisher_to(address: str, maker: Assembler, engine: DockerEngine | None = None) -> Publisher:
    repository = Repository.parse(f"{address}/{NAME}")

    def destination(spec: ImageSpec) -> RegistryDestination:
        return RegistryDestination(repository, None)

    return Publisher(maker, destination, Registry(repository), TrustFile(), engine)


@pytest.fixture
def proving(publisher: Publisher, keys: tuple[Signer, Trust]) -> Publisher:
    """Return a publisher that signs what it pushes, and accepts what it signed."""
    return dataclasses.replace(publisher, signer=keys[0], trust=trusting(keys[1]))


@pytest.fixture
def lock(index: Index) -> Lock:
    return cpu_lock(index)


@pytest.fixture
def other() -> Lock:
    """Return another lock of the same image spec: another image for the same tag."""
    return lock_of(CPU, tensorflow(), OTHER_KERAS)


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "PAUSES", (0.1, 0.1))
    monkeypatch.setattr(images, "_PAUSES_S", (0.1, 0.1))


@pytest.fixture(scope="module")
def storage_with_base(maker: Assembler, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the storage of a registry that has only the layer of the base, which is large, and no tag."""
    with running_registry(tmp_path_factory.mktemp("base")) as registry:
        into = RegistryDestination(Repository.parse(f"{registry.address}/{NAME}"), None)
        put_base(maker.bases.base(CPU, quiet), into, maker.table)
    return registry.storage


@pytest.fixture
def with_base(registry: RunningRegistry, storage_with_base: Path) -> None:
    """Give the registry the layer of the base, for tests that are not about sending it."""
    shutil.copytree(storage_with_base, registry.storage, copy_function=os.link, dirs_exist_ok=True)


def layers(manifest: dict[str, Any]) -> list[str]:
    return [str(layer["digest"]) for layer in manifest["layers"]]


def test_the_pushed_image_is_the_one_that_the_engine_gets(
    publisher: Publisher, registry: RunningRegistry, cpu_image: Built, lock: Lock, endpoint: Endpoint
) -> None:
    published = publisher.push(CPU, lock, quiet)
    assert published.sent
    assert published.tag == TAG
    assert registry.tags(NAME) == {TAG: cpu_image.digest}
    assert published.digest == cpu_image.digest
    assert published.reference.endswith(f"/{NAME}@{cpu_image.digest}")
    manifest: dict[str, Any] = registry.manifest(NAME, TAG)
    # The base's layer comes from its own registry or bootstrap; all of ours are zstd.
    assert {layer["mediaType"] for layer in manifest["layers"][1:]} == {
        "application/vnd.oci.image.layer.v1.tar+zstd"
    }
    # The engine is unchanged.
    assert endpoint.client.images.get(str(cpu_image.digest)).tags == [cpu_image.reference]


@pytest.mark.usefixtures("with_base")
def test_pushing_again_sends_nothing(proving: Publisher, proxy: Proxy, lock: Lock) -> None:
    publisher = proving
    publisher.push(CPU, lock, quiet)
    assert proxy.sent() > 0
    proxy.asked.clear()
    published = publisher.push(CPU, lock, quiet)
    assert not published.sent
    assert proxy.sent() == 0
    assert publisher.current(CPU, lock) == published


def test_an_image_is_pushed_without_an_engine(
    publisher: Publisher, registry: RunningRegistry, proxy: Proxy, index: Index, lock: Lock, tmp_path: Path
) -> None:
    """Bubblewrap compiles the byte code, and the image is the same one."""
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    without = publisher_to(proxy.address, maker_at(new_cache(tmp_path / "cache"), index.url, None))
    digest = without.push(CPU, lock, quiet).digest
    assert registry.tags(NAME) == {TAG: digest}
    again = publisher.push(CPU, lock, quiet)
    assert (again.digest, again.sent) == (digest, False)


def test_shared_layers_are_sent_and_stored_once(
    publisher: Publisher, registry: RunningRegistry, proxy: Proxy, lock: Lock, other: Lock
) -> None:
    publisher.push(CPU, lock, quiet)
    first, before = set(layers(registry.manifest(NAME, TAG))), registry.blobs()
    proxy.asked.clear()
    dataclasses.replace(publisher, retag=True).push(CPU, other, quiet)
    second = set(layers(registry.manifest(NAME, TAG)))
    assert first & second and second - first
    new = registry.blobs().keys() - before.keys()
    # The layers that differ, one configuration, one manifest.
    assert len(new) == len(second - first) + 2
    assert sum(asked.sent for asked in proxy.uploads()) < sum(before.values()) / 10


@pytest.mark.usefixtures("with_base")
def test_a_tag_of_another_image_is_only_moved_on_request(
    publisher: Publisher, registry: RunningRegistry, lock: Lock, other: Lock
) -> None:
    theirs = publisher.push(CPU, other, quiet).digest
    with pytest.raises(TagTaken, match=rf"{TAG} was not pushed: in the registry, .*{theirs}") as caught:
        publisher.push(CPU, lock, quiet)
    assert caught.value.hint is not None and "--retag" in caught.value.hint
    assert registry.tags(NAME) == {TAG: theirs}
    published = dataclasses.replace(publisher, retag=True).push(CPU, lock, quiet)
    assert published.sent
    assert registry.tags(NAME) == {TAG: published.digest} != {TAG: theirs}
    assert registry.manifest(NAME, theirs)


@pytest.mark.parametrize(("method", "path"), [("PUT", "/manifests/"), ("PUT|PATCH", "/blobs/uploads/")])
def test_a_killed_push_leaves_no_tag_and_can_be_continued(
    publisher: Publisher, registry: RunningRegistry, proxy: Proxy, index: Index, cache: Path, lock: Lock,
    method: str, path: str,
) -> None:  # fmt: skip
    """Killed when all layers are there and the manifest is about to be, and while a layer is sent."""
    script = textwrap.dedent(f"""
        from pathlib import Path
        from tests.integration.docker.conftest import CPU, KERAS, maker_at, tensorflow
        from tests.integration.docker.package_index import lock_of
        from tests.integration.docker.test_push import publisher_to
        from validator.engines.endpoint import connect
        maker = maker_at(Path({str(cache)!r}), {index.url!r}, connect())
        publisher_to({proxy.address!r}, maker).push(CPU, lock_of(CPU, tensorflow(), KERAS), print)
    """)
    proxy.faults.append(Fault(method, path, status=None, delay_s=60))
    child = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, start_new_session=True)
    try:
        wait_for(lambda: bool(proxy.faults[0].happened))
    finally:
        child.kill()
        child.wait()
    assert registry.tags(NAME) == {}
    proxy.faults.clear()
    finished = {asked.path.partition("?")[0] for asked in proxy.uploads() if asked.status == 201}
    proxy.asked.clear()
    published = publisher.push(CPU, lock, quiet)
    assert published.sent
    assert registry.tags(NAME) == {TAG: published.digest}
    again = {asked.path.partition("?")[0] for asked in proxy.uploads() if asked.status == 201}
    assert not again & finished
    # In the first case, only the manifest was left to send.
    assert bool(again) is (method != "PUT")


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_push_continues_after_a_broken_connection(
    publisher: Publisher, registry: RunningRegistry, proxy: Proxy, lock: Lock, no_pauses: None
) -> None:
    broken = Fault("PUT|PATCH", "/blobs/uploads/", after_bytes=1_000_000, times=1)
    proxy.faults.append(broken)
    published = publisher.push(CPU, lock, quiet)
    assert broken.happened == 1
    assert published.sent
    assert registry.tags(NAME) == {TAG: published.digest}
    # Layers that had arrived were not sent a second time.
    finished = [asked.path.partition("?")[0] for asked in proxy.uploads() if asked.status == 201]
    assert len(finished) == len(set(finished))


def test_two_pushes_at_once_both_arrive(publisher: Publisher, registry: RunningRegistry, lock: Lock) -> None:
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: publisher.push(CPU, lock, quiet), range(2)))
    assert {one.digest for one in done} == set(registry.tags(NAME).values())


@pytest.mark.usefixtures("with_base")
@pytest.mark.parametrize(
    ("fault", "text", "hint"),
    [
        (Fault("PUT", "/manifests/", status=500, message="boom"), "an internal error", "later"),
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
    lock: Lock,
    no_pauses: None,
    fault: Fault,
    text: str,
    hint: str | None,
) -> None:
    proxy.faults.append(fault)
    with pytest.raises(MissingError, match=text) as caught:
        publisher.push(CPU, lock, quiet)
    assert hint is None or (caught.value.hint is not None and hint in caught.value.hint)
    assert fault.happened
    assert registry.tags(NAME) == {}
    proxy.faults.clear()
    published = publisher.push(CPU, lock, quiet)
    assert registry.tags(NAME) == {TAG: published.digest}


@pytest.mark.usefixtures("with_base")
def test_temporary_failures_are_retried(
    publisher: Publisher, registry: RunningRegistry, proxy: Proxy, lock: Lock, no_pauses: None
) -> None:
    proxy.faults.append(Fault("PUT", "/manifests/", status=500, times=2))
    published = publisher.push(CPU, lock, quiet)
    assert published.sent
    assert registry.tags(NAME) == {TAG: published.digest}


@pytest.mark.usefixtures("with_base")
def test_a_registry_that_is_down_is_named(
    maker: Assembler, registry: RunningRegistry, lock: Lock, no_pauses: None
) -> None:
    publisher = publisher_to(registry.address, maker)
    registry.stop()
    with pytest.raises(MissingError, match="can't be reached"):
        publisher.push(CPU, lock, quiet)
    registry.start()
    published = publisher.push(CPU, lock, quiet)
    assert registry.tags(NAME) == {TAG: published.digest}


def test_a_full_registry_gets_no_tag(maker: Assembler, lock: Lock, no_pauses: None) -> None:
    with small_disk("8m") as disk, running_registry(disk) as registry:
        publisher = publisher_to(registry.address, maker)
        with pytest.raises(MissingError):
            publisher.push(CPU, lock, quiet)
        assert registry.tags(NAME) == {}


@pytest.mark.usefixtures("with_base")
def test_a_registry_that_rejects_zstd_is_named(
    publisher: Publisher, registry: RunningRegistry, proxy: Proxy, index: Index, lock: Lock, cache: Path
) -> None:
    proxy.faults.append(Fault("PUT", "/manifests/", rb"tar\+zstd", status=400, message="manifest invalid"))
    with pytest.raises(ValidatorError, match="manifest invalid"):
        publisher.push(CPU, lock, quiet)
    assert registry.tags(NAME) == {}


# --- pulling ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("with_base")
def test_an_image_is_pulled_by_its_digest(
    proving: Publisher, cpu_image: Built, lock: Lock, endpoint: Endpoint
) -> None:
    published = proving.push(CPU, lock, quiet)
    found = proving.find(CPU, lock)
    assert found == dataclasses.replace(published, sent=False)
    assert proving.pull(CPU, lock, found, quiet) == cpu_image, "the engine has it already"
    assert proving.engine is not None
    pulled = proving.engine.pull(CPU, lock, found.reference, quiet)
    try:
        assert pulled.digest == cpu_image.digest
        assert pulled.lock_digest == lock.digest
        assert pulled.layers == cpu_image.layers
        assert endpoint.client.images.get(pulled.engine_id or str(pulled.digest)).labels
    finally:
        endpoint.client.images.remove(found.reference)


@pytest.mark.usefixtures("with_base")
def test_an_image_of_another_lock_is_rejected(proving: Publisher, lock: Lock, other: Lock) -> None:
    proving.push(CPU, other, quiet)
    with pytest.raises(ValidatorError, match=r"is rejected: its provenance .* it was built from the lock"):
        proving.find(CPU, lock)
    assert proving.current(CPU, lock) is None


@pytest.mark.usefixtures("with_base")
def test_what_was_pushed_without_a_signature_is_rejected_whatever_its_labels_say(
    publisher: Publisher, proving: Publisher, lock: Lock
) -> None:
    digest = publisher.push(CPU, lock, quiet).digest
    assert proving.current(CPU, lock) is None
    with pytest.raises(ValidatorError, match="it has no provenance"):
        proving.find(CPU, lock)
    # Whoever builds the same bytes signs them later.
    assert not proving.push(CPU, lock, quiet).sent
    assert proving.find(CPU, lock).digest == digest


def test_an_image_that_was_never_pushed_is_missing(publisher: Publisher, lock: Lock) -> None:
    with pytest.raises(MissingError, match=rf"{TAG} is not in the registry"):
        publisher.find(CPU, lock)
    reference = publisher.registry.repository.at(f"sha256:{'0' * 64}")
    assert publisher.engine is not None
    with pytest.raises(MissingError, match="the image is not in"):
        publisher.engine.pull(CPU, lock, reference, quiet)


# --- the older image store ----------------------------------------------------------------------------


def test_the_older_image_store_gets_its_digest_from_the_registry(
    index: Index, cache: Path, registry: RunningRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows an image by its configuration; a certificate is about what a registry holds."""
    with (
        tempfile.TemporaryDirectory(prefix="v-", ignore_cleanup_errors=True) as directory,
        private_engine(Path(directory), Path(directory) / "data", image_store=False) as own,
    ):
        monkeypatch.setenv("DOCKER_HOST", own.url)
        other = connect()
        assert not other.has_image_store
        maker = maker_at(cache, index.url, other)
        engine = DockerEngine(other, maker)
        try:
            lock = cpu_lock(index)
            built = engine.build(CPU, lock, quiet)
            publisher = publisher_to(registry.address, maker, engine)
            published = publisher.push(CPU, lock, quiet)
            assert registry.tags(NAME) == {TAG: published.digest}
            assert published.digest != built.digest
            assert engine.probe(built, request("print('reported')"), quiet) == b"reported\n"
            other.client.images.remove(built.reference, force=True)
            pulled = publisher.pull(CPU, lock, published, quiet)
            assert pulled.digest == published.digest
            assert pulled.engine_id == built.digest
            assert engine.probe(pulled, request("print('reported')"), quiet) == b"reported\n"
        finally:
            engine.close()
