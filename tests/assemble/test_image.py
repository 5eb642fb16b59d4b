"""Whole images, assembled from small wheels and a small base."""

from __future__ import annotations

import io
import json
import marshal
import tarfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from validator.assemble import compile_script, layers, wheel_layers
from validator.assemble.base import decompressed
from validator.assemble.bytecode import Compilation, CompiledWheel, CompiledWheels
from validator.assemble.host_files import parse
from validator.assemble.image import (
    Assembled,
    Finding,
    OciLayout,
    PublishedImage,
    assemble,
    rebuild,
    uncomputed,
)
from validator.assemble.install import Environment
from validator.assemble.layer_table import LayerTable, Row, SharedRow, write_rows
from validator.assemble.layers import Encoded, LayerSource, Write, layer_key
from validator.assemble.wheel_layers import ImagePlan, plan_image, recipe_digest
from validator.errors import BuildError, InputError, ValidatorError
from validator.model.spec import (
    LABEL_BASE,
    LABEL_CUDA,
    LABEL_DRIVER,
    LABEL_LOCK,
    LABEL_RECIPE,
    LABEL_SPEC,
    Additions,
    ImageSpec,
    Lock,
    Variant,
)

from .bases import CPU, ELF, FILES, GPU, Shelf, ThisPython, base_of, layer, lock_of, set_small_limits

SITE = "opt/venv/lib/python3/site-packages"
NVIDIA = f"{SITE}/nvidia"


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    set_small_limits(monkeypatch)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "wheels")


@pytest.fixture
def table(tmp_path: Path) -> LayerTable:
    return LayerTable(tmp_path / "table")


def gpu_lock(shelf: Shelf) -> Lock:
    library = bytes(range(256)) * 250
    return lock_of(
        GPU,
        shelf.wheel(
            "nvidia-cublas-cu12",
            {"nvidia/__init__.py": b"", "nvidia/cublas/lib/libcublas.so.12": ELF + library},
            size=40_000,
        ),
        shelf.wheel(
            "nvidia-cuda-nvcc-cu12",
            {
                "nvidia/__init__.py": b"",
                "nvidia/cuda_nvcc/bin/ptxas": b"ptxas",
                "nvidia/cuda_nvcc/lib/x.a": b"",
            },
        ),
        shelf.wheel("numpy", {"numpy/__init__.py": b"x = {1, 'a', ('b', None)}\n", "numpy/bad.py": b"1 +\n"}),
        shelf.wheel("six", {"six.py": b"def f(): return 'a'\n"}),
        shelf.wheel(
            "tensorflow",
            {"tensorflow/__init__.py": b"import numpy\n", "tensorflow/libtensorflow_cc.so.2": library},
        ),
    )


def planned(
    shelf: Shelf, table: LayerTable, spec: ImageSpec = GPU, lock: Lock | None = None, compiled: bool = False
) -> ImagePlan:
    base = base_of(table, layer(FILES), environment=("PATH=/usr/bin", "LANG=C.UTF-8"))
    return plan_image(spec, lock or gpu_lock(shelf), base, shelf, table, ThisPython() if compiled else None)


def put(made: ImagePlan, table: LayerTable, directory: Path) -> Assembled:
    return assemble(made, OciLayout(directory, "test"), table, lambda _: None)


def test_an_image_is_made_on_a_base_whose_packages_cannot_be_listed(
    shelf: Shelf, table: LayerTable, tmp_path: Path
) -> None:
    base = base_of(table, layer({**FILES, "var/lib/dpkg/status": b"Package: ../x\nVersion: 1\n"}))
    image = put(plan_image(GPU, gpu_lock(shelf), base, shelf, table, None), table, tmp_path / "image")
    assert image.base is base


def blob(directory: Path, digest: str) -> bytes:
    return (directory / "blobs" / "sha256" / digest.removeprefix("sha256:")).read_bytes()


def contents(directory: Path, image: Assembled) -> list[dict[str, Any]]:
    """For each layer above the base: what is at each path."""
    found = []
    for placed in image.layers[1:]:
        data = b"".join(
            decompressed(iter([blob(directory, placed.encoded.digest)]), placed.encoded.media_type)
        )
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            found.append(
                {
                    member.name: "/" if member.isdir() else member.linkname or read(archive, member)
                    for member in archive
                }
            )
    return found


def read(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(member)
    assert stream is not None
    return stream.read()


def names_of(image: Assembled) -> list[str]:
    return [placed.name for placed in image.layers]


def test_the_layers_of_an_image(shelf: Shelf, table: LayerTable, tmp_path: Path) -> None:
    image = put(planned(shelf, table), table, tmp_path / "image")
    assert names_of(image) == [
        "base debian:test",
        "entry point",
        "nvidia-cublas-cu12 1.0",
        "1 small wheels (NVIDIA)",
        "2 small wheels (Python)",
        "libtensorflow_cc.so.2",
        "tensorflow 1.0",
        "user, environment, loader",
    ]
    found = contents(tmp_path / "image", image)
    assert set(found[0]) == {
        "opt", "opt/tensorflow-gpu-matrix", "opt/tensorflow-gpu-matrix/cache.py",
        "opt/tensorflow-gpu-matrix/start", "opt/tensorflow-gpu-matrix/tables",
        "var", "var/cache", "var/cache/tensorflow-gpu-matrix",
    }  # fmt: skip
    large = f"{SITE}/tensorflow/libtensorflow_cc.so.2"
    assert large in found[4] and large not in found[5] and f"{SITE}/tensorflow/__init__.py" in found[5]
    host = found[-1]
    assert host["etc/passwd"] == (
        b"root:x:0:0:root:/root:/bin/bash\ntensorflow:x:10001:10001::/home/tensorflow:/bin/sh\n"
    )
    assert host["etc/shadow"].endswith(b"\ntensorflow:!::0:99999:7:::\n")
    assert "etc/gshadow" not in host, "a file is added that the base does not have"
    assert host["home/tensorflow/.profile"] == b"# profile\n"
    assert host["opt/venv/bin/python3.11"] == "/usr/bin/python3.11"
    assert host["opt/venv/lib/python3.11"] == "python3"
    assert b"version = 3.11.2\n" in host["opt/venv/pyvenv.cfg"]
    # As `ldconfig` lists them: a directory without libraries is in the configuration, and only there.
    assert host["etc/ld.so.conf.d/nvidia-wheels.conf"] == (
        f"/{NVIDIA}/cublas/lib\n/{NVIDIA}/cuda_nvcc/lib\n".encode()
    )
    assert [entry.path for entry in parse(host["etc/ld.so.cache"]).entries] == [
        "/lib/x86_64-linux-gnu/libz.so.1", f"/{NVIDIA}/cublas/lib/libcublas.so.12",
    ]  # fmt: skip
    assert host["usr/local/cuda"] == f"/{NVIDIA}/cuda_nvcc"
    every = [path for paths in found for path in paths]
    assert not [path for path in every if path.startswith("opt/venv/lib/python3.11/")]


def test_the_configuration(shelf: Shelf, table: LayerTable, tmp_path: Path) -> None:
    spec = replace(GPU, additions=Additions("ours", environment=(("TF_CPP_MIN_LOG_LEVEL", "1"),)))
    lock = replace(gpu_lock(shelf), resolved=date(2026, 11, 22))
    image = put(planned(shelf, table, spec, lock), table, tmp_path / "image")
    config = json.loads(image.config)
    assert config["created"] == "2026-11-22T00:00:00Z"
    assert (config["os"], config["architecture"]) == ("linux", "amd64")
    settings = config["config"]
    assert settings["Env"] == [
        "PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG=C.UTF-8",
        "NVIDIA_VISIBLE_DEVICES=all",
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        "NVIDIA_REQUIRE_CUDA=cuda>=12.0",
        "VALIDATOR_COMPUTE_CAPABILITY=6.0",
        "TF_CPP_MIN_LOG_LEVEL=1",
    ]
    assert settings["Entrypoint"] == ["/opt/tensorflow-gpu-matrix/start"] and settings["Cmd"] == ["python"]
    assert settings["User"] == "10001:10001" and settings["WorkingDir"] == "/home/tensorflow"
    labels = settings["Labels"]
    assert labels[LABEL_SPEC] == "tf2.21.0-cuda12.5-cudnn9.3-py311_ours"
    assert labels[LABEL_LOCK] == lock.digest and labels[LABEL_RECIPE] == recipe_digest(GPU.variant)
    assert labels[LABEL_BASE] == "bootstrap:test@sha256:ba5e"
    assert labels[LABEL_DRIVER] == "525.60.13" and labels[LABEL_CUDA] == "12.5"
    assert "org.opencontainers.image.base.digest" not in labels
    assert config["rootfs"]["diff_ids"] == [placed.encoded.diff_id for placed in image.layers]
    assert len(config["history"]) == len(image.layers)
    manifest = json.loads(image.manifest)
    assert [one["digest"] for one in manifest["layers"]] == [placed.encoded.digest for placed in image.layers]
    for one in (manifest["config"], *manifest["layers"]):
        assert len(blob(tmp_path / "image", one["digest"])) == one["size"]


def test_an_image_with_jupyterlab_says_where_it_answers(
    shelf: Shelf, table: LayerTable, tmp_path: Path
) -> None:
    lock = gpu_lock(shelf)
    image = put(planned(shelf, table, replace(GPU, variant=Variant.JUPYTER), lock), table, tmp_path / "image")
    assert json.loads(image.config)["config"]["ExposedPorts"] == {"8888/tcp": {}}
    assert json.loads(image.config)["config"]["Cmd"][:2] == ["jupyter", "lab"]
    plain = put(planned(shelf, table, GPU, lock), table, tmp_path / "image")
    assert "ExposedPorts" not in json.loads(plain.config)["config"]


def test_an_image_without_cuda(shelf: Shelf, table: LayerTable, tmp_path: Path) -> None:
    lock = lock_of(CPU, shelf.wheel("tensorflow-cpu", {"tensorflow/__init__.py": b""}))
    image = put(planned(shelf, table, CPU, lock), table, tmp_path / "image")
    settings = json.loads(image.config)["config"]
    assert "Entrypoint" not in settings
    assert not any("NVIDIA" in line or "VALIDATOR" in line for line in settings["Env"])
    assert names_of(image)[1:] == ["tensorflow-cpu 1.0", "user, environment, loader"]
    host = contents(tmp_path / "image", image)[-1]
    assert "etc/ld.so.cache" not in host and "usr/local/cuda" not in host


def test_the_layers_of_large_files_have_sizes_of_their_own(shelf: Shelf, table: LayerTable) -> None:
    large = {"tensorflow/a.so": bytes(50_000), "tensorflow/b.so": bytes(range(256)) * 300}
    wheel = shelf.wheel("tensorflow", {"tensorflow/__init__.py": b"1", **large})
    sizes = {layer.name: layer.size for layer in planned(shelf, table, CPU, lock_of(CPU, wheel)).layers}
    with shelf.open(wheel) as file:
        compressed = [file.members[path].stored_size for path in large]
    assert [sizes["a.so"], sizes["b.so"]] == compressed
    assert sizes["tensorflow 1.0"] == max((wheel.size or 0) - sum(compressed), 1)


def test_the_same_input_gives_the_same_image(shelf: Shelf, tmp_path: Path) -> None:
    digests = set()
    for number in range(2):
        table = LayerTable(tmp_path / f"table{number}")
        made = planned(shelf, table, lock=replace(gpu_lock(shelf), wheels=gpu_lock(shelf).wheels))
        digests.add(put(made, table, tmp_path / f"image{number}").digest)
    assert len(digests) == 1


@pytest.mark.slow
def test_a_known_image_needs_no_wheels(shelf: Shelf, table: LayerTable, tmp_path: Path) -> None:
    lock = gpu_lock(shelf)
    first = put(planned(shelf, table, lock=lock, compiled=True), table, tmp_path / "image")
    assert all(placed.is_new for placed in first.layers)
    for file in shelf.directory.iterdir():
        file.unlink()
    again = put(planned(shelf, table, lock=lock, compiled=True), table, tmp_path / "image")
    assert again.digest == first.digest
    assert not any(placed.is_new for placed in again.layers)


def test_another_image_shares_what_it_has_in_common(shelf: Shelf, table: LayerTable, tmp_path: Path) -> None:
    lock = gpu_lock(shelf)
    put(planned(shelf, table, lock=lock), table, tmp_path / "image")
    other = shelf.wheel("six", {"six.py": b"def g(): return 'b'\n"})
    changed = replace(lock, wheels=(*lock.wheels[:3], other, lock.wheels[4]))
    image = put(planned(shelf, table, lock=changed), table, tmp_path / "image")
    assert [placed.name for placed in image.layers if placed.is_new] == ["2 small wheels (Python)"]


def tensorflow_layer(made: ImagePlan, table: LayerTable) -> tuple[LayerSource, Row]:
    """Return the layer of TensorFlow that was made, and its row."""
    (source,) = [source for source in made.layers if source.name == "tensorflow 1.0"]
    row = table.row(layer_key(layers.RECIPE, source.made_from))
    assert row is not None
    return source, row


def test_a_wrong_row_is_named_and_nothing_is_published(
    shelf: Shelf, table: LayerTable, tmp_path: Path
) -> None:
    made = planned(shelf, table)
    image = put(made, table, tmp_path / "image")
    _, row = tensorflow_layer(made, table)
    table.add(row.key, row.name, replace(row.encoded, digest="sha256:" + "0" * 64))
    with pytest.raises(ValidatorError, match=r"tensorflow 1\.0") as caught:
        put(made, table, tmp_path / "other")
    assert row.encoded.digest in str(caught.value)
    assert not (tmp_path / "other" / "index.json").exists()
    assert table.row(row.key) is None
    assert put(made, table, tmp_path / "other").digest == image.digest


def test_only_a_row_of_this_machine_saves_hashing_the_archive(
    shelf: Shelf, table: LayerTable, tmp_path: Path
) -> None:
    made = planned(shelf, table)
    image = put(made, table, tmp_path / "image")
    source, row = tensorflow_layer(made, table)
    wrong = replace(row.encoded, diff_id="sha256:" + "0" * 64)
    write_rows(tmp_path / "layers.json", [SharedRow.of(source, wrong)])
    other = LayerTable(tmp_path / "another machine", shared=[tmp_path / "layers.json"])
    with pytest.raises(ValidatorError, match=r"layers\.json says that the layer 'tensorflow 1\.0'"):
        put(made, other, tmp_path / "other")
    assert not other.has_content(wrong.diff_id)
    # What this machine computed is not computed again.
    table.add(row.key, row.name, wrong)
    again = put(made, table, tmp_path / "again")
    assert [placed.encoded for placed in again.layers[:-1]] == [
        wrong if placed.encoded == row.encoded else placed.encoded for placed in image.layers[:-1]
    ]


def test_a_wheel_that_is_not_the_locks_is_rejected(shelf: Shelf, table: LayerTable, tmp_path: Path) -> None:
    lock = gpu_lock(shelf)
    made = planned(shelf, table, lock=lock)
    path = shelf.path(lock.wheels[2])
    path.write_bytes(path.read_bytes().replace(b"METADATA", b"METADATE", 1))
    with pytest.raises(ValidatorError, match=r"numpy-1\.0-py3-none-any\.whl"):
        put(made, table, tmp_path / "image")
    assert not (tmp_path / "image" / "index.json").exists()


@pytest.mark.parametrize("tag", ["cp311-cp311-manylinux_2_39_x86_64", "cp311-cp311-manylinux_2_28_aarch64"])
def test_a_wheel_that_does_not_fit_the_base_is_rejected_at_the_start(
    shelf: Shelf, table: LayerTable, tag: str
) -> None:
    lock = lock_of(GPU, shelf.wheel("tensorflow", {}, tag=tag))
    with pytest.raises(InputError, match=r"tensorflow-1\.0"):
        planned(shelf, table, lock=lock)


# --- byte code ----------------------------------------------------------------------------------------


def byte_code(directory: Path, image: Assembled) -> dict[str, bytes]:
    found = {}
    for placed, files in zip(image.layers[1:], contents(directory, image), strict=True):
        if placed.name.startswith("byte code"):
            found.update({path: content for path, content in files.items() if content != "/"})
    return found


@pytest.fixture
def this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests run with any Python, so its byte code is not that of the base."""
    monkeypatch.setattr("validator.assemble.bytecode.MAGIC", {})


@pytest.mark.slow
@pytest.mark.usefixtures("this_python")
def test_modules_are_compiled(shelf: Shelf, table: LayerTable, tmp_path: Path) -> None:
    image = put(planned(shelf, table, compiled=True), table, tmp_path / "image")
    assert [name for name in names_of(image) if "byte" in name] == [
        "byte code (Python)", "byte code (TensorFlow)",
    ]  # fmt: skip
    found = byte_code(tmp_path / "image", image)
    # NVIDIA's wheels are not compiled, and a file that is not valid Python is left as it is.
    assert set(found) == {
        f"{SITE}/numpy/__pycache__/__init__.cpython-311.pyc",
        f"{SITE}/__pycache__/six.cpython-311.pyc",
        f"{SITE}/tensorflow/__pycache__/__init__.cpython-311.pyc",
    }
    for content in found.values():
        # PEP 552: the flags say that the source is not looked at.
        assert int.from_bytes(content[4:8], "little") == 1
    code = marshal.loads(found[f"{SITE}/__pycache__/six.cpython-311.pyc"][16:])
    assert code.co_filename == "/opt/venv/lib/python3.11/site-packages/six.py"


@pytest.mark.slow
@pytest.mark.usefixtures("this_python")
def test_byte_code_is_begun_before_the_large_layers(
    shelf: Shelf, table: LayerTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[str] = []

    class Recording(OciLayout):
        def receive(self, encode: Callable[[Write], Encoded], known: Encoded | None) -> Encoded:
            made = super().receive(encode, known)
            received.append(made.digest)
            return made

    monkeypatch.setattr("validator.assemble.image._AT_ONCE", 1)
    destination = Recording(tmp_path / "image", "test")
    made = planned(shelf, table, compiled=True)
    image = assemble(made, destination, table, lambda _: None)
    names = {placed.encoded.digest: placed.name for placed in image.layers}
    order = [names[digest] for digest in received if digest in names]
    assert order.index("byte code (TensorFlow)") < order.index("tensorflow 1.0")
    assert order.index("nvidia-cublas-cu12 1.0") < order.index("2 small wheels (Python)")


@pytest.mark.slow
@pytest.mark.usefixtures("this_python")
def test_byte_code_does_not_depend_on_the_order(shelf: Shelf, tmp_path: Path) -> None:
    # Each module has strings in common with the others, which is what makes marshalled code depend on them.
    modules = {
        f"p/m{number}.py": "".join(
            f"def f{one}(a): return 'shared', {{'x{one}', 'y'}}\n" for one in range(number)
        ).encode()
        for number in range(20)
    }
    found = []
    for number, order in enumerate((modules, dict(reversed(modules.items())))):
        lock = lock_of(
            CPU, shelf.wheel("p", order), shelf.wheel("tensorflow", {"tensorflow/__init__.py": b""})
        )
        table = LayerTable(tmp_path / f"table{number}")
        directory = tmp_path / f"image{number}"
        image = put(planned(shelf, table, CPU, lock, compiled=True), table, directory)
        found.append(byte_code(directory, image))
    assert len(found[0]) == 21 and found[0] == found[1]


@pytest.mark.slow
@pytest.mark.usefixtures("this_python")
def test_a_wheel_is_compiled_once_for_several_images(shelf: Shelf, table: LayerTable, tmp_path: Path) -> None:
    module = b"def f(a): return 'shared', {'x', 'y'}\n"
    # This wheel has a layer of its own.
    package = shelf.wheel("p", {"p/__init__.py": module, "p/m.py": module * 20}, size=40_000)
    last = shelf.wheel("tensorflow", {"tensorflow/__init__.py": b""})
    base = base_of(table, layer(FILES))

    def assembled(compiled: CompiledWheels, number: int, directory: str) -> dict[str, bytes]:
        small = shelf.wheel("six", {"six.py": module * number})
        lock = lock_of(CPU, package, small, last)
        made = plan_image(CPU, lock, base, shelf, table, ThisPython(), compiled)
        return byte_code(tmp_path / directory, put(made, table, tmp_path / directory))

    compiled = CompiledWheels()
    assembled(compiled, 1, "image")
    shelf.path(package).rename(tmp_path / "away")
    found = assembled(compiled, 2, "image")
    (tmp_path / "away").rename(shelf.path(package))
    assert f"{SITE}/p/__pycache__/m.cpython-311.pyc" in found and len(found) == 4
    assert found == assembled(CompiledWheels(), 2, "other")


@pytest.mark.slow
def test_the_files_of_two_wheels_are_never_in_one_batch(
    shelf: Shelf, table: LayerTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = lock_of(
        CPU,
        shelf.wheel("p", {"p/__init__.py": b"1", "p/m.py": b"2"}),
        shelf.wheel("q", {"q.txt": b""}),
        shelf.wheel("six", {"six.py": b"3"}),
        shelf.wheel("tensorflow", {}),
    )
    sent = tmp_path / "sent"
    keep = f"import sys; open({str(sent)!r}, 'ab').write(sys.stdin.buffer.read())"
    base = base_of(table, layer(FILES))
    put(plan_image(CPU, lock, base, shelf, table, _OtherProgram(keep)), table, tmp_path / "image")
    monkeypatch.setattr(compile_script, "_read", io.BytesIO(sent.read_bytes()).read)
    batches = iter(compile_script._batch, [])
    assert [[source for _, _, source in batch] for batch in batches] == [[b"1", b"2"], [b"3"]]


@pytest.mark.slow
@pytest.mark.usefixtures("this_python")
def test_wheels_of_several_layers_must_agree(shelf: Shelf, table: LayerTable, tmp_path: Path) -> None:
    last = shelf.wheel("tensorflow", {"tensorflow/__init__.py": b""})
    wheels = [shelf.wheel(name, {"x.txt": name.encode()}, size=40_000) for name in ("p", "q")]
    with pytest.raises(InputError, match=r"p==1\.0 and q==1\.0 .* both contain .*/x\.txt"):
        put(planned(shelf, table, CPU, lock_of(CPU, *wheels, last), compiled=True), table, tmp_path / "image")


def test_the_byte_code_that_was_not_used_for_longest_is_dropped() -> None:
    compiled = CompiledWheels()
    for key in ("a", "b"):
        compiled.add(Compilation({key: CompiledWheel((), {})}, 20_000_000))
    compiled.find(["a"])
    compiled.add(Compilation({"c": CompiledWheel((), {})}, 20_000_000))
    assert compiled.find("abc").keys() == {"a", "c"}


@pytest.mark.slow
def test_byte_code_of_another_python_is_rejected(
    shelf: Shelf, table: LayerTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("validator.assemble.bytecode.MAGIC", {"3.11": 1})
    with pytest.raises(BuildError, match=r"its byte code is not that of Python 3\.11"):
        put(planned(shelf, table, compiled=True), table, tmp_path / "image")


class _OtherProgram(ThisPython):
    """A base in which another program runs instead of the compiler."""

    def __init__(self, program: str) -> None:
        self._program = program

    def command(self, argv: Sequence[str]) -> AbstractContextManager[Sequence[str]]:
        return super().command([argv[0], "-c", self._program])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import sys; sys.stdin.read(); sys.stdout.write('x' * 100)", "another format"),
        (
            "import sys, struct; sys.stdout.buffer.write(struct.pack('>II', 9, 1) + b'x')",
            "returned file 9, which was not requested",
        ),
        ("import sys, struct; sys.stdout.buffer.write(struct.pack('>II', 2, 100))", "the middle of a file"),
        ("raise SystemExit('no python here')", "no python here"),
    ],
)
def test_what_a_base_returns_is_checked(
    shelf: Shelf, table: LayerTable, tmp_path: Path, program: str, message: str
) -> None:
    base = base_of(table, layer(FILES))
    made = plan_image(GPU, gpu_lock(shelf), base, shelf, table, _OtherProgram(program))
    with pytest.raises(BuildError, match=message):
        put(made, table, tmp_path / "image")
    assert not (tmp_path / "image" / "index.json").exists()


def test_a_wheel_may_be_read_when_everything_is_closed(shelf: Shelf, table: LayerTable) -> None:
    """A layer that failed may be let go only when the process ends, which closes all wheels before."""
    wheel = shelf.wheel("six", {"six.py": b""})
    made = wheel_layers._WheelLayers(shelf, table, Environment("3.12", (2, 36)))
    with made.installed(wheel):
        wheel_layers._close(made._open)


# --- rebuilding ---------------------------------------------------------------------------------------


def published(image: Assembled) -> PublishedImage:
    config = json.loads(image.config)
    manifest = json.loads(image.manifest)
    return PublishedImage(tuple(config["rootfs"]["diff_ids"]), manifest["config"]["digest"], config)


def findings(made: ImagePlan, image: PublishedImage, table: LayerTable) -> list[tuple[str, Finding]]:
    return [(one.name, one.finding) for one in rebuild(image, made, table, lambda _: None)]


@pytest.mark.slow
@pytest.mark.usefixtures("this_python")
def test_an_image_that_is_its_lock(shelf: Shelf, table: LayerTable, tmp_path: Path) -> None:
    image = published(put(planned(shelf, table, compiled=True), table, tmp_path / "image"))
    elsewhere = LayerTable(tmp_path / "elsewhere")
    assert uncomputed(image, elsewhere) == (*image.diff_ids, image.config_digest)
    found = findings(planned(shelf, elsewhere, compiled=True), image, elsewhere)
    assert found[0] == ("base debian:test", Finding.BASE)
    assert {finding for _, finding in found[1:]} == {Finding.EQUAL}
    assert len(found) == len(image.diff_ids) + 1
    assert uncomputed(image, elsewhere) == ()
    assert uncomputed(image, table) == (), "the machine that made it"


def test_an_image_with_another_layer_differs(shelf: Shelf, table: LayerTable, tmp_path: Path) -> None:
    image = published(put(planned(shelf, table), table, tmp_path / "image"))
    fake = "sha256:" + "f" * 64
    elsewhere = LayerTable(tmp_path / "elsewhere")
    diff_ids = (*image.diff_ids[:4], fake, *image.diff_ids[5:], fake)
    config = {**image.config, "rootfs": {"type": "layers", "diff_ids": list(diff_ids)}}
    altered = replace(image, diff_ids=diff_ids, config=config)
    found = dict(findings(planned(shelf, elsewhere), altered, elsewhere))
    wrong = {name: one for name, one in found.items() if one not in (Finding.EQUAL, Finding.BASE)}
    assert wrong == {
        "2 small wheels (Python)": Finding.DIFFERS,
        "a layer that the lock does not have": Finding.EXTRA,
    }
    assert uncomputed(altered, elsewhere) == (fake, fake)


def test_an_image_with_fewer_layers_differs(shelf: Shelf, table: LayerTable, tmp_path: Path) -> None:
    image = published(put(planned(shelf, table), table, tmp_path / "image"))
    short = replace(image, diff_ids=image.diff_ids[:-1])
    assert ("user, environment, loader", Finding.MISSING) in findings(planned(shelf, table), short, table)


@pytest.mark.parametrize(
    ("part", "value"),
    [("Entrypoint", ["/bin/sh"]), ("User", "0:0"), ("Env", ["PATH=/evil"]), ("Labels", {})],
)
def test_another_configuration_differs(
    shelf: Shelf, table: LayerTable, tmp_path: Path, part: str, value: object
) -> None:
    image = published(put(planned(shelf, table), table, tmp_path / "image"))
    config = {**image.config, "config": {**image.config["config"], part: value}}
    other = replace(image, config=config, config_digest=f"sha256:{'f' * 64}")
    found = findings(planned(shelf, table), other, table)
    assert found[-1] == ("configuration (config)", Finding.DIFFERS)
    assert uncomputed(other, table) == (other.config_digest,), "it can't be certified"
