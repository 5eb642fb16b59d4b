"""Read when a measurement ended, and check that this time is possible.

The newest record of a cell decides what is shown and certified. So a record whose time can't be read, or lies
in the future, is refused on import; if a store already has one, it is shown but never counts as the newest.
"""

from __future__ import annotations

import base64
from datetime import datetime

from ..model import codec
from ..model.codec import TOLERANCE, DocumentError, format_timestamp, parse_timestamp
from ..model.measurement import Measurement, MeasurementError, measurement_of
from ..model.record import Record

WRONG_TIME_HINT = (
    "correct the wrong clock, and measure again; `records import --any-time` imports such a record as one"
    " that is never the newest"
)


def finish_time(record: Record) -> str:
    """Return the finish time that a record's runner signed, or the record's own where nothing is signed.

    The signature is not verified here; `certify` does that.
    """
    measurement = signed_measurement(record)
    return record.finished if measurement is None else measurement.finished


def signed_measurement(record: Record) -> Measurement | None:
    """Return the measurement in a record, unverified; None where there is none that can be read."""
    if record.measurement is None:
        return None
    try:
        bundle = codec.parse(record.measurement)
        return measurement_of(base64.b64decode(bundle["dsseEnvelope"]["payload"], validate=True))
    except (DocumentError, MeasurementError, LookupError, TypeError, ValueError):
        return None


def credible_time(text: str, now: datetime) -> datetime | None:
    """Return a finish time, or None where it can't be read or is more than `TOLERANCE` in the future."""
    found = parse_timestamp(text)
    return None if found is None or found > now + TOLERANCE else found


def wrong_time(record: Record, now: datetime) -> str | None:
    """Return why a record's finish time can't be right, with both clocks; None where it can."""
    text = finish_time(record)
    if credible_time(text, now) is not None:
        return None
    clock = f"this machine's clock says {format_timestamp(now)}"
    if parse_timestamp(text) is None:
        return f"record {record.id}: its finish time {text[:80]!r} is not a timestamp; {clock}"
    return f"record {record.id}: it finished at {text[:80]}, which is in the future; {clock}"
