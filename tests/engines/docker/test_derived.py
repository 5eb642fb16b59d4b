"""An image that was derived from one of ours inherits its labels; the history tells the two apart."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import ImageNotFound

from validator.engines.images import Derivation, derivation_of

IMAGE = "tf2.21.0-cuda12.5-cudnn9.3-py312"
LABELS = {
    "tensorflow-gpu-matrix.image-spec": IMAGE,
    "tensorflow-gpu-matrix.lock-digest": "sha256:lock",
}
OURS = ["tensorflow-gpu-matrix: base", "tensorflow-gpu-matrix: byte code"]
DERIVED = [*OURS, "ENV A=1", "RUN pip install pandas"]


class Image:
    """An image as the SDK describes it. steps: oldest first; all but `ENV` make a layer."""

    def __init__(
        self, steps: list[str], labels: dict[str, str] | None = None, digests: list[str] | None = None
    ) -> None:
        self.labels = LABELS if labels is None else labels
        self.steps = steps
        self.id = f"sha256:id of {len(steps)}"
        layers = [f"layer {step}" for step in steps if not step.startswith("ENV")]
        self.attrs = {"RootFS": {"Layers": layers}, "RepoDigests": digests or []}

    def history(self) -> list[dict[str, Any]]:
        return [{"Size": 0, "CreatedBy": step} for step in reversed(self.steps)]


class Client:
    """An engine with these images, the first of which has the name."""

    def __init__(self, *images: Image) -> None:
        self.images = self
        self.api = SimpleNamespace(images=self.listed)
        self._images = images

    def get(self, name: str) -> Image:
        if name == "derived":
            return self._images[0]
        for image in self._images:
            if image.id == name:
                return image
        raise ImageNotFound(name)

    def listed(self, filters: dict[str, str]) -> list[dict[str, str]]:
        assert filters == {"label": f"tensorflow-gpu-matrix.image-spec={IMAGE}"}
        return [{"Id": image.id} for image in self._images]


def derivation(*images: Image, name: str = "derived") -> Derivation | None:
    return derivation_of(Client(*images), name)  # type: ignore[arg-type]


def test_the_steps_after_ours_are_those_that_derived_it() -> None:
    found = derivation(Image(DERIVED))
    assert found == Derivation(IMAGE, "sha256:lock", None, ("ENV A=1", "RUN pip install pandas"))


@pytest.mark.parametrize(
    ("digests", "base"),
    [([], "sha256:id of 2"), (["registry.example/tf@sha256:manifest"], "sha256:manifest")],
)
def test_the_base_is_the_image_with_exactly_those_layers(digests: list[str], base: str) -> None:
    other = Image([*OURS, "tensorflow-gpu-matrix: another"])
    found = derivation(Image(DERIVED), other, Image(OURS, digests=digests))
    assert found is not None and found.base == base


def test_a_setting_alone_is_a_derived_image() -> None:
    found = derivation(Image([*OURS, "ENV A=1"]))
    assert found is not None and found.commands == ("ENV A=1",)


@pytest.mark.parametrize(
    "image", [Image(OURS), Image(["RUN pip install tensorflow"], labels={}), Image(["COPY /layer"])]
)
def test_other_images_are_not(image: Image) -> None:
    assert derivation(image) is None
    assert derivation(image, name="absent") is None
