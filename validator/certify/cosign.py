"""The `cosign` program: key pairs, signatures over statements, and their verification.

Everything is done on files, one bundle at a time, so that what was verified is what is read afterwards. With
a key, nothing but this machine is needed: cosign is given empty lists of sigstore's services and roots.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..errors import MissingError, ValidatorError
from ..system import processes

_TIMEOUT_S = 180.0
_NO_SERVICES = (
    '{"mediaType":"application/vnd.dev.sigstore.signingconfig.v0.2+json","rekorTlogConfig":{},"tsaConfig":{}}'
)
_NO_ROOTS = '{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1"}'

#: What cosign says -> what it means for a certificate.
_REFUSALS = (
    ("signatures do not match threshold", "it is not signed by the key that is trusted"),
    ("unsupported signature", "it is not signed by the key that is trusted"),
    ("no matching certificateidentity", "it is not signed by the identity that is trusted"),
    ("does not match any digest in statement", "it is about another image"),
    ("not enough verified log entries", "the transparency log does not have it"),
)
#: Without these nothing can be verified, which says nothing about the certificate.
_NO_ANSWER = ("tuf refresh failed", "failed to create tuf client", "no such host", "connection refused")


class NotVerified(ValidatorError):
    """cosign does not accept a bundle. The message says why."""


def generate_key_pair(directory: Path, password: str) -> tuple[str, str]:
    """A new private key, encrypted, and its public key, both in PEM; nothing is left in the directory."""
    prefix = directory / "new"
    _run(["generate-key-pair", "--output-key-prefix", prefix], password=password, what="no key pair was made")
    files = [prefix.with_suffix(".key"), prefix.with_suffix(".pub")]
    private, public = (path.read_text(encoding="ascii") for path in files)
    for path in files:
        path.unlink()
    return private, public


def public_key(key: str, password: str) -> str:
    """The public half of a private key. key: a file, or `env://NAME`."""
    return _run(["public-key", "--key", key], password=password, what=f"the key {key} can't be used").decode()


def sign(statement: bytes, *, key: str | None, password: str | None, log: bool) -> bytes:
    """A bundle: the statement as it is, in a DSSE envelope.

    key: None signs as the identity whose OIDC token is there, which always goes into the transparency log.
    log: enter what a key signs there too.
    """
    with _scratch() as directory:
        file, bundle = directory / "statement", directory / "bundle"
        file.write_bytes(statement)
        arguments: list[str | Path] = ["attest-blob", "--yes", "--statement", file, "--bundle", bundle]
        if key is not None:
            arguments += ["--key", key]
            if not log:
                arguments += ["--signing-config", directory / "services"]
                arguments += ["--trusted-root", directory / "roots"]
        _run(arguments, password=password, what="the statement was not signed")
        return bundle.read_bytes()


def verify_by_key(bundle: bytes, digest: str, predicate_type: str, key: Path) -> None:
    """Raises NotVerified unless the key signed a statement of that type about that digest."""
    with _scratch() as directory:
        _verify(
            directory, bundle, digest, predicate_type,
            ["--key", key, "--insecure-ignore-tlog", "--trusted-root", directory / "roots"],
        )  # fmt: skip


def verify_by_identity(
    bundle: bytes, digest: str, predicate_type: str, identity: str, issuer: str, trusted_root: Path | None
) -> None:
    """Raises NotVerified unless that identity signed while its certificate was valid, as the transparency
    log has it."""
    with _scratch() as directory:
        trusted: list[str | Path] = ["--certificate-identity", identity, "--certificate-oidc-issuer", issuer]
        if trusted_root is not None:
            trusted += ["--trusted-root", trusted_root]
        _verify(directory, bundle, digest, predicate_type, trusted)


def _verify(
    directory: Path, bundle: bytes, digest: str, predicate_type: str, trusted: Sequence[str | Path]
) -> None:
    file = directory / "bundle"
    file.write_bytes(bundle)
    subject = ["--digest", digest.removeprefix("sha256:"), "--digestAlg", "sha256"]
    arguments = ["verify-blob-attestation", "--bundle", file, "--type", predicate_type, *subject, *trusted]
    done = _cosign(arguments, password=None)
    if done.ok:
        return
    message = done.stderr_tail.lower()
    if done.timed_out or any(mark in message for mark in _NO_ANSWER):
        raise MissingError(
            f"certificates can't be verified: {_last(done)}",
            hint="an identity is verified with sigstore's roots: check the network, or name them as a file",
        )
    known = next((says for mark, says in _REFUSALS if mark in message), None)
    raise NotVerified(known or f"cosign does not accept it: {_last(done)}")


def _run(arguments: Sequence[str | Path], *, password: str | None, what: str) -> bytes:
    done = _cosign(arguments, password=password)
    if done.ok:
        return done.stdout
    message = done.stderr_tail
    if "decrypt" in message.lower():
        raise ValidatorError(f"{what}: the password is not the key's", hint="give it in COSIGN_PASSWORD")
    raise MissingError(f"{what}: {_last(done)}")


def _cosign(arguments: Sequence[str | Path], *, password: str | None) -> processes.Completed:
    if shutil.which("cosign") is None:
        raise MissingError(
            "the program cosign is not here", hint="install cosign 3 or newer (Debian and Homebrew have it)"
        )
    # The password goes by the environment: a command line can be read by every user of the machine.
    environment = {name: value for name, value in os.environ.items() if name != "COSIGN_PASSWORD"}
    if password is not None:
        environment["COSIGN_PASSWORD"] = password
    done = processes.run(["cosign", *arguments], env=environment, timeout_s=_TIMEOUT_S)
    if not done.ok and "unknown flag" in done.stderr_tail:
        raise MissingError(f"this cosign is too old: {_last(done)}", hint="install cosign 3 or newer")
    return done


def _last(done: processes.Completed) -> str:
    if done.timed_out:
        return f"cosign did not end within {_TIMEOUT_S:.0f} s"
    lines = [line.strip() for line in done.stderr_tail.splitlines() if line.strip()]
    # The line before the last says the same without a second prefix.
    found = next((line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")), None)
    return (found or (lines or ["cosign says nothing"])[-1])[:300]


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="validator-cosign-") as name:
        directory = Path(name)
        (directory / "services").write_text(_NO_SERVICES, encoding="ascii")
        (directory / "roots").write_text(_NO_ROOTS, encoding="ascii")
        yield directory
