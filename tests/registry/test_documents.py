"""Parse what registries send: the fields that are read have the right types, or there is one clear error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.errors import ValidatorError
from validator.registry.client import Descriptor, ImageConfig, Manifest, Platform, Tags, parse

DIGEST = "sha256:" + "1" * 64
CONFIG: dict[str, Any] = {
    "mediaType": "application/vnd.oci.image.config.v1+json",
    "digest": DIGEST,
    "size": 7,
}
INDEX = {
    "schemaVersion": 2,
    "manifests": [
        {**CONFIG, "platform": {"os": "windows", "architecture": "amd64"}},
        {**CONFIG, "size": 8, "platform": {"os": "linux", "architecture": "amd64", "variant": "v1"}},
    ],
}
IMAGE = {
    "schemaVersion": 2,
    "config": CONFIG,
    "layers": [{**CONFIG, "annotations": {"a": "b"}}],
    "annotations": None,
    "subject": {"digest": "not read"},
}
SETTINGS = {"config": {"Labels": {"name": "value"}, "Cmd": ["x"]}, "rootfs": {}}
LISTED = {"manifests": [{**CONFIG, "artifactType": "kind", "annotations": {"a": "b"}}]}
TAGS = {"name": "team/tensorflow", "tags": ["one", "two"]}


def refused(document: Any, kind: type[Any]) -> str:
    with pytest.raises(ValidatorError) as caught:
        parse(json.dumps(document).encode(), kind, "the document")
    return str(caught.value)


def test_the_fields_that_are_read() -> None:
    manifest = parse(json.dumps(IMAGE).encode(), Manifest, "it")
    assert manifest.config == Descriptor(DIGEST, 7, CONFIG["mediaType"])
    assert manifest.layers and manifest.layers[0].annotations == {"a": "b"}
    assert manifest.manifests is None and manifest.for_platform() is None
    index = parse(json.dumps(INDEX).encode(), Manifest, "it")
    entry = index.for_platform()
    assert entry is not None and entry.size == 8
    assert entry.platform == Platform("linux", "amd64")
    assert parse(json.dumps(SETTINGS).encode(), ImageConfig, "it").labels == {"name": "value"}
    listed = parse(json.dumps(LISTED).encode(), Manifest, "it").manifests
    assert parse(json.dumps(TAGS).encode(), Tags, "it").tags == ("one", "two")
    assert listed and (listed[0].digest, listed[0].artifact_type) == (DIGEST, "kind")


@pytest.mark.parametrize("settings", [{}, {"config": None}, {"config": {}}, {"config": {"Labels": None}}])
def test_an_image_without_labels(settings: dict[str, Any]) -> None:
    assert parse(json.dumps(settings).encode(), ImageConfig, "it").labels == {}


@pytest.mark.parametrize(
    ("document", "kind", "says"),
    [
        ({"config": {"size": 1}}, Manifest, "config.digest: missing"),
        ({"layers": [{"digest": "sha256:1", "size": 1}]}, Manifest, "layers[0].digest: expected"),
        ({"config": {**CONFIG, "size": -1}}, Manifest, "config.size: expected `int` >= 0"),
        ({"config": {"Labels": {"a": 1}}}, ImageConfig, "config.Labels[...]: expected `str`, got `int`"),
        ([], Manifest, "the document: expected `object`, got `array`"),
    ],
)
def test_an_error_says_which_document_and_where(document: Any, kind: type[Any], says: str) -> None:
    message = refused(document, kind)
    assert message.startswith(f"the document is not valid: {says}"), message


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_samples: dict[type[Any], Any] = {Manifest: IMAGE, ImageConfig: SETTINGS, Tags: TAGS}


@given(st.sampled_from([Manifest, ImageConfig, Tags]), st.data())
def test_any_change_is_read_or_refused(kind: type[Any], data: st.DataObject) -> None:
    document = json.loads(json.dumps(_samples[kind]))
    place = document
    while isinstance(place, dict | list) and place:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if data.draw(st.booleans()) or not isinstance(place[key], dict | list):
            place[key] = data.draw(_json)
            break
        place = place[key]
    try:
        read = parse(json.dumps(document).encode(), kind, "it")
    except ValidatorError as error:
        assert len(str(error)) < 300
        return
    if isinstance(read, ImageConfig):
        assert all(isinstance(value, str) for value in read.labels.values())
    elif isinstance(read, Manifest):
        assert read.config is None or isinstance(read.config.size, int)


@given(st.binary(), st.sampled_from([Manifest, ImageConfig, Tags]))
def test_any_bytes_are_read_or_refused(data: bytes, kind: type[Any]) -> None:
    try:
        assert isinstance(parse(data, kind, "it"), kind)
    except ValidatorError as error:
        assert str(error).startswith("it is not valid: ")
