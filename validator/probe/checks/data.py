"""Data goes in and models come out: tf.data feeds the device, keeps up with it, and models are saved."""

from __future__ import annotations

import functools
import itertools
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Callable

from ...problems import problem, statement
from ...version_numbers import leading_numbers
from .. import tensorflow_devices, training
from ..check import FULL, TENSORFLOW, Context, Result, check, judged
from ..child import anonymous_file
from ..tensorflow_devices import device_type
from ..training import classifier, compile_model, describe
from .speed import GRAPH, SIZES, Size, batch, ratios, spread, training_step, turns


@contextmanager
def _unnamed() -> Iterator[str]:
    """Yield the path of a file without a name, which TensorFlow opens like any other."""
    descriptor = anonymous_file()
    try:
        yield f"/proc/{os.getpid()}/fd/{descriptor}"
    finally:
        os.close(descriptor)


#: Batches in the file, each with other images.
_FED = 4


@check("Does tf.data feed the device with the right examples?", TENSORFLOW, limit_s=120, requires=("device",))
def data_feed(context: Context) -> Result:
    """Read records, decode them in parallel, make batches, and copy these to the device ahead of their use.

    `prefetch_to_device` does the last with threads and a stream other than those of a step.
    """
    tf = context.tensorflow
    kind = device_type(tf)
    with tf.device("/CPU:0"):
        images, labels = training.batch(tf)
        # TensorFlow keeps int32 in the host's memory, even for a GPU.
        labels = tf.cast(labels, tf.int64)
        batches = [(images * (1.0 + number), labels) for number in range(_FED)]
    size = 4 * 16 * 16 * 3

    def decode(record: Any) -> Any:
        """Return the image and the label whose bytes are in a record."""
        image = tf.io.decode_raw(tf.strings.substr(record, 0, size), tf.float32)
        label = tf.io.decode_raw(tf.strings.substr(record, size, 8), tf.int64)
        return tf.reshape(image, (16, 16, 3)), tf.reshape(label, ())

    with _unnamed() as path:
        with tf.io.TFRecordWriter(path) as writer:
            for batch_images, batch_labels in batches:
                for image, label in zip(batch_images.numpy(), batch_labels.numpy()):
                    writer.write(image.tobytes() + label.tobytes())
        dataset = tf.data.TFRecordDataset(path).map(decode, num_parallel_calls=tf.data.AUTOTUNE)
        dataset = dataset.batch(training.BATCH, drop_remainder=True)
        fed = list(dataset.apply(tf.data.experimental.prefetch_to_device(f"/{kind}:0")))
    with tf.device("/CPU:0"):
        right = sum(
            all(bool(tf.reduce_all(tf.equal(tf.identity(a), b))) for a, b in zip(found, expected))
            for found, expected in zip(fed, batches)
        )
    losses: list[list[float]] = []
    with tf.device(f"/{kind}:0"):
        for source in (fed, batches):
            step = training.step(tf, compiled=False)
            losses.append([float(step(images, labels)[0]) for images, labels in source])
    evidence: dict[str, Any] = {
        "device_type": kind,
        "devices": sorted({tensor.device for pair in fed for tensor in pair}),
        "batches": {"count": _FED, "read": len(fed), "right": right},
        "losses": losses[0],
        "losses_memory": losses[1],
        # The same kernels run over the same numbers, but sums on a GPU may be in another order each time.
        **training.allowed(tf, 2 * training.ROUNDINGS, training.LENGTH),
    }
    return judge_data_feed(evidence)


def judge_data_feed(evidence: dict[str, Any]) -> Result:
    problems, wanted, batches = [], evidence["device_type"], evidence["batches"]
    if not batches["count"] == batches["read"] == batches["right"]:
        problems.append(problem("batches_wrong", **batches))
    if not all(f"{wanted}:" in device for device in evidence["devices"]):
        problems.append(problem("batch_elsewhere", devices=evidence["devices"], wanted=wanted))
    if evidence["losses"]:
        evidence["largest_difference"] = training.difference(evidence["losses"], evidence["losses_memory"])
        problems += training.losses_differ("memory", evidence)
    passed = statement("data_fed", examples=_FED * training.BATCH, device_type=wanted)
    return judged(problems, passed, evidence)


CHECKPOINT, SAVED_MODEL, WEIGHTS, KERAS = "a checkpoint", "a SavedModel", "weights in HDF5", ".keras"
#: The first TensorFlow release with the format; None: every release that this project knows. The native
#: format of Keras came with 2.12, where it must be asked for by name, and is the default from 2.13 on
#: (release notes of both).
SINCE: dict[str, Any] = {CHECKPOINT: None, SAVED_MODEL: None, WEIGHTS: None, KERAS: (2, 12)}
_NAMED_UNTIL = (2, 13)


@check(
    "Does a trained model compute the same after it is saved and loaded?",
    TENSORFLOW,
    180,
    requires=("device",),
)
def save_load(context: Context) -> Result:
    """Train a model, save it and load it in each format, and compare what it computes.

    Each way to save uses different code. What a release doesn't have is in the evidence, and is not a fault.
    """
    tf = context.tensorflow
    kind = device_type(tf)
    with tf.device(f"/{kind}:0"):
        images, labels = training.batch(tf)
        model = compile_model(tf, classifier(tf), jit_compile=False)
        new = model(images, training=False)
        # So that its weights are not those of a new model.
        model.fit(images, labels, batch_size=len(labels), epochs=5, shuffle=False, verbose=0)
        expected = model(images, training=False)
        formats = [_saved(tf, name, model, images, expected) for name in SINCE]
        trained = training.compare(tf, "training", new, expected)
    evidence = {
        "device_type": kind,
        "tensorflow": tf.__version__,
        "keras": describe(tf),
        "formats": formats,
        # Three products of two factors, computed before and after.
        **training.allowed(tf, 2 * 3 * 2, 9 * 16),
        # The difference of a model whose weights were not loaded.
        "untrained_difference": trained["difference"],
    }
    return judge_save_load(evidence)


def _saved(tf: Any, name: str, model: Any, images: Any, expected: Any) -> dict[str, Any]:
    """Save and load the model. offered: whether the release has the format."""
    seen: dict[str, Any] = {"format": name, "offered": True, "error": None, "result": None}
    release = leading_numbers(tf.__version__)[:2]
    if SINCE[name] is not None and release < SINCE[name]:
        return {**seen, "offered": False}
    with tensorflow_devices.dump() as directory:
        path, other = os.path.join(directory, "model"), classifier(tf)
        try:
            if name == SAVED_MODEL:
                signature = [tf.TensorSpec(images.shape, images.dtype)]
                serve = tf.function(lambda batch: {"logits": model(batch, training=False)}, signature)
                tf.saved_model.save(model, path, signatures=serve)
                found = tf.saved_model.load(path).signatures["serving_default"](images)["logits"]
                return {**seen, "result": training.compare(tf, name, found, expected)}
            if name == KERAS:
                named = {"save_format": "keras_v3"} if release < _NAMED_UNTIL else {}
                model.save(f"{path}.keras", **named)
                other = tf.keras.models.load_model(f"{path}.keras")
            elif name == CHECKPOINT:
                read = tf.train.Checkpoint(model=other).read(tf.train.Checkpoint(model=model).write(path))
                # The optimizer is in the file, but not in the new model.
                read.assert_existing_objects_matched().expect_partial()
            else:
                model.save_weights(f"{path}.weights.h5")
                other.load_weights(f"{path}.weights.h5")
            found = other(images, training=False)
        except Exception as error:  # whatever is raised, the model was not saved and loaded
            return {**seen, "error": tensorflow_devices.refusal(error)}
    return {**seen, "result": training.compare(tf, name, found, expected)}


def judge_save_load(evidence: dict[str, Any]) -> Result:
    kind, formats = evidence["device_type"], evidence["formats"]
    tried = [entry for entry in formats if entry["offered"]]
    failed = [entry for entry in tried if entry["error"] is not None]
    problems = [problem("model_not_saved", format=one["format"], error=one["error"]) for one in failed]
    results = [entry["result"] for entry in tried if entry["result"] is not None]
    problems += training.wrong_results(results, kind, evidence["tolerance"], "saved", "loaded")
    missing = [entry["format"] for entry in formats if not entry["offered"]]
    names = [entry["format"] for entry in tried]
    passed = statement("model_saved", device_type=kind, formats=names, missing=missing)
    return judged(problems, passed, evidence)


#: Examples in a batch.
BATCHES = {"CPU": (1, 8, 32, 128), "GPU": (1, 8, 32, 128, 256)}
#: Images in the file; the pipeline repeats it.
_RECORDS = 512
#: Batches that the pipeline makes in advance.
_PREFETCHED = 2
#: A round has a turn for each batch and feed. A turn has some untimed steps, then some timed ones: while the
#: others have their turns, the pipeline fills its buffer, and that must not count as its speed.
_ROUNDS, _SETTLING, STEPS = 9, 2 * _PREFETCHED, 6
#: The share of the best throughput at which a batch counts as filling the device.
FILLED = 0.9
MEMORY, PIPELINE = "memory", "pipeline"


@dataclass
class Feed:
    """A source of batches of one size, with the seconds of each turn: waiting for input, and in total."""

    source: str
    examples: int
    take: Callable[[], tuple[Any, Any]]
    waited_s: list[float] = field(default_factory=list)
    turn_s: list[float] = field(default_factory=list)


@check(
    "Does tf.data keep up with the device, and which batch size keeps it busy?", TENSORFLOW, 300, depth=FULL
)
def input_pipeline(context: Context) -> Result:
    """Feed one training step with batches of several sizes, from memory and from a `tf.data` pipeline.

    The pipeline reads records, decodes JPEG and makes batches. The time that it adds to a step is time that
    the device waits. A batch keeps the device busy if larger ones don't increase the throughput.
    """
    tf = context.tensorflow
    kind = device_type(tf)
    size = SIZES[kind]
    with _unnamed() as path:
        _write_images(tf, path, size)
        record_bytes = os.stat(path).st_size
        labels = [int(label) for _, label in _images(tf, path, size)]
        right = sum(label == number % size.classes for number, label in enumerate(labels))
        feeds, skipped, device = _measure(tf, kind, size, path)
    batches = measured_batches(feeds)
    evidence: dict[str, Any] = {
        "device_type": kind,
        "device": device,
        "cpus": len(os.sched_getaffinity(0)),
        "model": size.described,
        "records": {"count": _RECORDS, "bytes": record_bytes, "read": len(labels), "right": right},
        "batches": batches,
        "not_measured": skipped,
        "filled": FILLED,
        "filled_from": filled_from(batches),
    }
    return judge_input_pipeline(evidence)


def _write_images(tf: Any, path: str, size: Size) -> None:
    with tf.device("/CPU:0"):
        images, labels = batch(tf, size, size.classes)
        pixels = tf.cast(tf.clip_by_value(127.5 + 50.0 * images, 0, 255), tf.uint8)
        encoded = [tf.io.encode_jpeg(image).numpy() for image in pixels]
    train = tf.train
    with tf.io.TFRecordWriter(path) as writer:
        for number in range(_RECORDS):
            which = number % size.classes
            image = train.Feature(bytes_list=train.BytesList(value=[encoded[which]]))
            label = train.Feature(int64_list=train.Int64List(value=[int(labels[which])]))
            features = train.Features(feature={"image": image, "label": label})
            writer.write(train.Example(features=features).SerializeToString())


def _images(tf: Any, path: str, size: Size) -> Any:
    described = {"image": tf.io.FixedLenFeature((), tf.string), "label": tf.io.FixedLenFeature((), tf.int64)}

    def decode(record: Any) -> tuple[Any, Any]:
        fields = tf.io.parse_single_example(record, described)
        image = tf.io.decode_jpeg(fields["image"], channels=3)
        image = tf.reshape(image, (size.image, size.image, 3))
        return (tf.cast(image, tf.float32) - 127.5) / 50.0, tf.cast(fields["label"], tf.int32)

    return tf.data.TFRecordDataset(path).map(decode, num_parallel_calls=tf.data.AUTOTUNE)


def _measure(tf: Any, kind: str, size: Size, path: str) -> tuple[list[Feed], dict[str, str], str]:
    """Return the feeds with their times, the errors of batches that don't fit in memory, and the device."""
    feeds: list[Feed] = []
    skipped: dict[str, str] = {}
    device = ""
    with tf.device(f"/{kind}:0"):
        step = training_step(tf, size, GRAPH)
    for examples in BATCHES[kind]:
        try:
            with tf.device(f"/{kind}:0"):
                held = batch(tf, size, examples)
            dataset = _images(tf, path, size).repeat().batch(examples, drop_remainder=True)
            batches = iter(dataset.prefetch(_PREFETCHED))
            takes = ((MEMORY, itertools.repeat(held)), (PIPELINE, batches))
            pair = [Feed(source, examples, functools.partial(next, taken)) for source, taken in takes]
            for feed in pair:
                # Before anything is timed, trace the step and fill the pipeline's buffers.
                for _ in range(2):
                    loss = step(*feed.take())
                    float(loss)
                device = loss.device
        except tf.errors.ResourceExhaustedError as error:
            skipped[str(examples)] = str(error).splitlines()[0][:200]
            break
        feeds += pair
    for feed in turns(feeds, _ROUNDS, 25.0):
        take_turn(feed, step)
    return feeds, skipped, device


def take_turn(feed: Feed, step: Callable[[Any, Any], Any]) -> None:
    """Run steps one after another and read back each loss: the device idles while it waits for a batch."""
    for _ in range(_SETTLING):
        float(step(*feed.take()))
    waited = 0.0
    began = time.perf_counter()
    for _ in range(STEPS):
        start = time.perf_counter()
        images, labels = feed.take()
        waited += time.perf_counter() - start
        float(step(images, labels))
    feed.turn_s.append(time.perf_counter() - began)
    feed.waited_s.append(waited)


def measured_batches(feeds: list[Feed]) -> list[dict[str, Any]]:
    """Return what the evidence says about each size of batch. feeds: pairs of the same size."""
    found = []
    for held, piped in zip(feeds[::2], feeds[1::2]):
        seen: dict[str, Any] = {"examples": held.examples}
        for feed in (held, piped):
            seen[feed.source] = {
                "steps_per_s": spread([STEPS / seconds for seconds in feed.turn_s]),
                "examples_per_s": STEPS * feed.examples / statistics.median(feed.turn_s),
                "waiting_share": ratios(feed.waited_s, feed.turn_s),
            }
        found.append({**seen, "pipeline/memory": ratios(held.turn_s, piped.turn_s)})
    return found


def filled_from(batches: list[dict[str, Any]]) -> int | None:
    """Return the smallest batch that, fed from memory, reaches almost the best throughput.

    None if only the largest does, because a larger one might be even better.
    """
    rates = [(entry["examples"], entry[MEMORY]["examples_per_s"]) for entry in batches]
    best = max(rate for _, rate in rates)
    first = next(examples for examples, rate in rates if rate >= FILLED * best)
    return None if first == rates[-1][0] else first


def judge_input_pipeline(evidence: dict[str, Any]) -> Result:
    told = {name: evidence["records"][name] for name in ("count", "read", "right")}
    problems = training.ran_elsewhere(evidence["device"], evidence["device_type"])
    if len(set(told.values())) > 1:
        problems.append(problem("records_wrong", **told))
    first, last = evidence["batches"][0], evidence["batches"][-1]
    passed = statement(
        "input_measured",
        device_type=evidence["device_type"],
        cpus=evidence["cpus"],
        waiting=last[PIPELINE]["waiting_share"]["median"],
        examples=last["examples"],
        least=first["examples"],
        rate=first[MEMORY]["examples_per_s"] / last[MEMORY]["examples_per_s"],
        filled=evidence["filled_from"],
    )
    return judged(problems, passed, evidence)
