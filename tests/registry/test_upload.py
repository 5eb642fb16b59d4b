"""Sending and reading blobs: chunks, repetitions, logins, redirections. The registry is a thread here."""

from __future__ import annotations

import base64
import hashlib
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from validator.errors import MissingError, ValidatorError
from validator.registry import blobs as upload_module
from validator.registry import session as session_module
from validator.registry.blobs import Blobs, Known, Write
from validator.registry.names import Repository
from validator.registry.session import AlteredError

from .strict import FORGET, StrictRegistry, running_strict_registry

CONTENT = random.Random(1).randbytes(7_300_000)
CHUNK = 2 << 20


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


DIGEST = digest_of(CONTENT)


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> Iterator[StrictRegistry]:
    monkeypatch.setattr(upload_module, "_CHUNK", CHUNK)
    monkeypatch.setattr(session_module, "PAUSES", (0.0, 0.0, 0.0))
    with running_strict_registry() as running:
        yield running


@pytest.fixture
def docker_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, object]], None]:
    """Return a function that writes Docker's configuration."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))

    def write(content: dict[str, object]) -> None:
        (tmp_path / "config.json").write_text(json.dumps(content), encoding="utf-8")

    write({})
    return write


class Maker:
    """Writes the content in parts of odd sizes, and counts how often."""

    def __init__(self, content: bytes = CONTENT) -> None:
        self.content, self.times = content, 0

    def __call__(self, write: Write) -> str:
        self.times += 1
        for start in range(0, len(self.content), 99_991):
            write(self.content[start : start + 99_991])
        return digest_of(self.content)


def blobs(registry: StrictRegistry) -> Blobs:
    """Return the blobs of a registry whose opinion on bodies without a length is known."""
    found = Blobs.to_write(Repository(registry.address, "team/tf"))
    found.session.accepts_streams = registry.streams
    return found


def send(registry: StrictRegistry, maker: Maker, known: Known | None = None) -> str:
    return blobs(registry).send(maker, known)


def chunks(registry: StrictRegistry) -> list[str]:
    return [asked.headers["Content-Range"] for asked in registry.asked if asked.method == "PATCH"]


def test_a_known_blob_is_sent_in_one_request(strict: StrictRegistry) -> None:
    assert send(strict, Maker(), Known(DIGEST, len(CONTENT))) == DIGEST
    assert strict.blobs == {DIGEST: CONTENT}
    assert strict.methods() == ["POST", "PUT"]
    assert strict.asked[1].headers["Content-Length"] == str(len(CONTENT))


def test_an_unknown_blob_is_sent_in_one_request_too(strict: StrictRegistry) -> None:
    strict.streams = True
    maker = Maker()
    assert send(strict, maker) == DIGEST
    assert strict.blobs == {DIGEST: CONTENT}
    assert maker.times == 1
    assert strict.methods() == ["POST", "PATCH", "PUT"]
    assert "Content-Length" not in strict.asked[1].headers


def test_a_registry_that_wants_a_length_is_asked_only_once(strict: StrictRegistry) -> None:
    there = Blobs.to_write(Repository(strict.address, "team/tf"))
    first, second = Maker(), Maker(CONTENT[::-1])
    assert there.send(first) == DIGEST
    assert there.send(second) == digest_of(CONTENT[::-1])
    assert strict.blobs == {DIGEST: CONTENT, digest_of(CONTENT[::-1]): CONTENT[::-1]}
    assert (first.times, second.times) == (2, 1)
    assert strict.uploads == {}


@pytest.mark.parametrize("kept", [0, 3_000_000])
def test_one_request_that_failed_is_continued_in_chunks(strict: StrictRegistry, kept: int) -> None:
    strict.streams, strict.keep = True, [kept]
    maker = Maker()
    assert send(strict, maker) == DIGEST
    assert strict.blobs == {DIGEST: CONTENT}
    assert maker.times == 2
    ranges = [asked.headers.get("Content-Range") for asked in strict.asked if asked.method == "PATCH"]
    assert ranges[:2] == [None, f"{kept}-{kept + CHUNK - 1}"]


def test_an_unknown_blob_is_sent_in_chunks(strict: StrictRegistry) -> None:
    assert send(strict, Maker()) == DIGEST
    assert strict.blobs == {DIGEST: CONTENT}
    assert chunks(strict) == [
        "0-2097151", "2097152-4194303", "4194304-6291455", "6291456-7299999",
    ]  # fmt: skip
    assert strict.uploads == {}


def test_chunks_have_the_length_that_the_registry_wants(strict: StrictRegistry) -> None:
    strict.least = 5_000_000
    send(strict, Maker())
    assert chunks(strict) == ["0-4999999", "5000000-7299999"]


@pytest.mark.parametrize("kept", [0, 1_000_000, CHUNK])
def test_a_chunk_that_arrived_in_part_is_continued(strict: StrictRegistry, kept: int) -> None:
    strict.keep = [None, kept]
    maker = Maker()
    send(strict, maker)
    assert strict.blobs == {DIGEST: CONTENT}
    assert maker.times == 1
    continued = f"{CHUNK + kept}-{2 * CHUNK - 1}"
    assert chunks(strict)[2] == (continued if kept < CHUNK else "4194304-6291455")


def test_what_the_registry_lost_is_made_again_and_the_rest_skipped(strict: StrictRegistry) -> None:
    strict.keep = [None, None, -1_500_000]
    maker = Maker()
    send(strict, maker)
    assert strict.blobs == {DIGEST: CONTENT}
    assert maker.times == 2
    assert strict.methods().count("POST") == 1
    assert chunks(strict)[3] == f"{2 * CHUNK - 1_500_000}-{3 * CHUNK - 1_500_000 - 1}"


def test_a_registry_that_keeps_losing_is_given_up(strict: StrictRegistry) -> None:
    strict.keep = [None, -CHUNK] * 10
    with pytest.raises(MissingError, match=r"a layer can't be sent to .* an internal error"):
        send(strict, Maker())
    assert strict.blobs == strict.uploads == {}


def test_an_upload_that_the_registry_forgot_is_started_again(strict: StrictRegistry) -> None:
    strict.keep = [None, FORGET]
    maker = Maker()
    send(strict, maker)
    assert strict.blobs == {DIGEST: CONTENT}
    assert maker.times == 2 and strict.methods().count("POST") == 2


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("known", [None, Known(DIGEST, len(CONTENT))])
def test_an_error_while_the_blob_is_made_passes_through(
    strict: StrictRegistry, known: Known | None, streams: bool
) -> None:
    strict.streams = streams
    times = 0

    def fail(write: Write) -> str:
        nonlocal times
        times += 1
        write(CONTENT[:5_000_000])
        raise OSError("the wheel is gone")

    with pytest.raises(OSError, match="the wheel is gone"):
        blobs(strict).send(fail, known)
    assert times == 1
    assert strict.blobs == strict.uploads == {}


@pytest.mark.parametrize(
    "changed", [CONTENT[:-1], CONTENT + b"x", CONTENT[:-1] + b"x"], ids=["shorter", "longer", "other"]
)
def test_a_blob_that_is_not_what_was_expected_is_not_kept(strict: StrictRegistry, changed: bytes) -> None:
    with pytest.raises(ValidatorError, match="is not what was expected") as caught:
        send(strict, Maker(changed), Known(DIGEST, len(CONTENT)))
    assert not isinstance(caught.value, MissingError)
    assert strict.blobs == strict.uploads == {}


# -- logins ----------------------------------------------------------------------------------------------


def encoded(user: str, password: str) -> str:
    return base64.b64encode(f"{user}:{password}".encode()).decode()


def test_a_token_is_asked_for_with_dockers_login(
    strict: StrictRegistry, docker_config: Callable[[dict[str, object]], None]
) -> None:
    strict.login = ("me", "secret")
    docker_config({"auths": {strict.address: {"auth": encoded("me", "secret")}}})
    other = Repository(strict.address, "team/other")
    Blobs.to_write(Repository(strict.address, "team/tf"), [other]).send(Maker())
    [asked] = [asked for asked in strict.asked if asked.path == "/token"]
    assert asked.query["scope"] == ["repository:team/tf:pull,push", "repository:team/other:pull"]
    assert asked.query["service"] == ["the, registry"]
    passwords = [one.path for one in strict.asked if "Basic" in one.headers.get("Authorization", "")]
    assert passwords == ["/token"]


def test_an_identity_token_is_used(
    strict: StrictRegistry, docker_config: Callable[[dict[str, object]], None]
) -> None:
    strict.login, strict.identity = ("me", "secret"), "identity"
    docker_config({"auths": {strict.address: {"identitytoken": "identity"}}})
    send(strict, Maker())
    assert strict.blobs == {DIGEST: CONTENT}


def test_a_token_that_expired_is_renewed(
    strict: StrictRegistry, docker_config: Callable[[dict[str, object]], None]
) -> None:
    strict.login = ("me", "secret")
    docker_config({"auths": {strict.address: {"auth": encoded("me", "secret")}}})

    def slow(write: Write) -> str:
        for start in range(0, len(CONTENT), CHUNK):
            write(CONTENT[start : start + CHUNK])
            if start == 0:
                strict.tokens.clear()
        return DIGEST

    blobs(strict).send(slow)
    assert strict.blobs == {DIGEST: CONTENT}
    assert sum(asked.path == "/token" for asked in strict.asked) == 2


def test_a_login_of_another_program_is_not_used(
    strict: StrictRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret", encoding="utf-8")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    send(strict, Maker())
    assert not any("Authorization" in asked.headers for asked in strict.asked)


@pytest.mark.parametrize("auths", [{}, {"auth": encoded("me", "wrong")}])
def test_a_refused_login_says_what_to_do(
    strict: StrictRegistry, docker_config: Callable[[dict[str, object]], None], auths: dict[str, str]
) -> None:
    strict.login = ("me", "secret")
    docker_config({"auths": {strict.address: auths}})
    with pytest.raises(MissingError, match="requires a login, or rejects the current one") as caught:
        blobs(strict).has(DIGEST, 1)
    assert f"docker login {strict.address}" in str(caught.value.hint)
    assert "wrong" not in str(caught.value)
    assert len(strict.asked) == 2


def test_no_password_goes_to_a_token_server_without_tls_elsewhere(
    strict: StrictRegistry,
    docker_config: Callable[[dict[str, object]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    strict.login = ("me", "secret")
    docker_config({"auths": {strict.address: {"auth": encoded("me", "secret")}}})
    strict.realm = "ftp://somewhere/token"
    with pytest.raises(MissingError, match="a token server that can't be used"):
        blobs(strict).has(DIGEST, 1)


def test_a_credential_helper_that_is_missing_is_an_error(
    strict: StrictRegistry, docker_config: Callable[[dict[str, object]], None]
) -> None:
    strict.login = ("me", "secret")
    docker_config({"credHelpers": {strict.address: "absent-helper"}})
    with pytest.raises(MissingError, match="can't be read from Docker's configuration"):
        blobs(strict).has(DIGEST, 1)


# -- reading ---------------------------------------------------------------------------------------------


def read(registry: StrictRegistry, size: int = len(CONTENT)) -> bytes:
    return b"".join(Blobs.to_read(Repository(registry.address, "team/tf")).read(DIGEST, size))


def test_a_blob_is_read_and_continued_where_it_was_cut(strict: StrictRegistry) -> None:
    strict.blobs[DIGEST] = CONTENT
    strict.cut = [5_000_000, 100]
    assert read(strict) == CONTENT
    ranges = [asked.headers.get("Range") for asked in strict.asked]
    assert ranges == [None, "bytes=5000000-", "bytes=5000100-"]


@pytest.mark.parametrize("change", [b"x" + CONTENT[1:], CONTENT + b"x"])
def test_a_blob_that_was_altered_is_refused(strict: StrictRegistry, change: bytes) -> None:
    strict.blobs[DIGEST] = change
    with pytest.raises(AlteredError):
        read(strict)


def test_a_blob_that_is_gone_is_an_error(strict: StrictRegistry) -> None:
    with pytest.raises(MissingError, match="can't be read"):
        read(strict)


def test_a_redirected_download_gets_no_login(
    strict: StrictRegistry, docker_config: Callable[[dict[str, object]], None], tmp_path: Path
) -> None:
    strict.login = ("me", "secret")
    docker_config({"auths": {strict.address: {"auth": encoded("me", "secret")}}})
    strict.blobs[DIGEST] = CONTENT
    with running_strict_registry() as store:
        store.blobs[DIGEST] = CONTENT
        strict.redirect = f"http://{store.address}/v2/store/blobs"
        assert read(strict) == CONTENT
        assert strict.asked[-1].headers["Authorization"].startswith("Bearer ")
        assert ["Authorization" in asked.headers for asked in store.asked] == [False]


def test_another_size_of_a_blob_is_an_error(strict: StrictRegistry) -> None:
    strict.blobs[DIGEST] = CONTENT
    assert blobs(strict).has(DIGEST, len(CONTENT))
    assert not blobs(strict).has(digest_of(b"x"), 1)
    with pytest.raises(AlteredError, match=f"has {len(CONTENT)} of its 5 bytes"):
        blobs(strict).has(DIGEST, 5)
