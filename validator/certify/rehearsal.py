"""Sign what a rehearsal measured (`build-matrix --rehearse`), in a statement that is never a certificate.

A rehearsal goes the whole way from an image to a signed statement in a registry without a real GPU. Its
statements have a predicate type of their own. `read_statement` and `verified_statement` reject it before they
look at the signature, so there is no key, option or trust file with which one counts.
"""

from __future__ import annotations

from typing import Any

from ..errors import ValidatorError
from ..model import codec
from ..model.codec import DocumentError
from ..model.record import REHEARSAL, Origin, Record
from ..registry.client import Registry
from . import attached, cosign
from .bundle import BundleError, parse_bundle
from .cosign import NotVerified
from .signing import Signer
from .statement import REHEARSAL_PREDICATE, STATEMENT_V1
from .trust import Trust

_NOTICE = f"{REHEARSAL}: this statement proves nothing about the image."


def rehearsal_statement(record: Record, repository: str, issued: str) -> bytes:
    """Return the statement of a record that a rehearsal made.

    Raises ValidatorError for any other record: what is measured in earnest never gets such a statement.
    """
    if record.origin is not Origin.REHEARSAL or record.image_digest is None:
        raise ValidatorError(f"record {record.id} ({record.cell}) was not made by a {REHEARSAL} of an image")
    return codec.canonical(
        {
            "_type": STATEMENT_V1,
            "subject": [
                {"name": repository, "digest": {"sha256": record.image_digest.removeprefix("sha256:")}}
            ],
            "predicateType": REHEARSAL_PREDICATE,
            "predicate": {
                "notice": _NOTICE,
                "cell": record.cell,
                "verdict": record.verdict.value,
                "reason": record.reason,
                "record": record.id,
                "issued": issued,
            },
        }
    )


def attach_rehearsal(registry: Registry, record: Record, signer: Signer, issued: str) -> str:
    """Sign the statement of a rehearsal's record, and attach it to the image. Return its digest.

    Raises ValidatorError for a key that is not marked as a throw-away key, and for a record that no rehearsal
    made; MissingError when the registry or cosign fails.
    """
    if not signer.throw_away:
        raise ValidatorError(f"a {REHEARSAL} signs only with a throw-away key")
    text = rehearsal_statement(record, str(registry.repository), issued)
    bundle = parse_bundle(signer.sign(text))
    return attached.attach(registry, str(record.image_digest), bundle.canonical, REHEARSAL_PREDICATE)


def rehearsed(registry: Registry, digest: str, trust: Trust) -> tuple[str, ...]:
    """Return the ids of the records about which this key signed statements of rehearsals on an image.

    Raises MissingError when the registry or cosign can't be used.
    """
    found = []
    for candidate in attached.candidates(registry, digest, REHEARSAL_PREDICATE):
        try:
            payload = cosign.verify(candidate.read(), digest, REHEARSAL_PREDICATE, trust)
            predicate = codec.convert(codec.parse_unique(payload), dict[str, Any])["predicate"]
            found.append(str(predicate["record"]))
        except (BundleError, NotVerified, DocumentError, KeyError, TypeError):
            continue
    return tuple(found)
