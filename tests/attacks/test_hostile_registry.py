"""A hostile registry, or somebody who may write to one: forged attachments, answers without end or sense."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import pytest

from validator.certify.statement import statement
from validator.model.timestamps import format_timestamp, now_utc
from validator.registry.client import Registry
from validator.registry.names import Repository

from ..certify.attestations import attach_by_hand
from ..certify.fixtures import record, report
from ..certify.sigstore import IDENTITY, ISSUER, Sigstore, legacy
from ..commands import Done, run
from ..registry.images import push_image
from ..registry.server import RunningRegistry

TAG = "2.21.0-cuda12.5-cudnn9.3-py3.12"
HERE = ("--driver", "580.95.05", "--gpu", "h100")


@pytest.fixture
def repository(server: RunningRegistry) -> Repository:
    return Repository(server.address, f"team/hostile-{uuid4().hex}")


def signed_statement(repository: Repository, digest: str, gpu: str) -> bytes:
    """Return the statement of a certificate for a GPU, which no mark calls a fixture."""
    found = report(gpu=gpu) | {"fixture": False}
    measured = format_timestamp(now_utc() - timedelta(hours=1))
    made = record(digest, gpu=gpu, found=found, finished=measured)
    read = made.read_report()
    assert read is not None
    issued, expires = (format_timestamp(now_utc() + age) for age in (timedelta(), timedelta(days=14)))
    return statement(made, read, str(repository), issued=issued, expires=expires)


class NoEngine:
    """An engine that must not be asked to pull anything."""

    info: ClassVar[dict[str, Any]] = {}
    is_local = True

    def pull(self, *_: object) -> None:
        pytest.fail("the image was pulled")

    def close(self) -> None:
        pass


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("validator.cli.pull.connect_engine", lambda driver, gpus: NoEngine())
    yield


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize("command", ["verify", "recommend", "promote", "pull"])
def test_a_bundle_in_the_older_format_of_cosign_says_what_nobody_signed(
    command: str, repository: Repository, sigstore: Sigstore, tmp_path: Path
) -> None:
    """Protects what a certificate says: the statement that is read is the one that was signed.

    The identity certified the image for a T4. The attacker wraps that signature in the format that cosign
    falls back to, next to a statement about an H100 in the format that is read here.
    """
    image = push_image(repository, TAG)
    genuine = sigstore.sign(signed_statement(repository, image, "t4"))
    forged = legacy(genuine, signed_statement(repository, image, "h100"))
    attach_by_hand(repository, image, forged, tmp_path)
    trusted = ("--registry", repository, "--identity", IDENTITY, "--issuer", ISSUER)
    environment = {**os.environ, **sigstore.environment(tmp_path), "HOME": str(tmp_path)}
    host = () if command in ("verify", "promote") else HERE
    names = (TAG,) if command == "verify" else ()
    done = run(command, *trusted, *host, *names, environment=environment)
    assert "Traceback" not in done.stderr
    assert Registry(repository).digest_of("latest") is None
    assert refusal(command, done), (done.stdout, done.stderr)


def refusal(command: str, done: Done) -> bool:
    """Tell whether a command has refused the only attachment of the only image."""
    why = "it is not a bundle of format 0.3"
    if command == "promote":
        return done.returncode == 0 and done.stdout == ""
    return done.returncode == 1 and why in done.stdout + done.stderr


@pytest.mark.usefixtures("no_engine")
def test_the_same_statement_counts_when_the_identity_signed_it(
    repository: Repository, sigstore: Sigstore, tmp_path: Path
) -> None:
    """The test above rejects the form and not the signer: what the identity signed for the T4 counts."""
    image = push_image(repository, TAG)
    attach_by_hand(repository, image, sigstore.sign(signed_statement(repository, image, "t4")), tmp_path)
    trusted = ("--registry", repository, "--identity", IDENTITY, "--issuer", ISSUER)
    roots = ("--trusted-root", sigstore.trusted_root(tmp_path))
    done = run("verify", *trusted, *roots, "--json", TAG)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["certificates"]
    assert (found["signer"], found["host_class"]) == (IDENTITY, "r580-t4")
