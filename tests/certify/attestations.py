"""Attach to an image what others may attach: by cosign itself, and by hand."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from validator.certify.signatures import BUNDLE, Signer
from validator.certify.statement import PREDICATE
from validator.registry.names import Repository

from ..registry.images import attach_artifact
from .fixtures import PASSWORD


def cosign(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run cosign as a person would, but without a network."""
    return subprocess.run(
        ["cosign", *map(str, arguments)], env=os.environ | {"COSIGN_PASSWORD": PASSWORD},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def cosign_attest(
    repository: Repository, digest: str, predicate: dict[str, Any], signer: Signer, directory: Path,
    *, kind: str = PREDICATE, older: bool = False,
) -> None:  # fmt: skip
    """Run `cosign attest` with a predicate; older: in the format and place of cosign 2."""
    (directory / "predicate").write_text(json.dumps(predicate), encoding="utf-8")
    (directory / "services").write_text(
        '{"mediaType":"application/vnd.dev.sigstore.signingconfig.v0.2+json",'
        '"rekorTlogConfig":{},"tsaConfig":{}}',
        encoding="utf-8",
    )
    (directory / "roots").write_text(
        '{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1"}', encoding="utf-8"
    )
    form: list[str | Path] = [
        "--signing-config",
        directory / "services",
        "--trusted-root",
        directory / "roots",
    ]
    if older:
        form = ["--new-bundle-format=false", "--use-signing-config=false", "--tlog-upload=false"]
    done = cosign(
        "attest", "--yes", "--key", str(signer.key), "--type", kind, "--predicate", directory / "predicate",
        *form, repository.at(digest),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def cosign_verify(repository: Repository, digest: str, key: Path | str) -> subprocess.CompletedProcess[str]:
    """Run the command that docs/trust.md gives to people without this project."""
    return cosign(
        "verify-attestation", "--key", key, "--type", PREDICATE, "--insecure-ignore-tlog",
        "--allow-http-registry", repository.at(digest),
    )  # fmt: skip


def attach_by_hand(repository: Repository, digest: str, bundle: bytes) -> str:
    """Attach bytes as if they were a bundle, and return the digest of the artifact."""
    return attach_artifact(repository, digest, BUNDLE, bundle)


def payload(bundle: bytes) -> dict[str, Any]:
    """Return the statement in a bundle."""
    found: dict[str, Any] = json.loads(base64.b64decode(json.loads(bundle)["dsseEnvelope"]["payload"]))
    return found


def with_payload(bundle: bytes, statement: dict[str, Any]) -> bytes:
    """Return the bundle with another statement under the same signature."""
    document = json.loads(bundle)
    document["dsseEnvelope"]["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()
    return json.dumps(document).encode()
