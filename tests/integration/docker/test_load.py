"""Assembled images are loaded into real engines, with both image stores."""

from __future__ import annotations

import gc
import io
import itertools
import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from docker.errors import ImageNotFound

from validator.assemble.image import Destination, OciLayout, assemble
from validator.assemble.layer_table import LayerTable
from validator.assemble.layers import Encoded, Write
from validator.assemble.wheel_layers import plan_image
from validator.cli.progress import say_next_steps
from validator.engines import containers
from validator.engines import images as load_module
from validator.engines.endpoint import Endpoint, connect
from validator.engines.images import list_images, load
from validator.errors import MissingError, ValidatorError
from validator.model.spec import LABEL_SPEC, Additions, image_reference
from validator.pipeline.run import Result, Status
from validator.registry.names import image_tag
from validator.system import runs
from validator.system.runs import Note

from ...assemble.bases import CPU, FILES, Shelf, base_of, layer, lock_of
from ...assemble.synthetic import Image, Layer, digest
from ...support import small_disk
from .private_engine import PrivateEngine, private_engine

pytestmark = pytest.mark.engine
_seeds = itertools.count(2000, 10)


@pytest.fixture
def root() -> Iterator[Path]:
    """Return a directory with a short path, for sockets."""
    path = Path(tempfile.mkdtemp(prefix="own-engine-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module", params=[True, False], ids=["containerd", "older"])
def engine(request: pytest.FixtureRequest) -> Iterator[PrivateEngine]:
    """Yield an engine with each image store."""
    path = Path(tempfile.mkdtemp(prefix="own-engine-"))
    with private_engine(path, path / "data", image_store=request.param) as running:
        yield running
    shutil.rmtree(path, ignore_errors=True)


def connected(engine: PrivateEngine) -> Endpoint:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", engine.url)
        return connect()


@pytest.fixture
def endpoint(engine: PrivateEngine) -> Iterator[Endpoint]:
    found = connected(engine)
    yield found
    found.client.close()
    found.quick.close()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VALIDATOR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def made(*seeds: int, size: int = 300_000) -> Image:
    return Image(tuple(Layer(seed, size) for seed in seeds), ((LABEL_SPEC, "test"),))


@pytest.fixture
def fresh() -> Image:
    """Return an image that no engine has."""
    seed = next(_seeds)
    return made(seed, seed + 1)


def content(endpoint: Endpoint, reference: str) -> set[str]:
    """Return the names of the image's own files."""
    container = endpoint.client.containers.create(reference, ["/none"])
    try:
        exported = b"".join(cast("Iterable[bytes]", container.export()))
        with tarfile.open(fileobj=io.BytesIO(exported)) as archive:
            return {name for name in archive.getnames() if name.startswith("file-")}
    finally:
        container.remove()


def names(endpoint: Endpoint) -> set[str]:
    return {tag for image in list_images(endpoint.client) for tag in image.tags}


def layer_names(image: Image) -> set[str]:
    return {f"file-{layer.seed}" for layer in image.layers}


@pytest.mark.parametrize("known", [True, False])
def test_an_image_is_loaded(endpoint: Endpoint, fresh: Image, cache: Path, known: bool) -> None:
    pushed = load(endpoint, "loaded:one", lambda place: fresh.send(place, known=known))
    assert pushed == digest(fresh.manifest)
    loaded = endpoint.client.images.get("loaded:one")
    assert loaded.id == (pushed if endpoint.has_image_store else digest(fresh.config))
    assert loaded.labels == {LABEL_SPEC: "test"}
    assert content(endpoint, "loaded:one") == layer_names(fresh)
    assert not any("loading" in name for name in names(endpoint))
    assert list(cache.iterdir()) == [] if cache.exists() else known


def test_an_image_replaces_another_under_its_name(endpoint: Endpoint, fresh: Image) -> None:
    load(endpoint, "loaded:same", made(next(_seeds)).send)
    load(endpoint, "loaded:same", fresh.send)
    assert content(endpoint, "loaded:same") == layer_names(fresh)


def test_layers_of_other_images_are_left_out(endpoint: Endpoint, fresh: Image) -> None:
    load(endpoint, "loaded:lower", fresh.send)
    higher = made(next(_seeds), fresh.layers[1].seed, next(_seeds))
    had = []

    def send(place: Destination) -> str:
        had.append([place.has(layer.encoded) for layer in higher.layers])
        return higher.send(place)

    load(endpoint, "loaded:higher", send)
    assert had == [[False, endpoint.has_image_store, False]]
    endpoint.client.images.remove("loaded:lower")
    assert content(endpoint, "loaded:higher") == layer_names(higher)


def test_everything_is_sent_if_layers_turn_out_to_be_missing(
    endpoint: Endpoint, fresh: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_module, "_diff_ids", lambda *_: frozenset({fresh.layers[0].encoded.diff_id}))
    sent: list[str] = []

    def send(place: Destination) -> str:
        sent.append("once")
        return fresh.send(place)

    load(endpoint, "loaded:again", send)
    assert len(sent) == (2 if endpoint.has_image_store else 1)
    assert content(endpoint, "loaded:again") == layer_names(fresh)
    assert not any("loading" in name for name in names(endpoint))


def test_an_image_that_is_removed_during_the_listing_is_left_out(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = next(_seeds)
    first, second = made(seed), made(seed + 1)
    load(endpoint, "loaded:stays", first.send)
    load(endpoint, "loaded:goes", second.send)
    listed = endpoint.client.api.images

    def remove_one(**asked: Any) -> Any:
        found = listed(**asked)
        endpoint.client.images.remove("loaded:goes")
        return found

    monkeypatch.setattr(endpoint.client.api, "images", remove_one)
    found = {tag for image in list_images(endpoint.client, LABEL_SPEC) for tag in image.tags}
    assert "loaded:stays" in found and "loaded:goes" not in found


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("number", [0, 1])
def test_an_error_of_the_assembler_leaves_nothing(
    endpoint: Endpoint, fresh: Image, known: bool, number: int, cache: Path
) -> None:
    def fail(write: Write) -> Encoded:
        write(b"x" * 100_000)
        raise ValueError("the wheel changed")

    def send(place: Destination) -> str:
        if number:
            place.receive(fresh.layers[0].encode, fresh.layers[0].encoded)
        place.receive(fail, fresh.layers[1].encoded if known else None)
        return fresh.send(place)

    before = {image.id for image in list_images(endpoint.client)}
    with pytest.raises(ValueError, match="the wheel changed"):
        load(endpoint, "loaded:never", send)
    assert {image.id for image in list_images(endpoint.client)} == before
    assert not cache.exists() or list(cache.iterdir()) == []


def test_a_layer_that_is_not_what_the_table_says_is_an_error(endpoint: Endpoint, fresh: Image) -> None:
    layer = fresh.layers[0]
    for wrong in (replace(layer.encoded, digest=digest(b"x")), replace(layer.encoded, size=5)):
        with pytest.raises(ValidatorError, match="the layer table says"):
            load(endpoint, "loaded:never", lambda place, wrong=wrong: place.receive(layer.encode, wrong))  # type: ignore[misc]
    with pytest.raises(ImageNotFound):
        endpoint.client.images.get("loaded:never")


def test_layers_may_come_from_several_threads(endpoint: Endpoint) -> None:
    image = made(*(next(_seeds) for _ in range(8)), size=2_000_000)

    def send(place: Destination) -> str:
        def receive(number: int) -> Encoded:
            layer = image.layers[number]
            return place.receive(layer.encode, layer.encoded if number % 2 else None)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(receive, range(8)))
        return image.send(place)

    load(endpoint, "loaded:threads", send)
    assert content(endpoint, "loaded:threads") == layer_names(image)


def test_two_loads_at_once_both_arrive(endpoint: Endpoint, fresh: Image) -> None:
    images = {"loaded:left": fresh, "loaded:right": made(fresh.layers[0].seed, next(_seeds))}
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda name: load(endpoint, name, images[name].send), images))
    for name, image in images.items():
        assert content(endpoint, name) == layer_names(image)


def test_a_load_within_another_one_gets_the_same_layer(endpoint: Endpoint, fresh: Image) -> None:
    """The base is loaded for the compiler of byte code while an image with the same layers is on its way."""

    def send(place: Destination) -> str:
        place.receive(fresh.layers[0].encode, fresh.layers[0].encoded)
        load(endpoint, "loaded:inner", made(fresh.layers[0].seed).send)
        return fresh.send(place)

    load(endpoint, "loaded:outer", send)
    assert content(endpoint, "loaded:inner") == {f"file-{fresh.layers[0].seed}"}
    assert content(endpoint, "loaded:outer") == layer_names(fresh)


def test_names_of_killed_runs_are_removed(
    endpoint: Endpoint, fresh: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = made(next(_seeds))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(containers, "remove_image_name", lambda *_: None)
        load(endpoint, "loaded:other", other.send)
    [stray] = [name for name in names(endpoint) if ":loading-" in name]
    notes = runs.current()
    monkeypatch.setattr(notes, "_inherited", [
        Note(path, json.loads(path.read_text())) for path in notes.directory.glob("loading-*")
    ])  # fmt: skip
    load(endpoint, "loaded:next", fresh.send)
    assert stray not in names(endpoint)
    assert "loaded:other" in names(endpoint)


def test_the_printed_line_loads_an_oci_layout(
    endpoint: Endpoint,
    engine: PrivateEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table, shelf, layout = LayerTable(tmp_path / "table"), Shelf(tmp_path / "wheels"), tmp_path / "my images"
    base = base_of(table, layer(FILES))
    made = {}
    for name in ("one", "two"):
        spec = replace(CPU, additions=Additions(name))
        lock = lock_of(spec, shelf.wheel("tensorflow-cpu", {f"tensorflow/{name}.py": b""}))
        plan = plan_image(spec, lock, base, shelf, table, None)
        destination = OciLayout(layout, image_tag(spec))
        made[spec] = assemble(plan, destination, table, lambda _: None)
    results = [Result(spec, Status.BUILT, digest=image.digest) for spec, image in made.items()]
    say_next_steps(results, None, None, layout)
    line = capsys.readouterr().err.splitlines()[-1]
    monkeypatch.setenv("DOCKER_HOST", engine.url)
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for spec, image in made.items():
        loaded = endpoint.client.images.get(image_reference(spec.identifier))
        assert loaded.attrs["RootFS"]["Layers"] == [placed.encoded.diff_id for placed in image.layers]
        assert loaded.labels[LABEL_SPEC] == spec.identifier
        container = endpoint.client.containers.create(loaded, ["/none"])
        container.remove()


# -- faults ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", [True, False], ids=["containerd", "older"])
def test_a_full_disk_of_the_engine_is_named(root: Path, fresh: Image, store: bool) -> None:
    data = root / "data"
    data.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", data], check=True)
    with private_engine(root, data, image_store=store) as engine:
        endpoint = connected(engine)
        load(endpoint, "loaded:small", fresh.send)
        with pytest.raises(MissingError, match="no space left on the engine's disk"):
            load(endpoint, "loaded:small", made(next(_seeds), size=30_000_000).send)
        assert content(endpoint, "loaded:small") == layer_names(fresh)
        endpoint.client.close()
        endpoint.quick.close()


# The SDK (7.2) does not close the socket of a connection that is refused.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
def test_an_engine_that_dies_is_named(root: Path, fresh: Image) -> None:
    with private_engine(root, root / "data") as engine:
        endpoint = connected(engine)

        def send(place: Destination) -> str:
            place.receive(fresh.layers[0].encode, None)
            engine.kill()
            return made(next(_seeds), size=20_000_000).send(place)

        with pytest.raises(MissingError, match="the Docker Engine stopped responding"):
            load(endpoint, "loaded:never", send)
        endpoint.client.close()
        endpoint.quick.close()
    gc.collect()


def test_a_full_disk_of_this_machine_is_named(
    endpoint: Endpoint, fresh: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk("1m") as place:
        monkeypatch.setenv("VALIDATOR_CACHE", str(place))
        large = made(next(_seeds), size=3_000_000)
        with pytest.raises(MissingError, match=f"no space left on the disk that holds {place}"):
            load(endpoint, "loaded:never", lambda destination: large.send(destination, known=False))
        assert list(place.iterdir()) == []
