"""A client for one repository of a registry, using the `oras` program.

Credentials are Docker's (`docker login`). All content is verified against its digest. oras itself retries on
408, 429 and 5xx, with growing pauses; other temporary failures are retried here, a few times.
"""

from __future__ import annotations

import hashlib
import json
import random
import secrets
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import MissingError, ValidatorError
from ..system import processes
from ..system.runs import temporary_directory
from .errors import AlteredError, explain, fault_of
from .names import Repository

_TIMEOUT_S = 120.0
#: Seconds before each retry.
_PAUSES = (0.5, 2.0)
_ATTACH_TRIES = 8
#: Seconds; longer than other clients take from reading the list of attached artifacts to writing it.
_SETTLE_S = 0.6
_TRY = "tensorflow-gpu-matrix.try"
_NOT_FOUND = ("not found", "name unknown", "manifest unknown", "NAME_UNKNOWN", "MANIFEST_UNKNOWN")
#: The platform to choose from an image index.
PLATFORM = "linux/amd64"


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
        return None if answer is None else answer.decode().strip()

    def tags(self) -> list[str]:
        """Return all tags, in the registry's order; empty if the repository does not exist."""
        answer = self._oras(["repo", "tags", str(self.repository)], what=f"{self.repository} can't be listed")
        return [] if answer is None else answer.decode().split()

    def manifest(self, digest: str) -> dict[str, Any] | None:
        """Return the manifest or index with this digest, or None if it does not exist."""
        data = self._manifest_bytes(digest)
        return None if data is None else _object(data, f"the manifest {digest}")

    def config(self, digest: str) -> dict[str, Any]:
        """Return the configuration of an image, with its labels; for an index, that of `PLATFORM`.

        Raises ValidatorError if the digest is not that of an image.
        """
        manifest = self.manifest(digest)
        if manifest is not None and "manifests" in manifest:
            wanted = next((entry for entry in manifest["manifests"] if _platform(entry) == PLATFORM), None)
            manifest = self.manifest(str(wanted["digest"])) if wanted else None
        try:
            described = str(manifest["config"]["digest"]) if manifest else ""
        except (KeyError, TypeError):
            described = ""
        if not described:
            raise ValidatorError(f"{self.repository.at(digest)} is not an image for {PLATFORM}")
        return _object(self.blob(described), f"the configuration {described}")

    def blob(self, digest: str) -> bytes:
        """Return a blob as a whole: for configurations and bundles, not for layers."""
        reference = self.repository.at(digest)
        what = f"{reference} can't be read"
        data = self._oras(["blob", "fetch", "--output", "-", reference], what=what)
        if data is None:
            raise ValidatorError(f"{what}: it is not in the registry")
        return _checked(data, digest, reference)

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
        entries = _object(answer or b"{}", "the list of referrers").get("referrers") or []
        found = [
            Attached(str(entry["digest"]), _type_of(entry), dict(entry.get("annotations") or {}))
            for entry in entries
        ]
        # Without the referrers API, the list in the fallback tag may lack types. The manifests have them.
        return [entry for entry in map(self._described, found) if entry.artifact_type == artifact_type]

    def attach(self, digest: str, artifact_type: str, content: bytes, annotations: Mapping[str, str]) -> str:
        """Attach a small file to a manifest, as an artifact that refers to it. Return the artifact's digest.

        If the registry has no referrers API, clients keep the list of attached artifacts under a tag, and two
        that add to it at the same time can lose an entry. So this checks that the entry stays, and retries.
        """
        reference = self.repository.at(digest)
        what = f"the artifact can't be attached to {reference}"
        with temporary_directory("attach") as directory:
            (directory / "content").write_bytes(content)
            for _ in range(_ATTACH_TRIES):
                # oras does not list an artifact that the registry has already, so each attempt makes a new
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
                answer = self._oras([*arguments, f"content:{artifact_type}"], what=what, cwd=directory)
                if answer is None:
                    raise ValidatorError(f"{what}: the image is not in the registry")
                attached = str(_object(answer, "oras's answer").get("digest"))
                if self._stays(digest, artifact_type, attached):
                    return attached
        raise ConcurrentChangeError(
            f"the artifact was attached to {reference}, but is missing from the list of attached artifacts",
            hint="somebody else attached to the same image at the same time; repeat the command",
        )

    def _stays(self, digest: str, artifact_type: str, attached: str) -> bool:
        """Return True if the artifact is listed, and still is after clients with an older list have written
        theirs.
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
        manifest = self.manifest(entry.digest) or {}
        annotations = {**entry.annotations, **(manifest.get("annotations") or {})}
        return Attached(entry.digest, str(manifest.get("artifactType") or ""), annotations)

    def _manifest_bytes(self, digest: str) -> bytes | None:
        reference = self.repository.at(digest)
        data = self._oras(["manifest", "fetch", reference], what=f"{reference} can't be read")
        return None if data is None else _checked(data, digest, reference)

    def _oras(self, arguments: list[str], *, what: str, cwd: Path | None = None) -> bytes | None:
        """Run oras and return its output, or None if the registry says that the object does not exist."""
        if shutil.which("oras") is None:
            raise MissingError(
                f"{what}: the program oras is not installed",
                hint="install oras (Debian and Homebrew have it)",
            )
        verb = 2 if arguments[0] in ("repo", "manifest", "blob") else 1
        plain = ["--plain-http"] if self.plain_http else []
        command = ["oras", *arguments[:verb], *plain, *arguments[verb:]]
        for pause in (*_PAUSES, None):
            done = processes.run(command, timeout_s=_TIMEOUT_S, cwd=cwd)
            if done.ok:
                return done.stdout
            message = (
                f"no response within {_TIMEOUT_S:.0f} s: timed out" if done.timed_out else done.stderr_tail
            )
            if any(mark in message for mark in _NOT_FOUND):
                return None
            fault = fault_of(message)
            if pause is None or fault is None or not fault.temporary:
                break
            time.sleep(pause)
        raise explain(self.repository.host, message, what=what)


def _platform(entry: Mapping[str, Any]) -> str:
    platform = entry.get("platform") or {}
    return f"{platform.get('os')}/{platform.get('architecture')}"


def _type_of(entry: Mapping[str, Any]) -> str:
    return str(entry.get("artifactType") or "")


def _checked(data: bytes, digest: str, reference: str) -> bytes:
    found = f"sha256:{hashlib.sha256(data).hexdigest()}"
    if found != digest:
        raise AlteredError(
            f"{reference} was altered: its content has the digest {found}",
            hint="do not use it, and tell the registry's operator",
        )
    return data


def _object(data: bytes, what: str) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValidatorError(f"{what} is not valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise ValidatorError(f"{what} is not a JSON object")
    return document
