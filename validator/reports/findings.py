"""Findings of lint as text, as JSON, and as annotations of a GitHub workflow.

Workflow commands: https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Protocol, TypedDict

from ..model.prediction import (
    EAGER_ONLY,
    Finding,
    Outcome,
    Place,
    Prediction,
    PredictionDocument,
    Rank,
    Reason,
)
from .diagnosis_words import fact_names
from .issue import escaped
from .printable import counted, json_text, one_line


def findings_text(findings: Sequence[Finding]) -> str:
    """Return a line for each finding, as linters print them, and its fix on the next line."""
    lines = []
    for one in findings:
        place = f"{one.place.file}:{one.place.line}:{one.place.column}"
        lines.append(one_line(f"{place}: {one.code} {one.message}"))
        if one.fix:
            lines.append(one_line(f"  fix: {one.fix}"))
    return "".join(f"{line}\n" for line in lines)


def findings_json(findings: Sequence[Finding]) -> str:
    """Return the findings as JSON."""
    return json_text({"findings": [one.as_json() for one in findings]}) + "\n"


def findings_github(findings: Sequence[Finding]) -> str:
    """Return a workflow command for each finding, which GitHub shows next to the line."""
    return "".join(
        workflow_command(one.place, one.code, " ".join(filter(None, (f"{one.message}.", one.fix))))
        for one in findings
    )


def workflow_command(place: Place, title: str, message: str) -> str:
    """Return the line with which a step shows an error next to a line of a file."""
    return (
        f"::error file={_property(place.file)},line={place.line},col={place.column},"
        f"title={_property(title)}::{_data(message)}\n"
    )


def findings_summary(findings: Sequence[Finding], files: int) -> str:
    """Return one line that says how much was found."""
    if not findings:
        return f"Nothing found in {counted(files, 'file')}."
    return f"Found {counted(len(findings), 'fault')} in {counted(files, 'file')}."


def _data(value: str) -> str:
    """Return a text as the message of a workflow command."""
    return one_line(value).replace("%", "%25")


def _property(value: str) -> str:
    """Return a text as the value of a property of a workflow command."""
    return _data(value).replace(":", "%3A").replace(",", "%2C")


# Predictions for what a project pins on machines: as text, JSON, Markdown, and annotations of a workflow.


class PinnedDocument(TypedDict):
    """A prediction for one pin on one machine, as JSON."""

    file: Annotated[str, "The file with the pin."]
    line: Annotated[int, "Where it is, counted from 1."]
    column: Annotated[int, "In characters, counted from 1."]
    tensorflow: Annotated[str, "The release that is pinned."]
    host: Annotated[str, "The machine, as `--host` named it."]
    prediction: Annotated[PredictionDocument, "As in a planned cell."]


class OnHost(Protocol):
    """A prediction for one pin on one machine."""

    @property
    def place(self) -> Place: ...
    @property
    def tensorflow(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def prediction(self) -> Prediction: ...
    @property
    def reason(self) -> Reason | None: ...


def why(one: OnHost) -> str:
    """Return the reason that decides as a sentence, or what is not known; nothing if it works."""
    if one.reason is not None:
        return one.reason.sentence
    if one.prediction.outcome is Outcome.UNKNOWN and one.prediction.missing:
        return f"not known: {', '.join(fact_names(one.prediction.missing))}"
    return ""


def tried(one: OnHost) -> Iterator[str]:
    """Yield what was measured on such a machine, and its limits, unless `why` says it."""
    for reason in one.prediction.reasons:
        if reason.status == Rank.MEASURED.value and reason is not one.reason:
            yield reason.sentence


def predictions_text(found: Sequence[OnHost]) -> str:
    """Return lines for each prediction: its word, the reason that decides, and what was measured."""
    lines = []
    for one in found:
        place = f"{one.place.file}:{one.place.line}:{one.place.column}"
        lines.append(one_line(f"{place}: tensorflow {one.tensorflow} on {one.host}: {one.prediction.word}"))
        if why(one):
            source = f" ({one.reason.source})" if one.reason else ""
            lines.append(one_line(f"  {why(one)}{source}"))
        lines += [one_line(f"  {sentence}") for sentence in tried(one)]
    return "".join(f"{line}\n" for line in lines)


def predictions_json(found: Sequence[OnHost]) -> str:
    """Return the predictions as JSON."""
    rows: list[PinnedDocument] = [
        {
            "file": one.place.file,
            "line": one.place.line,
            "column": one.place.column,
            "tensorflow": one.tensorflow,
            "host": one.host,
            "prediction": one.prediction.as_json(),
        }
        for one in found
    ]
    return json_text({"predictions": rows}) + "\n"


def predictions_markdown(found: Sequence[OnHost]) -> str:
    """Return a table for the summary of a job, in which nothing from the files is markup."""
    lines = ["| pinned in | TensorFlow | host | prediction | why |", "|---|---|---|---|---|"]
    for one in found:
        cells = (f"{one.place.file}:{one.place.line}", one.tensorflow, one.host)
        shown = " | ".join(map(escaped, cells))
        said = "; ".join(filter(None, (why(one), *tried(one))))
        lines.append(f"| {shown} | **{one.prediction.word}** | {escaped(said)} |")
    return "\n".join(lines) + "\n"


#: What a prediction that fails says in a sentence.
_VERBS = {Outcome.FAILS.value: "fail", EAGER_ONLY: f"be {EAGER_ONLY}"}


def predictions_github(found: Sequence[OnHost]) -> str:
    """Return a workflow command for each prediction that fails: an error next to the pin."""
    return "".join(
        workflow_command(
            one.place,
            one.reason.rule or "fails",
            f"tensorflow {one.tensorflow} is predicted to {_VERBS[one.prediction.word]} on {one.host}:"
            f" {one.reason.sentence}.",
        )
        for one in found
        if one.prediction.outcome is Outcome.FAILS and one.reason is not None
    )
