"""Measure how images are made from wheels: `python benchmarks/image_builds.py [--only PART ...]`.

Every figure is a ratio to the conventional image of the same wheels in the same run: the same base, one RUN
with pip, gzip, `docker push` to the same kind of registry on loopback (see conventional.py). The parts:

 - publish: one image, nothing known, in both encodings; then another TensorFlow; then the same one again;
   with the memory, and the disk that it takes besides the cache of wheels and the registry.
 - nightly: six images of the profile nightly, three releases on two Pythons, one after the other.
 - registry: the bytes of the whole profile nightly in a registry, computed from the locks.
 - pull: into Docker, against the conventional image in zstd as BuildKit makes it.
 - local: an image made in Docker and probed, against only the build of the conventional one.

The wheels are downloaded before the clock starts. Needs Docker, docker-registry and 15 GB of disk; for
nightly also Python 3.12. Everything that it makes is removed, except for the wheels in the cache.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from validator.assemble.bases import BasePolicy, Bases
from validator.assemble.encodings import encoding
from validator.assemble.image import put_base
from validator.assemble.layers import Layers
from validator.assemble.plan import LARGE_FILE
from validator.assemble.table import LayerTable
from validator.assemble.wheel import open_wheel
from validator.assemble.wheels import Wheelhouse
from validator.engines.docker.endpoint import Endpoint, connect
from validator.engines.docker.load import load
from validator.locks import files
from validator.matrix.load import load_matrix
from validator.matrix.plan import plan
from validator.model.lock import Lock
from validator.system.files import cache_directory
from validator.system.sources import host_sources

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from benchmarks.conventional import Conventional, build_and_push, conventional_name, push_in_zstd  # noqa: E402
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
MEMORY_LIMIT_MB = 300
DISK_LIMIT_MB = 100
_POLL_S = 0.2


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
    """What the parts share.

    place: for everything that is made. pulls: images will be pulled. in_zstd: the conventional image in zstd.
    """

    place: Path
    stack: ExitStack
    pulls: bool = False
    in_zstd: str = ""
    wheels: Path = field(default_factory=lambda: cache_directory() / "wheels")
    bases: Path = field(default_factory=lambda: cache_directory() / "bases")

    @cached_property
    def endpoint(self) -> Endpoint:
        return connect()

    @cached_property
    def registry(self) -> str:
        """The registry that images are pulled from."""
        return self.stack.enter_context(registry(self.place / "registry"))

    @cached_property
    def base(self) -> str:
        """The base of all images, in Docker."""
        table = LayerTable(self.place / "base-table")
        base = Bases(BasePolicy.BOOTSTRAP, table, directory=self.bases).base(as_built(NEWEST, PYTHON), say)
        load(self.endpoint, BASE, lambda into: put_base(base, into, table, encoding(Layers.GZIP)))
        self.stack.callback(remove, self.endpoint, BASE)
        return BASE

    @cached_property
    def lock(self) -> Lock:
        return lock_of(as_built(NEWEST, PYTHON))

    @cached_property
    def conventional(self) -> Conventional:
        """What the conventional image took. Only its copy in zstd stays, if it is needed for pulls."""
        self.fetch(self.lock)
        base, context = self.base, self.place / "context"
        context.mkdir()
        say("making the conventional image ...")
        try:
            with (
                registry(self.place / "conventional-registry") as address,
                removed(self.endpoint, conventional_name(address, self.lock)),
            ):
                made = build_and_push(self.endpoint, base, self.lock, self.wheels, address, context)
            print(
                f"conventional image: built in {made.build_s:.0f} s, pushed in {made.push_s:.0f} s,"
                f" load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
            if self.pulls:
                self.in_zstd = push_in_zstd(
                    self.endpoint, base, self.lock, self.wheels, self.registry, context
                )
                remove(self.endpoint, self.in_zstd)
        finally:
            prune(self.endpoint)
        return made

    def fetch(self, *locks: Lock) -> None:
        house = Wheelhouse(host_sources(), self.wheels)
        house.fetch([wheel for lock in locks for wheel in lock.wheels], say)
        house.close()

    def publish(
        self, name: str, layers: Layers, images: list[tuple[str, str]], **options: bool
    ) -> tuple[list[dict[str, Any]], float]:
        """Publish images to a new registry. Return what publishing.py prints, and the disk it took in MB."""
        place = self.place / name
        (place / "tmp").mkdir(parents=True)
        with registry(place / "registry") as address:
            job = {
                "table": str(place / "table"), "layers": layers.value, "repository": f"{address}/ours",
                "wheels": str(self.wheels), "bases": str(self.bases), "images": images,
                "known": False, "only_tensorflow": False, **options,
            }  # fmt: skip
            environment = os.environ | {"TMPDIR": str(place / "tmp"), "VALIDATOR_CACHE": str(place / "cache")}
            command = [sys.executable, str(REPOSITORY / "benchmarks/publishing.py"), json.dumps(job)]
            child = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
            )
            disk = Disk(child.pid, [place / "tmp", place / "cache", place / "table"])
            with disk:
                output, errors = child.communicate()
        shutil.rmtree(place)
        if child.returncode:
            raise SystemExit(f"{name} failed:\n{errors[-3000:]}")
        found = [json.loads(line) for line in output.splitlines()]
        for one in found:
            print(f"{name}: {one}", flush=True)
        return found, disk.most / 1e6


class Disk:
    """The most bytes that a process keeps in some directories and in files without a name."""

    def __init__(self, pid: int, directories: list[Path]) -> None:
        self.most = 0
        self._pid, self._directories = pid, directories
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(_POLL_S):
            self.most = max(self.most, sum(self._sizes()))

    def _sizes(self) -> Iterator[int]:
        for directory in self._directories:
            for path in directory.rglob("*"):
                try:
                    yield path.lstat().st_blocks * 512
                except OSError:
                    continue
        try:
            for link in Path(f"/proc/{self._pid}/fd").iterdir():
                if os.readlink(link).endswith(" (deleted)"):
                    yield link.stat().st_blocks * 512
        except OSError:
            return


def measure_publish(run: Run) -> Iterator[Row]:
    run.fetch(run.lock, lock_of(as_built(BEFORE, PYTHON)))
    whole = run.conventional.seconds
    for layers in Layers:
        images = [(NEWEST, PYTHON), (BEFORE, PYTHON)]
        (first, second), disk = run.publish(layers.value, layers, images, known=True, only_tensorflow=True)
        of = f"of {whole:.0f} s"
        yield ratio(f"{layers.value}: one image", first["seconds"], whole, PUBLISH_LIMIT)
        yield ratio(f"{layers.value}: another TensorFlow", second["seconds"], whole, SECOND_LIMIT)
        known = first["known_s"]
        yield Row(f"{layers.value}: all layers known", known / whole, KNOWN_LIMIT, f"{known:.3f} s {of}")
        memory = second["peak_mb"]
        yield Row(f"{layers.value}: memory", memory, MEMORY_LIMIT_MB, "of both images", " MB")
        yield Row(f"{layers.value}: disk besides the wheels", disk, DISK_LIMIT_MB, "of both images", " MB")


def measure_nightly(run: Run) -> Iterator[Row]:
    run.fetch(*(lock_of(as_built(*image)) for image in NIGHTLY))
    found, _ = run.publish("nightly", Layers.ZSTD, NIGHTLY)
    each = sum(one["seconds"] for one in found) / len(found)
    yield ratio("six images of nightly, each", each, run.conventional.seconds, NIGHTLY_LIMIT)


def measure_registry(run: Run) -> Iterator[Row]:
    """Compare compressed bytes, taken from the sizes of the wheels, whose own compression both keep."""
    cells = plan(load_matrix(REPOSITORY / "matrix.yaml"), profile="nightly").images
    locks = [lock for spec in cells if (lock := files.read(LOCKS, spec.identifier))]
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
        with open_wheel(house.path(wheel), wheel) as opened:
            large = [one for one in opened.members.values() if one.size >= LARGE_FILE and one.sha256]
            found[wheel.sha256] = sum(one.item.compressed_size for one in large if one.sha256 in seen)
            seen |= {one.sha256 for one in large if one.sha256}
    house.close()
    return found


def measure_pull(run: Run) -> Iterator[Row]:
    """Both images come from the same registry, and Docker has none of their layers but those of the base."""
    run.fetch(run.lock)
    assert run.conventional and run.in_zstd
    theirs = pull(run.endpoint, run.in_zstd)
    for layers in Layers:
        ours = f"{run.registry}/ours-{layers.value}"
        place = run.place / f"pull-{layers.value}"
        job = {
            "table": str(place), "layers": layers.value, "repository": ours, "wheels": str(run.wheels),
            "bases": str(run.bases), "images": [(NEWEST, PYTHON)], "known": False, "only_tensorflow": False,
        }  # fmt: skip
        command = [sys.executable, str(REPOSITORY / "benchmarks/publishing.py"), json.dumps(job)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        name = as_built(NEWEST, PYTHON).identifier
        limit = PULL_LIMIT if layers is Layers.ZSTD else None
        yield ratio(f"{layers.value}: pull", pull(run.endpoint, f"{ours}:{name}"), theirs, limit)


def measure_local(run: Run) -> Iterator[Row]:
    run.fetch(run.lock)
    cache = run.place / "local-cache"
    cache.mkdir()
    for name in ("wheels", "bases"):
        (cache / name).symlink_to(cache_directory() / name)
    matrix = run.place / "matrix.yaml"
    matrix.write_text(
        f'images:\n  - tensorflow: "{NEWEST}"\n    python: ["{PYTHON}"]\n'
        "profiles:\n  quick: {description: One image.}\n"
    )
    (run.place / "images").mkdir()
    shutil.copytree(LOCKS, run.place / files.DIRECTORY)
    command = [sys.executable, "-m", "validator", "build-matrix", "--engine", "docker", "--base", "bootstrap"]
    command += ["--matrix", str(matrix), "--store", str(run.place / "records.db")]
    environment = os.environ | {"VALIDATOR_CACHE": str(cache), "PYTHONPATH": str(REPOSITORY)}

    def build(*options: str) -> float:
        begin = time.perf_counter()
        done = subprocess.run(
            [*command, *options], env=environment, capture_output=True, text=True, cwd=run.place
        )
        # 1: without a GPU, the probe proves nothing.
        if done.returncode > 1:
            raise SystemExit(f"build-matrix failed:\n{done.stderr[-3000:]}")
        return time.perf_counter() - begin

    run.stack.callback(remove, run.endpoint, f"tensorflow-gpu-matrix:{as_built(NEWEST, PYTHON).identifier}")
    built = build("--no-validate")
    yield ratio("local build", built, run.conventional.build_s, None)
    probed = build()
    yield Row("probe of the local image", probed, None, "whole command", " s")


PARTS: dict[str, Callable[[Run], Iterator[Row]]] = {
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
        help="use these times of an earlier run for the conventional image; not for pull",
    )
    options = parser.parse_args()
    # So that everything is removed when another program ends this one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    wanted = [part for part in PARTS if not options.only or part in options.only]
    rows: list[Row] = []
    begin = time.perf_counter()
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="image-builds-")))
        run = Run(place, stack, "pull" in wanted)
        if options.conventional_seconds and not run.pulls:
            run.conventional = Conventional(*options.conventional_seconds)
        for part in wanted:
            for row in PARTS[part](run):
                print(f"  {row}", flush=True)
                rows.append(row)
    print(f"\nload {os.getloadavg()[0]:.1f}, {time.perf_counter() - begin:.0f} s in all")
    for row in rows:
        print(row)
    return 0 if all(row.limit is None or row.value <= row.limit for row in rows) else 1


def ratio(name: str, seconds: float, whole: float, limit: float | None) -> Row:
    return Row(
        name, seconds / whole, limit, f"{seconds:.1f} s of {whole:.1f} s, load {os.getloadavg()[0]:.1f}"
    )


@contextmanager
def registry(place: Path) -> Iterator[str]:
    """Run a registry that stores everything in a directory, and yield its address."""
    program = shutil.which("docker-registry", path=f"{os.environ.get('PATH', '')}:/usr/bin")
    if program is None:
        raise SystemExit("docker-registry is not installed (Debian package docker-registry)")
    place.mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    configuration = {
        "version": 0.1,
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(place / "storage")}},
        "http": {"addr": address},
    }
    # JSON is YAML too.
    (place / "config.yml").write_text(json.dumps(configuration), encoding="utf-8")
    process = subprocess.Popen(
        [program, "serve", str(place / "config.yml")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        host, _, port = address.partition(":")
        for _ in range(300):
            with socket.socket() as trial:
                if trial.connect_ex((host, int(port))) == 0:
                    break
            time.sleep(0.1)
        yield address
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(place)


def pull(endpoint: Endpoint, reference: str) -> float:
    """Return the seconds of a pull, after which the image is removed."""
    begin = time.perf_counter()
    subprocess.run([endpoint.docker, "pull", "--quiet", reference], check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - begin
    remove(endpoint, reference)
    return seconds


@contextmanager
def removed(endpoint: Endpoint, reference: str) -> Iterator[None]:
    """Remove an image at the end, whatever happens."""
    try:
        yield
    finally:
        remove(endpoint, reference)


def remove(endpoint: Endpoint, reference: str) -> None:
    subprocess.run([endpoint.docker, "image", "rm", "--force", reference], capture_output=True, check=False)


def prune(endpoint: Endpoint) -> None:
    """Remove the conventional image from the builder's cache, and nothing else."""
    builder = endpoint.buildx
    command = [*builder.argv, "--builder", builder.builder, "prune", "--all", "--force"]
    subprocess.run([*command, "--filter", "description~=pip.whl"], capture_output=True, check=False)


def say(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
