"""One repository of a registry, by the `oras` program.

Credentials are docker's own (`docker login`). Whatever comes is held against its digest. oras itself tries
again, with growing pauses, on 408, 429 and 5xx; what it leaves is tried again here, a few times.
"""

from __future__ import annotations

import hashlib
import json
import random
import secrets
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import MissingError, ValidatorError
from ..system import processes
from .errors import AlteredError, explain, fault_of
from .names import Repository

_TIMEOUT_S = 120.0
#: Seconds before each further try.
_PAUSES = (0.5, 2.0)
_ATTACH_TRIES = 8
#: Longer than others take from reading the list of what is attached to writing it, in seconds.
_SETTLE_S = 0.6
_TRY = "tensorflow-gpu-matrix.try"
_NOT_FOUND = ("not found", "name unknown", "manifest unknown", "NAME_UNKNOWN", "MANIFEST_UNKNOWN")
#: The platform of our images, for those that lie in an index.
PLATFORM = "linux/amd64"


class MovedError(ValidatorError):
    """A tag that was just set points elsewhere: somebody else set it at the same time."""


@dataclass(frozen=True)
class Attached:
    """Something that refers to an image: its own manifest's digest, type and annotations."""

    digest: str
    artifact_type: str
    annotations: Mapping[str, str]


class Registry:
    """Reads and writes one repository.

    Every method raises MissingError when the registry can't be reached, is full, does not permit it or fails
    (after the tries), and AlteredError when content is not what its digest says.
    """

    def __init__(self, repository: Repository, *, plain_http: bool | None = None) -> None:
        """plain_http: whether to speak HTTP without TLS; None: with a registry on this machine alone."""
        self.repository = repository
        self.plain_http = repository.is_loopback if plain_http is None else plain_http

    def digest_of(self, tag: str) -> str | None:
        """The digest that a tag points at, or None where there is no such tag."""
        reference = self.repository.tagged(tag)
        answer = self._oras(["resolve", reference], what=f"{reference} can't be looked up")
        return None if answer is None else answer.decode().strip()

    def tags(self) -> list[str]:
        """Every tag, in the order the registry gives; none where it has no such repository."""
        answer = self._oras(["repo", "tags", str(self.repository)], what=f"{self.repository} can't be listed")
        return [] if answer is None else answer.decode().split()

    def manifest(self, digest: str) -> dict[str, Any] | None:
        """The manifest or index of this digest; None where the registry has none."""
        data = self._manifest_bytes(digest)
        return None if data is None else _object(data, f"the manifest {digest}")

    def config(self, digest: str) -> dict[str, Any]:
        """The image's configuration, with its labels; of an index, that of `PLATFORM`. Raises
        ValidatorError where the digest is no image."""
        manifest = self.manifest(digest)
        if manifest is not None and "manifests" in manifest:
            wanted = next((entry for entry in manifest["manifests"] if _platform(entry) == PLATFORM), None)
            manifest = self.manifest(str(wanted["digest"])) if wanted else None
        try:
            described = str(manifest["config"]["digest"]) if manifest else ""
        except (KeyError, TypeError):
            described = ""
        if not described:
            raise ValidatorError(f"{self.repository.at(digest)} is no image for {PLATFORM}")
        return _object(self.blob(described), f"the configuration {described}")

    def blob(self, digest: str) -> bytes:
        """A blob of the repository, whole: for configurations and bundles, not for layers."""
        reference = self.repository.at(digest)
        what = f"{reference} can't be read"
        data = self._oras(["blob", "fetch", "--output", "-", reference], what=what)
        if data is None:
            raise ValidatorError(f"{what}: the registry has none")
        return _checked(data, digest, reference)

    def tag(self, digest: str, tag: str) -> None:
        """Point a tag at a manifest that is there, and read it back."""
        reference = self.repository.tagged(tag)
        what = f"{reference} can't be set"
        if self._oras(["tag", self.repository.at(digest), tag], what=what) is None:
            raise ValidatorError(f"{what}: the registry has no {digest}")
        now = self.digest_of(tag)
        if now != digest:
            raise MovedError(
                f"{reference} was set to {digest}, but is {now or 'gone'}",
                hint="somebody else moved it at the same time; repeat the command",
            )

    def attached(self, digest: str, artifact_type: str) -> list[Attached]:
        """What of this type refers to a manifest, by the referrers API or its fallback tag."""
        reference = self.repository.at(digest)
        answer = self._oras(
            ["discover", "--format", "json", "--depth", "1", reference],
            what=f"what is attached to {reference} can't be listed",
        )
        entries = _object(answer or b"{}", "the list of referrers").get("referrers") or []
        found = [
            Attached(str(entry["digest"]), _type_of(entry), dict(entry.get("annotations") or {}))
            for entry in entries
        ]
        # Where the registry has no referrers API, the fallback tag may carry no types; their manifests do.
        return [entry for entry in map(self._described, found) if entry.artifact_type == artifact_type]

    def attach(self, digest: str, artifact_type: str, content: bytes, annotations: Mapping[str, str]) -> str:
        """Attach a small file to a manifest, as an artifact that refers to it; the artifact's digest.

        Where the registry has no referrers API, clients keep the list of what is attached under a tag, and
        two who add to it at the same time can lose one another's entry. So it is looked for until it stays.
        """
        reference = self.repository.at(digest)
        what = f"nothing can be attached to {reference}"
        with tempfile.TemporaryDirectory(prefix="validator-attach-") as name:
            (Path(name) / "content").write_bytes(content)
            for _ in range(_ATTACH_TRIES):
                # oras adds nothing to the list for an artifact that the registry has; each try is a new one.
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
                answer = self._oras([*arguments, f"content:{artifact_type}"], what=what, cwd=Path(name))
                if answer is None:
                    raise ValidatorError(f"{what}: the registry has no such image")
                attached = str(_object(answer, "oras's answer").get("digest"))
                if self._stays(digest, artifact_type, attached):
                    return attached
        raise MovedError(
            f"what was attached to {reference} is not listed",
            hint="others attach to the same image at the same time; repeat the command",
        )

    def _stays(self, digest: str, artifact_type: str, attached: str) -> bool:
        """Whether it is in the list, and still is when everybody who had an older list has written theirs."""
        listed = any(entry.digest == attached for entry in self.attached(digest, artifact_type))
        if not listed or self.digest_of(digest.replace(":", "-")) is None:
            return listed
        # Pauses of different lengths part those who collide.
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
        """What oras wrote; None where the registry says that there is no such thing."""
        if shutil.which("oras") is None:
            raise MissingError(
                f"{what}: the program oras is not here", hint="install oras (Debian and Homebrew have it)"
            )
        verb = 2 if arguments[0] in ("repo", "manifest", "blob") else 1
        plain = ["--plain-http"] if self.plain_http else []
        command = ["oras", *arguments[:verb], *plain, *arguments[verb:]]
        for pause in (*_PAUSES, None):
            done = processes.run(command, timeout_s=_TIMEOUT_S, cwd=cwd)
            if done.ok:
                return done.stdout
            message = (
                f"no answer within {_TIMEOUT_S:.0f} s: timed out" if done.timed_out else done.stderr_tail
            )
            if any(mark in message for mark in _NOT_FOUND):
                return None
            fault = fault_of(message)
            if pause is None or fault is None or not fault.again:
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
            f"{reference} is altered: its content has the digest {found}",
            hint="do not use it; tell whoever runs the registry",
        )
    return data


def _object(data: bytes, what: str) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValidatorError(f"{what} is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise ValidatorError(f"{what} is no JSON object")
    return document
