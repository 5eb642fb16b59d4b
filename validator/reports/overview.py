"""The values that every form of the report shows, and the forms that CI systems read: Markdown and JUnit.

Predictions are combined with measurements.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from ..compat.evidence import measurements
from ..model.codec import encode
from ..model.prediction import EAGER_ONLY, Limit, Outcome, PlannedCell
from ..model.record import Record, Verdict
from ..model.report import CheckOutcome, CheckResult, Report
from ..model.spec import ImageSpec
from .printable import COMMAND, counted, one_line, printable

if TYPE_CHECKING:
    from xml.etree import ElementTree

#: The outcome that a verdict proves. Other verdicts prove nothing about a prediction.
_PROVES = {
    Verdict.CERTIFIED: Outcome.WORKS,
    Verdict.WORKS_ON_CPU: Outcome.WORKS,
    Verdict.FAILED: Outcome.FAILS,
    Verdict.BROKEN: Outcome.FAILS,
}


class MeasuredDocument(TypedDict):
    """The newest measurement of a cell, as JSON."""

    record: Annotated[str, "Its id."]
    verdict: Annotated[str, "Its verdict."]
    reason: Annotated[str, "One sentence that explains the verdict."]
    engine: Annotated[str, "What ran the image."]
    finished: Annotated[str, "UTC, ISO 8601."]
    limits: Annotated[
        list[dict[str, str]],
        "What failed only in full float32, with TensorFloat-32 off: the `code`, the `gpu` and the `error` of"
        " each.",
    ]


class RowDocument(TypedDict):
    """A row of the report, as JSON."""

    id: Annotated[str, "The cell."]
    image: Annotated[str, "The identifier of the image spec."]
    host: Annotated[str, "The host class."]
    prediction: Annotated[dict[str, Any] | None, "As in a planned cell; null for a cell that is not planned."]
    measured: Annotated[
        MeasuredDocument | None, "The newest measurement; null if nothing was measured. Its fields are below."
    ]
    agrees: Annotated[
        bool | None, "Whether the measurement confirms the prediction; null if one of them says nothing."
    ]


@dataclass(frozen=True)
class Row:
    """A cell with its prediction and its newest record.

    planned: None for a cell that was measured but is not planned, such as on another host class.
    record: None for a cell that was not measured.
    """

    cell: str
    image: str
    host: str
    planned: PlannedCell | None
    record: Record | None

    @property
    def predicted(self) -> str | None:
        """The prediction in one word; None for a cell without one."""
        return self.planned.prediction.word if self.planned else None

    @property
    def verdict(self) -> str | None:
        """The verdict in one word; None for a cell that was not measured."""
        return self.record.verdict.value if self.record else None

    @property
    def proven(self) -> Outcome | None:
        """What the measurement proves; None if it proves nothing."""
        return _PROVES.get(self.record.verdict) if self.record else None

    @property
    def outcome(self) -> Outcome | None:
        """What the measurement proves, or else what is predicted."""
        return self.proven or (self.planned.prediction.outcome if self.planned else None)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits that the newest measurement found."""
        return self.record.limits if self.record else ()

    @property
    def why(self) -> str:
        """The reason of the verdict, then the limits; empty for a cell that was not measured."""
        return "; ".join([self.record.reason, *(limit.line for limit in self.limits)]) if self.record else ""

    @property
    def agrees(self) -> bool | None:
        """True if the measurement confirms the prediction, False if it contradicts it, None if neither."""
        predicted = self.planned.prediction.outcome if self.planned else Outcome.UNKNOWN
        return None if self.proven is None or predicted is Outcome.UNKNOWN else predicted is self.proven

    def as_json(self) -> RowDocument:
        record = self.record
        return {
            "id": self.cell,
            "image": self.image,
            "host": self.host,
            "prediction": encode(self.planned.prediction) if self.planned else None,
            "measured": None
            if record is None
            else {
                "record": record.id,
                "verdict": record.verdict.value,
                "reason": record.reason,
                "engine": record.engine,
                "finished": record.finished,
                "limits": encode(list(self.limits)),
            },
            "agrees": self.agrees,
        }


def nothing_measured() -> str:
    """Return the sentence for an overview without records. The predictions may count published reports."""
    published = measurements()
    if not published:
        return "Nothing was measured yet."
    newest, count = published[0], len(published)
    reports = f"{count} published reports" if count > 1 else "a published report"
    return (
        f"No image was measured here yet. The predictions count {reports} of the probe from real GPUs: the"
        f" newest is of {newest['date']}, on {newest['gpu']} with driver {newest['driver']}."
    )


def overview(planned: Iterable[PlannedCell], latest: Mapping[str, Record]) -> list[Row]:
    """Return a row per planned cell, in the plan's order, then rows of the same images on other host classes.

    latest: the newest record of each cell (`Store.latest`).
    """
    cells = list(planned)
    known = {cell.cell.identifier for cell in cells}
    images = {cell.cell.image.identifier for cell in cells}
    rows = [
        Row(
            cell.cell.identifier,
            cell.cell.image.identifier,
            cell.cell.host.identifier,
            cell,
            latest.get(cell.cell.identifier),
        )
        for cell in cells
    ]
    rows += [
        Row(record.cell, record.image, record.host_class, None, record)
        for record in latest.values()
        if record.cell not in known and record.image in images
    ]
    return rows


#: The mark of what was measured to fail only in full float32.
LIMITED = "limit"
#: If Pythons differ, the grid shows the worst of them: the first one of these words.
WORST_FIRST = (
    "broken", "failed", "fails", EAGER_ONLY, "unknown", "unproven", "works", "works-on-cpu", "certified",
)  # fmt: skip


@dataclass(frozen=True)
class Column:
    """A release with its CUDA and cuDNN. All its Pythons share the column."""

    tensorflow: str
    detail: str


@dataclass(frozen=True)
class Grid:
    """The overview as a grid, with host classes as rows.

    columns, hosts: in the plan's order. entries: the words to show for a host and column: the prediction,
    then the verdict if there is one, then `LIMITED` if a measurement found limits.
    """

    columns: tuple[Column, ...]
    hosts: tuple[str, ...]
    entries: dict[tuple[str, Column], tuple[str, ...]]


def grid(rows: Iterable[Row]) -> Grid:
    """Arrange all planned rows in a grid."""
    groups: dict[tuple[str, Column], list[Row]] = {}
    for row in rows:
        if row.planned is not None:
            groups.setdefault((row.host, column_of(row.planned.cell.image)), []).append(row)
    return Grid(
        tuple(dict.fromkeys(column for _, column in groups)),
        tuple(dict.fromkeys(host for host, _ in groups)),
        {key: _words(group) for key, group in groups.items()},
    )


def column_of(image: ImageSpec) -> Column:
    """Return the column of an image: `2.21.0` with `12.5/9.3`, or with `cpu`."""
    if image.cuda is None or image.cudnn is None:
        return Column(image.tensorflow, "cpu")
    return Column(image.tensorflow, f"{image.cuda.label}/{image.cudnn.label}")


def _words(group: list[Row]) -> tuple[str, ...]:
    limited = LIMITED if any(row.limits for row in group) else None
    words = (worst(row.predicted for row in group), worst(row.verdict for row in group), limited)
    return tuple(word for word in words if word)


def worst(words: Iterable[str | None]) -> str | None:
    """Return the worst of some outcomes or verdicts; None if there is none."""
    found = set(words)
    return next((word for word in WORST_FIRST if word in found), None)


#: The colours of outcomes and verdicts, as rich names them.
STYLES = {
    "works": "green",
    EAGER_ONLY: "yellow",
    "fails": "red",
    "unknown": "yellow",
    LIMITED: "yellow",
    Verdict.CERTIFIED.value: "bold green",
    Verdict.WORKS_ON_CPU.value: "bold green",
    Verdict.FAILED.value: "bold red",
    Verdict.BROKEN.value: "bold red",
    Verdict.UNPROVEN.value: "cyan",
}


# Render the overview as Markdown: what was measured, the grid of predictions, and why some fail.


_TAG = re.compile("<(?!br>)")


def markdown(rows: Sequence[Row], title: str) -> str:
    """Return the whole page, which ends with a newline. It has no UUIDs of GPUs."""
    from ..redaction.identifiers import without_gpu_uuids

    planned, measured = sum(bool(row.planned) for row in rows), sum(bool(row.record) for row in rows)
    parts = [f"# {title}", "", f"{counted(planned, 'cell')} planned, {measured} measured.", ""]
    if contradicted := [row for row in rows if row.agrees is False]:
        names = ", ".join(f"`{row.cell}`" for row in contradicted)
        parts += [f"**The measurement contradicts the prediction:** {names}", ""]
    parts += ["## Measured", "", *_measured(rows), "", "## Predicted", "", *_grid(rows), ""]
    parts += ["## Why some are predicted to fail", "", *_reasons(rows), ""]
    return without_gpu_uuids("\n".join(parts))


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table. Text has no markup and does not end its cell.

    `<br>` stays: only we write it.
    """

    def escaped(text: str) -> str:
        return _TAG.sub("&lt;", printable(text)).replace("|", "\\|").replace("\n", " ")

    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return [*lines, *("| " + " | ".join(map(escaped, row)) + " |" for row in rows)]


def code(text: str) -> str:
    """Return a text as code, in which nothing is markup, a mention or a link."""
    return f"`{one_line(text).replace('`', chr(39)) or ' '}`"


def _measured(rows: Sequence[Row]) -> list[str]:
    shown = []
    for row in rows:
        if (record := row.record) is not None:
            verdict = f"**{record.verdict.value}**"
            cell = f"`{row.cell}`"
            shown.append((cell, row.predicted or "", verdict, row.why, record.engine, record.finished))
    if not shown:
        return [nothing_measured()]
    return table(("cell", "predicted", "verdict", "why", "engine", "finished"), shown)


def _grid(rows: Sequence[Row]) -> list[str]:
    page = grid(rows)
    if not page.columns:
        return ["No cells are planned."]
    header = ["host", *(f"{column.tensorflow}<br>{column.detail}" for column in page.columns)]
    lines = [
        (host, *("<br>".join(page.entries.get((host, column), ("",))) for column in page.columns))
        for host in page.hosts
    ]
    return table(header, lines)


def _reasons(rows: Sequence[Row]) -> list[str]:
    """Return a table of the deciding reasons with their number of cells, the most frequent first."""
    cells: dict[tuple[str, str, str], int] = {}
    for row in rows:
        if row.planned and row.planned.prediction.outcome is Outcome.FAILS:
            reason = row.planned.prediction.reasons[0]
            key = (reason.sentence, reason.fact, reason.source)
            cells[key] = cells.get(key, 0) + 1
    if not cells:
        return ["No cell is predicted to fail."]
    ordered = sorted(cells.items(), key=lambda entry: (-entry[1], entry[0]))
    shown = [(str(count), text, f"`{fact}`", source) for (text, fact, source), count in ordered]
    return table(("cells", "reason", "fact", "source"), shown)


#: Characters that XML 1.0 does not allow, not even escaped (section 2.2, Characters).
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
#: `error` means that the check itself is faulty. A crash or a timeout is a failure of what was checked.
_ELEMENTS = {
    CheckOutcome.FAIL: "failure",
    CheckOutcome.CRASH: "failure",
    CheckOutcome.TIMEOUT: "failure",
    CheckOutcome.ERROR: "error",
    CheckOutcome.SKIP: "skipped",
}
_STAGES = ("host", "tensorflow")


def junit(report: Report) -> str:
    """Return the report of a probe as JUnit XML, without the UUIDs of GPUs.

    It has one suite per stage and one test case per check. The format follows the schema of Jenkins' xUnit
    plugin (junit-10.xsd), which other systems use too: testsuites, testsuite and testcase; failure, error and
    skipped with a message.
    """
    # Imported here because commands that write another form don't need these modules.
    from xml.etree import ElementTree

    from ..redaction.identifiers import without_gpu_uuids

    counts = _counts(report.checks)
    # The schema allows this attribute only for suites.
    del counts["skipped"]
    root = ElementTree.Element("testsuites", {"name": "validator", **counts})
    stages = {check.id: _xml(check.stage) for check in report.checks}
    for stage in dict.fromkeys((*_STAGES, *stages.values())):
        checks = tuple(check for check in report.checks if stages[check.id] == stage)
        if checks:
            root.append(_suite(report, stage, checks))
    ElementTree.indent(root)
    text = '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"
    text = without_gpu_uuids(text)
    return COMMAND.sub(lambda match: f"{match['blanks'] or ''}&#{ord(match[0][-1])};", text)


def _suite(report: Report, stage: str, checks: tuple[CheckResult, ...]) -> ElementTree.Element:
    from xml.etree import ElementTree

    when = _xml(report.started.removesuffix("Z")[:19])
    suite = ElementTree.Element("testsuite", {"name": stage, "timestamp": when, **_counts(checks)})
    properties = ElementTree.SubElement(suite, "properties")
    known = [
        ("probe", report.probe.version),
        ("tensorflow", report.environment.tensorflow),
        ("python", report.environment.python),
        ("driver", report.host.driver),
        ("gpus", ", ".join(report.host.gpu_names)),
        *((LIMITED, limit.sentence) for check in checks for limit in check.limits),
    ]
    for name, value in known:
        if value:
            ElementTree.SubElement(properties, "property", name=name, value=_xml(value))
    for check in checks:
        named = {"classname": f"validator.{stage}", "name": _xml(check.id)}
        case = ElementTree.SubElement(suite, "testcase", named, time=f"{check.duration_s:.3f}")
        if check.outcome in _ELEMENTS:
            attributes = {"message": _xml(check.sentence)}
            if check.outcome is not CheckOutcome.SKIP:
                attributes["type"] = check.outcome.value
            ElementTree.SubElement(case, _ELEMENTS[check.outcome], attributes)
        output = ElementTree.SubElement(case, "system-out")
        output.text = _xml(f"{check.sentence}\n{json.dumps(check.evidence.raw, indent=1)}")
    return suite


def _counts(checks: tuple[CheckResult, ...]) -> dict[str, str]:
    elements = [_ELEMENTS.get(check.outcome) for check in checks]
    return {
        "tests": str(len(checks)),
        "failures": str(elements.count("failure")),
        "errors": str(elements.count("error")),
        "skipped": str(elements.count("skipped")),
        "time": f"{sum(check.duration_s for check in checks):.3f}",
    }


def _xml(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
