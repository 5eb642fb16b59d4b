"""Verify what identities signed, without a network: against the roots of a Sigstore that the tests made."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from validator.certify import signatures
from validator.certify.signatures import NotVerified, Signer, parse_bundle
from validator.certify.trust import Trust
from validator.errors import InputError, MissingError

from .sigstore import IDENTITY, ISSUER, Sigstore

DIGEST = "sha256:" + "1" * 64
TYPE = "https://example.org/statement"
STATEMENT = json.dumps(
    {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "an image", "digest": {"sha256": "1" * 64}}],
        "predicateType": TYPE,
        "predicate": {},
    },
    indent=3,
).encode()


@pytest.fixture
def trust(sigstore: Sigstore, tmp_path: Path) -> Trust:
    return sigstore.trust(tmp_path)


def verify(bundle: bytes, trust: Trust, digest: str = DIGEST, kind: str = TYPE) -> bytes:
    return signatures.verify(parse_bundle(bundle), digest, kind, trust)


def test_a_statement_signed_by_the_identity_is_returned_as_it_was_signed(
    sigstore: Sigstore, trust: Trust
) -> None:
    assert verify(sigstore.sign(STATEMENT), trust) == STATEMENT


def test_a_timestamp_authority_may_say_when_it_was_signed(
    sigstore: Sigstore, trust: Trust, tmp_path: Path
) -> None:
    """Logs of Rekor 2 promise no time."""
    assert verify(sigstore.sign(STATEMENT, timestamps=tmp_path), trust) == STATEMENT


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"identity": IDENTITY + "x"}, "it is not signed by the trusted identity"),
        ({"identity": IDENTITY[:-1]}, "it is not signed by the trusted identity"),
        ({"issuer": ISSUER + "/"}, "it is not signed by the trusted identity"),
        ({"logged": timedelta(hours=1)}, "it was not signed while the certificate was valid"),
        ({"logged": -timedelta(hours=1)}, "it was not signed while the certificate was valid"),
    ],
    ids=str,
)
def test_others_and_other_times_are_rejected(
    sigstore: Sigstore, trust: Trust, changes: dict[str, Any], why: str
) -> None:
    if "logged" in changes:
        changes = {"logged": sigstore.now + changes["logged"]}
    with pytest.raises(NotVerified, match=why):
        verify(sigstore.sign(STATEMENT, **changes), trust)


def test_another_image_and_another_type_are_rejected(sigstore: Sigstore, trust: Trust) -> None:
    bundle = sigstore.sign(STATEMENT)
    with pytest.raises(NotVerified, match="it is about another image"):
        verify(bundle, trust, digest="sha256:" + "2" * 64)
    with pytest.raises(NotVerified, match="it is a statement of another type"):
        verify(bundle, trust, kind=TYPE + "/v2")


@pytest.mark.parametrize("service", ["authority", "certificate_log", "log"])
def test_a_signature_that_another_service_vouches_for_is_rejected(
    sigstore: Sigstore, trust: Trust, service: str
) -> None:
    """Each key of the trusted root is needed: the authority's, the certificate log's and the log's."""
    stranger = Sigstore(**{service: getattr(Sigstore(), service)})
    for name in {"authority", "certificate_log", "log"} - {service}:
        setattr(stranger, name, getattr(sigstore, name))
    with pytest.raises(NotVerified):
        verify(stranger.sign(STATEMENT), trust)


def test_a_timestamp_of_another_authority_is_rejected(
    sigstore: Sigstore, trust: Trust, tmp_path: Path
) -> None:
    stranger = Sigstore(authority=sigstore.authority, certificate_log=sigstore.certificate_log)
    stranger.log = sigstore.log
    with pytest.raises(NotVerified):
        verify(stranger.sign(STATEMENT, timestamps=tmp_path), trust)


def _without(*path: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        *parents, last = ("verificationMaterial", *path)
        for name in parents:
            document = document[name]
        del document[last]

    return change


def _flip(document: dict[str, Any]) -> None:
    text = document["dsseEnvelope"]["payload"]
    document["dsseEnvelope"]["payload"] = ("A" if text[0] != "A" else "B") + text[1:]


@pytest.mark.parametrize(
    "change",
    [
        _without("tlogEntries"),
        _without("tlogEntries", 0),
        _without("tlogEntries", 0, "inclusionPromise"),
        _without("tlogEntries", 0, "canonicalizedBody"),
        _without("tlogEntries", 0, "integratedTime"),
        _flip,
    ],
)
def test_a_bundle_with_less_evidence_or_another_payload_is_rejected(
    sigstore: Sigstore, trust: Trust, change: Callable[[dict[str, Any]], None]
) -> None:
    document = json.loads(sigstore.sign(STATEMENT))
    change(document)
    with pytest.raises(NotVerified):
        verify(json.dumps(document).encode(), trust)


def test_a_key_does_not_count_for_an_identity_nor_an_identity_for_a_key(
    sigstore: Sigstore, trust: Trust, keys: tuple[Signer, Trust]
) -> None:
    with pytest.raises(NotVerified, match="signed by a key, but an identity is trusted"):
        verify(keys[0].sign(STATEMENT), trust)
    with pytest.raises(NotVerified, match="signed by an identity, but a key is trusted"):
        verify(sigstore.sign(STATEMENT), keys[1])


def test_thepublic_roots_are_never_used_silently(
    sigstore: Sigstore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without a network there is no answer, whatever cosign finds in its cache or its environment."""
    signatures.public_roots.cache_clear()
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in sigstore.environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(MissingError, match="roots can't be downloaded"):
        verify(sigstore.sign(STATEMENT), Trust(identity=IDENTITY, issuer=ISSUER))


def testpublic_roots_are_downloaded_once_with_a_new_cache(
    sigstore: Sigstore, trust: Trust, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A stand-in for cosign writes the roots of the test, and what it was started with."""
    stand_in = tmp_path / "programs/cosign"
    stand_in.parent.mkdir()
    stand_in.write_text(
        "#!/bin/sh\n"
        f'if [ $1 != trusted-root ]; then exec {shutil.which("cosign")} "$@"; fi\n'
        f'echo "$TUF_ROOT|$TUF_MIRROR|$SIGSTORE_ROOT_FILE" >> {tmp_path}/started\n'
        f'cp {trust.trusted_root} "$5"\n'
    )
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stand_in.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("TUF_MIRROR", "file:///elsewhere")
    monkeypatch.setenv("SIGSTORE_ROOT_FILE", "/elsewhere")
    signatures.public_roots.cache_clear()
    try:
        for _ in range(2):
            public = Trust(identity=IDENTITY, issuer=ISSUER)
            assert verify(sigstore.sign(STATEMENT), public) == STATEMENT
    finally:
        signatures.public_roots.cache_clear()
    (started,) = (tmp_path / "started").read_text().splitlines()
    cache, *others = started.split("|")
    assert others == ["", ""]
    assert cache and not Path(cache).exists()


def test_roots_in_the_environment_do_not_count(
    sigstore: Sigstore, trust: Trust, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """cosign takes other roots from variables, unless it is given the roots."""
    stranger = Sigstore()
    for name, value in stranger.environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(NotVerified):
        verify(stranger.sign(STATEMENT), trust)
    assert verify(sigstore.sign(STATEMENT), trust) == STATEMENT


def test_a_trusted_root_that_is_missing_is_wrong_input(sigstore: Sigstore, tmp_path: Path) -> None:
    trust = Trust(identity=IDENTITY, issuer=ISSUER, trusted_root=tmp_path / "none")
    with pytest.raises(InputError, match="can't be read"):
        verify(sigstore.sign(STATEMENT), trust)
