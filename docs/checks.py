"""Write what the documentation says about each check from the code: attributes, codes and their sentences.

The pages of codes and of evidence are the site's. In `docs/reference/report.md`, only the rows between both
comments of `TABLE` are replaced. `scripts/update-docs` runs this file. If the page is out of date,
`tests/test_docs.py` fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml

from validator.lint.findings import CODES as LINT_CODES
from validator.probe.check import Check
from validator.probe.checks import CHECKS
from validator.problems import CATALOGUE, EITHER, Kind

REFERENCE = Path(__file__).parent / "reference"
REPORT = REFERENCE / "report.md"
EVIDENCE = Path(__file__).parent / "site" / "evidence.yaml"
TABLE = re.compile(r"(<!-- generated: checks -->\n).*?(<!-- end -->\n)", re.DOTALL)
_TABLE_HEAD = """\
| check | stage | requires | limit | required | depth |
|---|---|---|---|---|---|
"""
_CODES_HEAD = """\
# Codes of the checks

What a check found is in the [report](report.md) as codes with fields, and commands make sentences from them.
A *problem* is something that is wrong: a `fault` fails the check, an `advisory` does not. A *statement* says
what passed, why a check was skipped, or how it ended.

In a sentence, `{name}` stands for the value of a field, and a part in brackets is left out if one of its
fields is null or empty. A `?` after the type of a field means that the field may be null. `quoted` is text
that other software printed.

This page is generated from `validator/problems.json` when the site is built.
"""
_EVIDENCE_HEAD = """\
# Evidence of the checks

What each check of the [report](report.md) writes into `evidence`. After an exception there is also its
`traceback`; after a `crash` the `signal` or exit `status`, and the `last_lines` that were printed; after a
`timeout` where it hung.

A time or a ratio that was measured several times has `median`, `q1`, `q3` (quartiles), `min`, `max` and
`samples` (how many). A *statement* is one of the [codes](codes.md) with its fields. Reports of older probes
may lack fields.

This page is generated from `docs/site/evidence.yaml` when the site is built.
"""
_LINT_HEAD = """\
# Codes of lint

[`lint`](../how-to/check-a-project.md) gives each finding the code of the [rule](facts.md#codes-of-rules) that
decides, the same as `predict` and `doctor`. A comment `# validator: ignore[CODE]` on the line, or on a line
of its own above it, silences a finding there; `--ignore CODE` leaves a code out everywhere.

This page is generated from `validator/lint/findings.py` when the site is built.

| code | what a file says that can't work |
|---|---|
"""


def table(checks: Iterable[Check]) -> str:
    """Return the table of the checks and their attributes."""
    return _TABLE_HEAD + "".join(
        f"| `{check.id}` | {check.stage} | {', '.join(f'`{need}`' for need in check.requires) or 'nothing'} |"
        f" {check.limit_s:g} s | {'yes' if check.required else 'no'} | {check.depth} |\n"
        for check in checks
    )


def report(text: str) -> str:
    """Return the text of report.md with the current table of checks."""
    return TABLE.sub(lambda match: match[1] + table(CHECKS) + match[2], text)


def codes() -> str:
    """Return the site's page of codes, one section for each check."""
    groups: dict[str, list[tuple[str, Kind]]] = {}
    for code, kind in CATALOGUE.items():
        groups.setdefault(kind.group, []).append((code, kind))
    titles = {check.id: check.title for check in CHECKS}
    parts = [_CODES_HEAD]
    for group, rows in groups.items():
        name = f"`{group}`" if group in titles else group[0].upper() + group[1:]
        title = f"{titles[group]}\n\n" if group in titles else ""
        parts.append(f"\n## {name}\n\n{title}" + "".join(_section(rows)))
    return "".join(parts)


def fields_of_evidence() -> dict[str, dict[str, str]]:
    """Return what each field of each check's evidence contains: check -> field -> text."""
    described = yaml.safe_load(EVIDENCE.read_text(encoding="utf-8"))
    common = described.pop("common")
    return {
        check: {name: text or common[name] for name, text in fields.items()}
        for check, fields in described.items()
    }


def evidence() -> str:
    """Return the site's page of evidence, one section for each check."""
    parts = [_EVIDENCE_HEAD]
    for check, fields in fields_of_evidence().items():
        rows = "".join(f"| `{name}` | {text} |\n" for name, text in fields.items())
        parts.append(f"\n## `{check}`\n\n| field | content |\n|---|---|\n{rows}")
    return "".join(parts)


def _section(rows: Iterable[tuple[str, Kind]]) -> Iterator[str]:
    yield "| code | kind | fields | sentence |\n|---|---|---|---|\n"
    for code, kind in rows:
        severity = {None: "statement", EITHER: "fault or advisory"}.get(kind.severity, kind.severity)
        fields = ", ".join(f"`{name}` ({type_})" for name, type_ in kind.fields.items())
        sentence = kind.template or "depends on the values"
        if kind.about:
            sentence = f"{kind.about}: {sentence}"
        yield f"| `{code}` | {severity} | {fields} | {_cell(sentence)} |\n"


def _cell(template: str) -> str:
    """Return the template as Markdown: names of fields without their format, nothing that would be markup."""
    text = re.sub(r"([|<>*])", r"\\\1", template)
    return re.sub(r"\{(\w+):[^}]*\}", r"{\1}", text)


def lint() -> str:
    """Return the site's page of the codes of lint."""
    return _LINT_HEAD + "".join(f"| `{code}` | {_cell(about)} |\n" for code, about in LINT_CODES.items())


def main() -> int:
    REPORT.write_text(report(REPORT.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
