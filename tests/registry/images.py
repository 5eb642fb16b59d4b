"""Images of a few bytes, made without an engine and pushed in a few requests."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from validator.registry.names import Repository

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_BYTES = "application/octet-stream"


def push_image(
    repository: Repository,
    tag: str,
    labels: Mapping[str, str] | None = None,
    content: str = "",
    program: Path | None = None,
    ports: Sequence[str] = (),
    credentials: str | None = None,
) -> str:
    """Push an image with one layer and return its digest. The same arguments give the same image.

    program: a static one, which containers of the image start. ports: such as `80/tcp`. credentials:
    `user:password`.
    """
    files = {"content": (content or tag).encode(), **({"program": program.read_bytes()} if program else {})}
    layer = _layer(files)
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "Labels": dict(labels or {}),
                **({"Entrypoint": ["/program"]} if program else {}),
                **({"ExposedPorts": {port: {} for port in ports}} if ports else {}),
            },
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    ).encode()
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": {"mediaType": _CONFIG, "digest": _digest(config), "size": len(config)},
            "layers": [{"mediaType": _LAYER, "digest": _digest(layer), "size": len(layer)}],
            "annotations": {"org.opencontainers.image.created": "1970-01-01T00:00:00Z"},
        }
    ).encode()
    with _connected(repository, credentials) as place:
        place.send_blobs(layer, config)
        place.send_manifest(tag, manifest, _MANIFEST)
    return _digest(manifest)


def push_index(repository: Repository, tag: str, digest: str) -> None:
    """Push an index for an image that is there, as one for linux/amd64."""
    with _connected(repository) as place:
        described = _descriptor(place.read_manifest(digest) or b"", _MANIFEST)
        platform = {"os": "linux", "architecture": "amd64"}
        index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": [{**described, "platform": platform}]}
        place.send_manifest(tag, json.dumps(index).encode(), _INDEX)


def attach_artifact(repository: Repository, digest: str, kind: str, content: bytes) -> str:
    """Attach a file to an image the way other clients do without the referrers API. Return its digest."""
    with _connected(repository) as place:
        image = place.read_manifest(digest)
        assert image is not None
        artifact = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "artifactType": kind,
                "config": _descriptor(b"{}", "application/vnd.oci.empty.v1+json"),
                "layers": [_descriptor(content, kind)],
                "subject": _descriptor(image, _MANIFEST),
            }
        ).encode()
        place.send_blobs(b"{}", content)
        place.send_manifest(_digest(artifact), artifact, _MANIFEST)
        entry = {**_descriptor(artifact, _MANIFEST), "artifactType": kind}
        listed = [*referrers(repository, digest), entry]
        index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": listed}
        place.send_manifest(digest.replace(":", "-"), json.dumps(index).encode(), _INDEX)
    return _digest(artifact)


def referrers(repository: Repository, digest: str) -> list[Any]:
    """Return what refers to an image, from the tag that stands in for the referrers API."""
    with _connected(repository) as place:
        found = place.read_manifest(digest.replace(":", "-"))
    return list(json.loads(found)["manifests"]) if found else []


class _Place:
    """A repository behind a connection."""

    def __init__(self, connection: http.client.HTTPConnection, path: str, headers: Mapping[str, str]) -> None:
        self._connection, self._path, self._headers = connection, f"/v2/{path}", headers

    def send_blobs(self, *blobs: bytes) -> None:
        for blob in blobs:
            answer = self._ask("POST", f"{self._path}/blobs/uploads/", b"", {"Content-Type": _BYTES})
            place = f"{answer.headers['Location']}&digest={_digest(blob)}"
            assert self._ask("PUT", place, blob, {"Content-Type": _BYTES}).status == 201

    def send_manifest(self, reference: str, manifest: bytes, kind: str) -> None:
        answer = self._ask("PUT", f"{self._path}/manifests/{reference}", manifest, {"Content-Type": kind})
        assert answer.status == 201, self._text

    def read_manifest(self, reference: str) -> bytes | None:
        accept = {"Accept": f"{_MANIFEST}, {_INDEX}"}
        answer = self._ask("GET", f"{self._path}/manifests/{reference}", b"", accept)
        return self._text if answer.status == 200 else None

    def _ask(
        self, method: str, address: str, body: bytes, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        self._connection.request(method, address, body, {**self._headers, **headers})
        answer = self._connection.getresponse()
        self._text = answer.read()
        return answer


@contextlib.contextmanager
def _connected(repository: Repository, credentials: str | None = None) -> Iterator[_Place]:
    headers = {}
    if credentials is not None:
        headers["Authorization"] = f"Basic {base64.b64encode(credentials.encode()).decode()}"
    with contextlib.closing(http.client.HTTPConnection(repository.host, timeout=30)) as connection:
        yield _Place(connection, repository.path, headers)


def _descriptor(content: bytes, kind: str) -> dict[str, Any]:
    return {"mediaType": kind, "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _layer(files: Mapping[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return stream.getvalue()
