"""Findings of lint as text, as JSON, as SARIF, and as annotations of a GitHub workflow.

Workflow commands: https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
SARIF 2.1.0: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict
from urllib.parse import quote

from ..model.prediction import (
    EAGER_ONLY,
    RULES,
    Finding,
    OnHost,
    Outcome,
    Place,
    PredictionDocument,
    Rank,
    Rule,
)
from .diagnosis import escaped
from .printable import counted, fact_names, json_text, one_line

_SARIF = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def findings_text(findings: Sequence[Finding]) -> str:
    """Return a line for each finding, as linters print them, and its fix on the next line."""
    lines = []
    for one in findings:
        place = f"{one.place.file}:{one.place.line}:{one.place.column}"
        lines.append(one_line(f"{place}: {one.code} {one.message}"))
        if one.fix:
            lines.append(one_line(f"  fix: {one.fix}"))
    return "".join(f"{line}\n" for line in lines)


def findings_sarif(findings: Sequence[Finding], codes: Mapping[Rule, str], version: str, page: str) -> str:
    """Return the findings as a SARIF log, as code scanning reads it.

    codes: the rules that lint knows, each with what a file says that can't work. version: of this tool.
    page: the address of the page about lint.
    """
    rules = [
        {
            "id": code,
            "shortDescription": {"text": RULES[code]},
            "fullDescription": {"text": about},
            "help": {"text": f"`# validator: ignore[{code}]` on the line or above it silences a finding."},
            "helpUri": page,
            "defaultConfiguration": {"level": "error"},
        }
        for code, about in codes.items()
    ]
    seen: Counter[str] = Counter()
    results: list[dict[str, Any]] = []
    for one in findings:
        # The current directory is the root of the project.
        path = Path(os.path.relpath(one.place.file))
        uri = path.resolve().as_uri() if ".." in path.parts else quote(os.fsencode(path))
        # Without the line, so that a finding stays the same one when lines are added above it.
        same = f"{uri}\0{one.code}\0{one.message}"
        seen[same] += 1
        region = {"startLine": one.place.line, "startColumn": one.place.column}
        digest = hashlib.sha256(f"{same}\0{seen[same]}".encode()).hexdigest()
        results.append({
            "ruleId": one.code,
            "ruleIndex": list(codes).index(one.code),
            "level": "error",
            # Braces would be placeholders.
            "message": {"text": one_line(_sentences(one)).replace("{", "{{").replace("}", "}}")},
            "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}],
            "partialFingerprints": {"finding/v1": digest},
            "properties": {"fact": one.fact, "source": one.source},
        })  # fmt: skip
    name = "tensorflow-gpu-matrix lint"
    driver = {"name": name, "semanticVersion": version, "informationUri": page, "rules": rules}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return json_text({"$schema": _SARIF, "version": "2.1.0", "runs": [run]}) + "\n"


def _sentences(one: Finding) -> str:
    return " ".join(filter(None, (f"{one.message}.", one.fix)))


def workflow_command(place: Place, title: str, message: str) -> str:
    """Return the line with which a step shows an error next to a line of a file."""

    def data(value: str) -> str:
        return one_line(value).replace("%", "%25")

    def property_(value: str) -> str:
        return data(value).replace(":", "%3A").replace(",", "%2C")

    return (
        f"::error file={property_(place.file)},line={place.line},col={place.column},"
        f"title={property_(title)}::{data(message)}\n"
    )


def findings_summary(findings: Sequence[Finding], files: int) -> str:
    """Return one line that says how much was found."""
    if not findings:
        return f"Nothing found in {counted(files, 'file')}."
    return f"Found {counted(len(findings), 'fault')} in {counted(files, 'file')}."


#: The functions that render findings, by format. `findings_sarif` is not among them: it takes more
#: arguments. For `github`, each finding is a workflow command, which GitHub shows next to the line.
FINDINGS: Mapping[str, Callable[[Sequence[Finding]], str]] = {
    "text": findings_text,
    "json": lambda found: json_text({"findings": [one.as_json() for one in found]}) + "\n",
    "github": lambda found: "".join(workflow_command(one.place, one.code, _sentences(one)) for one in found),
}


# Predictions for what a project pins on machines: as text, JSON, Markdown, and annotations of a workflow.


class PinnedDocument(TypedDict):
    """A prediction for one pin on one machine, as JSON."""

    file: Annotated[str, "The file with the pin."]
    line: Annotated[int, "Where it is, counted from 1."]
    column: Annotated[int, "In characters, counted from 1."]
    tensorflow: Annotated[str, "The release that is pinned."]
    host: Annotated[str, "The machine, as `--host` named it."]
    prediction: Annotated[PredictionDocument, "As in a planned cell."]


def why(one: OnHost) -> str:
    """Return the deciding reason, one for each mode if they differ; empty if it works."""
    found = one.prediction
    against = [reason for reason in found.reasons if reason.outcome is not Outcome.WORKS]
    others = [reason for reason in against if found.modes and reason.mode != against[0].mode]
    if not against and found.outcome is Outcome.UNKNOWN and found.missing:
        return f"not known: {', '.join(fact_names(found.missing))}"
    return "; ".join(reason.sentence for reason in (*against[:1], *others[:1]))


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
        word, modes = one.prediction.word, one.prediction.modes
        shown = word if word == EAGER_ONLY or not modes else f"{word} ({modes})"
        lines.append(one_line(f"{place}: tensorflow {one.tensorflow} on {one.host}: {shown}"))
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


def predictions_github(found: Sequence[OnHost]) -> str:
    """Return a workflow command for each prediction that fails: an error next to the pin."""
    verbs = {Outcome.FAILS.value: "fail", EAGER_ONLY: f"be {EAGER_ONLY}"}
    return "".join(
        workflow_command(
            one.place,
            one.reason.rule or "fails",
            f"tensorflow {one.tensorflow} is predicted to {verbs[one.prediction.word]} on {one.host}:"
            f" {one.reason.sentence}.",
        )
        for one in found
        if one.prediction.outcome is Outcome.FAILS and one.reason is not None
    )


#: The functions that render predictions, by format.
PREDICTIONS = {
    "text": predictions_text,
    "json": predictions_json,
    "markdown": predictions_markdown,
    "github": predictions_github,
}
