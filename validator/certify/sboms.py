"""Attach the list of what is in an image (SBOM) to it, signed by its builder, and read it back.

It is the predicate of an in-toto statement, which `cosign verify-attestation --type cyclonedx` verifies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from ..errors import MissingError, ValidatorError
from ..model import codec
from ..model.codec import DocumentError
from ..model.timestamps import now_utc
from ..registry.client import Registry
from . import attached
from .builders import by_a_builder
from .bundle import BundleError, parse_bundle
from .provenance import Refusal
from .signing import Signer
from .statement import STATEMENT_V1
from .trust_file import Party, TrustFile

#: The predicate type that `cosign verify-attestation --type cyclonedx` asks for.
PREDICATE = "https://cyclonedx.org/bom"


class _Statement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    type: str = msgspec.field(name="_type")
    subject: tuple[dict[str, Any], ...]
    predicate_type: str
    predicate: dict[str, Any]


def attach_sbom(
    registry: Registry,
    digest: str,
    document: Mapping[str, Any],
    signer: Signer,
    *,
    now: datetime | None = None,
) -> None:
    """Sign what is in an image, and attach it, unless this builder has done so before.

    Raises ValidatorError if the key can't be used, MissingError if the registry or cosign fails.
    """
    at = now or now_utc()
    with signer.trust() as trust:
        own = TrustFile(builders=(Party("this builder", trust, datetime.max.replace(tzinfo=at.tzinfo)),))
        if document in tuple(_sboms(registry, digest, own, at)):
            return
        statement = codec.canonical(
            {
                "_type": STATEMENT_V1,
                "subject": [
                    {"name": str(registry.repository), "digest": {"sha256": digest.removeprefix("sha256:")}}
                ],
                "predicateType": PREDICATE,
                "predicate": document,
            }
        )
        try:
            bundle = parse_bundle(signer.sign(statement))
        except BundleError as error:
            raise ValidatorError(
                f"the list of packages of {digest} can't be attached: its signed statement is not valid:"
                f" {error}",
                hint="use a base with fewer packages",
            ) from None
        attached.attach(registry, digest, bundle.canonical, PREDICATE)


def sbom_of(
    registry: Registry, digest: str, trust: TrustFile, *, now: datetime | None = None
) -> dict[str, Any] | Refusal:
    """Return the list of what is in an image that a builder of the trust file signed, or why none counts.

    Raises MissingError when the registry can't be reached or cosign can't verify anything.
    """
    found = tuple(_sboms(registry, digest, trust, now or now_utc()))
    refusals = [one for one in found if isinstance(one, Refusal)]
    return next(
        (one for one in found if not isinstance(one, Refusal)),
        Refusal(
            "; ".join(dict.fromkeys(one.why for one in refusals))
            or "it has no list of packages that its builder signed"
        ),
    )


def _sboms(
    registry: Registry, digest: str, trust: TrustFile, now: datetime
) -> Iterator[dict[str, Any] | Refusal]:
    """Yield what a builder signed, or why it does not count, for each attached list."""
    for candidate in attached.candidates(registry, digest, PREDICATE):
        try:
            payload, _ = by_a_builder(candidate.read(), digest, PREDICATE, trust, now)
            yield codec.convert(codec.parse_unique(payload), _Statement, "the statement").predicate
        except MissingError:
            raise
        except (ValidatorError, BundleError, DocumentError) as error:
            yield Refusal(f"its list of packages does not count: {error}")
