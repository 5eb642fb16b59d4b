"""Publish images in a process of its own: `python benchmarks/publishing.py JOB`, started by image_builds.py.

JOB is JSON: the directory of the layer table, the encoding, the repository, the directory of the wheels and
that of the bases, and the images as release and Python. Prints a line of JSON for each image. The base is
looked up before the clock starts, as it is for the conventional image. The processor's seconds are those of
this process, without the registry and the compilers of byte code.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from validator.assemble.base import Base
from validator.assemble.base_finder import BasePolicy, Bases
from validator.assemble.bytecode import ENVIRONMENT, Runner
from validator.assemble.image import Assembler, RegistryDestination, put_base
from validator.assemble.layer_table import LayerTable
from validator.assemble.wheels import Wheelhouse
from validator.compat.policies import choose
from validator.compat.releases import release
from validator.engines.docker import BaseContainer
from validator.engines.endpoint import connect
from validator.errors import MissingError
from validator.locks import lock_files
from validator.model.spec import AS_BUILT, ImageSpec, Lock, Variant
from validator.registry.names import Repository
from validator.system.package_sources import host_sources
from validator.system.processes import Progress

LOCKS = Path(__file__).resolve().parent.parent / lock_files.DIRECTORY
#: Publishing a known image is quick, so the median of several times counts.
_REPEATED = 5


def as_built(tensorflow: str, python: str) -> ImageSpec:
    return ImageSpec(tensorflow, python, Variant.GPU, *choose(release(tensorflow), AS_BUILT, AS_BUILT))


def lock_of(spec: ImageSpec) -> Lock:
    lock = lock_files.read(LOCKS, spec.identifier)
    assert lock is not None, f"{spec} has no lock"
    return lock


def with_tensorflow_of(lock: Lock, other: Lock) -> Lock:
    """Return the lock with the TensorFlow of another and nothing else of it."""
    wheels = [wheel for wheel in lock.wheels if wheel.name != "tensorflow"]
    wheels += [wheel for wheel in other.wheels if wheel.name == "tensorflow"]
    ordered = tuple(sorted(wheels, key=lambda wheel: wheel.name))
    return replace(lock, identifier=other.identifier, wheels=ordered)


#: The versions of Python for which a base stands in.
STAND_INS = {"3.12": "3.12.1"}


class LocalBases(Bases):
    """Bases without a registry. Debian does not have every Python, so one base stands in for another.

    A stand-in has the layers of the base with Python 3.11. This machine's Python makes its byte code.
    """

    def __init__(self, table: LayerTable, directory: Path) -> None:
        super().__init__(BasePolicy.BOOTSTRAP, table, directory=directory)

    def provides(self, python: str) -> str | None:
        return None

    def base(self, spec: ImageSpec, progress: Progress) -> Base:
        version = STAND_INS.get(spec.python)
        if version is None:
            return super().base(spec, progress)
        base = super().base(replace(spec, python="3.11"), progress)
        found = replace(base.files, interpreter=replace(base.files.interpreter, version=version))
        return replace(base, files=found)

    def warn_if_moved(self, spec: ImageSpec, origin: str) -> None:
        pass

    def repository(self, spec: ImageSpec) -> None:
        return None


def host_python(python: str) -> str:
    """Return the path of a Python of this machine, given its version such as `3.12`, also one of pyenv."""
    directories = [*os.get_exec_path(), *map(str, Path(sys.base_prefix).parent.glob(f"{python}*/bin"))]
    for directory in directories:
        found = f"{directory}/python{python}"
        # Programs of pyenv may be there without working.
        if os.path.exists(found) and not subprocess.run([found, "-c", ""], capture_output=True).returncode:
            return found
    raise MissingError(f"Python {python} is not on this machine")


class HostPython:
    """Compiles with a Python of this machine. A `Runner`."""

    name = "this machine"

    def __init__(self, python: str) -> None:
        self._python = host_python(python)

    @contextmanager
    def command(self, argv: Sequence[str]) -> Iterator[Sequence[str]]:
        words = [f"{name}={value}" for name, value in ENVIRONMENT.items() if name != "PATH"]
        yield ["env", *words, self._python, *argv[1:]]


def maker_of(table: LayerTable, wheels: Path, bases: Path) -> Assembler:
    """Return what makes images, from these directories of wheels and bases."""
    endpoint = connect()

    def runner(base: Base) -> Runner:
        python = base.files.interpreter.feature
        if python in STAND_INS:
            return HostPython(python)
        return BaseContainer(endpoint, base, lambda into: put_base(base, into, table))

    house = Wheelhouse(host_sources(), wheels)
    return Assembler(LocalBases(table, bases), house, table, runner)


def main() -> int:
    job = json.loads(sys.argv[1])
    table = LayerTable(Path(job["table"]))
    maker = maker_of(table, Path(job["wheels"]), Path(job["bases"]))
    repository = Repository.parse(job["repository"])
    for number, (tensorflow, python) in enumerate(job["images"]):
        spec = as_built(tensorflow, python)
        lock = lock_of(spec)
        if job["only_tensorflow"] and number:
            first = lock_of(as_built(*job["images"][0]))
            lock = with_tensorflow_of(first, lock)
        maker.bases.base(spec, _quiet)

        def publish(spec: ImageSpec = spec, lock: Lock = lock) -> tuple[float, int]:
            begin = time.perf_counter()
            made = maker.make(spec, lock, RegistryDestination(repository, spec.identifier), _quiet)
            return time.perf_counter() - begin, sum(layer.encoded.size for layer in made.layers)

        begin_cpu = time.process_time()
        seconds, size = publish()
        processor = time.process_time() - begin_cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        known = statistics.median(publish()[0] for _ in range(_REPEATED)) if job["known"] else None
        found = {
            "image": spec.identifier,
            "seconds": seconds,
            "processor_s": processor,
            "bytes": size,
            "known_s": known,
            "peak_mb": peak,
        }
        print(json.dumps(found | {"load": os.getloadavg()[0]}), flush=True)
    return 0


def _quiet(_: str) -> None:
    pass


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except MissingError as error:
        raise SystemExit(str(error)) from error
