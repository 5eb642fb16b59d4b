"""Make the page's files: `index.html`, a file for each measured cell, badges, and the Markdown report."""

from __future__ import annotations

import base64
import functools
import hashlib
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from ...compat.offers import export_library_path, notes_about
from ...model.diagnosis import Diagnosis, shortened
from ...model.prediction import Rank, Reason, count_words
from ...model.record import Certificate, Record, Verdict
from ...model.spec import HostClass, ImageSpec
from ...redaction.identifiers import without_gpu_uuids
from ...versions import major_minor
from ..overview import Row, markdown, nothing_measured
from ..printable import printable
from .answers import Answers, context
from .chart import charts, factor, milliseconds
from .details import detail, detail_file, script_json
from .feed import Fetch, Step, feed, steps
from .layout import (
    Layout,
    advice,
    cuda_of,
    cudnn_of,
    extra_name,
    fails,
    image_name,
    layout,
    measured_word,
    nearest,
)
from .measurements import Measurements, readable, storage

#: The text near the beginning of every file that marks it as written by this program.
MARK = "made by tensorflow-gpu-matrix"
ENTRY, FEED = "index.html", "feed.xml"
#: The directories next to the entry.
FOLDERS = ("data", "wheels", "badges", "answers")
#: The parts of the script of the matrix.
_MATRIX = ("page.js", "details.js", "compare.js", "print.js", "start.js")
_TEMPLATES = Path(__file__).parent.parent / "templates"
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
    fetch: Fetch = lambda identifiers: {}
    answers: Answers | None = None
    live: str | None = None
    wheels: Callable[[ImageSpec], Mapping[str, str]] = lambda image: {}


@dataclass(frozen=True)
class Files:
    """The names of files. details: those in `data`, by the number of the row. wheels: by image."""

    details: Mapping[int, str]
    wheels: Mapping[str, str]


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
    changed = steps((row.cell for row in found.rows), sources.measurements.history)
    details: dict[int, str] = {}
    for number, row in enumerate(found.rows):
        if row.record is not None:
            name, content = detail_file(_detail(sources, row.record), MARK)
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
        yield f"badges/{badge.name}.svg", _render_badge(badge)
    title = f"TensorFlow on GPUs: profile {sources.profile}"
    yield "table.md", f"<!-- {MARK} -->\n\n{markdown(found.rows, title)}"
    yield FEED, _feed(sources, found, changed)
    yield (
        ENTRY,
        _index(sources, found, Files(details, locked), [step for step in changed if step.before is not None]),
    )


def _detail(sources: Sources, record: Record) -> dict[str, Any]:
    return detail(
        record,
        sources.measurements.history.get(record.cell, ()),
        [
            certificate
            for certificate in sources.certificates.get(record.image_digest or "", ())
            if certificate.host_class == record.host_class
        ],
        sources.diagnose(record),
    )


def _feed(sources: Sources, found: Layout, changed: Sequence[Step]) -> str:
    name = f"{sources.profile} {sources.registry or ''}"
    made = feed(name, found, changed, sources.fetch)
    return _template("feed.xml.j2").render(
        mark=MARK, profile=sources.profile, entry=ENTRY, name=FEED, feed=made
    )


def _index(sources: Sources, found: Layout, files: Files, changed: Sequence[Step]) -> str:
    style = _text("page.css") + _text("answers.css")
    script = _script(answers=sources.answers is not None, live=sources.live is not None)
    attention = [
        row
        for row in found.rows
        if row.agrees is False or (row.record and row.record.verdict.value in ("failed", "broken"))
    ]
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
        data=markupsafe.Markup(script_json(_data(sources, found, files))),
    )


def _data(sources: Sources, found: Layout, files: Files) -> dict[str, Any]:
    """Return the data for the page's script. Reasons are numbered, since many cells share them."""
    reasons: dict[Reason, int] = {}
    near = nearest(found.rows, [found.images[number] for number in found.image_of])
    cells = [
        [
            found.image_of[number],
            found.host_of[number],
            row.predicted,
            measured_word(row),
            row.agrees,
            files.details.get(number),
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
                "wheels": files.wheels.get(image.identifier),
            }
            for image in found.images
        ],
        "hosts": _host_data(found),
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


def _host_data(found: Layout) -> list[dict[str, Any]]:
    """Return the machines, each with what pip installs there if a combination of it fails."""
    planned = {
        row.host: row.planned.cell.host
        for row in found.rows
        if row.planned and row.planned.cell.host.has_gpu and fails(row)
    }
    return [
        {
            "id": host.identifier,
            "name": host.name,
            "machine": list(host.machine),
            "driver": host.driver,
            "gpu": host.gpu,
            "advice": advice_data(planned[host.identifier]) if host.identifier in planned else None,
        }
        for host in found.hosts
    ]


def advice_data(host: HostClass) -> dict[str, Any]:
    """Return what to install with pip on a kind of machine, as the page's script reads it."""
    made = advice(host)
    if made.suggestion is None:
        return {"reason": made.reason}
    suggestion = made.suggestion
    python = f"python{suggestion.python}"
    install = f'{python} -m pip install "{suggestion.requirement}"'
    return {
        "commands": [install, *([export_library_path(python)] if suggestion.library_path else [])],
        "python": suggestion.python,
        "notes": notes_about(suggestion),
    }


def _counts(rows: Sequence[Row]) -> dict[str, dict[str, int]]:
    planned = [row.planned.prediction for row in rows if row.planned]
    measured = [measured_word(row) for row in rows]
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


def _render_badge(badge: Badge) -> str:
    return _template("badge.svg.j2").render(badge=badge, mark=MARK)


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
    return (_TEMPLATES / name).read_text(encoding="utf-8")


@functools.cache
def _template(name: str) -> jinja2.Template:
    return _environment().get_template(name)


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "readable": readable,
        "shortened": shortened,
        "fragment": lambda text: urllib.parse.quote(printable(text), safe="@.-_"),
        "minute": lambda text: text[:16].replace("T", " "),
        "sentence": lambda text: text[:1].upper() + text[1:],
        "f1": lambda number: f"{number:.1f}",
    }
    environment.globals |= {"factor": factor, "milliseconds": milliseconds}
    return environment


def _finalize(value: Any) -> Any:
    """Make text from records printable. Text that is already escaped is left as it is."""
    if isinstance(value, str) and not isinstance(value, markupsafe.Markup):
        return printable(value)
    return value


#: Characters with a width of about 3.6 and 9.6 pixels in an 11 px sans-serif font; others have 6.6. The
#: drawing fits the text to its box, so rough values are enough.
_NARROW, _WIDE = frozenset("fijlrtI.,:;|'()[]1 "), frozenset("mwMW@%")
_PADDING = 7


@dataclass(frozen=True)
class Badge:
    """A badge that shows on how many host classes a release or image is certified.

    name: the file name without its suffix. tone: `good`, `mixed`, `bad` or `plain`.
    """

    name: str
    label: str
    message: str
    tone: str

    @property
    def title(self) -> str:
        return f"{self.label}: {self.message}"

    @property
    def label_width(self) -> int:
        return _width(self.label) + 2 * _PADDING

    @property
    def message_width(self) -> int:
        return _width(self.message) + 2 * _PADDING


def badges(rows: Iterable[Row]) -> Iterator[Badge]:
    """Yield a badge per minor release, then one per image spec, counting planned machines with a GPU."""
    minors: dict[str, list[Row]] = {}
    images: dict[str, list[Row]] = {}
    for row in rows:
        if row.planned is not None and row.planned.cell.host.has_gpu:
            minor = major_minor(row.planned.cell.image.tensorflow)
            minors.setdefault(minor, []).append(row)
            images.setdefault(row.image, []).append(row)
    for name, group in minors.items():
        yield _make_badge(name, f"TensorFlow {name}", group)
    for name, group in images.items():
        yield _make_badge(name, name, group)


def _make_badge(name: str, label: str, rows: Sequence[Row]) -> Badge:
    hosts = {row.host for row in rows}
    certified = _hosts(rows, Verdict.CERTIFIED)
    failed = _hosts(rows, Verdict.FAILED, Verdict.BROKEN) - certified
    message = f"certified on {len(certified)} of {len(hosts)} host class{'es' if len(hosts) != 1 else ''}"
    if failed:
        message += f", failed on {len(failed)}"
    tones = {(True, False): "good", (True, True): "mixed", (False, True): "bad", (False, False): "plain"}
    return Badge(name, label, message, tones[bool(certified), bool(failed)])


def _hosts(rows: Iterable[Row], *verdicts: Verdict) -> set[str]:
    return {row.host for row in rows if row.record and row.record.verdict in verdicts}


def _width(text: str) -> int:
    return round(sum(3.6 if char in _NARROW else 9.6 if char in _WIDE else 6.6 for char in text))
