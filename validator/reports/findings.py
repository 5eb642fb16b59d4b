"""Findings of lint as text, as JSON, and as annotations of a GitHub workflow.

Workflow commands: https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.finding import Finding, Place
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
