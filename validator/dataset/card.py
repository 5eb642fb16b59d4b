"""The description of an export for people: the README.md next to the tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .. import __version__
from ..resources import manual
from .tables import SCHEMA_VERSION

if TYPE_CHECKING:
    from .export import Exported, Inputs

_TEMPLATE = Path(__file__).parent / "card.md.jinja"


def card(done: Exported, inputs: Inputs) -> str:
    """Return the data card as Markdown."""
    # Only a package has a card; other exports start faster without the template engine.
    import jinja2

    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    return environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        version=__version__,
        schema=SCHEMA_VERSION,
        digest=done.digest,
        profile=inputs.profile,
        selectors=inputs.selectors,
        redacted=inputs.redact,
        tables=[
            (written.table.name, written.rows, " ".join((written.table.row.__doc__ or "").split()))
            for written in done.tables
        ],
        formats=list(done.tables[0].files),
        reference=manual("reference/data.md"),
        how_to=manual("how-to/use-the-data.md"),
        verdicts=manual("explanation/verdicts.md"),
        facts=manual("reference/facts.md"),
    )
