"""Find out which builder of the trust file signed a statement about an image."""

from __future__ import annotations

from datetime import datetime

from . import cosign
from .bundle import Bundle
from .cosign import NotVerified
from .trust_file import Party, TrustFile


def by_a_builder(
    bundle: Bundle, digest: str, predicate_type: str, trust: TrustFile, now: datetime
) -> tuple[bytes, Party]:
    """Return the statement in a bundle, and the builder that signed it.

    Raises NotVerified unless one of the builders in the trust file did, and may do so now.
    """
    for builder in trust.builders:
        try:
            payload = cosign.verify(bundle, digest, predicate_type, builder.signatory)
        except NotVerified:
            continue
        # The time of the build is only what the signer claims, and whoever stole a key can claim any time.
        if since := builder.silent_since(now):
            raise NotVerified(f"the builder {builder.name} {since}")
        return payload, builder
    raise NotVerified("it is not signed by a builder in the trust file")
