"""Make the site's reference of the fields of the report and of commands' JSON, from their types.

The description of a field is with its type, in `Annotated`; a field without one is not a part of the JSON.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping, Sequence, Set
from enum import Enum
from typing import Any

from msgspec import Meta

from validator.assemble import image
from validator.certify.verify import Move
from validator.cli import building, fleet, here, images, records, verify
from validator.cli import predict as predict_command
from validator.compat import predict
from validator.engines import this_machine
from validator.model import diagnosis, prediction, record, report
from validator.pipeline import fleet as pipeline_fleet
from validator.pipeline import run
from validator.records import history
from validator.reports import findings, overview
from validator.reports.diagnosis import Changes

#: The documents: title -> their types, each with where it is in the document. Titles are anchors.
DOCUMENTS: Mapping[str, Mapping[str, type]] = {
    "The probe's report": {
        "The document": report.Report,
        "`probe`": report.Probe,
        "`logs`": report.Logs,
        "`host`": report.Host,
        "Each of `host.gpus`": report.Gpu,
        "Each of `host.device_nodes`": report.DeviceNode,
        "`host.driver_libraries.nvml`": report.Nvml,
        "`host.driver_libraries.cuda`": report.CudaDriver,
        "`host.cpu`": report.Cpu,
        "`environment`": report.Environment,
        "Each of the `checks`": report.CheckResult,
    },
    "This machine (`validator --json`)": {
        "The document": here.HereDocument,
        "Each of the `engines`": this_machine.Container,
        "`environment`": here.EnvironmentFields,
        "`next`": here.NextFields,
    },
    "A planned cell (`plan --json`, a list; `predict --json`, one)": {
        "The cell": prediction.CellDocument,
        "`prediction`": prediction.PredictionDocument,
        "Each of the `evidence`": prediction.Attempt,
        "Each of its `limits`": prediction.Limit,
        "Each of the `reasons`": prediction.Reason,
        "What `predict --json` adds": predict_command.AskedFields,
    },
    "What a release needs (`predict --json` with only `--tensorflow`)": {
        "The document": predict.ImageSupport,
        "Each of the `gpus`": predict.GpuSupport,
    },
    "A record (`records show --json`; one on each line of `records export`)": {
        "Its fields, besides its `id`": record.Record,
    },
    "A difference (`records compare --json`, a list)": {
        "The document": history.DifferenceDocument,
        "`before` and `after`": history.RecordInShort,
        "Each of the `changes`": history.Change,
        "Each of the `checks`": history.CheckChange,
    },
    "Where a cell turned bad (`records bisect --json`, one; `records regressions --json`, a list)": {
        "The document": history.DeclineDocument,
        "And in the end": records.CausesField,
    },
    "A result (`build-matrix --json`, a list)": {
        "The document": building.ResultDocument,
        "`published`": run.PublishedImage,
    },
    "A cell of a fleet (`build-matrix --on … --json` and `fleet resume --json`, a list)": {
        "The document": pipeline_fleet.CellResult,
        "A run (`fleet status --json`, a list)": fleet.RunDocument,
        "A cell of a run (`fleet status RUN --json`, a list)": fleet.UnitDocument,
        "A host class (`fleet inventory --json`, a list)": fleet.CapacityDocument,
    },
    "A row of the report (`report --format json`, a list)": {
        "The row": overview.RowDocument,
        "`measured`": overview.MeasuredDocument,
    },
    "A diagnosis (`doctor --json`)": {
        "The document": diagnosis.Diagnosis,
        "Each of the `causes`": diagnosis.Cause,
        "Each `evidence`, and each entry of `unknown`": diagnosis.Evidence,
        "Each of the `remedies`": diagnosis.Remedy,
        "Each of the `reasons`": diagnosis.FailingReason,
        "Each of the `harmless`": diagnosis.Harmless,
    },
    "A derived image (`check --image NAME --json`)": {"`derived`": Changes},
    "Certificates (`verify --json`)": {
        "The document": verify.VerificationDocument,
        "Each of the `certificates`": record.Certificate,
        "Each of the `failures`": record.Failure,
        "Each of the `refused`": verify.RefusedDocument,
        "An alias (`promote --json`, a list)": Move,
        "A layer (`verify --rebuild --json`, a list for each image)": image.Compared,
    },
    "What fits a host (`recommend --json`)": {
        "The document": images.RecommendationDocument,
        "`host`": images.HostDocument,
        "Each of the `images`": images.CandidateDocument,
    },
    "Findings in a project (`lint --json`)": {"Each of the `findings`": prediction.FindingDocument},
    "Predictions for a project (`predict --requirements FILE --json`)": {
        "Each of the `predictions`": findings.PinnedDocument,
    },
}
_HEAD = """\
# Fields of the report and of commands' JSON

Every field of the probe's [report](report.md) and of [the JSON that commands write](json.md), which also say
how to read them. A `?` after a type means that the value may be null.

This page is generated from the types in the code when the site is built.
"""
_WORDS = {str: "text", int: "integer", float: "number", bool: "boolean", types.NoneType: ""}


def page() -> str:
    """Return the site's page of all fields."""
    parts = [_HEAD]
    for title, kinds in DOCUMENTS.items():
        parts.append(f"\n## {title}\n")
        for place, kind in kinds.items():
            parts += [f"\n### {place}\n\n", *_table(kind)]
    return "".join(parts)


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
