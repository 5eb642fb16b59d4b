"""Run the program `cosign`: make key pairs, sign statements, verify signatures.

It works on files here, one bundle at a time, and always gets explicit trusted roots. Signing and
verifying with a key needs no network: cosign gets empty lists of Sigstore's services and roots.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from ..errors import InputError, MissingError, ValidatorError
from ..registry.names import is_digest
from ..system import processes
from ..system.files import read_file
from ..system.runs import temporary_directory
from .attached import Bundle
from .trust import THROW_AWAY, Signatory, Trust, is_throw_away, public_pem

_TIMEOUT_S = 180.0
_NO_SERVICES = (
    '{"mediaType":"application/vnd.dev.sigstore.signingconfig.v0.2+json","rekorTlogConfig":{},"tsaConfig":{}}'
)
_NO_ROOTS = '{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1"}'

#: What cosign prints -> why the certificate is rejected.
_REJECTIONS = (
    ("signatures do not match threshold", "it is not signed by the trusted key"),
    ("unsupported signature", "it is not signed by the trusted key"),
    ("no matching certificateidentity", "it is not signed by the trusted identity"),
    ("does not match any digest in statement", "it is about another image"),
    ("invalid predicate type", "it is a statement of another type"),
    ("not enough verified log entries", "it is not in the transparency log"),
    ("integrated time outside certificate validity", "it was not signed while the certificate was valid"),
)
#: Prefixes of the variables from which cosign reads keys, roots and mirrors.
_OTHER_ROOTS = ("SIGSTORE_", "TUF_", "COSIGN_")
_OTHER_KIND = {
    True: "it is signed by a key, but an identity is trusted",
    False: "it is signed by an identity, but a key is trusted",
}


#: What cosign has accepted in this process: the SHA-256 of a bundle, the digest, the predicate type and
#: the key. A key's signature depends on neither time nor network, and `promote` reads bundles repeatedly.
_accepted: set[tuple[bytes, str, str, str]] = set()


class NotVerified(ValidatorError):
    """A bundle is not signed by the signatory, or about something else. The message says why."""


def is_installed() -> bool:
    """Return True if this machine has cosign."""
    return shutil.which("cosign") is not None


def verify(bundle: Bundle, digest: str, predicate_type: str, signatory: Signatory) -> bytes:
    """Return the statement of that type about the image of that digest, which the signatory signed.

    The statement is read from the bytes that cosign verified. An identity's signature counts if it is in a
    transparency log, and the log or a timestamp authority says that it was made while the identity's
    certificate was valid. cosign verifies the same bundle with the same key once per process.

    Raises NotVerified with the reason; InputError if the signatory can't be used; MissingError if nothing can
    be verified: cosign is missing, or the roots of the public Sigstore can't be downloaded.
    """
    if bundle.by_key is not (signatory.key is not None):
        raise NotVerified(_OTHER_KIND[bundle.by_key])
    if not is_digest(digest):
        raise InputError(f"{digest!r} is not a valid digest", hint="write sha256: and 64 hexadecimal digits")
    public = public_pem(signatory.key) if signatory.key is not None else None
    what = (hashlib.sha256(bundle.canonical).digest(), digest, predicate_type, str(public))
    if public is not None and what in _accepted:
        return bundle.payload
    with _scratch() as directory:
        file, key, roots = directory / "bundle", directory / "key.pub", directory / "roots"
        file.write_bytes(bundle.canonical)
        arguments: list[str | Path] = ["verify-blob-attestation", "--bundle", file, "--type", predicate_type]
        arguments += ["--digest", digest.removeprefix("sha256:"), "--digestAlg", "sha256"]
        arguments += ["--trusted-root", roots]
        if public is not None:
            key.write_text(public, encoding="ascii")
            arguments += ["--key", key, "--insecure-ignore-tlog"]
        else:
            try:
                given = read_file(signatory.trusted_root) if signatory.trusted_root else None
            except OSError as error:
                raise InputError(f"{signatory.trusted_root}: can't be read: {error.strerror}") from error
            if given is None:
                with _download:
                    given = public_roots()
            roots.write_bytes(given)
            arguments += ["--certificate-identity", str(signatory.identity)]
            arguments += ["--certificate-oidc-issuer", str(signatory.issuer)]
            arguments += ["--use-signed-timestamps"] if bundle.timestamped else []
        done = _verifying_cosign(arguments, directory)
    if done.ok:
        if public is not None:
            _accepted.add(what)
        return bundle.payload
    message = done.stderr_tail.lower()
    if done.timed_out:
        raise MissingError(f"the signature can't be verified: {_last(done)}")
    known = next((why for mark, why in _REJECTIONS if mark in message), None)
    raise NotVerified(known or f"cosign rejects it: {_last(done)}")


_download = threading.Lock()


@lru_cache(maxsize=1)
def public_roots() -> bytes:
    """Download the public Sigstore's roots, which cosign verifies with the root that it was built with."""
    with _scratch() as directory:
        file = directory / "public"
        arguments: list[str | Path] = ["trusted-root", "create", "--with-default-services", "--out", file]
        done = _verifying_cosign(arguments, directory)
        if done.ok and file.exists():
            return file.read_bytes()
    raise MissingError(
        f"the signature can't be verified: the public Sigstore's roots can't be downloaded: {_last(done)}",
        hint="check the network, or give the roots as a file: --trusted-root FILE",
    )


def _run(arguments: Sequence[str | Path], *, password: str | None, what: str) -> bytes:
    done = _cosign(arguments, password=password)
    if done.ok:
        return done.stdout
    message = done.stderr_tail
    if "decrypt" in message.lower():
        raise ValidatorError(f"{what}: wrong password for the key", hint="give it in COSIGN_PASSWORD")
    raise MissingError(f"{what}: {_last(done)}")


def _verifying_cosign(arguments: Sequence[str | Path], directory: Path) -> processes.Completed:
    """Run cosign without the variables and the cache from which it takes other keys and roots."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_OTHER_ROOTS)}
    return _cosign(arguments, environment=environment | {"TUF_ROOT": str(directory / "tuf")})


def _cosign(
    arguments: Sequence[str | Path],
    *,
    password: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> processes.Completed:
    if not is_installed():
        raise MissingError(
            "the program cosign is not installed",
            hint="install cosign 3 or newer (Debian and Homebrew have it)",
        )
    # The password is passed in the environment: every user of the machine can read command lines.
    variables = dict(os.environ if environment is None else environment)
    variables.pop("COSIGN_PASSWORD", None)
    if password is not None:
        variables["COSIGN_PASSWORD"] = password
    done = processes.run(["cosign", *arguments], env=variables, timeout_s=_TIMEOUT_S)
    if not done.ok and "unknown flag" in done.stderr_tail:
        raise MissingError(f"this cosign is too old: {_last(done)}", hint="install cosign 3 or newer")
    return done


def _last(done: processes.Completed) -> str:
    if done.timed_out:
        return f"cosign did not end within {_TIMEOUT_S:.0f} s"
    lines = [line.strip() for line in done.stderr_tail.splitlines() if line.strip()]
    # The first error line is the same as the last, without a second prefix.
    found = next((line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")), None)
    return (found or (lines or ["cosign printed nothing"])[-1])[:300]


@contextmanager
def _scratch() -> Iterator[Path]:
    with temporary_directory("cosign") as directory:
        (directory / "services").write_text(_NO_SERVICES, encoding="ascii")
        (directory / "roots").write_text(_NO_ROOTS, encoding="ascii")
        yield directory


# The signer of statements, and new key pairs, in files that only their owner can read.

_VARIABLE = "env://"


@dataclass(frozen=True)
class Signer:
    """The key or the identity that signs.

    key: the private key's file, or `env://NAME`; None signs as an identity.
    identity, issuer: of that identity, as people will name it when they verify.
    log: add an entry to sigstore's public transparency log when a key signs.
    """

    key: str | None = None
    password: str | None = field(default=None, repr=False)
    identity: str | None = None
    issuer: str | None = None
    trusted_root: Path | None = None
    log: bool = False

    @property
    def throw_away(self) -> bool:
        """True if the key is marked as a throw-away key, made for a test."""
        if self.key is None:
            return False
        if not self.key.startswith(_VARIABLE):
            return is_throw_away(Path(self.key))
        name = self.key.removeprefix(_VARIABLE)
        if not os.environ.get(name):
            raise InputError(f"the variable {name}, which should contain the private key, is not set")
        return is_throw_away(os.environ[name])

    def sign(self, statement: bytes) -> bytes:
        """Return the bundle around a statement, which contains it unchanged in a DSSE envelope.

        An identity is that of the OIDC token in the environment, and always adds an entry to the transparency
        log.
        """
        with _scratch() as directory:
            file, bundle = directory / "statement", directory / "bundle"
            file.write_bytes(statement)
            arguments: list[str | Path] = ["attest-blob", "--yes", "--statement", file, "--bundle", bundle]
            if self.key is not None:
                arguments += ["--key", self.key]
                if not self.log:
                    arguments += ["--signing-config", directory / "services"]
                    arguments += ["--trusted-root", directory / "roots"]
            _run(arguments, password=self.password, what="the statement was not signed")
            return bundle.read_bytes()

    @contextmanager
    def trust(self) -> Iterator[Trust]:
        """Return the trust that accepts this signer. Raises ValidatorError when the key can't be used."""
        if self.key is None:
            trust = Trust(identity=self.identity, issuer=self.issuer, trusted_root=self.trusted_root)
            trust.check()
            yield trust
            return
        throw_away = self.throw_away
        arguments = ["public-key", "--key", self.key]
        what = f"the key {self.key} can't be used"
        public = _run(arguments, password=self.password or "", what=what).decode()
        with temporary_directory("key") as directory:
            file = directory / "key.pub"
            file.write_text(_marked(public) if throw_away else public, encoding="ascii")
            yield Trust(key=file, fixtures=throw_away)


def make_key_pair(prefix: Path, password: str, *, throw_away: bool = False) -> tuple[Path, Path]:
    """Write `PREFIX.key`, readable only by its owner, and `PREFIX.pub`, in cosign's format.

    throw_away: mark both as made for a test, see `Trust.fixtures`. Raises InputError if either file exists.
    """
    files = prefix.with_name(f"{prefix.name}.key"), prefix.with_name(f"{prefix.name}.pub")
    for file in files:
        if file.exists():
            raise InputError(
                f"{file}: already exists; keys are never overwritten", hint="choose another name"
            )
    with temporary_directory("key") as directory:
        new = directory / "new"
        command = ["generate-key-pair", "--output-key-prefix", str(new)]
        _run(command, password=password, what="no key pair was made")
        pair = [new.with_suffix(suffix).read_text(encoding="ascii") for suffix in (".key", ".pub")]
    for file, text, mode in zip(files, pair, (0o600, 0o644), strict=True):
        try:
            handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        except OSError as error:
            raise MissingError(f"{file}: can't be written: {error.strerror}") from error
        with os.fdopen(handle, "w", encoding="ascii") as stream:
            stream.write(_marked(text) if throw_away else text)
    return files


def _marked(key: str) -> str:
    return f"{THROW_AWAY}\n{key}"
