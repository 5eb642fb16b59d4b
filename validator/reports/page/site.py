"""Make the page's files: `index.html`, a file for each measured cell, badges, and the Markdown report."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
import urllib.parse
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import jinja2
import markupsafe

from ...compat.offers import export_library_path, newest_that_works, notes_about, why_not
from ...compat.predict import host_of
from ...model.codec import NEVER, parse_timestamp
from ...model.diagnosis import Diagnosis, shortened
from ...model.prediction import Outcome, Rank, Reason, count_words
from ...model.record import Certificate, Record, Verdict
from ...model.spec import HostClass, ImageSpec
from ...records.history import changed_checks, changes
from ...redaction.identifiers import without_gpu_uuids
from ...redaction.redact import Redaction
from ...versions import major_minor
from ..changes import full_sentence
from ..diagnosis import TEMPLATES, templates
from ..overview import Row, markdown, nothing_measured
from ..printable import printable, script_json
from .answers import Answers, context
from .layout import Layout, charts, cuda_of, cudnn_of, extra_name, image_name, layout, nearest
from .measurements import Measurements, Past, detail, detail_file, factor, milliseconds, readable, storage

#: The text near the beginning of every file that marks it as written by this program.
MARK = "made by tensorflow-gpu-matrix"
ENTRY, FEED = "index.html", "feed.xml"
#: The directories next to the entry.
FOLDERS = ("data", "wheels", "badges", "answers")
#: The parts of the script of the matrix.
_MATRIX = ("page.js", "details.js", "compare.js", "print.js", "start.js")
#: The most rows that two of the lists show. The Markdown report has all of them.
_CHANGES, _ATTENTION = 30, 50


@dataclass(frozen=True)
class Sources:
    """Everything that the page is made from.

    rows: the overview of the same records. certificates: the verified ones, by image digest.
    diagnose: returns the diagnosis of a record's report, or None if it has none that can be read.
    registry: the repository to pull images from (`host/path`), or None.
    fetch: returns the records with these ids, by id.
    answers: the files that answer questions, or None for a page that does not.
    live: for a page that `serve` shows, the version by which it notices that there is a newer one; else None.
    wheels: returns the wheels of an image's lock by name, with their versions; empty if it has no lock.
    """

    rows: Sequence[Row]
    measurements: Measurements
    profile: str
    certificates: Mapping[str, Sequence[Certificate]]
    diagnose: Callable[[Record], Diagnosis | None]
    registry: str | None = None
    fetch: Callable[[Iterable[str]], Mapping[str, Record]] = lambda identifiers: {}
    answers: Answers | None = None
    live: str | None = None
    wheels: Callable[[ImageSpec], Mapping[str, str]] = lambda image: {}


def site(sources: Sources) -> Iterator[tuple[str, bytes]]:
    """Yield the files by relative path, the entry last. The same sources give the same bytes.

    No file has the UUID of a GPU, which identifies somebody's hardware.
    """
    if sources.answers is not None:
        yield from sources.answers.files.items()
    for path, content in _files(sources):
        yield path, without_gpu_uuids(content).encode()


def _files(sources: Sources) -> Iterator[tuple[str, str]]:
    found = layout(sources.rows)
    results = steps((row.cell for row in found.rows), sources.measurements.history)
    details: dict[int, str] = {}
    for number, row in enumerate(found.rows):
        if row.record is not None:
            past = sources.measurements.history.get(row.cell, ())
            certificates = [
                certificate
                for certificate in sources.certificates.get(row.record.image_digest or "", ())
                if certificate.host_class == row.record.host_class
            ]
            told = detail(row.record, past, certificates, sources.diagnose(row.record))
            name, content = detail_file(told, MARK)
            details[number] = name
            yield f"data/{name}.js", content
    locked: dict[str, str] = {}
    for image in found.images:
        if wheels := sources.wheels(image):
            name, content = detail_file({"wheels": dict(sorted(wheels.items()))}, MARK)
            if name not in locked.values():
                yield f"wheels/{name}.js", content
            locked[image.identifier] = name
    for badge in badges(found.rows):
        yield f"badges/{badge.name}.svg", _template("badge.svg.j2").render(badge=badge, mark=MARK)
    title = f"TensorFlow on GPUs: profile {sources.profile}"
    yield "table.md", f"<!-- {MARK} -->\n\n{markdown(found.rows, title)}"
    yield FEED, _feed(sources, found, results)
    yield ENTRY, _index(sources, found, _data(sources, found, details, locked), results)


def _index(sources: Sources, found: Layout, data: dict[str, Any], results: Sequence[Step]) -> str:
    """Return the entry. data: for its script. results: every new result."""
    changed = [step for step in results if step.before is not None]
    style = _text("page.css") + _text("answers.css")
    script = _script(answers=sources.answers is not None, live=sources.live is not None)
    attention = [row for row in found.rows if row.agrees is False or row.proven is Outcome.FAILS]
    numbers = {row.cell: number for number, row in enumerate(found.rows)}
    listed = {row.cell for row in attention[:_ATTENTION]} | {step.cell for step in changed[:_CHANGES]}
    return _template("index.html.j2").render(
        mark=MARK,
        profile=sources.profile,
        layout=found,
        filters=found.filters(),
        counts=_counts(found.rows),
        newest=max((row.record.finished for row in found.rows if row.record), default=None),
        charts=charts(found, sources.measurements.speeds.values()),
        storage=storage(sources.measurements.layers, [image.identifier for image in found.images]),
        names={cell: found.name(numbers[cell]) for cell in listed},
        image_names={image.identifier: image_name(image) for image in found.images},
        nothing_measured=nothing_measured(),
        changes=changed[:_CHANGES],
        more_changes=len(changed[_CHANGES:]),
        attention=attention[:_ATTENTION],
        more_attention=len(attention[_ATTENTION:]),
        style=markupsafe.Markup(style),
        script=markupsafe.Markup(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
        answers=context(sources.answers, sources.registry, sources.measurements) if sources.answers else None,
        live=sources.live,
        data=markupsafe.Markup(script_json(data)),
    )


def _data(
    sources: Sources, found: Layout, details: Mapping[int, str], wheels: Mapping[str, str]
) -> dict[str, Any]:
    """Return the data for the page's script. Reasons are numbered, since many cells share them.

    details, wheels: the names of the files, by the number of the row and by the image.
    """
    # What to install with pip is shown only for machines where a combination fails.
    planned = {
        row.host: row.planned.cell.host
        for row in found.rows
        if row.planned and row.planned.cell.host.has_gpu and row.outcome is Outcome.FAILS
    }
    reasons: dict[Reason, int] = {}
    near = nearest(found.rows, [found.images[number] for number in found.image_of])
    cells = [
        [
            found.image_of[number],
            found.host_of[number],
            row.predicted,
            row.verdict,
            row.agrees,
            details.get(number),
            [
                reasons.setdefault(reason, len(reasons))
                for reason in (row.planned.prediction.reasons if row.planned else ())
            ],
            near.get(number),
            *([[limit.sentence for limit in row.limits]] if row.limits else ()),
        ]
        for number, row in enumerate(found.rows)
    ]
    return {
        "registry": sources.registry,
        "images": [
            {
                "id": image.identifier,
                "name": image_name(image),
                "tensorflow": image.tensorflow,
                "python": image.python,
                "cuda": cuda_of(image),
                "cudnn": cudnn_of(image),
                "base": image.base,
                "extra": extra_name(image),
                "wheels": wheels.get(image.identifier),
            }
            for image in found.images
        ],
        "hosts": [
            {
                "id": host.identifier,
                "name": host.name,
                "machine": list(host.machine),
                "driver": host.driver,
                "gpu": host.gpu,
                "advice": advice_data(planned[host.identifier]) if host.identifier in planned else None,
            }
            for host in found.hosts
        ],
        "columns": [
            {"release": column.tensorflow, "name": head.name, "meaning": head.meaning}
            for column, head in zip(found.columns, found.heads, strict=True)
        ],
        "places": [
            [place.host, place.column, list(place.cells)] for line in found.places for place in line if place
        ],
        "cells": cells,
        "reasons": [
            [reason.label, reason.sentence, reason.fact, reason.source, reason.status, reason.mode]
            for reason in reasons
        ],
    }


def advice_data(host: HostClass) -> dict[str, Any]:
    """Return what to install with pip on a kind of machine with a GPU, as the page's script reads it."""
    machine = host_of(host)
    suggestion = newest_that_works(machine, None)
    if suggestion is None:
        return {"reason": why_not(machine, None)}
    python = f"python{suggestion.python}"
    install = f'{python} -m pip install "{suggestion.requirement}"'
    return {
        "commands": [install, *([export_library_path(python)] if suggestion.library_path else [])],
        "python": suggestion.python,
        "notes": notes_about(suggestion),
    }


def _counts(rows: Sequence[Row]) -> dict[str, dict[str, int]]:
    planned = [row.planned.prediction for row in rows if row.planned]
    measured = [row.verdict for row in rows]
    return {
        "predicted": count_words(planned),
        "measured": {word: measured.count(word) for word in (verdict.value for verdict in Verdict)},
        "all": {
            "rows": len(rows),
            "unplanned": len(rows) - len(planned),
            "any": len(rows) - measured.count(None),
            "none": measured.count(None),
            "published": sum(one.rank is Rank.MEASURED for one in planned),
            "otherwise": sum(row.agrees is False for row in rows),
            "limits": sum(bool(row.limits) for row in rows),
        },
    }


def _hash(text: str) -> str:
    """Return the hash by which a content security policy allows an inline script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


@functools.cache
def _script(*, answers: bool, live: bool) -> str:
    """Return the page's script: what all share, the matrix, and what else is wanted."""
    matrix = "\n".join(_text(name) for name in _MATRIX)
    others = [name for name, wanted in (("answers.js", answers), ("live.js", live)) if wanted]
    return f"{_text('dom.js')}(() => {{\n{matrix}}})();\n" + "".join(map(_text, others))


@functools.cache
def _text(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


@functools.cache
def _template(name: str) -> jinja2.Template:
    def finalize(value: Any) -> Any:
        """Make text from records printable. Text that is already escaped is left as it is."""
        escaped = isinstance(value, markupsafe.Markup)
        return printable(value) if isinstance(value, str) and not escaped else value

    environment = templates()
    environment.finalize = finalize
    environment.filters |= {
        "readable": readable,
        "width": _width,
        "shortened": shortened,
        "fragment": lambda text: urllib.parse.quote(printable(text), safe="@.-_"),
        "minute": lambda text: text[:16].replace("T", " "),
        "sentence": lambda text: text[:1].upper() + text[1:],
        "f1": lambda number: f"{number:.1f}",
    }
    environment.globals |= {"factor": factor, "milliseconds": milliseconds}
    return environment.get_template(name)


# The feed of what changed: an Atom document (RFC 4287) with an entry for each new result.
#
# An entry is about a record whose verdict differs from the one before, or that is the first of its cell. Its
# id is made from the record's id, so it stays the same however often and wherever the page is written.


#: The most entries of the feed, and the most changes that one entry names.
ENTRIES, _NAMED = 50, 20
#: The characters of a reason that are shown.
_REASON = 500
#: The ids are UUIDs of version 5 in this namespace, which is random and never changes.
_NAMESPACE = uuid.UUID("5d5f3a0e-7c0b-4b1e-9d57-9a3c4b0f6e21")
#: What XML 1.0 can't express and `printable` does not replace.
_NOT_XML = re.compile("[\ufffe\uffff]")


@dataclass(frozen=True)
class Step:
    """A result that differs from the one before. before: None for the first result of a cell."""

    cell: str
    before: Past | None
    after: Past

    @property
    def when(self) -> datetime:
        return parse_timestamp(self.after.finished) or NEVER

    @property
    def also(self) -> str:
        """Name what else changed: `lock, image`."""
        return ", ".join(self.after.changed_since(self.before)) or "nothing" if self.before else ""

    @property
    def records(self) -> tuple[str, ...]:
        """Return the ids of its records."""
        return (self.before.record, self.after.record) if self.before else (self.after.record,)


def steps(cells: Iterable[str], history: Mapping[str, Sequence[Past]]) -> list[Step]:
    """Return every new result of the cells, the newest first."""
    found = []
    for cell in cells:
        past = [past for past in history.get(cell, ()) if past.credible and parse_timestamp(past.finished)]
        pairs = zip([None, *past], past, strict=False)
        found += [
            Step(cell, before, after)
            for before, after in pairs
            if before is None or before.verdict != after.verdict
        ]
    return sorted(found, key=lambda step: (step.when, step.after.record), reverse=True)


def _feed(sources: Sources, found: Layout, results: Sequence[Step]) -> str:
    """Return the feed of the newest results.

    A result whose records can't be fetched is described without what changed between them.
    """
    numbers = {row.cell: number for number, row in enumerate(found.rows)}
    shown = results[:ENTRIES]
    records = sources.fetch([identifier for step in shown if step.before for identifier in step.records])
    told = [(step, _lines(step, records)) for step in shown]
    redact = Redaction(line for _, lines in told for line in lines)

    def xml(text: str) -> str:
        return _NOT_XML.sub("\ufffd", printable(text))

    def identifier(kind: str, name: str) -> str:
        return f"urn:uuid:{uuid.uuid5(_NAMESPACE, f'{kind}:{name}')}"

    def rfc3339(when: datetime) -> str:
        return when.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

    entries = []
    for step, lines in told:
        verdict = step.after.verdict
        now = verdict if step.before is None else f"{step.before.verdict}, now {verdict}"
        entries.append({
            "identifier": identifier("record", step.after.record),
            "title": xml(f"{now}: {found.name(numbers[step.cell])}"),
            "updated": rfc3339(step.when),
            "cell": step.cell,
            "lines": [xml(redact(line)) for line in lines],
        })  # fmt: skip
    newest = shown[0].when if shown else datetime.fromtimestamp(0, timezone.utc)
    return _template("feed.xml.j2").render(
        mark=MARK,
        profile=sources.profile,
        entry=ENTRY,
        name=FEED,
        identifier=identifier("feed", f"{sources.profile} {sources.registry or ''}"),
        updated=rfc3339(newest),
        entries=entries,
    )


def _lines(step: Step, records: Mapping[str, Record]) -> list[str]:
    before, after = (records.get(step.before.record) if step.before else None), records.get(step.after.record)
    lines = [shortened(step.after.reason, _REASON)]
    if before is None or after is None:
        return lines
    for check in changed_checks(before, after):
        lines.append(f"check {check.id}: {check.before or 'not run'} -> {check.after or 'not run'}")
    lines += [full_sentence(change) for change in changes(before, after)]
    more = len(lines) - 1 - _NAMED
    return [*lines[: 1 + _NAMED], f"and {more} more changes"] if more > 0 else lines


# The badges.


#: Characters with a width of about 3.6 and 9.6 pixels in an 11 px sans-serif font; others have 6.6. The
#: drawing fits the text to its box, so rough values are enough.
_NARROW, _WIDE = frozenset("fijlrtI.,:;|'()[]1 "), frozenset("mwMW@%")


@dataclass(frozen=True)
class Badge:
    """A badge that shows on how many host classes a release or image is certified.

    name: the file name without its suffix. tone: `good`, `mixed`, `bad` or `plain`.
    """

    name: str
    label: str
    message: str
    tone: str


def badges(rows: Iterable[Row]) -> Iterator[Badge]:
    """Yield a badge per minor release, then one per image spec, counting planned machines with a GPU."""
    minors: dict[str, list[Row]] = {}
    images: dict[str, list[Row]] = {}
    for row in rows:
        if row.planned is not None and row.planned.cell.host.has_gpu:
            minor = major_minor(row.planned.cell.image.tensorflow)
            minors.setdefault(minor, []).append(row)
            images.setdefault(row.image, []).append(row)
    tones = {(True, False): "good", (True, True): "mixed", (False, True): "bad", (False, False): "plain"}
    for name, group in (*minors.items(), *images.items()):
        hosts = {row.host for row in group}
        verdicts = [(row.host, row.record.verdict) for row in group if row.record]
        certified = {host for host, verdict in verdicts if verdict is Verdict.CERTIFIED}
        failed = {host for host, verdict in verdicts if verdict in (Verdict.FAILED, Verdict.BROKEN)}
        failed -= certified
        message = f"certified on {len(certified)} of {len(hosts)} host class{'es' if len(hosts) != 1 else ''}"
        if failed:
            message += f", failed on {len(failed)}"
        label = f"TensorFlow {name}" if name in minors else name
        yield Badge(name, label, message, tones[bool(certified), bool(failed)])


def _width(text: str) -> int:
    """Return the width of a text with 7 pixels on both sides."""
    return 14 + round(sum(3.6 if char in _NARROW else 9.6 if char in _WIDE else 6.6 for char in text))
