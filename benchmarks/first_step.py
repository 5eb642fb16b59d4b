"""Time each stage up to the first compiled step: `python benchmarks/first_step.py [--rounds N]`.

Our image of the newest TensorFlow for the CPU, against the conventional image of the same wheels in zstd (see
conventional.py), each from a registry of its own on loopback. The parts of the way, each by itself:

 - pull: `docker pull`. Docker has only the layers of the base.
 - start: a container whose Python does nothing, until it has ended.
 - import: `import tensorflow`, in a new container.
 - compile: the first step of a small Keras model with jit_compile=True, minus a later step.
 - second start: the same first step in another container, which has XLA's cache from the first, as `run`
   gives it to images with CUDA; against the first in the same image.

The rounds of both images alternate, and the figure is the median of the ratios. Needs Docker, docker-registry
and 8 GB of disk. Everything that it makes is removed at the end, except for wheels and bases in the cache.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from benchmarks.conventional import push_in_zstd  # noqa: E402
from benchmarks.image_builds import NEWEST, PYTHON, Row, Run, load_now, say  # noqa: E402
from benchmarks.places import new_layers, registry  # noqa: E402
from benchmarks.publishing import lock_of, maker_of  # noqa: E402
from validator.assemble.image import RegistryDestination  # noqa: E402
from validator.assemble.layer_table import LayerTable  # noqa: E402
from validator.compat import facts  # noqa: E402
from validator.model.spec import ImageSpec, Variant  # noqa: E402
from validator.registry.names import Repository  # noqa: E402

LIMITS = {"pull": 1.0, "start": 1.0, "import": 1.0, "compile": 1.0, "second start": 0.5}
#: Runs in the container. The model trains on one batch, so that a step is short against its compilation.
PROGRAM = """
import json, time
start = time.perf_counter()
import tensorflow as tf
imported = time.perf_counter() - start
layers = [tf.keras.layers.Input((32, 32, 3))]
for width in (16, 32, 64):
    layers.append(tf.keras.layers.Conv2D(width, 3, strides=2, activation="relu"))
    layers.append(tf.keras.layers.BatchNormalization())
model = tf.keras.Sequential([*layers, tf.keras.layers.Flatten(), tf.keras.layers.Dense(10)])
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("sgd", loss, jit_compile=True)
images, labels = tf.zeros((32, 32, 32, 3)), tf.zeros((32,), tf.int32)
seconds = []
for _ in range(4):
    start = time.perf_counter()
    model.train_on_batch(images, labels)
    seconds.append(time.perf_counter() - start)
print(json.dumps({"import": imported, "compile": seconds[0] - min(seconds[1:])}))
"""


class Image:
    """An image in a registry of its own. python: its interpreter."""

    def __init__(self, run: Run, reference: str, python: str) -> None:
        self.reference, self.python = reference, python
        self._endpoint, self._base = run.endpoint, run.base

    @contextmanager
    def pulled(self) -> Iterator[float]:
        """Pull the image, yield the seconds, and remove it at the end."""
        with new_layers(self._endpoint, self.reference, self._base):
            os.sync()
            yield self._timed("pull", "--quiet", self.reference)[0]

    def steps(self, cache: str) -> dict[str, float]:
        """Return the seconds of the parts after the pull. cache: the name of a new volume."""
        found = {"start": self._timed("run", "--rm", self.reference, self.python, "-c", "pass")[0]}
        found |= self._train()
        flag = next(row["flag"] for row in facts.rows("xla", "caches") if row["variable"] == "TF_XLA_FLAGS")
        kept = ["--user", "0", "--mount", f"type=volume,source={cache},target=/kept"]
        kept += ["--env", f"TF_XLA_FLAGS={flag}=/kept"]
        try:
            found["first"] = self._train(*kept)["compile"]
            found["second"] = self._train(*kept)["compile"]
        finally:
            subprocess.run([self._endpoint.program, "volume", "rm", cache], capture_output=True, check=False)
        return found

    def _train(self, *options: str) -> dict[str, float]:
        _, out = self._timed("run", "--rm", *options, self.reference, self.python, "-c", PROGRAM)
        found: dict[str, float] = json.loads(out.splitlines()[-1])
        return found

    def _timed(self, *words: str) -> tuple[float, str]:
        begin = time.perf_counter()
        done = subprocess.run([self._endpoint.program, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"docker {' '.join(words[:2])} failed:\n{done.stderr[-3000:]}")
        return time.perf_counter() - begin, done.stdout


def publish(run: Run, spec: ImageSpec, stack: ExitStack) -> tuple[Image, Image]:
    """Publish our image and the conventional one, and return them."""
    lock = lock_of(spec)
    run.fetch(lock)
    run.check_space(8, "both images")
    base, places = run.base, [run.place / "ours", run.place / "conventional"]
    addresses = [stack.enter_context(registry(place / "registry")) for place in places]
    say("publishing our image")
    maker = maker_of(LayerTable(run.place / "table"), run.wheels, run.bases)
    repository = Repository.parse(f"{addresses[0]}/ours")
    maker.make(spec, lock, RegistryDestination(repository, spec.identifier), lambda text: None)
    say("building the conventional image")
    context = places[1] / "context"
    context.mkdir(parents=True)
    theirs = push_in_zstd(run.endpoint, base, lock, run.wheels, addresses[1], context)
    ours = f"{addresses[0]}/ours:{spec.identifier}"
    return Image(run, ours, "python"), Image(run, theirs, "python3")


def measure(images: tuple[Image, Image], rounds: int) -> list[tuple[dict[str, float], dict[str, float]]]:
    """Return the seconds of our image and of the conventional one, in each round."""
    found = []
    for number in range(rounds):
        pair: dict[Image, dict[str, float]] = {}
        # Each goes first in turn.
        for image in images if number % 2 else images[::-1]:
            with image.pulled() as pull_s:
                pair[image] = {"pull": pull_s, **image.steps(f"first-step-{uuid.uuid4().hex}")}
        found.append((pair[images[0]], pair[images[1]]))
        print(json.dumps(found[-1]), flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    # So that everything is removed when another program ends this one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    spec = ImageSpec(NEWEST, PYTHON, Variant.CPU)
    with tempfile.TemporaryDirectory(prefix="first-step-") as name, ExitStack() as stack:
        run = Run(Path(name), stack)
        rounds = measure(publish(run, spec, stack), options.rounds)
    pairs = {part: [(ours[part], theirs[part]) for ours, theirs in rounds] for part in list(LIMITS)[:-1]}
    pairs["second start"] = [(ours["second"], ours["first"]) for ours, _ in rounds]
    rows = []
    for part, seconds in pairs.items():
        ratios = [above / below for above, below in seconds]
        median_s = statistics.median(above for above, _ in seconds)
        detail = f"{min(ratios):.3f} to {max(ratios):.3f}; {median_s:.2f} s, {load_now()}"
        rows.append(Row(part, statistics.median(ratios), LIMITS[part], detail))
        print(rows[-1])
    return 0 if all(row.limit is not None and row.value <= row.limit for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
