"""Measure how images are made from wheels: `python benchmarks/image_builds.py [--only PART ...]`.

Every figure is a ratio to the conventional image of the same wheels in the same run: the same base, one RUN
with pip, gzip, `docker push` to the same kind of registry on loopback (see conventional.py). The parts:

 - conventional: only that image. Prints the option that gives its times to other runs in the same session.
 - publish: one image, nothing known; then another TensorFlow; then the same one again;
   with the memory, and the disk that it takes besides the cache of wheels and the registry.
 - nightly: six images of the profile nightly, three releases on two Pythons, one after the other.
 - registry: the bytes of the whole profile nightly in a registry, computed from the locks.
 - local: an image made in Docker and probed, against only the build of the conventional one; with the disk
   that it takes besides the wheels and the engine.
 - pull: into Docker, against the conventional image in zstd as BuildKit makes it.

The wheels are downloaded before the clock starts, 4 GB. Needs Docker, docker-registry and 16 GB of disk; for
nightly also Python 3.12. Everything that it makes is removed after the part that needs it, except for the
wheels and the bases in the cache.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from validator.assemble.base_finder import BasePolicy, Bases
from validator.assemble.image import put_base
from validator.assemble.layer_table import LayerTable
from validator.assemble.wheel_layers import LARGE_FILE
from validator.assemble.wheels import Wheelhouse
from validator.engines.endpoint import Endpoint, connect
from validator.engines.images import load
from validator.locks import lock_files
from validator.matrix.load import load_matrix
from validator.matrix.plan import plan
from validator.model.spec import Lock
from validator.system.files import cache_directory
from validator.system.package_sources import host_sources

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from benchmarks.conventional import Conventional, build_and_push, push_in_zstd  # noqa: E402
from benchmarks.places import Disk, check_space, new_layers, pull, refuse_known, registry, remove  # noqa: E402
from benchmarks.publishing import LOCKS, as_built, lock_of  # noqa: E402

PYTHON = "3.11"
NEWEST, BEFORE = "2.21.0", "2.20.0"
NIGHTLY = [(release, python) for release in (NEWEST, BEFORE, "2.19.1") for python in (PYTHON, "3.12")]
BASE = "tensorflow-gpu-matrix-benchmark-base:latest"

PUBLISH_LIMIT = 0.15
SECOND_LIMIT = 0.05
KNOWN_LIMIT = 0.001
NIGHTLY_LIMIT = 0.08
REGISTRY_LIMIT = 0.3
PULL_LIMIT = 1.0
LOCAL_LIMIT = 1.0
MEMORY_LIMIT_MB = 300
DISK_LIMIT_MB = 100


@dataclass(frozen=True)
class Row:
    """A figure with its limit. detail: what it was computed from."""

    name: str
    value: float
    limit: float | None
    detail: str
    unit: str = ""

    def __str__(self) -> str:
        limit = "" if self.limit is None else f" of at most {self.limit:g}{self.unit}"
        digits = 0 if self.unit else 4 if self.value < 0.01 else 3
        return f"{self.name:44} {self.value:8.{digits}f}{self.unit}{limit:20} {self.detail}"


@dataclass
class Run:
    """The values that the parts of the benchmark share. place: the directory for what they make."""

    place: Path
    stack: ExitStack
    wheels: Path = field(default_factory=lambda: cache_directory() / "wheels")
    bases: Path = field(default_factory=lambda: cache_directory() / "bases")

    @cached_property
    def endpoint(self) -> Endpoint:
        return connect()

    @cached_property
    def base(self) -> str:
        """The base of all images, in Docker."""
        table = LayerTable(self.place / "base-table")
        base = Bases(BasePolicy.BOOTSTRAP, table, directory=self.bases).base(as_built(NEWEST, PYTHON), say)
        load(self.endpoint, BASE, lambda into: put_base(base, into, table))
        self.stack.callback(remove, self.endpoint, BASE)
        return BASE

    @cached_property
    def lock(self) -> Lock:
        return lock_of(as_built(NEWEST, PYTHON))

    @cached_property
    def conventional(self) -> Conventional:
        """The time of the conventional image."""
        self.fetch(self.lock)
        self.check_space(15, "the conventional image")
        base = self.base
        say("building the conventional image, and pushing it, which takes about 5 minutes")
        with self.directory("conventional") as place, registry(place / "registry") as address:
            (place / "context").mkdir()
            made = build_and_push(self.endpoint, base, self.lock, self.wheels, address, place / "context")
        print(
            f"conventional image: built in {made.build_s:.1f} s, pushed in {made.push_s:.1f} s\n"
            f"for other runs in this session: --conventional-seconds {made.build_s:.1f} {made.push_s:.1f}",
            flush=True,
        )
        return made

    @contextmanager
    def directory(self, name: str) -> Iterator[Path]:
        """Yield a new directory, which is removed with its content at the end."""
        place = self.place / name
        place.mkdir()
        # Wait for what an earlier part wrote and removed, so that it doesn't slow this part down.
        os.sync()
        try:
            yield place
        finally:
            shutil.rmtree(place)

    def check_space(self, gigabytes: float, what: str) -> None:
        docker = Path(self.endpoint.info["DockerRootDir"])
        check_space(gigabytes, what, self.place, *([docker] if docker.exists() else []))

    def fetch(self, *locks: Lock) -> None:
        house = Wheelhouse(host_sources(), self.wheels)
        house.fetch([wheel for lock in locks for wheel in lock.wheels], say)
        house.close()

    def publish(
        self, name: str, images: list[tuple[str, str]], *, known: bool = False,
        only_tensorflow: bool = False,
    ) -> tuple[list[dict[str, Any]], float]:  # fmt: skip
        """Publish images to a new registry. Return what publishing.py prints, and the disk it took in MB."""
        self.check_space(8, name)
        with self.directory(name) as place, registry(place / "registry") as address:
            say(f"publishing {len(images)} images ({name})")
            return self.publish_to(address, place, images, known, only_tensorflow)

    def publish_to(
        self, address: str, place: Path, images: list[tuple[str, str]],
        known: bool = False, only_tensorflow: bool = False,
    ) -> tuple[list[dict[str, Any]], float]:  # fmt: skip
        """Do the same with a registry that is there."""
        (place / "tmp").mkdir()
        job = {
            "table": str(place / "table"), "repository": f"{address}/ours",
            "wheels": str(self.wheels), "bases": str(self.bases), "images": images,
            "known": known, "only_tensorflow": only_tensorflow,
        }  # fmt: skip
        environment = os.environ | {"TMPDIR": str(place / "tmp"), "VALIDATOR_CACHE": str(place / "cache")}
        command = [sys.executable, str(REPOSITORY / "benchmarks/publishing.py"), json.dumps(job)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        disk = Disk(child.pid, [place / "tmp", place / "cache", place / "table"])
        found = []
        try:
            assert child.stdout is not None
            with disk, child.stdout:
                for line in child.stdout:
                    found.append(json.loads(line))
                    print(f"  {line.strip()}", flush=True)
        finally:
            child.terminate()
            status = child.wait()
        if len(found) < len(images):
            raise SystemExit(f"publishing.py ended with status {status}")
        return found, disk.most / 1e6


def measure_conventional(run: Run) -> Iterator[Row]:
    yield Row("conventional image", run.conventional.seconds, None, load_now(), " s")


def measure_publish(run: Run) -> Iterator[Row]:
    whole = run.conventional.seconds
    run.fetch(run.lock, lock_of(as_built(BEFORE, PYTHON)))
    images = [(NEWEST, PYTHON), (BEFORE, PYTHON)]
    (first, second), disk = run.publish("publish", images, known=True, only_tensorflow=True)
    yield ratio("one image", first["seconds"], whole, PUBLISH_LIMIT)
    yield ratio("another TensorFlow", second["seconds"], whole, SECOND_LIMIT)
    known = first["known_s"]
    yield Row("all layers known", known / whole, KNOWN_LIMIT, f"{known:.3f} s of {whole:.1f} s")
    yield Row("memory", second["peak_mb"], MEMORY_LIMIT_MB, "of both images", " MB")
    yield Row("disk besides the wheels", disk, DISK_LIMIT_MB, "of both images", " MB")


def measure_nightly(run: Run) -> Iterator[Row]:
    whole = run.conventional.seconds
    run.fetch(*(lock_of(as_built(*image)) for image in NIGHTLY))
    found, _ = run.publish("nightly", NIGHTLY)
    each = sum(one["seconds"] for one in found) / len(found)
    yield ratio("six images of nightly, each", each, whole, NIGHTLY_LIMIT)


def measure_registry(run: Run) -> Iterator[Row]:
    """Compare compressed bytes, taken from the sizes of the wheels, whose own compression both keep."""
    cells = plan(load_matrix(REPOSITORY / "matrix.yaml"), profile="nightly").images
    locks = [lock for spec in cells if (lock := lock_files.read(LOCKS, spec.identifier))]
    each = sum(wheel.size or 0 for lock in locks for wheel in lock.wheels)
    different = {wheel.sha256: wheel.size or 0 for lock in locks for wheel in lock.wheels}
    detail = f"{sum(different.values()) / 1e9:.1f} GB of {each / 1e9:.1f} GB, {len(locks)} images"
    yield Row("registry, wheels shared", sum(different.values()) / each, REGISTRY_LIMIT, detail)
    shared = _shared_by_large_files(run, locks)
    if shared:
        detail = (
            f"the large files of {len(shared)} wheels that are here, of which {sum(shared.values())} repeat"
        )
        total = sum(different.values()) - sum(shared.values())
        yield Row("registry, large files shared too", total / each, REGISTRY_LIMIT, detail)


def _shared_by_large_files(run: Run, locks: list[Lock]) -> dict[str, int]:
    """Return the compressed bytes that each local wheel of TensorFlow has in common with those before it."""
    house = Wheelhouse(host_sources(), run.wheels)
    seen: set[str] = set()
    found: dict[str, int] = {}
    wheels = {wheel.sha256: wheel for lock in locks for wheel in lock.wheels if wheel.name == "tensorflow"}
    for wheel in wheels.values():
        if house.missing([wheel]):
            continue
        with house.open(wheel) as opened:
            large = [one for one in opened.members.values() if one.size >= LARGE_FILE and one.sha256]
            found[wheel.sha256] = sum(one.item.compress_size for one in large if one.sha256 in seen)
            seen |= {one.sha256 for one in large if one.sha256}
    house.close()
    return found


def measure_pull(run: Run) -> Iterator[Row]:
    """Each image comes from a registry of its own. Docker has only the base's layers."""
    run.fetch(run.lock)
    run.check_space(16, "the conventional image in zstd")
    base = run.base
    say("building the conventional image and pushing it in zstd, which takes about 4 minutes")
    with run.directory("pull-conventional") as place, registry(place / "registry") as address:
        (place / "context").mkdir()
        name = push_in_zstd(run.endpoint, base, run.lock, run.wheels, address, place / "context")
        theirs = pull(run.endpoint, name, base)
    yield Row("conventional, zstd: pull", theirs, None, load_now(), " s")
    identifier = as_built(NEWEST, PYTHON).identifier
    run.check_space(14, "a pull")
    with run.directory("pull") as place, registry(place / "registry") as address:
        say("publishing an image to pull")
        run.publish_to(address, place, [(NEWEST, PYTHON)])
        ours = pull(run.endpoint, f"{address}/ours:{identifier}", base)
    yield ratio("pull", ours, theirs, PULL_LIMIT)


def measure_local(run: Run) -> Iterator[Row]:
    name = f"tensorflow-gpu-matrix:{as_built(NEWEST, PYTHON).identifier}"
    refuse_known(run.endpoint, name)
    whole = run.conventional.build_s
    run.fetch(run.lock)
    run.check_space(10, "an image in Docker")
    say("making an image in Docker, and probing it")
    with run.directory("local") as place, new_layers(run.endpoint, name, run.base):
        build = _building(run, place)
        seconds, disk = build("--no-validate")
        probing_s, _ = build()
    # Only the end of `new_layers` shows whether Docker had the layers before, and then there is no figure.
    yield ratio("zstd: local build", seconds, whole, LOCAL_LIMIT)
    # Without a limit: the engine wants to know the size of a layer before its content.
    yield Row("zstd: disk of a local build", disk, None, "besides the wheels and the engine", " MB")
    yield Row("zstd: probe of the local image", probing_s, None, "whole command", " s")


def _building(run: Run, place: Path) -> Callable[..., tuple[float, float]]:
    """Return what runs build-matrix for one image, with a matrix, records and a cache of its own.

    It returns the seconds, and the disk in MB that the command took at most, besides wheels and bases.
    """
    cache = place / "cache"
    cache.mkdir()
    (cache / "wheels").symlink_to(run.wheels)
    (cache / "bases").symlink_to(run.bases)
    matrix = place / "matrix.yaml"
    matrix.write_text(
        f'images:\n  - tensorflow: "{NEWEST}"\n    python: ["{PYTHON}"]\n'
        'hosts:\n  - {driver: "580", gpu: t4}\n'
        "profiles:\n  quick: {description: One image.}\n"
    )
    (place / "images").mkdir()
    shutil.copytree(LOCKS, place / lock_files.DIRECTORY)
    command = [sys.executable, "-m", "validator", "build-matrix", "--engine", "docker", "--base", "bootstrap"]
    command += ["--matrix", str(matrix), "--store", str(place / "records.db")]
    (place / "tmp").mkdir()
    environment = os.environ | {
        "VALIDATOR_CACHE": str(cache), "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(place / "tmp")
    }  # fmt: skip

    def build(*options: str) -> tuple[float, float]:
        begin = time.perf_counter()
        with open(place / "errors", "w+", encoding="utf-8") as errors:
            child = subprocess.Popen(
                [*command, *options], env=environment, cwd=place, stdout=subprocess.DEVNULL, stderr=errors
            )
            disk = Disk(child.pid, [cache, place / "tmp"])
            try:
                with disk:
                    status = child.wait()
            finally:
                child.terminate()
            # 1: without a GPU, the probe proves nothing.
            if status > 1:
                errors.seek(0)
                raise SystemExit(f"build-matrix failed:\n{errors.read()[-3000:]}")
        return time.perf_counter() - begin, disk.most / 1e6

    return build


PARTS: dict[str, Callable[[Run], Iterator[Row]]] = {
    "conventional": measure_conventional,
    "publish": measure_publish,
    "nightly": measure_nightly,
    "registry": measure_registry,
    "local": measure_local,
    "pull": measure_pull,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=PARTS, help="only this part; repeatable")
    parser.add_argument(
        "--conventional-seconds",
        nargs=2,
        type=float,
        metavar=("BUILD", "PUSH"),
        help="the times of the conventional image in an earlier run of this session; not for pull",
    )
    options = parser.parse_args()
    # So that everything is removed when another program ends this one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    wanted = [part for part in PARTS if not options.only or part in options.only]
    rows: list[Row] = []
    begin = time.perf_counter()
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="image-builds-")))
        run = Run(place, stack)
        if options.conventional_seconds:
            run.conventional = Conventional(*options.conventional_seconds)
        for part in wanted:
            for row in PARTS[part](run):
                print(f"  {row}", flush=True)
                rows.append(row)
    print(f"\n{load_now()}, {time.perf_counter() - begin:.0f} s in all")
    for row in rows:
        print(row)
    return 0 if all(row.limit is None or row.value <= row.limit for row in rows) else 1


def ratio(name: str, seconds: float, whole: float, limit: float | None) -> Row:
    return Row(name, seconds / whole, limit, f"{seconds:.1f} s of {whole:.1f} s, {load_now()}")


def load_now() -> str:
    return f"load {os.getloadavg()[0]:.1f}"


def say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
