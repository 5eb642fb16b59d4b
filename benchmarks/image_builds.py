"""Measure what wheel-group layers save: `python benchmarks/image_builds.py --prune`.

Builds with cold caches, in one run and one engine:
 - this project's image of TensorFlow 2.21.0, then one that differs from it in TensorFlow alone, then one of
   the release before as it is locked, with Python packages of its own;
 - the conventional image of the first two: one RUN that installs the same wheels, on the same base.

Prints the wall times as ratios, and which layers the first two share. `--prune` removes the engine's whole
build cache and this project's images of the two specs: without that, nothing here would be measured.
"""

from __future__ import annotations

import argparse
import dataclasses
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from validator.assemble.names import image_reference
from validator.compat.policies import choose
from validator.compat.releases import release
from validator.engines.docker import DockerEngine
from validator.engines.docker.endpoint import Endpoint, connect
from validator.engines.docker.secrets import write_secrets
from validator.locks import files
from validator.model.lock import Lock
from validator.model.spec import AS_BUILT, ImageSpec, Variant
from validator.system.sources import PackageSources, host_sources

REPOSITORY = Path(__file__).resolve().parent.parent
LOCKS = REPOSITORY / files.DIRECTORY
PYTHON = "3.11"
NEXT_LIMIT = 0.4
CONVENTIONAL_LIMIT = 0.5

#: One RUN, as most Dockerfiles have it; the package sources come in as in this project's own.
CONVENTIONAL = """\
ARG BASE
FROM ${BASE}
RUN --mount=type=bind,from=uv,source=uv,target=/uv \\
    --mount=type=bind,source=lock.txt,target=/lock.txt \\
    --mount=type=secret,id=sources --mount=type=secret,id=ca --mount=type=secret,id=netrc \\
    set -a; [ ! -f /run/secrets/sources ] || . /run/secrets/sources; \\
    [ ! -f /run/secrets/ca ] || SSL_CERT_FILE=/run/secrets/ca; set +a; \\
    /uv pip install --system --break-system-packages --no-cache --no-deps --require-hashes -r /lock.txt
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prune", action="store_true", required=True, help="yes, remove the build cache")
    parser.parse_args()
    sources, endpoint = host_sources(), connect()
    engine = DockerEngine(endpoint, sources)
    first, second = as_built("2.21.0"), as_built("2.20.0")
    first_lock = lock_of(first)
    second_lock = with_tensorflow_of(first_lock, lock_of(second))
    # The bases are made before the clock starts: both kinds of image stand on the same one.
    base = engine._bases.base(first, say).reference
    engine._bases.tools(say)

    prune(endpoint, first, second)
    ours = [timed(lambda: engine.build(first, first_lock, quiet), "first image")]
    ours.append(timed(lambda: engine.build(second, second_lock, quiet), "second image, another TensorFlow"))
    layers = [layers_of(endpoint, spec) for spec in (first, second)]
    third = timed(
        lambda: engine.build(second, with_nvidia_of(lock_of(second), first_lock), quiet), "third image"
    )
    prune(endpoint, first, second)
    conventional = [
        timed(lambda lock=lock: build_conventional(endpoint, sources, base, lock), f"conventional {number}")
        for number, lock in enumerate((first_lock, second_lock), start=1)
    ]
    prune(endpoint, first, second)

    shared = sum(one == other for one, other in zip(*layers, strict=True))
    print(f"layers: {len(layers[0])} each, {shared} of them the same; these differ, of the second image:")
    for one, other in zip(*layers, strict=True):
        if one != other:
            print(f"  {other}")
    print(f"{'third image / first image':40} {third / ours[0]:.2f}")
    rows = [
        ("second image / first image", ours[1] / ours[0], NEXT_LIMIT),
        ("two images / two conventional ones", sum(ours) / sum(conventional), CONVENTIONAL_LIMIT),
    ]
    for name, ratio, limit in rows:
        print(f"{name:40} {ratio:.2f} of at most {limit}")
    return 0 if all(ratio <= limit for _, ratio, limit in rows) else 1


def as_built(tensorflow: str) -> ImageSpec:
    return ImageSpec(tensorflow, PYTHON, Variant.GPU, *choose(release(tensorflow), AS_BUILT, AS_BUILT))


def lock_of(spec: ImageSpec) -> Lock:
    lock = files.read(LOCKS, spec.identifier)
    assert lock is not None, f"{spec} has no lock"
    return lock


def with_tensorflow_of(lock: Lock, other: Lock) -> Lock:
    """The lock with the TensorFlow of another and nothing else of it."""
    wheels = [wheel for wheel in lock.wheels if wheel.name != "tensorflow"]
    wheels += [wheel for wheel in other.wheels if wheel.name == "tensorflow"]
    return dataclasses.replace(
        lock, identifier=other.identifier, wheels=tuple(sorted(wheels, key=lambda wheel: wheel.name))
    )


def with_nvidia_of(lock: Lock, other: Lock) -> Lock:
    """The lock with the NVIDIA wheels of another: the two differ in TensorFlow and Python packages."""
    wheels = [wheel for wheel in lock.wheels if not wheel.name.startswith("nvidia-")]
    wheels += [wheel for wheel in other.wheels if wheel.name.startswith("nvidia-")]
    return dataclasses.replace(lock, wheels=tuple(sorted(wheels, key=lambda wheel: wheel.name)))


def timed(work: object, name: str) -> float:
    begin = time.perf_counter()
    work()  # type: ignore[operator]
    seconds = time.perf_counter() - begin
    print(f"{name:40} {seconds:6.0f} s", flush=True)
    return seconds


def build_conventional(endpoint: Endpoint, sources: PackageSources, base: str, lock: Lock) -> None:
    from uv import find_uv_bin

    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "Dockerfile").write_text(CONVENTIONAL)
        (directory / "lock.txt").write_text(files.render(lock))
        (directory / "secrets").mkdir()
        secrets = write_secrets(sources, directory / "secrets")
        subprocess.run(
            [
                *endpoint.buildx.argv, "build", "--builder", endpoint.buildx.builder, "--network", "host",
                "--allow", "network.host", "--build-arg", f"BASE={base}",
                "--build-context", f"uv={Path(find_uv_bin()).parent}",
                *(word for id_, path in secrets.items() for word in ("--secret", f"id={id_},src={path}")),
                "--tag", f"conventional:{lock.identifier}", "--load", str(directory),
            ],
            check=True, stderr=subprocess.DEVNULL,
        )  # fmt: skip


def layers_of(endpoint: Endpoint, spec: ImageSpec) -> list[str]:
    return list(endpoint.client.images.get(image_reference(spec.identifier)).attrs["RootFS"]["Layers"])


def prune(endpoint: Endpoint, *specs: ImageSpec) -> None:
    names = [image_reference(spec.identifier) for spec in specs]
    names += [f"conventional:{spec.identifier}" for spec in specs]
    subprocess.run([endpoint.buildx.argv[0], "image", "rm", "--force", *names], capture_output=True)
    command = [*endpoint.buildx.argv, "--builder", endpoint.buildx.builder, "prune", "--all", "--force"]
    subprocess.run(command, check=True, capture_output=True)


def say(line: str) -> None:
    print(line, file=sys.stderr)


def quiet(_: str) -> None:
    pass


if __name__ == "__main__":
    raise SystemExit(main())
