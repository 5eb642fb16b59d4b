"""Images in an OCI layout, also as other programs read them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from validator.assemble.image import OciLayout
from validator.assemble.layers import Encoded, Write
from validator.errors import InputError, MissingError, ValidatorError
from validator.registry.client import in_layout

from ..support import small_disk
from .synthetic import Image, Layer, digest, image


def content(directory: Path) -> dict[str, bytes]:
    """Return the content of all files by path."""
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("known", [True, False])
def test_an_image_is_stored_under_its_tag(tmp_path: Path, known: bool) -> None:
    sent = image(1, 2)
    assert sent.send(OciLayout(tmp_path / "new", "v1"), known=known) == digest(sent.manifest)
    found = content(tmp_path / "new")
    index = json.loads(found.pop("index.json"))
    assert json.loads(found.pop("oci-layout")) == {"imageLayoutVersion": "1.0.0"}
    assert json.loads(found.pop("manifest.json")) == [
        {
            "Config": f"blobs/sha256/{digest(sent.config)[7:]}",
            "RepoTags": ["tensorflow-gpu-matrix:v1"],
            "Layers": [f"blobs/sha256/{layer.encoded.digest[7:]}" for layer in sent.layers],
        }
    ]
    assert found == {
        f"blobs/sha256/{name[7:]}": blob
        for name, blob in {**sent.blobs, digest(sent.manifest): sent.manifest}.items()
    }
    [entry] = index["manifests"]
    assert entry["digest"] == digest(sent.manifest) and entry["size"] == len(sent.manifest)
    assert entry["annotations"] == {
        "org.opencontainers.image.ref.name": "v1",
        "io.containerd.image.name": "docker.io/library/tensorflow-gpu-matrix:v1",
    }


def test_an_image_that_another_program_added_stays_as_it_is(tmp_path: Path) -> None:
    image(1).send(OciLayout(tmp_path, "v1"))
    index = json.loads((tmp_path / "index.json").read_bytes())
    # An index of several platforms, for example, which has no configuration.
    foreign = {"mediaType": "application/vnd.oci.image.index.v1+json", "digest": digest(b"{}"), "size": 2}
    index["manifests"].insert(0, foreign)
    (tmp_path / "index.json").write_text(json.dumps(index), encoding="utf-8")
    image(2).send(OciLayout(tmp_path, "2.21.0-cpu-py3.12"))
    assert json.loads((tmp_path / "index.json").read_bytes())["manifests"][0] == foreign
    assert [entry["RepoTags"] for entry in json.loads((tmp_path / "manifest.json").read_bytes())] == [
        ["tensorflow-gpu-matrix:v1"], ["tensorflow-gpu-matrix:tf2.21.0-cpu-py312"],
    ]  # fmt: skip


def test_nothing_is_visible_before_the_image_is_complete(tmp_path: Path) -> None:
    layout = OciLayout(tmp_path, "v1")
    layer = Layer(1)
    layout.receive(layer.encode, None)
    assert not (tmp_path / "index.json").exists()
    assert layout.has(layer.encoded)
    assert not layout.has(replace(layer.encoded, size=layer.encoded.size + 1))
    assert not layout.has(replace(layer.encoded, digest=digest(b"other")))


def test_an_encoder_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def encode(write: Write) -> Encoded:
        write(b"half a layer")
        raise ValidatorError("the wheel changed")

    layout = OciLayout(tmp_path, "v1")
    before = content(tmp_path)
    with pytest.raises(ValidatorError, match="the wheel changed"):
        layout.receive(encode, None)
    assert content(tmp_path) == before


def test_a_layer_that_is_not_what_the_table_says_is_an_error(tmp_path: Path) -> None:
    layout, layer = OciLayout(tmp_path, "v1"), Layer(1)
    before = content(tmp_path)
    with pytest.raises(ValidatorError, match=f"digest {layer.encoded.digest}, but the layer table says"):
        layout.receive(layer.encode, replace(layer.encoded, digest=digest(b"other")))
    assert content(tmp_path) == before


def test_a_tag_is_replaced_and_other_images_stay(tmp_path: Path) -> None:
    image(1).send(OciLayout(tmp_path, "v1"))
    second = image(2).send(OciLayout(tmp_path, "v2"))
    third = image(3).send(OciLayout(tmp_path, "v1"))
    index = json.loads((tmp_path / "index.json").read_bytes())
    assert [entry["digest"] for entry in index["manifests"]] == [second, third]


def test_several_images_at_once_are_all_listed(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        sent = set(pool.map(lambda seed: image(seed).send(OciLayout(tmp_path, f"v{seed}")), range(8)))
    index = json.loads((tmp_path / "index.json").read_bytes())
    assert {entry["digest"] for entry in index["manifests"]} == sent


@pytest.mark.parametrize("name", ["file", "index.json"])
def test_a_directory_with_something_else_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match="neither empty nor an OCI layout"):
        OciLayout(tmp_path, "v1")


def test_an_index_that_cannot_be_read_is_an_error_and_stays(tmp_path: Path) -> None:
    layout = OciLayout(tmp_path, "v1")
    (tmp_path / "index.json").write_text("[1]", encoding="utf-8")
    with pytest.raises(InputError, match="is not the index of an OCI layout"):
        image(1).send(layout)
    assert (tmp_path / "index.json").read_text(encoding="utf-8") == "[1]"


def test_the_configuration_of_an_image_is_read(tmp_path: Path) -> None:
    made = Image((Layer(1),), (("a", "b"),))
    made.send(OciLayout(tmp_path, "v1"))
    image(2).send(OciLayout(tmp_path, "v2"))
    registry = in_layout(tmp_path)
    found = registry.find("v1")
    assert found == digest(made.manifest) and dict(registry.config(found).labels) == {"a": "b"}
    assert registry.find("v3") is None and registry.tags() == ["v1", "v2"]


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (lambda path: path.unlink(), "can't be read: (No such file|it is not in the registry)"),
        (lambda path: path.write_bytes(b"{}"), "is damaged: its content has another digest"),
    ],
)
@pytest.mark.parametrize("which", ["manifest", "config"])
def test_a_damaged_image_is_an_error(
    which: str, damage: Callable[[Path], object], error: str, tmp_path: Path
) -> None:
    made = image(1)
    made.send(OciLayout(tmp_path, "v1"))
    damage(tmp_path / "blobs/sha256" / digest(getattr(made, which)).removeprefix("sha256:"))
    registry = in_layout(tmp_path)
    with pytest.raises(ValidatorError, match=error):
        registry.config(str(registry.find("v1")))


def test_an_index_that_names_a_file_outside_is_an_error(tmp_path: Path) -> None:
    image(1).send(OciLayout(tmp_path, "v1"))
    path = tmp_path / "index.json"
    index = json.loads(path.read_bytes())
    index["manifests"][0]["digest"] = "sha256:../../../etc/passwd"
    path.write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(InputError, match=r"index\.json is not valid"):
        in_layout(tmp_path)


@pytest.mark.service
def test_a_full_disk_is_an_error_and_what_is_complete_stays() -> None:
    with small_disk("1m") as place:
        layout = OciLayout(place, "v1")
        with pytest.raises(MissingError, match="no space left on the disk"):
            image(1, 2, 3, 4).send(layout)
        sizes = {path.stat().st_size for path in (place / "blobs/sha256").iterdir()}
        assert sizes == {Layer(seed).encoded.size for seed in (1, 2, 3)}
        assert {path.name for path in place.iterdir()} == {"blobs", "oci-layout"}
        assert image(1, 2).send(layout)


@pytest.mark.service
def test_skopeo_reads_the_image(tmp_path: Path) -> None:
    sent = image(1, 2)
    sent.send(OciLayout(tmp_path / "layout", "v1"))
    command = ["skopeo", "inspect", "--raw", f"oci:{tmp_path}/layout:v1"]
    assert subprocess.run(command, capture_output=True, check=True).stdout == sent.manifest
