"""The client with a real registry and injected faults: what is retried, and what is reported."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from validator.errors import MissingError, ValidatorError
from validator.registry import session as session_module
from validator.registry.client import ConcurrentChangeError, Registry
from validator.registry.names import Repository
from validator.registry.session import AlteredError

from .hostile import HostileRegistry, running_hostile_registry
from .images import push_image, push_index
from .proxy import Fault, Proxy
from .server import RunningRegistry

KIND = "application/vnd.test"
NOWHERE = "sha256:" + "0" * 64


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the client's retries, so that permanent failures end sooner."""
    monkeypatch.setattr(session_module, "PAUSES", ())


def test_an_image_is_found_with_its_labels(repository: Repository) -> None:
    digest = push_image(repository, "one", {"name": "value"})
    registry = Registry(repository)
    assert registry.digest_of("one") == digest
    assert registry.tags() == ["one"]
    manifest = registry.manifest(digest)
    assert manifest is not None and len(manifest.layers or ()) == 1
    assert registry.config(digest).labels == {"name": "value"}


def test_a_missing_object_is_not_an_error(repository: Repository) -> None:
    registry = Registry(repository)
    assert (registry.digest_of("one"), registry.tags(), registry.manifest(NOWHERE)) == (None, [], None)
    assert registry.attached(NOWHERE, KIND) == []
    push_image(repository, "one")
    assert (registry.digest_of("two"), registry.manifest(NOWHERE)) == (None, None)


def test_an_alias_can_be_moved(repository: Repository) -> None:
    first, second = push_image(repository, "one"), push_image(repository, "two")
    registry = Registry(repository)
    registry.tag(first, "latest")
    assert registry.digest_of("latest") == first
    registry.tag(second, "latest")
    assert registry.digest_of("latest") == second
    with pytest.raises(ValidatorError, match="is not in the registry"):
        registry.tag(NOWHERE, "latest")
    assert registry.digest_of("latest") == second


def test_a_concurrent_change_of_an_alias_is_noticed(
    repository: Repository, through: Repository, proxy: Proxy
) -> None:
    first, second = push_image(repository, "one"), push_image(repository, "two")
    Registry(repository).tag(second, "latest")
    # The answer to the second look at the alias is that of the other's move.
    proxy.faults = [Fault(method="PUT", path="manifests/latest", status=201)]
    with pytest.raises(ConcurrentChangeError, match="was set to"):
        Registry(through).tag(first, "latest")


def test_attached_artifacts_are_listed_by_type(server: RunningRegistry, repository: Repository) -> None:
    digest = push_image(repository, "one")
    registry = Registry(repository)
    attached = registry.attach(digest, KIND, b"content", {"mark": "x"})
    registry.attach(digest, "application/vnd.other", b"content", {})
    [entry] = registry.attached(digest, KIND)
    assert entry.digest == attached
    assert entry.annotations is not None and entry.annotations["mark"] == "x"
    manifest = registry.manifest(attached)
    assert manifest is not None and manifest.layers is not None
    assert registry.blob(manifest.layers[0].digest, 7) == b"content"
    subject: Any = server.manifest(repository.path, attached)["subject"]
    assert subject["digest"] == digest


def test_no_artifact_is_lost_when_two_clients_attach_at_once(
    repository: Repository, through: Repository, proxy: Proxy
) -> None:
    """The first client writes its list after the second one has written its own."""
    digest = push_image(repository, "one")
    proxy.faults = [Fault(method="PUT", path="manifests/sha256-", status=None, delay_s=0.5, times=1)]
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(Registry(through).attach, digest, KIND, b"1", {})
        while not proxy.faults[0].happened:
            time.sleep(0.01)
        second = Registry(repository).attach(digest, KIND, b"2", {})
        made = {first.result(), second}
    assert {entry.digest for entry in Registry(repository).attached(digest, KIND)} == made


@pytest.mark.parametrize("status", [429, 500, 502, 503, 0])
def test_temporary_failures_are_retried(
    repository: Repository, through: Repository, proxy: Proxy, status: int
) -> None:
    digest = push_image(repository, "one")
    proxy.faults = [Fault(path="/manifests/", status=status, times=2)]
    registry = Registry(through)
    registry.tag(digest, "latest")
    assert registry.digest_of("latest") == digest
    assert proxy.faults[0].happened == 2


@pytest.mark.parametrize("when", ["/blobs/uploads/", "/manifests/"])
def test_an_upload_that_fails_once_is_retried(
    repository: Repository, through: Repository, proxy: Proxy, when: str
) -> None:
    digest = push_image(repository, "one")
    proxy.faults = [Fault(method="PUT", path=when, status=500, times=1)]
    attached = Registry(through).attach(digest, KIND, b"content", {})
    assert [entry.digest for entry in Registry(repository).attached(digest, KIND)] == [attached]
    assert proxy.faults[0].happened == 1


@pytest.mark.usefixtures("once")
@pytest.mark.parametrize(
    ("fault", "says", "hint"),
    [
        (Fault(status=401), "requires a login", "docker login"),
        (Fault(status=403), "denies access", "docker login"),
        (Fault(status=429), "because there were too many", "later"),
        (Fault(status=500), "an internal error", "later"),
        (Fault(status=507), "is full", "free some space"),
        (Fault(status=0), "can't be reached", "network"),
    ],
)
def test_permanent_failures_are_explained(
    through: Repository, proxy: Proxy, fault: Fault, says: str, hint: str
) -> None:
    fault.happened = 0
    proxy.faults = [fault]
    with pytest.raises(MissingError, match=says) as caught:
        Registry(through).digest_of("latest")
    assert caught.value.exit_code == 3
    assert hint in (caught.value.hint or "")
    assert str(through) in str(caught.value)


@pytest.mark.parametrize("status", [401, 403])
def test_a_denied_request_is_not_retried(through: Repository, proxy: Proxy, status: int) -> None:
    proxy.faults = [Fault(status=status)]
    with pytest.raises(MissingError):
        Registry(through).digest_of("latest")
    assert len(proxy.asked) == 1


@pytest.mark.service
@pytest.mark.usefixtures("once")
def test_a_registry_that_is_down_is_reported() -> None:
    with pytest.raises(MissingError, match="can't be reached"):
        Registry(Repository("127.0.0.1:9", "tf")).tags()


@pytest.mark.parametrize("limit", ["DOCUMENT_S", "SILENCE_S"])
def test_a_registry_that_hangs_is_abandoned(
    through: Repository, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(session_module, limit, 1.0)
    proxy.faults = [Fault(status=None, delay_s=3)]
    with pytest.raises(MissingError, match=f"the registry {proxy.address} stopped answering"):
        Registry(through).digest_of("latest")


def _read_manifest(registry: Registry, digest: str) -> object:
    return registry.manifest(digest)


def _set_tag(registry: Registry, digest: str) -> None:
    registry.tag(digest, "latest")


def _read_config(registry: Registry, digest: str) -> object:
    return registry.config(digest)


@pytest.mark.parametrize(
    ("act", "path"),
    [(_read_manifest, "/manifests/"), (_set_tag, "/manifests/"), (_read_config, "/blobs/")],
)
def test_altered_content_is_rejected(
    repository: Repository,
    through: Repository,
    proxy: Proxy,
    act: Callable[[Registry, str], object],
    path: str,
) -> None:
    digest = push_image(repository, "one", {"name": "value"})
    proxy.faults = [Fault(path=path, replace=(b"sha256:", b"sha256;"))]
    with pytest.raises(AlteredError, match="digest") as caught:
        act(Registry(through), digest)
    assert caught.value.exit_code == 1
    assert Registry(repository).digest_of("latest") is None


def test_content_altered_in_the_storage_is_rejected(server: RunningRegistry, repository: Repository) -> None:
    digest = push_image(repository, "one", content="altered in the storage")
    hexadecimal = digest.removeprefix("sha256:")
    file = server.storage / "docker/registry/v2/blobs/sha256" / hexadecimal[:2] / hexadecimal / "data"
    file.write_bytes(file.read_bytes().replace(b"1970", b"1971"))
    assert hashlib.sha256(file.read_bytes()).hexdigest() != hexadecimal
    with pytest.raises(ValidatorError):
        Registry(repository).manifest(digest)


def test_an_index_gives_the_image_for_our_platform(repository: Repository) -> None:
    push_index(repository, "index", push_image(repository, "one", {"name": "value"}))
    registry = Registry(repository)
    digest = registry.digest_of("index")
    assert digest is not None
    assert registry.config(digest).labels == {"name": "value"}


@pytest.fixture
def hostile() -> Iterator[HostileRegistry]:
    with running_hostile_registry() as running:
        yield running


@pytest.mark.service
def test_all_pages_of_a_list_are_read(hostile: HostileRegistry) -> None:
    hostile.push_image("one")
    hostile.second_page = "/v2/team/tensorflow/tags/list?last=one"
    assert Registry(Repository.parse(hostile.repository)).tags() == ["one", "one"]


@pytest.mark.service
def test_a_list_does_not_continue_on_another_server(hostile: HostileRegistry, proxy: Proxy) -> None:
    hostile.push_image("one")
    hostile.second_page = f"http://{proxy.address}/v2/team/tensorflow/tags/list?last=one"
    with pytest.raises(ValidatorError, match="continues the list on another server"):
        Registry(Repository.parse(hostile.repository)).tags()
    assert proxy.asked == []


@pytest.mark.service
def test_a_missing_tag_is_answered_with_those_that_exist(hostile: HostileRegistry) -> None:
    for number in range(22):
        hostile.push_image(f"v{number:02}")
    hint = Registry(Repository.parse(hostile.repository)).tags_hint()
    assert hint.startswith("it has v00, v01, ") and hint.endswith(", v19 and 2 more")


def test_the_referrers_api_makes_the_list_under_a_tag_unnecessary(
    repository: Repository, through: Repository, proxy: Proxy
) -> None:
    digest = push_image(repository, "one")
    subject = {"OCI-Subject": digest}
    proxy.faults = [Fault(method="PUT", path="/manifests/sha256:", status=201, headers=subject)]
    Registry(through).attach(digest, KIND, b"content", {})
    assert [asked.path for asked in proxy.asked if "/manifests/sha256-" in asked.path] == []
    assert Registry(repository).tags() == ["one"]
