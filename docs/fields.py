"""Write the tables of fields in the references of the report and of commands' JSON, from their types.

A page says with a comment where the table of a type belongs: `<!-- generated: fields Host -->`. The
description of a field is with its type, in `Annotated`; a field without one is not a part of the JSON.
`scripts/update-docs` runs this file. If a page is out of date, `tests/test_docs.py` fails.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence, Set
from enum import Enum
from pathlib import Path
from typing import Any

from msgspec import Meta

from validator.assemble import image
from validator.certify import promote
from validator.cli import building, fleet, images, records, verify
from validator.cli import predict as predict_command
from validator.compat import predict
from validator.model import diagnosis, prediction, record, report
from validator.pipeline import fleet as pipeline_fleet
from validator.pipeline import publisher
from validator.records import comparison
from validator.reports import derived, findings, overview

REFERENCE = Path(__file__).parent / "reference"
TABLE = re.compile(r"(<!-- generated: fields (\w+) -->\n).*?(<!-- end -->\n)", re.DOTALL)
#: The types that a page describes, by page.
TYPES: Mapping[Path, Sequence[type]] = {
    REFERENCE / "report.md": (
        report.Report,
        report.Probe,
        report.Logs,
        report.Host,
        report.Gpu,
        report.DeviceNode,
        report.Nvml,
        report.CudaDriver,
        report.Cpu,
        report.Environment,
        report.CheckResult,
    ),
    REFERENCE / "json.md": (
        prediction.CellDocument,
        prediction.PredictionDocument,
        prediction.Attempt,
        prediction.Limit,
        prediction.Reason,
        predict_command.AskedFields,
        predict.SupportDocument,
        predict.GpuSupportDocument,
        record.Record,
        comparison.DifferenceDocument,
        comparison.RecordInShort,
        comparison.Change,
        comparison.CheckChange,
        comparison.DeclineDocument,
        records.CausesField,
        building.ResultDocument,
        publisher.PublishedImage,
        pipeline_fleet.CellResultDocument,
        fleet.RunDocument,
        fleet.UnitDocument,
        fleet.CapacityDocument,
        overview.RowDocument,
        overview.MeasuredDocument,
        diagnosis.Diagnosis,
        diagnosis.Cause,
        diagnosis.Evidence,
        diagnosis.Remedy,
        diagnosis.FailingReason,
        diagnosis.Harmless,
        derived.Changes,
        verify.VerificationDocument,
        record.Certificate,
        record.Failure,
        verify.RefusedDocument,
        promote.Move,
        image.Compared,
        images.RecommendationDocument,
        images.HostDocument,
        images.CandidateDocument,
        prediction.FindingDocument,
        findings.PinnedDocument,
    ),
}
_WORDS = {str: "text", int: "integer", float: "number", bool: "boolean", types.NoneType: ""}


def refreshed(page: Path) -> str:
    """Return the text of a page with the current tables."""
    known = {kind.__name__: kind for kind in TYPES[page]}
    return TABLE.sub(
        lambda match: f"{match[1]}{''.join(_table(known[match[2]]))}{match[3]}",
        page.read_text(encoding="utf-8"),
    )


def fields(kind: type) -> dict[str, str]:
    """Return the description of each field that a type's JSON has."""
    return {
        name: described
        for name, hint in typing.get_type_hints(kind, include_extras=True).items()
        if (described := _description(hint))
    }


def _table(kind: type) -> Iterator[str]:
    hints = typing.get_type_hints(kind)
    yield "| field | type | content |\n|---|---|---|\n"
    for name, description in fields(kind).items():
        yield f"| `{name}` | {_type(hints[name])} | {description} |\n"


def _description(hint: Any) -> str:
    about = getattr(hint, "__metadata__", ())
    return next((one.description if isinstance(one, Meta) else one for one in about), None) or ""


def _type(hint: Any) -> str:
    """Return a type in the words of JSON, with a `?` if it may be null."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        words = dict.fromkeys(_type(one) for one in inner if one is not types.NoneType)
        return " or ".join(words) + ("?" if types.NoneType in inner else "")
    kind = origin or hint
    if kind is typing.Literal or (isinstance(kind, type) and issubclass(kind, Enum)):
        return "text"
    if kind in _WORDS:
        return _WORDS[kind]
    is_list = isinstance(kind, type) and issubclass(kind, Sequence | Set)
    return "list" if is_list else "object"


def main() -> int:
    for page in TYPES:
        page.write_text(refreshed(page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
