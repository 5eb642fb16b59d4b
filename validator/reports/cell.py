"""Render a diagnosis as the output of a notebook's cell: HTML, and text where that can't be shown."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from markupsafe import Markup

from ..model.diagnosis import WAYS, Diagnosis
from .diagnosis import text
from .diagnosis_words import environment_facts, missing_facts
from .diagnosis_words import headline as answer_without_cause
from .printable import one_line, printable

if TYPE_CHECKING:
    from jinja2 import Template

_TEMPLATES = Path(__file__).parent / "templates"


def cell_text(headline: str, notes: Sequence[str], diagnosis: Diagnosis) -> str:
    """Return the answer as text. headline, notes: sentences to put before it; the headline may be empty."""
    before = "".join(f"{printable(line)}\n" for line in (headline, *notes) if line)
    return f"{before}\n{click.unstyle(text(diagnosis))}" if before else click.unstyle(text(diagnosis))


def cell_html(headline: str, notes: Sequence[str], diagnosis: Diagnosis) -> str:
    """Return the answer as HTML in which every text is escaped."""
    html: str = _template().render(
        headline=one_line(headline),
        notes=[one_line(note) for note in notes],
        diagnosis=diagnosis,
        ways=WAYS,
        answer="" if diagnosis.causes else answer_without_cause(diagnosis),
        missing=missing_facts(diagnosis),
        read="; ".join(filter(None, (diagnosis.read, ", ".join(environment_facts(diagnosis))))),
    )
    return html.strip()


def _code_in_backticks(sentence: str) -> Markup:
    parts = sentence.split("`")
    return Markup().join(
        Markup("<code>{}</code>").format(part) if position % 2 else part
        for position, part in enumerate(parts)
    )


@functools.cache
def _template() -> Template:
    # Loading the extension must not delay a notebook; only showing a cell needs the template engine.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["shown"] = one_line
    environment.filters["code_in_backticks"] = _code_in_backticks
    environment.filters["capitalize_first"] = lambda words: words[:1].upper() + words[1:]
    return environment.get_template("diagnosis.html.j2")
