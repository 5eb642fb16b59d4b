"""A client for one repository of a registry, using the `oras` program.

Credentials are Docker's (`docker login`). All content is read up to a limit for its kind, whatever size the
registry claims, and verified against its digest while it arrives. oras itself retries on 408, 429 and 5xx,
with growing pauses; other temporary failures are retried here, a few times.
"""

from __future__ import annotations

import hashlib
import os
import random
import secrets
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import MissingError, ValidatorError
from ..system import processes
from ..system.runs import temporary_directory
from .documents import (
    LARGEST_CONFIG,
    LARGEST_MANIFEST,
    PLATFORM,
    Digested,
    ImageConfig,
    Manifest,
    Referrers,
    parse,
)
from .errors import AlteredError, explain, fault_of
from .names import Repository, is_digest, is_tag

_TIMEOUT_S = 120.0
#: Seconds to connect and receive the first bytes, and between two parts of what is received.
_SILENCE_S = 30.0
#: Bytes of memory for oras, which keeps the whole list of referrers: a registry may send pages without end.
_MEMORY = 512 << 20
#: The number of Go's threads; their stacks count as memory too.
_THREADS = {"GOMAXPROCS": "4"}
#: Seconds before each retry.
_PAUSES = (0.5, 2.0)
_ATTACH_TRIES = 8
#: Seconds; longer than other clients take from reading the list of attached artifacts to writing it.
_SETTLE_S = 0.6
_TRY = "tensorflow-gpu-matrix.try"
_NOT_FOUND = ("not found", "name unknown", "manifest unknown", "NAME_UNKNOWN", "MANIFEST_UNKNOWN")


class ConcurrentChangeError(ValidatorError):
    """Another client changed the same tag, or the same list of attached artifacts, at the same time."""


@dataclass(frozen=True)
class Attached:
    """An artifact that is attached to an image: the digest of its manifest, its type and its annotations."""

    digest: str
    artifact_type: str
    annotations: Mapping[str, str]


class Registry:
    """Reads and writes one repository.

    Every method raises MissingError if the registry can't be reached, is full, denies access or keeps
    failing, and AlteredError if content does not match its digest.
    """

    def __init__(self, repository: Repository, *, plain_http: bool | None = None) -> None:
        """plain_http: use HTTP without TLS; None: only for a registry on this machine."""
        self.repository = repository
        self.plain_http = repository.is_loopback if plain_http is None else plain_http

    def digest_of(self, tag: str) -> str | None:
        """Return the digest that a tag points to, or None if the tag does not exist."""
        reference = self.repository.tagged(tag)
        answer = self._oras(["resolve", reference], what=f"{reference} can't be looked up")
        if answer is None:
            return None
        digest = answer.decode("utf-8", "replace").strip()
        if not is_digest(digest):
            raise ValidatorError(f"{reference} can't be looked up: {digest[:80]!r} is not a SHA-256 digest")
        return digest

    def tags(self) -> list[str]:
        """Return all tags, in the registry's order; empty if the repository does not exist."""
        answer = self._oras(["repo", "tags", str(self.repository)], what=f"{self.repository} can't be listed")
        words = [] if answer is None else answer.decode("utf-8", "replace").split()
        return [word for word in words if is_tag(word)]

    def manifest(self, digest: str) -> Manifest | None:
        """Return the manifest or index with this digest, or None if it does not exist."""
        reference = self.repository.at(digest)
        data = self._oras(["manifest", "fetch", reference], what=f"{reference} can't be read", digest=digest)
        return None if data is None else parse(data, Manifest, f"the manifest {reference}")

    def config(self, digest: str) -> ImageConfig:
        """Return the configuration of an image, with its labels; for an index, that of `PLATFORM`.

        Raises ValidatorError if the digest is not that of an image.
        """
        manifest = self.manifest(digest)
        if manifest is not None and manifest.manifests is not None:
            entry = manifest.for_platform()
            manifest = self.manifest(entry.digest) if entry else None
        if manifest is None or manifest.config is None:
            raise ValidatorError(f"{self.repository.at(digest)} is not an image for {'/'.join(PLATFORM)}")
        described = manifest.config.digest
        data = self.blob(described, LARGEST_CONFIG)
        return parse(data, ImageConfig, f"the configuration {self.repository.at(described)}")

    def blob(self, digest: str, most: int) -> bytes:
        """Return the content of a blob of at most `most` bytes, such as a configuration or a bundle."""
        reference = self.repository.at(digest)
        what = f"{reference} can't be read"
        data = self._oras(["blob", "fetch", "--output", "-", reference], what=what, most=most, digest=digest)
        if data is None:
            raise ValidatorError(f"{what}: it is not in the registry")
        return data

    def tag(self, digest: str, tag: str) -> None:
        """Point a tag to an existing manifest, and verify it."""
        reference = self.repository.tagged(tag)
        what = f"{reference} can't be set"
        if self._oras(["tag", self.repository.at(digest), tag], what=what) is None:
            raise ValidatorError(f"{what}: {digest} is not in the registry")
        now = self.digest_of(tag)
        if now != digest:
            raise ConcurrentChangeError(
                f"{reference} was set to {digest}, but now {f'points to {now}' if now else 'does not exist'}",
                hint="somebody else changed the tag at the same time; repeat the command",
            )

    def attached(self, digest: str, artifact_type: str) -> list[Attached]:
        """Return the artifacts of a type that are attached to a manifest, from the referrers API or its
        fallback tag.
        """
        reference = self.repository.at(digest)
        answer = self._oras(
            ["discover", "--format", "json", "--depth", "1", reference],
            what=f"the artifacts attached to {reference} can't be listed",
        )
        listed = parse(answer or b"{}", Referrers, f"the list of artifacts attached to {reference}")
        found = [
            Attached(entry.digest, entry.artifact_type or "", entry.annotations or {})
            for entry in listed.referrers or ()
        ]
        # Without the referrers API, the list in the fallback tag may lack types. The manifests have them.
        return [entry for entry in map(self._described, found) if entry.artifact_type == artifact_type]

    def attach(
        self,
        digest: str,
        artifact_type: str,
        content: bytes,
        annotations: Mapping[str, str],
        *,
        media_type: str | None = None,
    ) -> str:
        """Attach a small file to a manifest, as an artifact that refers to it. Return the artifact's digest.

        media_type: of the file; None: the artifact's.
        If the registry has no referrers API, clients keep the list of attached artifacts under a tag, and if
        two add to it at the same time, an entry can be lost. So this checks that the entry stays, and
        retries.
        """
        reference = self.repository.at(digest)
        what = f"the artifact can't be attached to {reference}"
        with temporary_directory("attach") as directory:
            (directory / "content").write_bytes(content)
            for _ in range(_ATTACH_TRIES):
                # oras does not list an artifact that the registry already has, so each attempt makes a new
                # one.
                marks = {**annotations, _TRY: secrets.token_hex(8)}
                flags = [part for key, value in marks.items() for part in ("--annotation", f"{key}={value}")]
                arguments = [
                    "attach",
                    "--format",
                    "json",
                    "--artifact-type",
                    artifact_type,
                    *flags,
                    reference,
                ]
                answer = self._oras(
                    [*arguments, f"content:{media_type or artifact_type}"], what=what, cwd=directory
                )
                if answer is None:
                    raise ValidatorError(f"{what}: the image is not in the registry")
                attached = parse(answer, Digested, "the answer of oras").digest
                if self._stays(digest, artifact_type, attached):
                    return attached
        raise ConcurrentChangeError(
            f"the artifact was attached to {reference}, but is missing from the list of attached artifacts",
            hint="somebody else attached to the same image at the same time; repeat the command",
        )

    def _stays(self, digest: str, artifact_type: str, attached: str) -> bool:
        """Return True if the artifact is listed, and still is after other clients may have written an older
        list.
        """
        listed = any(entry.digest == attached for entry in self.attached(digest, artifact_type))
        if not listed or self.digest_of(digest.replace(":", "-")) is None:
            return listed
        # Clients that collide wait for different times.
        time.sleep(_SETTLE_S * random.uniform(1, 2))
        return any(entry.digest == attached for entry in self.attached(digest, artifact_type))

    def _described(self, entry: Attached) -> Attached:
        if entry.artifact_type not in ("", "application/vnd.oci.empty.v1+json"):
            return entry
        manifest = self.manifest(entry.digest)
        if manifest is None:
            return entry
        annotations = {**entry.annotations, **(manifest.annotations or {})}
        return Attached(entry.digest, manifest.artifact_type or "", annotations)

    def _oras(
        self,
        arguments: list[str],
        *,
        what: str,
        cwd: Path | None = None,
        most: int = LARGEST_MANIFEST,
        digest: str | None = None,
    ) -> bytes | None:
        """Run oras and return its output, or None if the registry says that the object does not exist.

        most: the limit of the output in bytes. digest: what the output must match.
        """
        if shutil.which("oras") is None:
            raise MissingError(
                f"{what}: the program oras is not installed",
                hint="install oras (Debian and Homebrew have it)",
            )
        verb = 2 if arguments[0] in ("repo", "manifest", "blob") else 1
        plain = ["--plain-http"] if self.plain_http else []
        command = ["oras", *arguments[:verb], *plain, *arguments[verb:]]
        for pause in (*_PAUSES, None):
            received = _Received(what, most)
            done = processes.run(
                command,
                env={**os.environ, **_THREADS},
                cwd=cwd,
                timeout_s=_TIMEOUT_S,
                silence_s=_SILENCE_S,
                memory_bytes=_MEMORY,
                on_output=received.add,
            )
            if done.ok:
                return received.content(digest)
            if done.timed_out:
                raise MissingError(
                    f"{what}: the registry {self.repository.host} stopped answering",
                    hint="check the network, or try again later",
                )
            message = done.stderr_tail
            if any(mark in message for mark in _NOT_FOUND):
                return None
            fault = fault_of(message)
            if pause is None or fault is None or not fault.temporary:
                break
            time.sleep(pause)
        raise explain(self.repository.host, message, what=what)


class _Received:
    """Collect what a registry sends, up to a limit. what: the failed action, for messages."""

    def __init__(self, what: str, most: int) -> None:
        self._what, self._most = what, most
        self._content = bytearray()
        self._hash = hashlib.sha256()

    def add(self, part: bytes) -> None:
        """Keep a part. Raises ValidatorError, which ends the transfer, when there is too much."""
        if len(self._content) + len(part) > self._most:
            raise ValidatorError(
                f"{self._what}: the registry sends more than {self._most >> 20} MiB",
                hint="do not use it, and tell the registry's operator",
            )
        self._hash.update(part)
        self._content += part

    def content(self, digest: str | None) -> bytes:
        """Return everything. Raises AlteredError if a digest is given and the content does not match it."""
        found = f"sha256:{self._hash.hexdigest()}"
        if digest is not None and found != digest:
            raise AlteredError(
                f"{self._what}: it was altered, its content has the digest {found}",
                hint="do not use it, and tell the registry's operator",
            )
        return bytes(self._content)
