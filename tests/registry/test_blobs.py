"""Images pushed to docker-registry by the assembler's destination, and the faults of registries."""

from __future__ import annotations

import base64
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from validator.assemble.image import RegistryDestination
from validator.errors import MissingError
from validator.registry import blobs as module
from validator.registry import session as session_module
from validator.registry.blobs import Blobs
from validator.registry.names import Repository

from ..assemble.synthetic import Image, Layer, digest, image
from ..support import small_disk
from .proxy import Fault, Proxy
from .server import RunningRegistry, running_registry

pytestmark = pytest.mark.service
CHUNK = 1 << 20
# The credentials of `nobody` with the password `token`.
HTPASSWD = "nobody:$2b$04$Mea8jLP9KCGnYx4.Sp9V7uvm8Ur1CnJ2qroXAsRwqrW0PTBRiOFZ.\n"
_seeds = itertools.count(1000, 10)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry a few times without pauses, and send small chunks."""
    monkeypatch.setattr(session_module, "PAUSES", (0.0, 0.0, 0.0))
    monkeypatch.setattr(module, "_CHUNK", CHUNK)


@pytest.fixture
def fresh() -> Image:
    """Return an image that no registry has."""
    seed = next(_seeds)
    return image(seed, seed + 1, size=2_500_000)


def sent(proxy: Proxy) -> Counter[str]:
    """Return how often each blob was sent completely in one request."""
    uploads = [asked for asked in proxy.uploads() if asked.status == 201]
    return Counter(asked.path.rpartition("digest=")[2].replace("%3A", ":") for asked in uploads)


@pytest.mark.parametrize("known", [True, False])
def test_an_image_arrives_and_is_not_sent_again(
    server: RunningRegistry,
    repository: Repository,
    through: Repository,
    proxy: Proxy,
    known: bool,
    fresh: Image,
) -> None:
    pushed = fresh.send(RegistryDestination(through, "v1"), known=known)
    assert pushed == digest(fresh.manifest)
    assert server.tags(repository.path) == {"v1": pushed}
    stored = server.blobs()
    assert {name: stored[name] for name in fresh.blobs} == {
        name: len(blob) for name, blob in fresh.blobs.items()
    }
    before = proxy.sent()
    assert before == sum(map(len, fresh.blobs.values())) + len(fresh.manifest)
    assert fresh.send(RegistryDestination(through, "v2"), known=known) == pushed
    assert proxy.sent() == before + len(fresh.manifest)
    assert server.tags(repository.path) == {"v1": pushed, "v2": pushed}


def test_a_layer_is_one_request_and_after_a_failure_chunks(
    through: Repository, proxy: Proxy, fresh: Image
) -> None:
    destination = RegistryDestination(through, "v1")
    first, second = fresh.layers
    destination.receive(first.encode, first.encoded)
    assert [(asked.method, asked.sent) for asked in proxy.uploads()] == [("PUT", first.encoded.size)]
    destination.receive(second.encode, None)
    size = second.encoded.size
    assert [(asked.method, asked.sent) for asked in proxy.uploads()[1:]] == [("PATCH", size)]
    third = Layer(next(_seeds), size=2_500_000)
    proxy.faults = [Fault("PATCH", status=500, times=1)]
    destination.receive(third.encode, None)
    rest = third.encoded.size - 2 * CHUNK
    assert [(asked.method, asked.sent) for asked in proxy.uploads() if asked.status == 202][-3:] == [
        ("PATCH", CHUNK), ("PATCH", CHUNK), ("PATCH", rest),
    ]  # fmt: skip


def test_an_image_without_a_tag_is_only_there_by_its_digest(
    server: RunningRegistry, repository: Repository, fresh: Image
) -> None:
    pushed = fresh.send(RegistryDestination(repository, None))
    assert server.tags(repository.path) == {}
    assert server.manifest(repository.path, pushed)["layers"]


def test_layers_of_another_repository_are_mounted(
    repository: Repository, through: Repository, proxy: Proxy, fresh: Image
) -> None:
    fresh.send(RegistryDestination(repository, "v1"))
    other = Repository(through.host, f"{through.path}-other")
    fresh.send(RegistryDestination(other, "v1", mount_from=[Repository(through.host, "absent"), through]))
    assert proxy.sent() == len(fresh.manifest)


@pytest.mark.parametrize("status", [404, 405, 403, 400])
def test_a_registry_that_refuses_to_mount_gets_the_layers(
    repository: Repository, through: Repository, proxy: Proxy, fresh: Image, status: int
) -> None:
    fresh.send(RegistryDestination(repository, "v1"))
    other = Repository(through.host, f"{through.path}-other")
    proxy.faults = [Fault("POST", "mount=", status=status)]
    fresh.send(RegistryDestination(other, "v1", mount_from=[through]))
    assert proxy.faults[0].happened == 3
    assert proxy.sent() == sum(map(len, fresh.blobs.values())) + len(fresh.manifest)


def test_layers_of_another_registry_are_copied(
    repository: Repository, through: Repository, proxy: Proxy, fresh: Image
) -> None:
    fresh.send(RegistryDestination(repository, "v1"))
    # The same storage behind another address, but a repository that has nothing.
    other = Repository(through.host, f"{through.path}-copied")
    near = Repository(repository.host, "absent")
    into = RegistryDestination(other, "v1", mount_from=[near, repository])
    assert all(into.has(layer.encoded) for layer in fresh.layers)
    assert sent(proxy) == Counter(layer.encoded.digest for layer in fresh.layers)
    assert not RegistryDestination(other, "v1", mount_from=[near]).has(image(next(_seeds)).layers[0].encoded)


def test_a_layer_that_another_registry_altered_is_made_instead(
    repository: Repository,
    through: Repository,
    proxy: Proxy,
    fresh: Image,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fresh.send(RegistryDestination(repository, "v1"))
    known = fresh.layers[0]
    first, other_byte = known.blob[:64], bytes([known.blob[0] ^ 1]) + known.blob[1:64]
    proxy.faults = [Fault("GET", known.encoded.digest, status=None, replace=(first, other_byte))]
    copied = Repository(repository.host, f"{repository.path}-copied")
    into = RegistryDestination(copied, "v1", mount_from=[through])
    assert not into.has(known.encoded)
    assert proxy.faults[0].happened and "does not match its digest" in caplog.text
    assert into.has(fresh.layers[1].encoded)
    assert not RegistryDestination(copied, "v1").has(known.encoded)


def test_an_image_can_be_read_by_its_blobs(repository: Repository, fresh: Image) -> None:
    fresh.send(RegistryDestination(repository, "v1"))
    reader = Blobs.to_read(repository)
    for name, content in fresh.blobs.items():
        assert b"".join(reader.read(name, len(content))) == content


def test_skopeo_reads_the_image(repository: Repository, fresh: Image, tmp_path: Path) -> None:
    pushed = fresh.send(RegistryDestination(repository, "v1"), known=False)
    source = f"docker://{repository.at(pushed)}"
    command = ["skopeo", "copy", "--src-tls-verify=false", source, f"dir:{tmp_path}/copy"]
    subprocess.run(command, capture_output=True, check=True)
    assert (tmp_path / "copy/manifest.json").read_bytes() == fresh.manifest
    for layer in fresh.layers:
        name = layer.encoded.digest.removeprefix("sha256:")
        assert (tmp_path / "copy" / name).read_bytes() == layer.blob


# -- faults ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize(
    "fault",
    [
        Fault("HEAD", "/blobs/", status=500),
        Fault("POST", "/uploads/", status=503),
        Fault("POST", "/uploads/", status=429, headers={"Retry-After": "0"}),
        Fault("POST", "/uploads/", status=0),
        Fault("PUT|PATCH", "/uploads/", status=500),
        Fault("PUT|PATCH", "/uploads/", status=429),
        Fault("PUT|PATCH", "/uploads/", status=416),
        Fault("PUT|PATCH", "/uploads/", status=0),
        Fault("PUT|PATCH", "/uploads/", status=0, after_bytes=700_000),
        Fault("PUT", "/uploads/.*digest=", status=500),
        Fault("PUT", "/manifests/", status=502),
        Fault("PUT", "/manifests/", status=0),
        # So does this registry answer while another process sends the same layer.
        Fault("PUT", "/manifests/", status=400, code="DIGEST_INVALID"),
    ],
    ids=lambda fault: f"{fault.method}-{fault.status}-{fault.after_bytes}",
)
def test_a_failure_is_overcome(
    server: RunningRegistry,
    repository: Repository,
    through: Repository,
    proxy: Proxy,
    fresh: Image,
    fault: Fault,
    known: bool,
) -> None:
    fault.times, fault.happened = 2, 0
    proxy.faults = [fault]
    pushed = fresh.send(RegistryDestination(through, "v1"), known=known)
    assert fault.happened == (2 if known or fault.method != "PUT" or fault.status else fault.happened)
    assert server.tags(repository.path) == {"v1": pushed}
    assert max(sent(proxy).values()) == 1
    reader = Blobs.to_read(repository)
    for name, content in fresh.blobs.items():
        assert b"".join(reader.read(name, len(content))) == content


@pytest.mark.parametrize("known", [True, False])
def test_a_response_that_is_lost_is_not_taken_for_a_failure(
    repository: Repository, through: Repository, proxy: Proxy, fresh: Image, known: bool
) -> None:
    proxy.faults = [Fault("PUT", "digest=", status=0, after_answer=True, times=1)]
    fresh.send(RegistryDestination(through, "v1"), known=known)
    assert proxy.faults[0].happened == 1
    assert proxy.sent() == sum(map(len, fresh.blobs.values())) + len(fresh.manifest)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("status", "says", "hint"),
    [
        (401, "requires a login", "docker login"),
        (403, "denies access", "docker login"),
        (429, "too many", "later"),
        (500, "an internal error", "later"),
        (507, "is full", "free some space"),
        (0, "can't be reached", "network"),
    ],
)
@pytest.mark.parametrize("when", ["HEAD", "POST", "PUT|PATCH", "PUT .*/manifests/"])
def test_a_failure_that_stays_is_explained_and_publishes_nothing(
    server: RunningRegistry,
    repository: Repository,
    through: Repository,
    proxy: Proxy,
    fresh: Image,
    status: int,
    says: str,
    hint: str,
    when: str,
    known: bool,
) -> None:
    method, _, path = when.partition(" ")
    proxy.faults = [Fault(method, path or "/blobs/", status=status)]
    with pytest.raises(MissingError, match=says) as caught:
        fresh.send(RegistryDestination(through, "v1"), known=known)
    assert hint in str(caught.value.hint)
    if hint == "docker login":
        assert f"docker login {proxy.address}" in str(caught.value.hint)
        assert proxy.faults[0].happened == 1
    assert server.tags(repository.path) == {}


def test_the_pause_that_the_registry_asks_for_is_kept(
    through: Repository, proxy: Proxy, fresh: Image
) -> None:
    proxy.faults = [Fault("POST", status=429, headers={"Retry-After": "1"}, times=1)]
    started = time.monotonic()
    fresh.send(RegistryDestination(through, "v1"))
    assert time.monotonic() - started > 1


def test_a_registry_that_asks_for_a_long_pause_is_given_up(
    through: Repository, proxy: Proxy, fresh: Image
) -> None:
    proxy.faults = [Fault("POST", status=429, headers={"Retry-After": "3600"})]
    with pytest.raises(MissingError, match="too many"):
        fresh.send(RegistryDestination(through, "v1"))
    assert proxy.faults[0].happened == 1


def test_a_full_registry_is_named(fresh: Image) -> None:
    with small_disk("3m") as place, running_registry(place) as registry:
        with pytest.raises(MissingError, match="is full") as caught:
            fresh.send(RegistryDestination(Repository(registry.address, "tf"), "v1"))
        assert "free some space in the registry" in str(caught.value.hint)
        assert registry.tags("tf") == {}


def test_a_password_is_sent_from_dockers_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: Image
) -> None:
    (tmp_path / "htpasswd").write_text(HTPASSWD, encoding="ascii")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with running_registry(tmp_path / "registry", htpasswd=tmp_path / "htpasswd") as registry:
        repository = Repository(registry.address, "tf")
        with pytest.raises(MissingError, match="requires a login") as caught:
            fresh.send(RegistryDestination(repository, "v1"))
        assert f"docker login {registry.address}" in str(caught.value.hint)
        auth = base64.b64encode(b"nobody:token").decode()
        (tmp_path / "config.json").write_text(json.dumps({"auths": {registry.address: {"auth": auth}}}))
        pushed = fresh.send(RegistryDestination(repository, "v1"))
        assert registry.tags("tf") == {"v1": pushed}


def test_two_pushes_at_once_both_arrive(
    server: RunningRegistry, repository: Repository, fresh: Image
) -> None:
    second = Image((fresh.layers[0], Layer(next(_seeds))))
    with ThreadPoolExecutor(2) as pool:
        tags = {"one": fresh, "two": second}
        pushed = dict(
            zip(
                tags,
                pool.map(lambda tag: tags[tag].send(RegistryDestination(repository, tag)), tags),
                strict=True,
            )
        )
    assert server.tags(repository.path) == pushed


# -- killed ----------------------------------------------------------------------------------------------

#: Pushes images, each in a process of its own, slowly enough to be killed in the middle. For each line of its
#: input it prints a process ID, and after the next line how that process ended.
PUSHER = """
import os, sys
from tests.assemble.synthetic import image
from validator.assemble.image import RegistryDestination
from validator.registry import blobs
from validator.registry.names import Repository
blobs._CHUNK = 1 << 20
for line in sys.stdin:
    host, path, seed, known = line.split()
    made = image(*range(int(seed), int(seed) + 6), size=2_500_000)
    list(map(len, made.blobs.values()))
    child = os.fork()
    if child == 0:
        made.send(RegistryDestination(Repository(host, path), "v1"), known=known == "True")
        os._exit(0)
    print(child, flush=True)
    sys.stdin.readline()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Pusher:
    """The process of PUSHER."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.process = subprocess.Popen(
            [sys.executable, "-c", PUSHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Pusher:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()

    def start(self, path: str, seed: int, known: bool) -> int:
        """Start to push an image, and return the ID of the process that does."""
        return self._ask(f"{self.host} {path} {seed} {known}")

    def end(self) -> int:
        """Wait for that process, and return its exit code."""
        return self._ask("")

    def _ask(self, line: str) -> int:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@pytest.mark.parametrize("moments", [6, 20])
def test_a_push_that_is_killed_is_resumed_without_sending_a_blob_twice(
    server: RunningRegistry, repository: Repository, through: Repository, proxy: Proxy, moments: int
) -> None:
    chance, requests, killed = random.Random(20), {}, 0
    with Pusher(through.host) as pusher:
        for known in (True, False):
            proxy.asked.clear()
            pusher.start(f"{repository.path}-whole-{int(known)}", 50_000 + 10 * known, known)
            assert pusher.end() == 0
            requests[known] = len(proxy.asked)
        for number in range(moments):
            path, seed, known = f"{repository.path}-{number}", 51_000 + 10 * number, number % 2 == 0
            whole = image(*range(seed, seed + 6), size=2_500_000)
            proxy.asked.clear()
            child = pusher.start(path, seed, known)
            while len(proxy.asked) < requests[known] * number // moments:
                time.sleep(0.001)
            time.sleep(chance.random() / 100)
            os.kill(child, signal.SIGKILL)
            killed += pusher.end() != 0
            # The proxy may still pass on the last request of the process that was killed.
            answered = -1
            while answered != len(proxy.asked):
                answered = len(proxy.asked)
                time.sleep(0.2)
            published = server.tags(path)
            assert published in ({}, {"v1": digest(whole.manifest)})
            whole.send(RegistryDestination(Repository(through.host, path), "v1"), known=known)
            assert server.tags(path) == {"v1": digest(whole.manifest)}
            assert set(server.blobs()) >= set(whole.blobs)
            finished = Counter(
                asked.path.rpartition("digest=")[2]
                for asked in proxy.asked
                if asked.method == "PUT" and "digest=" in asked.path and asked.status == 201
            )
            assert set(finished.values()) == {1} and len(finished) == 7
    assert killed >= moments * 2 // 3


def test_an_error_of_the_assembler_publishes_nothing(
    server: RunningRegistry, repository: Repository, fresh: Image
) -> None:
    def fail(write: Callable[[bytes], object]) -> object:
        write(b"x" * 2_000_000)
        raise ValueError("the wheel changed")

    destination = RegistryDestination(repository, "v1")
    before = server.blobs()
    uploads = f"docker/registry/v2/repositories/{repository.path}/_uploads/*/data"
    with pytest.raises(ValueError, match="the wheel changed"):
        destination.receive(fail, None)  # type: ignore[arg-type]
    assert not list(server.storage.glob(uploads))
    # This registry may write the rest of a request that ended early after it was told to forget the upload.
    with pytest.raises(ValueError, match="the wheel changed"):
        destination.receive(fail, fresh.layers[0].encoded)  # type: ignore[arg-type]
    assert server.blobs() == before
