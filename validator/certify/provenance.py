"""Write and read an image's provenance: what it was made from, signed by whoever built it.

It is an in-toto statement with the predicate SLSA provenance v1 (https://slsa.dev/spec/v1.0/provenance) over
the image's digest, attached to the image like a certificate. Labels say the same, but anybody can copy them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from ..errors import InputError, MissingError, ValidatorError
from ..model import codec
from ..model.codec import DocumentError, format_timestamp, now_utc, parse_timestamp
from ..model.record import INSTALLED, BaseOrigin, digest_of_packages
from ..registry.client import Registry
from ..registry.names import is_digest
from ..system.processes import git
from . import signatures
from .signatures import Bundle, BundleError, NotVerified, Signer, parse_bundle
from .statement import STATEMENT_V1
from .trust import Party, Signatory, TrustFile

PREDICATE = "https://slsa.dev/provenance/v1"
#: How images are made: from a lock and a base, by `validator.assemble` (docs/reference/images.md).
BUILD_TYPE = "https://tensorflow-gpu-matrix.github.io/image/v1"
#: The id of a builder that signs with a key; the fingerprint follows. An identity is its own id.
_KEY_BUILDER = "https://tensorflow-gpu-matrix.github.io/builder#"

#: What an image is made from, in any order.
_REQUIRED = {"base", "lock", "recipe"}
_OPTIONAL = {"packages", "source"}
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True)
class Inputs:
    """The inputs of an image.

    image: the image spec's identifier. recipe_digest: over the rules that made its layers.
    source_commit: of this project's checkout; None if there is none, or if it was changed.
    version: of this project. added: the packages that were installed in the base, as in its origin's digest.
    """

    image: str
    lock_digest: str
    recipe_digest: str
    base: BaseOrigin
    source_commit: str | None
    version: str
    added: tuple[str, ...] = ()


@dataclass(frozen=True)
class Provenance:
    """Provenance of an image with a verified signature.

    builder: its name in the trust file. finished: when the build ended, by the builder's clock.
    fixture: the builder's key was made for a test; it proves nothing.
    """

    image_digest: str
    inputs: Inputs
    builder: str
    finished: str
    fixture: bool


@dataclass(frozen=True)
class Refusal:
    """The reason why an image has no provenance that counts, as the end of a sentence."""

    why: str


class NoProvenance(ValueError):
    """A statement is not provenance."""


def statement(digest: str, inputs: Inputs, repository: str, builder: Signatory, *, finished: str) -> bytes:
    """Return the statement to sign. Raises ValidatorError for a base without a digest."""
    if inputs.base.digest is None:
        raise ValidatorError(
            f"{inputs.image} gets no provenance: its base {inputs.base} has no digest",
            hint="use a base from a registry",
        )
    dependencies = [
        _Dependency("lock", _hex(inputs.lock_digest)),
        _Dependency("recipe", _hex(inputs.recipe_digest)),
        _Dependency("base", _hex(inputs.base.digest), uri=str(inputs.base)),
    ]
    if (installed := inputs.base.installed) is not None:
        dependencies.append(_Dependency("packages", _hex(installed), annotations=_Annotations(inputs.added)))
    if inputs.source_commit is not None:
        dependencies.append(_Dependency("source", {"gitCommit": inputs.source_commit}))
    definition = _Definition(BUILD_TYPE, _Parameters(inputs.image), _Nothing(), tuple(dependencies))
    run = _Run(_Builder(builder_id(builder), _Version(inputs.version)), _Metadata(finished))
    subject = (_Subject(repository, _Sha256(**_hex(digest))),)
    made = _Statement(STATEMENT_V1, subject, PREDICATE, _Predicate(definition, run))
    return codec.canonical(codec.encode(made))


def builder_id(builder: Signatory) -> str:
    """Return the URI that names a builder."""
    return builder.signer if builder.key is None else f"{_KEY_BUILDER}{builder.signer}"


def attach_provenance(registry: Registry, digest: str, inputs: Inputs, signer: Signer) -> None:
    """Sign what an image was made from, and attach it, unless this builder has done so before.

    Raises ValidatorError if the key can't be used or the base has no digest, MissingError if the registry or
    cosign fails.
    """
    at = now_utc()
    with signer.trust() as builder:
        own = Party("this builder", builder, datetime.max.replace(tzinfo=at.tzinfo))
        found = provenance_of(registry, digest, TrustFile(builders=(own,)), now=at)
        if isinstance(found, Provenance) and found.inputs == inputs:
            return
        text = statement(digest, inputs, str(registry.repository), builder, finished=format_timestamp(at))
        bundle = parse_bundle(signer.sign(text))
        try:
            read_provenance(signatures.verify(bundle, digest, PREDICATE, builder), digest, own)
        except NoProvenance as error:
            raise ValidatorError(f"the provenance of {digest} was not signed: {error}") from None
        signatures.attach(registry, digest, bundle.canonical, PREDICATE)


def provenance_of(
    registry: Registry,
    digest: str,
    trust: TrustFile,
    *,
    image: str | None = None,
    lock_digest: str | None = None,
    now: datetime | None = None,
) -> Provenance | Refusal:
    """Return the provenance of an image by a builder in the trust file, or why there is none that counts.

    image, lock_digest: what it must have been made from; None for anything. Raises MissingError when the
    registry can't be reached or cosign can't verify anything.
    """
    at = now or now_utc()
    refusals = []
    for candidate in signatures.candidates(registry, digest, PREDICATE):
        try:
            payload, builder = by_a_builder(candidate.read(), digest, PREDICATE, trust, at)
            found = read_provenance(payload, digest, builder)
            made = found.inputs
            if image is not None and made.image != image:
                raise NoProvenance(f"it was built as {made.image}, not as {image}")
            if lock_digest is not None and made.lock_digest != lock_digest:
                raise NoProvenance(f"it was built from the lock {made.lock_digest}, not from {lock_digest}")
            return found
        except MissingError:
            raise
        except (ValidatorError, BundleError, NoProvenance) as error:
            refusals.append(f"its provenance does not count: {error}")
    return Refusal(
        "; ".join(dict.fromkeys(refusals)) or "it has no provenance: nobody signed what it was made from"
    )


# The types of the statement. Reading accepts only the fields that writing produces.


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel"):
    pass


class _Sha256(_Strict, frozen=True):
    sha256: str


class _Subject(_Strict, frozen=True):
    name: str
    digest: _Sha256


class _Annotations(_Strict, frozen=True):
    installed: tuple[str, ...]


class _Dependency(_Strict, frozen=True):
    name: str
    digest: dict[str, str]
    uri: str | None = None
    annotations: _Annotations | None = None


class _Parameters(_Strict, frozen=True):
    image: str


class _Nothing(_Strict, frozen=True):
    pass


class _Definition(_Strict, frozen=True):
    build_type: str
    external_parameters: _Parameters
    internal_parameters: _Nothing
    resolved_dependencies: tuple[_Dependency, ...]


class _Version(_Strict, frozen=True):
    project: str = msgspec.field(name="tensorflow-gpu-matrix")


class _Builder(_Strict, frozen=True):
    id: str
    version: _Version


class _Metadata(_Strict, frozen=True):
    finished_on: str


class _Run(_Strict, frozen=True):
    builder: _Builder
    metadata: _Metadata


class _Predicate(_Strict, frozen=True):
    build_definition: _Definition
    run_details: _Run


class _Statement(_Strict, frozen=True):
    type: str = msgspec.field(name="_type")
    subject: tuple[_Subject, ...]
    predicate_type: str
    predicate: _Predicate


def read_provenance(payload: bytes, digest: str, builder: Party) -> Provenance:
    """Read a statement that the builder signed. Raises NoProvenance with the reason."""
    try:
        found = codec.convert(codec.parse_unique(payload), _Statement, "the statement")
    except DocumentError as error:
        raise NoProvenance(f"it is not provenance as this project writes it: {error}") from None
    definition, run = found.predicate.build_definition, found.predicate.run_details
    if found.type != STATEMENT_V1 or found.predicate_type != PREDICATE:
        raise NoProvenance(f"it is not SLSA provenance v1 ({found.type!r}, {found.predicate_type!r})")
    if [subject.digest.sha256 for subject in found.subject] != [digest.removeprefix("sha256:")]:
        raise NoProvenance("it is about another image")
    if definition.build_type != BUILD_TYPE:
        raise NoProvenance(f"its build type is {definition.build_type!r}, not {BUILD_TYPE}")
    if run.builder.id != builder_id(builder.signatory):
        raise NoProvenance(f"it names a builder other than the one that signed it ({run.builder.id!r})")
    if reason := next(_problems_of_dependencies(definition.resolved_dependencies), None):
        raise NoProvenance(reason)
    if parse_timestamp(run.metadata.finished_on) is None:
        raise NoProvenance(f"finishedOn is not a timestamp ({run.metadata.finished_on!r})")
    parts = {entry.name: entry for entry in definition.resolved_dependencies}
    base = BaseOrigin.parse(parts["base"].uri or "")
    assert base is not None
    inputs = Inputs(
        image=definition.external_parameters.image,
        lock_digest=_sha256_of(parts["lock"]),
        recipe_digest=_sha256_of(parts["recipe"]),
        base=base,
        source_commit=parts["source"].digest.get("gitCommit") if "source" in parts else None,
        version=run.builder.version.project,
        added=_listed(parts["packages"]) if "packages" in parts else (),
    )
    fixture = builder.signatory.throw_away
    return Provenance(digest, inputs, builder.name, run.metadata.finished_on, fixture)


def _problems_of_dependencies(dependencies: tuple[_Dependency, ...]) -> Iterator[str]:
    names = [entry.name for entry in dependencies]
    missing, strange = _REQUIRED - set(names), set(names) - _REQUIRED - _OPTIONAL
    if missing or strange or len(set(names)) != len(names):
        yield f"it names {', '.join(names) or 'nothing'} instead of its lock, recipe, base and source"
        return
    parts = {entry.name: entry for entry in dependencies}
    origin = BaseOrigin.parse(parts["base"].uri or "")
    if (origin and origin.installed) != (_sha256_of(parts["packages"]) if "packages" in parts else None):
        yield "its packages are not those of its base"
    for entry in dependencies:
        if (entry.annotations is not None) is not (entry.name == "packages"):
            yield f"its {entry.name} has annotations that this project does not write"
        if entry.name == "source":
            if list(entry.digest) != ["gitCommit"] or not _COMMIT.fullmatch(entry.digest["gitCommit"]):
                yield "its source is not a commit"
        elif list(entry.digest) != ["sha256"] or not is_digest(_sha256_of(entry)):
            yield f"its {entry.name} has no SHA-256 digest"
        elif entry.name == "base":
            if origin is None or origin.digest != _sha256_of(entry):
                yield f"its base {entry.uri!r} does not have the digest that it names"
        elif entry.name == "packages":
            listed = _listed(entry)
            if digest_of_packages(listed) != _sha256_of(entry) or not all(map(INSTALLED.fullmatch, listed)):
                yield "its list of packages does not have the digest that it names"


def _listed(entry: _Dependency) -> tuple[str, ...]:
    return entry.annotations.installed if entry.annotations else ()


def _sha256_of(entry: _Dependency) -> str:
    return f"sha256:{entry.digest.get('sha256')}"


def _hex(digest: str) -> dict[str, str]:
    if not is_digest(digest):
        raise InputError(f"{digest!r} is not a valid digest", hint="write sha256: and 64 hexadecimal digits")
    return {"sha256": digest.removeprefix("sha256:")}


# Find out which builder of the trust file signed a statement about an image.


def by_a_builder(
    bundle: Bundle, digest: str, predicate_type: str, trust: TrustFile, now: datetime
) -> tuple[bytes, Party]:
    """Return a bundle's statement and its signer. Raises NotVerified unless that builder may sign now."""
    for builder in trust.builders:
        try:
            payload = signatures.verify(bundle, digest, predicate_type, builder.signatory)
        except NotVerified:
            continue
        # The time of the build is only what the signer claims, and whoever stole a key can claim any time.
        if since := builder.silent_since(now):
            raise NotVerified(f"the builder {builder.name} {since}")
        return payload, builder
    raise NotVerified("it is not signed by a builder in the trust file")


# Attach the list of what is in an image (SBOM) to it, signed by its builder, and read it back.
#
# It is the predicate of an in-toto statement, which `cosign verify-attestation --type cyclonedx` verifies.

#: The predicate type that `cosign verify-attestation --type cyclonedx` asks for.
SBOM_PREDICATE = "https://cyclonedx.org/bom"


class _SbomsStatement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    type: str = msgspec.field(name="_type")
    subject: tuple[dict[str, Any], ...]
    predicate_type: str
    predicate: dict[str, Any]


def attach_sbom(registry: Registry, digest: str, document: Mapping[str, Any], signer: Signer) -> None:
    """Sign what is in an image, and attach it, unless this builder has done so before.

    Raises ValidatorError if the key can't be used, MissingError if the registry or cosign fails.
    """
    at = now_utc()
    with signer.trust() as trust:
        own = TrustFile(builders=(Party("this builder", trust, datetime.max.replace(tzinfo=at.tzinfo)),))
        if document in tuple(_sboms(registry, digest, own, at)):
            return
        subject = ({"name": str(registry.repository), "digest": _hex(digest)},)
        made = _SbomsStatement(STATEMENT_V1, subject, SBOM_PREDICATE, dict(document))
        try:
            bundle = parse_bundle(signer.sign(codec.canonical(codec.encode(made))))
        except BundleError as error:
            raise ValidatorError(
                f"the list of packages of {digest} can't be attached: its signed statement is not valid:"
                f" {error}",
                hint="use a base with fewer packages",
            ) from None
        signatures.attach(registry, digest, bundle.canonical, SBOM_PREDICATE)


def sbom_of(registry: Registry, digest: str, trust: TrustFile) -> dict[str, Any] | Refusal:
    """Return the list of what is in an image that a builder of the trust file signed, or why none counts.

    Raises MissingError when the registry can't be reached or cosign can't verify anything.
    """
    reasons: dict[str, None] = {}
    # All of them first: if cosign fails for one, no other is returned.
    for found in tuple(_sboms(registry, digest, trust, now_utc())):
        if not isinstance(found, Refusal):
            return found
        reasons[found.why] = None
    return Refusal("; ".join(reasons) or "it has no list of packages that its builder signed")


def _sboms(
    registry: Registry, digest: str, trust: TrustFile, now: datetime
) -> Iterator[dict[str, Any] | Refusal]:
    """Yield what a builder signed, or why it does not count, for each attached list."""
    for candidate in signatures.candidates(registry, digest, SBOM_PREDICATE):
        try:
            payload, _ = by_a_builder(candidate.read(), digest, SBOM_PREDICATE, trust, now)
            yield codec.convert(codec.parse_unique(payload), _SbomsStatement, "the statement").predicate
        except MissingError:
            raise
        except (ValidatorError, BundleError, DocumentError) as error:
            yield Refusal(f"its list of packages does not count: {error}")


_PACKAGE = Path(__file__).resolve().parents[1]


def source_commit() -> str | None:
    """Return the commit that this project's files are checked out from.

    None for an installed package, without git, and if a file of the checkout differs from the commit.
    """
    # The package may be installed inside another project's repository, which does not track its files.
    if git(_PACKAGE, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    commit = git(_PACKAGE, "rev-parse", "HEAD")
    changed = git(_PACKAGE, "status", "--porcelain", "--untracked-files=no")
    if commit is None or changed != "":
        return None
    return commit if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", commit) else None
