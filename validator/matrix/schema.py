"""The shape of a matrix file: keys, types, and what each key means (editors show these texts).

Only the shape is judged here. Whether a release, a pin or a GPU exists is for `images` and `hosts`, which
know the facts and can say what comes nearest.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

#: Longest text allowed for one value, in characters.
MAX_TEXT = 500
#: Longest list allowed for one axis.
MAX_AXIS = 200


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


@dataclass(frozen=True)
class _OneOrMore:
    """Marks a list that may also be written as its only value."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(_as_list, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        many = handler(schema)
        return {"anyOf": [many["items"], {**many, "uniqueItems": True}]}


Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]
#: One value or a list of them, never empty.
Axis = Annotated[list[Text], Field(min_length=1, max_length=MAX_AXIS), _OneOrMore()]
Selectors = Annotated[list[Text], Field(min_length=1, max_length=MAX_AXIS), _OneOrMore()]


class _Model(BaseModel):
    # Building a validator costs more than running it once; those of entries are needed only by `shape.entry`.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class ImageEntry(_Model):
    """Images to build. Every key takes one value or a list; the lists multiply."""

    tensorflow: Axis = Field(
        description=(
            'A release ("2.21.0"), every patch of a minor ("2.21"), a range (">=2.14,<2.20"), or newest.'
        ),
    )

    python: Axis = Field(
        description='Versions ("3.12"), or all: every Python that the release has wheels for.',
    )

    policy: Axis = Field(
        default=[],
        description=(
            "CUDA and cuDNN together: as-built (what the wheel was built with; the default) or latest "
            "(the newest that its metadata admits)."
        ),
    )

    cuda: Axis = Field(
        default=[],
        description='CUDA alone: as-built, latest, or a pin ("12.8"). Not beside policy.',
    )

    cudnn: Axis = Field(
        default=[],
        description='cuDNN alone: as-built, latest, or a pin ("9.10"). Not beside policy.',
    )

    variant: Axis = Field(
        default=[],
        description="gpu (the default) or cpu (tensorflow-cpu, without CUDA).",
    )

    base: Axis = Field(
        default=[],
        description="A base image, or default: the official image of the Python.",
    )


class HostEntry(_Model):
    """Host classes. Lists multiply: every driver with every GPU."""

    driver: Axis = Field(
        default=[],
        description='Driver branches ("535": its newest release) or releases ("535.183.01").',
    )

    gpu: Axis = Field(
        default=[],
        description="GPU models (h100, rtx-4090), or none: a machine without a GPU, for cpu images.",
    )

    compute_capability: Axis = Field(
        default=[],
        description='Compute capabilities ("9.0"), instead of gpu.',
    )

    compat: Axis = Field(
        default=[],
        description=(
            'CUDA versions of a cuda-compat package on the loader path ("12.9"), or none (the default).'
        ),
    )

    runner: Axis = Field(
        default=[],
        description="Labels of the CI runner; {host}, {driver} and {gpu} stand for those of the host class.",
    )


class ProfileEntry(_Model):
    """A part of the matrix under a name."""

    description: Text = Field(
        default="",
        description="One sentence for people.",
    )

    select: Selectors = Field(
        default=[],
        description=(
            'Selectors that must all hold: tensorflow=newest, "tensorflow>=2.14", python=3.12, host=r535-*.'
        ),
    )

    first_available_python: Axis = Field(
        default=[],
        description=(
            "Pythons in order of preference; of images that differ in nothing else, the first that "
            "the engine at hand can provide is taken. Without this key, all are."
        ),
    )


class ExcludeEntry(_Model):
    """Cells that are left out, and why."""

    select: Selectors = Field(
        description="Selectors; a cell is left out when all of them hold.",
    )

    reason: Text = Field(
        description="One sentence: why these cells are not built or validated.",
    )

    link: Text = Field(
        default="",
        description="Where it was found or is discussed.",
    )


class MatrixFile(_Model):
    """What is built, where it is validated, and what is left out."""

    images: Annotated[list[ImageEntry], Field(min_length=1, description="What to build.")]

    hosts: Annotated[list[HostEntry], Field(min_length=1, description="Where to validate.")]

    profiles: dict[str, ProfileEntry] = Field(
        min_length=1,
        description="Parts of the matrix under a name; quick is taken when none is named.",
    )

    exclude: list[ExcludeEntry] = Field(
        default=[],
        description="What is left out, with the reason.",
    )


# The JSON Schema of the matrix file, for editors: `python -m validator.matrix.schema` writes it.

#: The copy that is checked in.
PATH = Path(__file__).with_name("schema.json")


def schema_text() -> str:
    """The JSON Schema (draft 2020-12) as the file holds it."""
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_trimmed(MatrixFile.model_json_schema()),
        "title": "TensorFlow GPU matrix",
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _trimmed(schema: Any) -> Any:
    """Without the titles that only repeat the keys, and without defaults, which stand for "not given"."""
    if isinstance(schema, list):
        return [_trimmed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _properties(value) if key in ("properties", "$defs") else _trimmed(value)
        for key, value in schema.items()
        if key not in ("title", "default")
    }


def _properties(named: dict[str, Any]) -> dict[str, Any]:
    return {name: _trimmed(value) for name, value in named.items()}


if __name__ == "__main__":
    PATH.write_text(schema_text(), encoding="utf-8")
