"""Does tf.data keep up with the device, and which batch size keeps it busy?

One training step is fed with batches of several sizes, from memory and from a `tf.data` pipeline that reads
records, decodes JPEG and makes batches. The time that the pipeline adds to a step is time that the device
waits. A batch keeps the device busy if larger ones don't increase the throughput.
"""

import os
import statistics
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Tuple

from ...problems import problem, statement
from .. import training
from ..check import FULL, TENSORFLOW, Check, Context, Result, judged
from ..child import anonymous_file
from ..speed import GRAPH, SIZES, Model, Size, batch, ratios, spread
from ..tensorflow_devices import gpus

#: Examples in a batch.
BATCHES = {"CPU": (1, 8, 32, 128), "GPU": (1, 8, 32, 128, 256)}
#: Images in the file; the pipeline repeats it.
_RECORDS = 512
#: Batches that the pipeline makes in advance.
_PREFETCHED = 2
#: A round has a turn for each batch and feed. A turn has some untimed steps, then some timed ones: while the
#: others have their turns, the pipeline fills its buffer, and that must not count as its speed.
_ROUNDS, _SETTLING, _STEPS = 9, 2 * _PREFETCHED, 6
_ENOUGH_S, _LEAST_ROUNDS = 25.0, 3
#: The share of the best throughput at which a batch counts as filling the device.
FILLED = 0.9
MEMORY, PIPELINE = "memory", "pipeline"


@dataclass
class Feed:
    """A source of batches of one size, with the seconds of each turn: waiting for input, and in total."""

    source: str
    examples: int
    take: Callable[[], Tuple[Any, Any]]
    waited_s: List[float] = field(default_factory=list)
    turn_s: List[float] = field(default_factory=list)


def _run(context: Context) -> Result:
    tf = context.tensorflow
    device_type = "GPU" if gpus(tf) else "CPU"
    size = SIZES[device_type]
    descriptor = anonymous_file()
    try:
        # A file without a name, which TensorFlow opens like any other and which removes itself.
        path = f"/proc/{os.getpid()}/fd/{descriptor}"
        record_bytes = _write(tf, path, size)
        decoded = _decoded(tf, path, size)
        feeds, skipped, device = _measure(tf, device_type, size, path)
    finally:
        os.close(descriptor)
    evidence: Dict[str, Any] = {
        "device_type": device_type,
        "device": device,
        "cpus": len(os.sched_getaffinity(0)),
        "model": {"image": size.image, "width": size.width, "blocks": list(size.blocks)},
        "records": {"count": _RECORDS, "bytes": record_bytes, **decoded},
        "batches": _batches(feeds),
        "not_measured": skipped,
        "filled": FILLED,
    }
    evidence["filled_from"] = filled_from(evidence["batches"])
    return judged(_problems(evidence), lambda: _passed(evidence), evidence)


def _write(tf: Any, path: str, size: Size) -> int:
    """Write the records, each a JPEG image and its label, and return the size of the file."""
    with tf.device("/CPU:0"):
        images, labels = batch(tf, size, size.classes)
        pixels = tf.cast(tf.clip_by_value(127.5 + 50.0 * images, 0, 255), tf.uint8)
        encoded = [tf.io.encode_jpeg(image).numpy() for image in pixels]
    feature, integers, strings = tf.train.Feature, tf.train.Int64List, tf.train.BytesList
    with tf.io.TFRecordWriter(path) as writer:
        for number in range(_RECORDS):
            which = number % size.classes
            fields = {
                "image": feature(bytes_list=strings(value=[encoded[which]])),
                "label": feature(int64_list=integers(value=[int(labels[which])])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=fields)).SerializeToString())
    return os.stat(path).st_size


def _dataset(tf: Any, path: str, size: Size) -> Any:
    """Return a dataset of every record once, decoded: `(image, label)`."""
    described = {
        "image": tf.io.FixedLenFeature((), tf.string),
        "label": tf.io.FixedLenFeature((), tf.int64),
    }

    def decode(record: Any) -> Tuple[Any, Any]:
        fields = tf.io.parse_single_example(record, described)
        image = tf.io.decode_jpeg(fields["image"], channels=3)
        image = tf.reshape(image, (size.image, size.image, 3))
        return (tf.cast(image, tf.float32) - 127.5) / 50.0, tf.cast(fields["label"], tf.int32)

    return tf.data.TFRecordDataset(path).map(decode, num_parallel_calls=tf.data.AUTOTUNE)


def _decoded(tf: Any, path: str, size: Size) -> Dict[str, Any]:
    """Read the file once, and return how many records it has and how many have the right label."""
    read = right = 0
    for number, (_, label) in enumerate(_dataset(tf, path, size)):
        read += 1
        right += int(label) == number % size.classes
    return {"read": read, "right": right}


def _measure(tf: Any, device_type: str, size: Size, path: str) -> Tuple[List[Feed], Dict[str, str], str]:
    """Return the feeds with their times, the errors of batches that don't fit in memory, and the device."""
    feeds: List[Feed] = []
    skipped: Dict[str, str] = {}
    device = ""
    with tf.device(f"/{device_type}:0"):
        step = Model(tf, size).step(GRAPH)
    for examples in BATCHES[device_type]:
        try:
            pair = _feeds(tf, device_type, size, path, examples)
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
    started = time.monotonic()
    for number in range(_ROUNDS):
        if number >= _LEAST_ROUNDS and time.monotonic() - started > _ENOUGH_S:
            break
        for feed in feeds if number % 2 else feeds[::-1]:
            _turn(feed, step)
    return feeds, skipped, device


def _feeds(tf: Any, device_type: str, size: Size, path: str, examples: int) -> List[Feed]:
    with tf.device(f"/{device_type}:0"):
        held = batch(tf, size, examples)
    dataset = _dataset(tf, path, size).repeat().batch(examples, drop_remainder=True)
    batches = iter(dataset.prefetch(_PREFETCHED))
    return [Feed(MEMORY, examples, lambda: held), Feed(PIPELINE, examples, lambda: next(batches))]


def _turn(feed: Feed, step: Callable[[Any, Any], Any]) -> None:
    """Run steps one after another and read back each loss: the device idles while it waits for a batch."""
    for _ in range(_SETTLING):
        float(step(*feed.take()))
    waited = 0.0
    began = time.perf_counter()
    for _ in range(_STEPS):
        start = time.perf_counter()
        images, labels = feed.take()
        waited += time.perf_counter() - start
        float(step(images, labels))
    feed.turn_s.append(time.perf_counter() - began)
    feed.waited_s.append(waited)


def _batches(feeds: List[Feed]) -> List[Dict[str, Any]]:
    found = []
    for held, piped in zip(feeds[::2], feeds[1::2]):
        found.append(
            {
                "examples": held.examples,
                **{
                    feed.source: {
                        "steps_per_s": spread([_STEPS / seconds for seconds in feed.turn_s]),
                        "examples_per_s": _STEPS * feed.examples / statistics.median(feed.turn_s),
                        "waiting_share": ratios(feed.waited_s, feed.turn_s),
                    }
                    for feed in (held, piped)
                },
                "pipeline/memory": ratios(held.turn_s, piped.turn_s),
            }
        )
    return found


def filled_from(batches: List[Dict[str, Any]]) -> Optional[int]:
    """Return the smallest batch that, fed from memory, reaches almost the best throughput.

    None if only the largest does, because a larger one might be even better.
    """
    rates = [(entry["examples"], entry[MEMORY]["examples_per_s"]) for entry in batches]
    best = max(rate for _, rate in rates)
    first = next(examples for examples, rate in rates if rate >= FILLED * best)
    return None if first == rates[-1][0] else first


def _problems(evidence: Dict[str, Any]) -> List[Dict[str, Any]]:
    records = evidence["records"]
    found = []
    if not records["count"] == records["read"] == records["right"]:
        fields = {name: records[name] for name in ("count", "read", "right")}
        found.append(problem("records_wrong", **fields))
    return found + training.ran_elsewhere(evidence["device"], evidence["device_type"])


def _passed(evidence: Dict[str, Any]) -> Dict[str, Any]:
    first, last = evidence["batches"][0], evidence["batches"][-1]
    rates = [entry[MEMORY]["examples_per_s"] for entry in (first, last)]
    return statement(
        "input_measured",
        device_type=evidence["device_type"],
        cpus=evidence["cpus"],
        waiting=last[PIPELINE]["waiting_share"]["median"],
        examples=last["examples"],
        least=first["examples"],
        rate=rates[0] / rates[1],
        filled=evidence["filled_from"],
    )


CHECK = Check(
    id="input_pipeline",
    title="Does tf.data keep up with the device, and which batch size keeps it busy?",
    stage=TENSORFLOW,
    run=_run,
    limit_s=300,
    required=False,
    depth=FULL,
)
