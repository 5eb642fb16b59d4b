"""The descriptions of an export: a Frictionless Data Package, version 1, and a README.md for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..model import codec
from ..model.codec import DocumentError
from ..resources import manual
from .formats import CSV, FORMATS, JSON
from .schemas import schema_path, table_schema
from .tables import SCHEMA_VERSION

if TYPE_CHECKING:
    from .export import Exported, Inputs, TableWritten

#: The template of README.md.
_TEMPLATE = Path(__file__).parent / "card.md.jinja"
#: The file name that the format prescribes.
NAME = "datapackage.json"
_PROJECT = "tensorflow-gpu-matrix"
_HOMEPAGE = "https://github.com/tensorflow-gpu-matrix/tensorflow-gpu-matrix"
#: Our own part of the description, by which an export is recognized.
_EXPORT = "export"


def json_text(document: Any) -> bytes:
    """Return a description as JSON for people and programs."""
    return json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n"


def describe(done: Exported, inputs: Inputs, others: tuple[str, ...]) -> dict[str, Any]:
    """Return the content of datapackage.json. others: the paths of the files that are not tables."""
    return {
        "profile": "data-package",
        "name": _PROJECT,
        "title": "Which TensorFlow, CUDA, cuDNN and NVIDIA driver work together",
        "description": "Facts with their sources, predictions with their reasons, records of measurements,"
        " and a catalogue of messages with their causes and fixes. README.md describes all of it.",
        "version": __version__,
        "homepage": _HOMEPAGE,
        "licenses": [{"name": "Apache-2.0", "path": "LICENSE", "title": "Apache License 2.0"}],
        "keywords": ["cuda", "cudnn", "gpu", "tensorflow"],
        _EXPORT: {
            "tool": __version__,
            "schema": SCHEMA_VERSION,
            "digest": done.digest,
            "profile": inputs.profile,
            "select": list(inputs.selectors),
            "redacted": inputs.redact,
            "tables": {
                written.table.name: {"rows": written.rows, "digest": f"sha256:{written.digest}"}
                for written in done.tables
            },
            "files": sorted(others),
        },
        "resources": [_resource(written, format_) for written in done.tables for format_ in written.files],
    }


def files_of(data: bytes) -> set[str]:
    """Return the paths that the description of an export names. Raises DocumentError if it is none."""
    document = codec.parse(data)
    try:
        if document["name"] != _PROJECT:
            raise DocumentError("it is the description of something else")
        resources = {resource["path"] for resource in document["resources"]}
        return resources | set(document[_EXPORT]["files"])
    except (LookupError, TypeError) as error:
        raise DocumentError("it is not the description of an export") from error


def _resource(written: TableWritten, format_: str) -> dict[str, Any]:
    table, file = written.table, written.files[format_]
    resource = {
        "name": f"{table.name}-{format_}",
        "path": file.path,
        "title": table.name,
        "description": " ".join((table.row.__doc__ or "").split()),
        "format": format_,
        "mediatype": FORMATS[format_],
        "bytes": file.size,
        "hash": f"sha256:{file.sha256}",
    }
    if format_ == CSV:
        schema = table_schema(table, f"{{}}-{CSV}")
        return resource | {"profile": "tabular-data-resource", "encoding": "utf-8", "schema": schema}
    # Parquet has the types in the file, and JSON has a JSON Schema. The program `frictionless` checks the
    # size of files, but not of tables in these formats.
    resource |= {"profile": "data-resource", "type": "file"}
    return resource | ({"json_schema": schema_path(table)} if format_ == JSON else {})


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
        reference=manual("how-to/use-the-data.md"),
        how_to=manual("how-to/use-the-data.md"),
        verdicts=manual("explanation/verdicts.md"),
        facts=manual("reference/facts.md"),
    )
