"""The needs of an image, in the form of Node Feature Discovery."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jsonschema
import pytest
import yaml

from validator.assemble.configuration import HOST_TAG, LABELS_TAG, compatibility
from validator.model.spec import Choice, ImageSpec, Variant

from .bases import CPU, GPU

#: What the documentation of Node Feature Discovery says of the document and of a rule in it:
#: https://kubernetes-sigs.github.io/node-feature-discovery/v0.17/usage/image-compatibility.html#schema
_TEXT = {"type": "string", "minLength": 1}
_EXPRESSION: dict[str, Any] = {
    "type": "object",
    "required": ["op"],
    "properties": {
        "op": {
            "enum": [
                "In", "NotIn", "InRegexp", "Exists", "DoesNotExist", "Gt", "Lt", "GtLt", "IsTrue", "IsFalse"
            ]
        },
        "value": {"type": "array", "items": _TEXT},
    },
    "additionalProperties": False,
}  # fmt: skip
_RULE: dict[str, Any] = {
    "type": "object",
    "required": ["name", "matchFeatures"],
    "properties": {
        "name": _TEXT,
        "matchFeatures": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["feature", "matchExpressions"],
                "properties": {
                    "feature": {"enum": ["pci.device", "kernel.loadedmodule", "local.label"]},
                    "matchExpressions": {"type": "object", "additionalProperties": _EXPRESSION},
                },
                "additionalProperties": False,
            },
        },
    },
    "additionalProperties": False,
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["version", "compatibilities"],
    "properties": {
        "version": {"const": "v1alpha1"},
        "compatibilities": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["rules"],
                "properties": {
                    "rules": {"type": "array", "minItems": 1, "items": _RULE},
                    "weight": {"type": "integer"},
                    "tag": _TEXT,
                    "description": _TEXT,
                },
                "additionalProperties": False,
            },
        },
    },
    "additionalProperties": False,
}


def read(spec: ImageSpec) -> dict[str, Any]:
    """Return the sets of rules by tag, in a document that is valid."""
    content = compatibility(spec)
    assert content is not None
    document = yaml.safe_load(content)
    jsonschema.validate(document, SCHEMA)
    return {one["tag"]: one for one in document["compatibilities"]}


def expressions(found: dict[str, Any]) -> dict[str, Any]:
    terms = [term for rule in found["rules"] for term in rule["matchFeatures"]]
    return {
        term["feature"] + " " + key: value
        for term in terms
        for key, value in term["matchExpressions"].items()
    }


def test_an_image_with_cuda_needs_a_gpu_and_its_driver() -> None:
    found = read(GPU)
    assert expressions(found[HOST_TAG]) == {
        "pci.device vendor": {"op": "In", "value": ["10de"]},
        "pci.device class": {"op": "In", "value": ["0300", "0302"]},
        "kernel.loadedmodule nvidia": {"op": "Exists"},
    }
    assert expressions(found[LABELS_TAG]) == {
        "local.label nvidia.com/cuda.driver-version.major": {"op": "Gt", "value": ["524"]},
        "local.label nvidia.com/gpu.compute.major": {"op": "Gt", "value": ["5"]},
    }
    assert "driver 525 or newer" in found[LABELS_TAG]["description"]
    assert "only the first number" not in found[LABELS_TAG]["description"]


def test_what_a_label_cannot_say_is_said_in_words() -> None:
    old = ImageSpec("2.14.1", "3.11", Variant.GPU, Choice("as-built", "11.8"), Choice("as-built", "8.7"))
    found = read(old)
    assert expressions(found[LABELS_TAG])["local.label nvidia.com/gpu.compute.major"]["value"] == ["2"]
    assert "3.5 or newer (only the first number is checked)" in found[LABELS_TAG]["description"]


def test_of_a_wheel_that_nobody_inspected_only_the_driver_is_known() -> None:
    labels = read(replace(GPU, tensorflow="9.9.0"))[LABELS_TAG]
    assert list(expressions(labels)) == ["local.label nvidia.com/cuda.driver-version.major"]


def test_an_image_without_cuda_needs_nothing() -> None:
    assert compatibility(CPU) is None


@pytest.mark.parametrize("spec", [GPU, replace(GPU, python="3.12")])
def test_the_same_image_gives_the_same_bytes(spec: ImageSpec) -> None:
    assert compatibility(spec) == compatibility(replace(spec))
