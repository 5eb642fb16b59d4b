"""Attach lists of what is in an image (SBOMs) to it, signed by its builder, and read them back.

Each is the predicate of an in-toto statement, in the form that `cosign verify-attestation` reads:
`--type cyclonedx` and `--type spdxjson`.
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


class _Statement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    type: str = msgspec.field(name="_type")
    subject: tuple[dict[str, Any], ...]
    predicate_type: str
    predicate: dict[str, Any]


def attach_sboms(
    registry: Registry,
    digest: str,
    documents: Mapping[str, Mapping[str, Any]],
    signer: Signer,
    *,
    now: datetime | None = None,
) -> None:
    """Sign what is in an image, and attach it, unless this builder has done so before.

    documents: by predicate type. Raises ValidatorError if the key can't be used, MissingError if the registry
    or cosign fails.
    """
    at = now or now_utc()
    with signer.trust() as trust:
        own = Party("this builder", trust, datetime.max.replace(tzinfo=at.tzinfo))
        for predicate_type, document in documents.items():
            trusted = TrustFile(builders=(own,))
            if document in tuple(_sboms(registry, digest, predicate_type, trusted, at)):
                continue
            statement = codec.canonical(
                {
                    "_type": STATEMENT_V1,
                    "subject": [
                        {
                            "name": str(registry.repository),
                            "digest": {"sha256": digest.removeprefix("sha256:")},
                        }
                    ],
                    "predicateType": predicate_type,
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
            attached.attach(registry, digest, bundle.canonical, predicate_type)


def sbom_of(
    registry: Registry, digest: str, predicate_type: str, trust: TrustFile, *, now: datetime | None = None
) -> dict[str, Any] | Refusal:
    """Return the list of what is in an image that a builder of the trust file signed, or why none counts.

    Raises MissingError when the registry can't be reached or cosign can't verify anything.
    """
    found = tuple(_sboms(registry, digest, predicate_type, trust, now or now_utc()))
    refusals = [one for one in found if isinstance(one, Refusal)]
    return next(
        (one for one in found if not isinstance(one, Refusal)),
        Refusal(
            "; ".join(dict.fromkeys(one.why for one in refusals))
            or "it has no list of packages that its builder signed"
        ),
    )


def _sboms(
    registry: Registry, digest: str, predicate_type: str, trust: TrustFile, now: datetime
) -> Iterator[dict[str, Any] | Refusal]:
    """Yield what a builder signed, or why it does not count, for each attached statement of that type."""
    for candidate in attached.candidates(registry, digest, predicate_type):
        try:
            payload, _ = by_a_builder(candidate.read(), digest, predicate_type, trust, now)
            yield codec.convert(codec.parse_unique(payload), _Statement, "the statement").predicate
        except MissingError:
            raise
        except (ValidatorError, BundleError, DocumentError) as error:
            yield Refusal(f"its list of packages does not count: {error}")
