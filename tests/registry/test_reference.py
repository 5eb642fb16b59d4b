"""Names of repositories, tags and digests: invalid ones are rejected before any request."""

from __future__ import annotations

import pytest

from validator.errors import InputError
from validator.registry.names import Repository

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "host", "path"),
    [
        ("localhost/tf", "localhost", "tf"),
        ("localhost:5000/team/tf", "localhost:5000", "team/tf"),
        ("ghcr.io/team/tensor-flow_gpu.v2", "ghcr.io", "team/tensor-flow_gpu.v2"),
        ("127.0.0.1:5000/a", "127.0.0.1:5000", "a"),
        ("[::1]:5000/a", "[::1]:5000", "a"),
        (" registry.example:443/a/b/c ", "registry.example:443", "a/b/c"),
    ],
)
def test_a_repository_is_parsed_and_written_unchanged(text: str, host: str, path: str) -> None:
    repository = Repository.parse(text)
    assert repository == Repository(host, path)
    assert str(repository) == text.strip()


@pytest.mark.parametrize(
    "text",
    [
        "", "tensorflow", "team/tensorflow", "https://ghcr.io/team/tf", "ghcr.io", "ghcr.io/",
        "ghcr.io/Team/tf", "ghcr.io/team/tf:latest", f"ghcr.io/team/tf@{DIGEST}", "ghcr.io/team//tf",
        "ghcr.io/../tf", "ghcr.io/a b", "-x.io/tf", "ghcr.io:port/tf", "ghcr.io/--plain-http",
        "ghcr.io/" + "a" * 300,
    ],
)  # fmt: skip
def test_an_invalid_repository_is_rejected(text: str) -> None:
    with pytest.raises(InputError):
        Repository.parse(text)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True), ("localhost:5000", True), ("127.0.0.1:5000", True), ("127.1.2.3", True),
        ("[::1]:5000", True), ("ghcr.io", False), ("10.0.0.1:5000", False), ("localhost.example", False),
        ("127.0.0.1.example:5000", False),
    ],
)  # fmt: skip
def test_plain_http_is_only_for_this_machine(host: str, loopback: bool) -> None:
    assert Repository(host, "tf").is_loopback is loopback


def test_tags_and_digests_are_appended() -> None:
    repository = Repository("localhost:5000", "tf")
    assert repository.tagged("2.21") == "localhost:5000/tf:2.21"
    assert repository.at(DIGEST) == f"localhost:5000/tf@{DIGEST}"


@pytest.mark.parametrize("tag", ["", "-x", ".x", "a b", "a/b", "a" * 129, "a\n"])
def test_an_invalid_tag_is_rejected(tag: str) -> None:
    with pytest.raises(InputError):
        Repository("localhost", "tf").tagged(tag)


@pytest.mark.parametrize(
    "digest", ["", "latest", "sha256:", "sha256:" + "A" * 64, "md5:" + "a" * 64, DIGEST + "\n"]
)
def test_an_invalid_digest_is_rejected(digest: str) -> None:
    with pytest.raises(InputError):
        Repository("localhost", "tf").at(digest)
