"""Sizes of layers are read from histories as engines return them."""

from __future__ import annotations

from typing import Any

from validator.engines.images import layers_of
from validator.model.record import Layer

#: The layers of an image that BuildKit made on a bootstrapped base, in an engine with the containerd store.
BUILDKIT = [
    (184459264, "Imported from -"),
    (0, "ARG SOURCE_DATE_EPOCH=0"),
    (69632, "RUN |1 SOURCE_DATE_EPOCH=0 /bin/sh -c /build/make-user # buildkit"),
    (0, "ENV PATH=/opt/venv/bin:/usr/bin:/bin"),
    (4096, "WORKDIR /home/tensorflow"),
    (331722752, "COPY /layer / # buildkit"),
    (0, "USER 10001:10001"),
    (0, 'CMD ["python"]'),
]
#: Layers of an official base made by the older builder, where a layer with only a directory has no bytes.
OLDER = [
    (
        74800000,
        "/bin/sh -c #(nop) ADD file:4b1be1de1a1e5aa608c688cad2824587262081866180d7368feb79d33ca05953 in /",
    ),
    (0, '/bin/sh -c #(nop)  CMD ["bash"]'),
    (0, "/bin/sh -c #(nop)  ENV LANG=C.UTF-8"),
    (9200000, "/bin/sh -c apt-get update"),
    (0, "WORKDIR /home/tensorflow"),
]


class FakeImage:
    """Return an image as an engine describes it: steps, newest first, and the digests of the layers."""

    def __init__(self, steps: list[tuple[int, str]], digests: list[str]) -> None:
        self.steps = steps
        self.attrs = {"RootFS": {"Layers": digests}}

    def history(self) -> list[dict[str, Any]]:
        return [{"Size": size, "CreatedBy": words} for size, words in reversed(self.steps)]


def layers(steps: list[tuple[int, str]], *digests: str) -> tuple[Layer, ...] | None:
    return layers_of(FakeImage(steps, list(digests)))  # type: ignore[arg-type]


def test_each_layer_gets_its_size_lowest_first() -> None:
    assert layers(BUILDKIT, "a", "b", "c", "d") == (
        Layer("a", 184459264),
        Layer("b", 69632),
        Layer("c", 4096),
        Layer("d", 331722752),
    )


def test_a_layer_may_be_empty_and_a_setting_is_not_a_layer() -> None:
    assert layers(OLDER, "a", "b", "c") == (Layer("a", 74800000), Layer("b", 9200000), Layer("c", 0))


def test_an_ambiguous_history_gives_no_sizes() -> None:
    assert layers(BUILDKIT, "a", "b", "c") is None
    assert layers(BUILDKIT[:2]) is None
