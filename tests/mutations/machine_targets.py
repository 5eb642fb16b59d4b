"""What machines and clusters say, the files that images are made of, and what people type."""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import shlex
import socket
import sqlite3
from collections.abc import Callable
from email import message_from_bytes
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import click
import msgspec
from docker.models.images import Image

from validator.answers import ask
from validator.assemble import host_files
from validator.assemble.base import ImageName, base_files, decompressed, read_file_system, saved_image
from validator.assemble.base_finder import read_status
from validator.assemble.install import entries
from validator.assemble.layer_table import LayerTable
from validator.assemble.wheel import open_wheel
from validator.cli import group
from validator.cli.predict import _host
from validator.compat import elf
from validator.compat import inspect as build
from validator.delivery.choose import TaggedImage
from validator.engines import containers, images
from validator.engines.this_machine import Reading, reading_of
from validator.errors import ValidatorError
from validator.fleet import kubernetes, protocol, slurm, slurm_client
from validator.fleet.inside import frame
from validator.fleet.kubernetes import Api
from validator.fleet.kubernetes_objects import kinds_of, read_node
from validator.fleet.settings import KubernetesSection, NodeKind
from validator.model import codec
from validator.model.codec import DocumentError
from validator.records.record_files import salvage
from validator.records.store import Store
from validator.registry.names import Repository
from validator.sbom import license_of
from validator.serve import Events, PageServer, _Handler

from ..assemble import bases
from ..assemble.wheels import ENVIRONMENT, FILENAME, Archive, described, with_metadata
from ..compat.wheel_files import FRAMEWORK, MEMBERS, packed
from ..records.values import record
from .mutators import Mutator, mutate_binary, mutate_json, mutate_packed, mutate_text

NOW = datetime.datetime(2026, 11, 22, 23, 0, tzinfo=datetime.timezone.utc)
UNIT = "tfm-0123456789abcdef"
_SEEDS = Path(__file__).with_name("seeds") / "machines"
#: How a probe ended, as its job says.
_ENDING = json.dumps(json.loads((_SEEDS / "job.0.json").read_bytes())["ending"]).encode()
#: What the official client would call.
_CALLS = (
    "list_namespaced_job", "list_namespaced_pod", "list_namespaced_event", "list_node", "read_node",
    "delete_namespaced_job", "read_namespaced_pod_log",
)  # fmt: skip
DIGEST = "sha256:" + "1" * 64


def parts_of(data: bytes) -> dict[str, bytes]:
    """Return the members of an object as they are written; all are the whole input if it is no object."""
    try:
        parts = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return {name: bytes(raw) for name, raw in parts.items()}


def each(*readers: Any) -> None:
    """Call every reader, also if those before refuse the input."""
    for read in readers:
        with contextlib.suppress(ValidatorError, DocumentError):
            read()


def seeds_of(kind: str) -> list[bytes]:
    """Return the seeds of a kind that are files."""
    return [path.read_bytes() for path in sorted(_SEEDS.glob(f"{kind}.*"))]


# Clusters.


def read_job(data: bytes, _: Path) -> None:
    """Read the files that a job of Slurm leaves, in right frames as a hostile node would write them."""
    parts = parts_of(data)
    output = frame("ending", parts.get("ending", data))
    whole = frame("node", parts.get("node", data)) + frame("outside", parts.get("outside", data))
    fault = parts.get("fault", data)
    each(
        lambda: protocol.read_result(whole + frame("output", output), UNIT, True),
        lambda: protocol.read_fault(fault),
        lambda: reading_of(codec.convert(codec.parse(parts.get("outside", data)), Reading)),
        lambda: protocol.read_frames(data, "node"),
    )


def read_slurm(data: bytes, _: Path) -> None:
    """Read what Slurm's programs print: queue, nodes with their GPUs, and nvidia-smi on a node."""
    text = data.decode("utf-8", "replace")
    with patch.object(slurm_client, "run", lambda _: text):
        each(
            slurm_client.queue,
            lambda: slurm.kinds_of(slurm_client.nodes()),
            lambda: [slurm_client.satisfies(node, text[:200], text[:200]) for node in slurm_client.nodes()],
            lambda: slurm.told_by(NodeKind(1, "node1", "", "", True), text),
        )


class _Answers(Api):
    """The API, with answers that are given instead of asked for."""

    def __init__(self, parts: dict[str, bytes], data: bytes) -> None:
        self._parts, self._data = parts, data
        self._core = self._batch = cast(Any, SimpleNamespace(**dict.fromkeys(_CALLS)))
        self.now, self.namespace = NOW, "gpu"

    def _ask(self, *_: Any, what: str, **options: Any) -> bytes:
        if what.startswith("read the log"):
            return frame("ending", _ENDING)
        return next((part for name, part in self._parts.items() if what.startswith(name)), self._data)


def read_kubernetes(data: bytes, _: Path) -> None:
    """Ask a cluster everything that its answers are read for."""
    api = _Answers(parts_of(data), data)
    fleet = kubernetes.Kubernetes(KubernetesSection(), api)
    each(
        fleet.inventory, lambda: fleet.poll([UNIT]), lambda: fleet.collect(UNIT), lambda: fleet.logs(UNIT),
        lambda: fleet.cancel([UNIT]), lambda: kinds_of(map(read_node, api.nodes())),
    )  # fmt: skip


def read_docker(data: bytes, _: Path) -> None:
    """Read what an engine says about itself and about an image."""
    try:
        said = json.loads(data)
        info, history, attrs = said["info"], said["history"], said["image"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    # The engine's SDK itself needs these.
    if not (isinstance(info, dict) and isinstance(attrs, dict) and isinstance(attrs.get("Id"), str)):
        return
    labels = attrs.get("Config", {}).get("Labels") if isinstance(attrs.get("Config"), dict) else 0
    if not isinstance(labels, dict | None):
        return
    image = Image(attrs=attrs)
    image.history = lambda: history  # type: ignore[method-assign]
    found = SimpleNamespace(get=lambda _: image)
    client = cast(Any, SimpleNamespace(images=found, api=SimpleNamespace(images=lambda **_: [attrs])))
    each(
        lambda: containers.device_requests(info), lambda: images.layers_of(image),
        lambda: images.derivation_of(client, "x"),
    )  # fmt: skip


# The files that images are made of.


def wheel_seeds() -> list[bytes]:
    files = {
        "example/__init__.py": b"x = 1\n", "example-1.0.data/scripts/run": b"#!python\nprint()\n",
        "example-1.0.dist-info/entry_points.txt": b"[console_scripts]\nexample = example:main\n",
    }  # fmt: skip
    both = [with_metadata(files), with_metadata({**files, "example/a.so": FRAMEWORK[:200]})]
    return [Archive(both[0]).render(), Archive(both[1], zip64=True).render()]


def read_wheel(data: bytes, place: Path) -> None:
    """Install a wheel whose hash is in a lock, and read all of its files."""
    path = place / FILENAME
    path.write_bytes(data)
    with open_wheel(path, described(data)) as wheel:
        for entry in entries(wheel, ENVIRONMENT):
            for _chunk in entry.content.chunks() if entry.content else ():
                pass


def read_metadata(data: bytes, place: Path) -> None:
    """Read a text as the metadata of a wheel, its entry points, and what its build says."""
    license_of(message_from_bytes(data))
    files = with_metadata({"example-1.0.dist-info/entry_points.txt": data})
    tensorflow = {**MEMBERS, "tensorflow-2.99.1.dist-info/METADATA": data}
    each(
        lambda: read_wheel(Archive(files).render(), place),
        lambda: build.read_build_info(data.decode("utf-8", "replace"), "x"),
        lambda: read_tensorflow(packed(tensorflow), place),
    )


def read_tensorflow(data: bytes, place: Path) -> None:
    """Inspect a wheel of TensorFlow."""
    path = place / "tensorflow-2.99.1-cp312-cp312-manylinux_2_27_x86_64.whl"
    path.write_bytes(data)
    build.row(build.inspect_tensorflow(path, scratch=place), datetime.date(2026, 11, 28))


def library_seeds() -> list[bytes]:
    return [FRAMEWORK, MEMBERS["tensorflow/libtensorflow_cc.so.2"]]


def read_library(data: bytes, _: Path) -> None:
    """Inspect a shared library with the code of its GPUs."""
    library = elf.ElfFile(data, "x.so")
    each(
        lambda: build.count_kernels(elf.fatbins(library)), lambda: build.opened_sonames(library),
        lambda: build.compiled_cudnn(library), lambda: build.calls_dlopen(library),
        lambda: build.pip_folders(library, "a/x.so"),
    )  # fmt: skip


STATUS = b"Package: git\nStatus: install ok installed\nVersion: 1:2.39\nSource: git-src (1:2.39)\n"


def layer_seeds() -> list[bytes]:
    return [bases.archive({**bases.FILES, "var/lib/dpkg/status": STATUS}), bases.archive(bases.FILES)]


def read_layer(data: bytes, place: Path) -> None:
    """Read a layer of a base, and what an image needs of its files; then the same bytes as a saved image."""
    kind = {b"\x1f\x8b": "+gzip", b"\x28\xb5": "+zstd"}.get(data[:2], "")
    system = read_file_system([lambda: decompressed(iter([data]), kind)])
    found = base_files(system, "debian", "3.11")
    for path, file in found.files.items():
        if path.endswith("dpkg/status"):
            list(read_status(file.content, "debian"))
        if path.endswith("ld.so.cache"):
            host_files.render(host_files.parse(file.content))


def saved_seeds() -> list[bytes]:
    config = {"os": "linux", "architecture": "amd64", "config": {"Env": ["PATH=/usr/bin"]},
              "rootfs": {"type": "layers", "diff_ids": [DIGEST]}}  # fmt: skip
    saved = [{"Config": "config.json", "RepoTags": None, "Layers": ["layer.tar"]}]
    files = {"manifest.json": json.dumps(saved).encode(), "config.json": json.dumps(config).encode(),
             "layer.tar": bases.archive(bases.FILES)}  # fmt: skip
    return [bases.archive(dict(files))]


def read_saved(data: bytes, place: Path) -> None:
    """Read an image that an engine saved."""
    path = place / "saved.tar"
    path.write_bytes(data)
    with contextlib.closing(LayerTable(place)) as table:
        saved_image(path, "docker:x", "x", None, "3.11", table)


def loader_seeds() -> list[bytes]:
    flags = host_files.CacheEntry(
        "libz.so.1", "/lib/glibc-hwcaps/x86-64-v3/libz.so.1", hwcap=1 << 62, hwcaps="x86-64-v3"
    )
    return [host_files.render(bases.CACHE), host_files.render(host_files.LoaderCache((flags,), "ldconfig"))]


def read_loader(data: bytes, _: Path) -> None:
    host_files.render(host_files.parse(data))


@cache
def store_seeds() -> list[bytes]:
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "store.db"
        with contextlib.closing(Store(str(path))) as store:
            store.add_all([record(1), record(2)])
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")
        return [path.read_bytes()]


def read_store(data: bytes, place: Path) -> None:
    """Open a file of somebody else as a store, and salvage what is in it."""
    path = place / "store.db"
    path.write_bytes(data)
    each(lambda: salvage(path), lambda: _listed(path))


def _listed(path: Path) -> None:
    with contextlib.closing(Store(str(path), read_only=True)) as store:
        for found in (*store.entries(), *store.all()):
            str(found)


# What people and browsers send.


def read_request(data: bytes, _: Path) -> None:
    """Send a request to the server of the page."""
    server = object.__new__(PageServer)
    server.events, server._name = Events(), "localhost"
    server.events.close()
    server.listeners = cast(Any, SimpleNamespace(acquire=lambda **_: True, release=lambda: None))
    server.show({"index.html": b"<html>"})
    here, there = socket.socketpair()
    with contextlib.closing(here), contextlib.closing(there):
        there.sendall(data[:60_000])
        there.shutdown(socket.SHUT_WR)
        with contextlib.suppress(OSError):
            _Handler(here, ("127.0.0.1", 1), server)


def read_question(data: bytes, _: Path) -> None:
    """Answer what the page asks. The page sends an object whose members are texts."""
    try:
        fields = msgspec.json.decode(data, type=dict[str, str])
    except (msgspec.DecodeError, UnicodeDecodeError):
        fields = {"kind": "works", "gpu": data.decode("utf-8", "replace"), "driver": data.decode("latin-1")}
    given = {"driver": "", "gpu": "", "python": "", "system": "linux", "machine": "x86_64", **fields}
    ask(json.dumps({**given, "kind": "works", "registry": None, "images": None, "verdicts": None}))


def read_words(data: bytes, place: Path) -> None:
    """Run `predict` with what a person typed, and read each word as the name of an image."""
    text = data.replace(b"\0", b"").decode("utf-8", "surrogateescape")
    for word in text.split(" "):
        each(
            lambda word=word: _host(word),
            lambda word=word: ImageName.parse(word),
            lambda word=word: Repository.parse(word),
        )
        if found := TaggedImage.of_tag(word):
            assert found.preference
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        contextlib.suppress(OSError),
    ):
        try:
            with group.make_context("validator", ["predict", *words]) as context:
                group.invoke(context)
        except (click.ClickException, click.exceptions.Exit):
            pass


KINDS: dict[str, tuple[Callable[[], list[bytes]], Mutator, Callable[[bytes, Path], None]]] = {
    "slurm": (partial(seeds_of, "slurm"), mutate_text, read_slurm),
    "job": (partial(seeds_of, "job"), mutate_json, read_job),
    "kubernetes": (partial(seeds_of, "kubernetes"), mutate_json, read_kubernetes),
    "docker": (partial(seeds_of, "docker"), mutate_json, read_docker),
    "wheel": (wheel_seeds, mutate_binary, read_wheel),
    "metadata": (partial(seeds_of, "metadata"), mutate_text, read_metadata),
    "tensorflow": (lambda: [packed(MEMBERS)], mutate_binary, read_tensorflow),
    "library": (library_seeds, mutate_binary, read_library),
    "layer": (layer_seeds, mutate_packed, read_layer),
    "saved": (saved_seeds, mutate_binary, read_saved),
    "loader": (loader_seeds, mutate_binary, read_loader),
    "store": (store_seeds, mutate_binary, read_store),
    "request": (partial(seeds_of, "request"), mutate_text, read_request),
    "question": (partial(seeds_of, "question"), mutate_json, read_question),
    "words": (partial(seeds_of, "words"), mutate_text, read_words),
}
