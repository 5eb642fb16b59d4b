"""A machine with an H100 that does not exist: its engine, its driver, and its clusters.

Everything that it measures is marked as a fixture, so only throw-away keys can certify it. Registries, keys,
signatures, stores and files are real.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from validator.assemble.base_finder import contents
from validator.assemble.image import Assembled, Compared, Destination, Finding
from validator.certify.trust import THROW_AWAY
from validator.delivery.choose import Host, parse_driver, parse_gpus
from validator.delivery.pull import LocalImage, SelectedImage
from validator.engines.protocol import Built, ProbeRequest, probe_version, run_probe
from validator.fleet.protocol import Answer, Fault, Handle, Phase, State
from validator.fleet.submitter import Submitter
from validator.model.record import Outside, Unread
from validator.model.spec import LABEL_SPEC, ImageSpec, Lock, Variant, Wheel
from validator.model.verdict import REQUIRED_ON_CPU
from validator.pipeline.makers import OpenedEngine
from validator.registry import client as registry_module
from validator.registry.client import Registry
from validator.system.files import machine_directory, make_machine_directory
from validator.system.package_sources import PackageSources
from validator.system.processes import Progress

from ..assemble.synthetic import Image, Layer
from ..certify.fixtures import report
from ..certify.measuring import outside_of
from ..certify.private_keys import KeyOwner, make_key
from ..fleet.fake import FakeFleet
from ..pipeline import fakes
from ..pipeline.test_publisher import FakeMaker

DRIVER, GPU = "580.65.06", "h100"
HOST = Host(parse_driver(DRIVER), parse_gpus([GPU]))
#: What `docker info` says where the NVIDIA Container Toolkit is installed.
_INFO: Mapping[str, Any] = {"Runtimes": {"nvidia": {}}}
_NO_GPU = {**report()["host"], "driver": None, "driver_cuda": None, "kernel_driver": None, "gpus": []}


def measured(spec: ImageSpec, arguments: Sequence[str], *, on_gpu: bool = True) -> bytes:
    """Return what the probe reports inside an image. on_gpu: the machine has the H100."""
    document = report(tensorflow=spec.tensorflow, python=f"{spec.python}.7")
    if spec.variant is Variant.CPU or not on_gpu:
        document["host"] = _NO_GPU
        for check in document["checks"]:
            check["outcome"] = "pass" if check["id"] in REQUIRED_ON_CPU else "skip"
            check["evidence"] = {"device_type": "CPU"} if check["evidence"].get("device_type") else {}
    if spec.additions is not None:
        document["checks"].append({**document["checks"][0], "id": "packages", "evidence": {}})
    document["probe"]["version"] = probe_version()
    words = list(arguments)
    if "--challenge" in words:
        document["challenge"] = words[words.index("--challenge") + 1]
    return json.dumps(document).encode()


class Maker(FakeMaker):
    """Makes an image of one small layer for each lock, and sends it as the assembler does."""

    def make(self, spec: ImageSpec, lock: Lock, destination: Destination, progress: Progress) -> Assembled:
        self.makes.append(spec.identifier)
        image = Image((Layer(int(lock.digest[-6:], 16), 1000),), ((LABEL_SPEC, spec.identifier),))
        return Assembled(image.send(destination), image.manifest, image.config, (), self.made_from())


@dataclass
class Engine(fakes.FakeEngine):
    """A Docker Engine on that machine, as `build-matrix` uses it."""

    digest: str | None = "sha256:" + "1" * 64
    seen: Outside | Unread = field(default_factory=lambda: outside_of(report()["host"]))

    def describe(self) -> str:
        return f"Docker 28.5.2+dfsg4 (detected), {'1 GPU' if self.has_gpu else 'no GPUs'}"

    @property
    def has_gpu(self) -> bool:
        return isinstance(self.seen, Outside)

    def pull(self, spec: ImageSpec, lock: Lock, reference: str, progress: Progress) -> Built:
        return Built(spec, reference, lock.digest, reference.partition("@")[2], "registry:python")

    def probe(self, built: Built, request: ProbeRequest, progress: Progress) -> bytes:
        self.requests.append(request)
        return measured(built.spec, request.arguments, on_gpu=self.has_gpu)

    def probe_image(self, image: str, request: ProbeRequest, progress: Progress) -> bytes:
        """Run the real probe. The Python of the image is that of the tests, without TensorFlow."""
        return run_probe(Path(sys.executable), request, progress)

    def made_from(self, image: str) -> tuple[str, str]:
        return "", ""

    def derivation(self, image: str) -> None:
        return None


class Docker:
    """The same engine, as `pull` and `run` use it. local: its images, by name; pulled: references."""

    is_local = True
    info = _INFO
    local: Mapping[str, str] = {}
    pulled: list[str]

    is_podman = False
    name = "Docker Engine"

    def __init__(self, kind: str = "auto") -> None:
        self.pulled = []

    def pull(self, selected: SelectedImage, ids: frozenset[str], progress: Callable[[str], None]) -> None:
        assert selected.digest in ids
        self.pulled.append(selected.reference)

    def load(self, registry: Registry, digest: str, name: str, progress: Callable[[str], None]) -> LocalImage:
        assert registry.manifest(digest) is not None
        return LocalImage(Engine().digest or "", name, name, {}, ())

    def find(self, name: str) -> LocalImage | None:
        spec = name.partition(":")[2]
        return LocalImage(Engine().digest or "", name, name, {LABEL_SPEC: spec}, ()) if spec else None

    def own_images(self, label: str) -> list[LocalImage]:
        specs = ("tf2.21.0-cuda12.9-cudnn9.28-py312", "tf2.20.0-cuda12.9-cudnn9.28-py312")
        found = [self.find(f"tensorflow-gpu-matrix:{spec}") for spec in specs]
        return [image for image in found if image is not None]

    def remove(self, name: str) -> None:
        """Remove nothing: nothing was pulled."""

    def close(self) -> None:
        """Do nothing."""


def resolved(spec: ImageSpec, asked: Sequence[str], *_: object, **__: object) -> Lock:
    """Return a lock of what was asked for, without an index."""
    split = [re.fullmatch(r"([\w.-]+)(?:\[.*\])?(?:==([\w.]+))?.*", line) for line in asked]
    pins = {"pip": "26.3"} | {found[1]: found[2] or "9.0" for found in split if found is not None}
    wheels = tuple(
        Wheel(name, version, hashlib.sha256(name.encode()).hexdigest(), f"{name}-{version}-py3-none-any.whl")
        for name, version in sorted(pins.items())
    )
    notes = spec.additions.notes if spec.additions is not None else ()
    return Lock(spec.identifier, spec.python, "x86_64-manylinux_2_28", tuple(asked), wheels, notes)


#: The names of the keys of a machine, by the section of `trust.yaml` that they are for.
_KEYS = {"runners": "runner", "builders": "builder"}


def make_own_key(section: str) -> KeyOwner:
    """Make a key of this machine, which certifies nothing but fixtures and signs in this process."""
    prefix = make_machine_directory() / _KEYS[section]
    public = make_key(prefix.with_suffix(".key"))
    prefix.with_suffix(".pub").write_text(f"{THROW_AWAY}\n{public}", encoding="ascii")
    found = own_signer(section)
    assert found is not None
    return found


def own_signer(section: str) -> KeyOwner | None:
    """Return a key of this machine, if it was made."""
    path = machine_directory() / f"{_KEYS[section]}.key"
    return KeyOwner(key=str(path), password="", plain=path) if path.exists() else None


def rebuilt(registry: Registry, digest: str, *_: object) -> tuple[Compared, ...]:
    """Return the finding that an image equals its lock. It has no wheels, so nothing has to be made again."""
    return (Compared("tensorflow", Finding.EQUAL, digest, digest),)


@dataclass
class Cluster(FakeFleet):
    """A scheduler whose nodes are such machines. Its jobs are files.

    lost: the node that is lost in the first attempt at an image, and the scheduler's words for that.
    kills: whether `kill -9` ends the process that submits, once all its jobs run.
    """

    lost: tuple[str, str] = ("", "")
    kills: bool = False

    def __post_init__(self) -> None:
        self.answer = self._measure
        self.directory.mkdir(parents=True, exist_ok=True)

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, State]:
        if self.kills and all(job["seen"] > 1 for job in self.jobs().values()):
            self.kills = False
            # As a shell sees the end of a process that `kill -9` ended.
            raise SystemExit(128 + signal.SIGKILL)
        return super().poll(handles)

    def _state(self, job: dict[str, Any]) -> State | None:
        found = super()._state(job)
        if found is not None and found.fault is Fault.NODE_LOST:
            node, reason = self.lost
            return State(Phase.LOST, reason, node, Fault.NODE_LOST)
        return found

    def _measure(self, job: dict[str, Any]) -> Answer:
        spec = _spec(job["cell"].partition("@")[0])
        found = measured(spec, job["arguments"])
        outside = Unread.NO_GPU_OFFERED if spec.variant is Variant.CPU else outside_of(report()["host"])
        return Answer(outside, "podman", True, job["image"], "node1", found)


def _spec(identifier: str) -> ImageSpec:
    tensorflow, *_, python = identifier.removeprefix("tf").partition("_")[0].split("-")
    variant = Variant.CPU if "-cpu-" in identifier else Variant.GPU
    return ImageSpec(tensorflow, f"3.{python.removeprefix('py3')}", variant)


@contextlib.contextmanager
def emulated(
    clusters: Mapping[str, Cluster], sources: PackageSources, engine: Engine | None = None
) -> Iterator[None]:
    """Make this process see that machine, which reaches these clusters and this index, until the end.

    engine: by default one with the H100.
    """
    engine = engine or Engine()
    with pytest.MonkeyPatch.context() as patch:
        place = OpenedEngine(engine, Maker(), engine.describe())
        patch.setattr("validator.cli.building.open_engine", lambda *_, **__: place)
        for name in ("validator.delivery.pull", "validator.cli.building"):
            patch.setattr(f"{name}.Engine", Docker)
        patch.setattr("validator.engines.endpoint.connect", lambda: None)
        patch.setattr("validator.engines.docker.DockerEngine", lambda _: Engine())
        patch.setattr("validator.delivery.choose.this_host", lambda: HOST)
        for name in ("_docker", "_podman"):
            patch.setattr(f"validator.engines.this_machine.{name}", lambda *_: None)
        patch.setattr("validator.assemble.wheels.resolve", resolved)
        # Without the wheels that this tool needs, which the index here does not have.
        patch.setattr(
            "validator.pipeline.bundle.resolve",
            lambda spec, *_, **__: Lock(spec.identifier, spec.python, "", (), ()),
        )
        patch.setattr("validator.pipeline.makers.base_contents", lambda *_: contents(Maker().made_from()))
        patch.setattr("validator.pipeline.makers.rebuild_image", rebuilt)
        patch.setattr("validator.supply.parts.host_sources", lambda: sources)
        patch.setattr(
            "validator.cli.fleet.engine_of",
            lambda name: SimpleNamespace(open_fleet=lambda _: clusters[name]),
        )
        patch.setattr(
            "validator.fleet.submitter.Submitter", functools.partial(Submitter, sleep=lambda _: None)
        )
        patch.setattr("validator.certify.trust_file.make_own_key", make_own_key)
        patch.setattr("validator.certify.trust_file.own_signer", own_signer)
        patch.setattr("validator.engines.this_machine.read_host", lambda *_: outside_of(report()["host"]))
        # Nobody else attaches anything at the same time.
        patch.setattr(registry_module, "_SETTLE_S", 0.0)
        yield
