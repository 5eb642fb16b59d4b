"""Does a `tf.data` pipeline feed the device with the right examples, and does a step train on them?

The records are read, decoded in parallel, put into batches, and copied to the device ahead of their use
(`prefetch_to_device`), by threads and a stream other than those of a step. The speed of a pipeline is
measured by `input_pipeline`.
"""

import os
from typing import Any, Dict, List

from ...problems import problem, statement
from .. import comparison, training
from ..check import TENSORFLOW, Check, Context, Result, judged
from ..child import anonymous_file
from ..tensorflow_devices import gpus

#: Batches in the file, each with other images.
BATCHES = 4


def _run(context: Context) -> Result:
    tf = context.tensorflow
    device_type = "GPU" if gpus(tf) else "CPU"
    with tf.device("/CPU:0"):
        images, labels = training.batch(tf)
        # TensorFlow keeps int32 in the host's memory, even for a GPU.
        labels = tf.cast(labels, tf.int64)
        batches = [(images * (1.0 + number), labels) for number in range(BATCHES)]
    descriptor = anonymous_file()
    try:
        # An anonymous file, which TensorFlow opens like any other, and which needs no cleanup.
        path = f"/proc/{os.getpid()}/fd/{descriptor}"
        _write(tf, path, batches)
        fed = list(_dataset(tf, path, f"/{device_type}:0"))
    finally:
        os.close(descriptor)
    with tf.device(f"/{device_type}:0"):
        losses, from_memory = (_losses(tf, source) for source in (fed, batches))
    precision = comparison.precision(tf)
    evidence: Dict[str, Any] = {
        "device_type": device_type,
        "devices": sorted({tensor.device for pair in fed for tensor in pair}),
        "batches": {"count": BATCHES, "read": len(fed), "right": _right(tf, fed, batches)},
        "losses": losses,
        "losses_memory": from_memory,
        "precision": precision,
        # The same kernels run over the same numbers, but sums on a GPU may be in another order each time.
        "tolerance": comparison.tolerance(precision, 2 * training.ROUNDINGS, training.LENGTH),
    }
    return _judged(evidence)


def _judged(evidence: Dict[str, Any]) -> Result:
    if evidence["losses"]:
        evidence["largest_difference"] = training.difference(evidence["losses"], evidence["losses_memory"])
    return judged(_problems(evidence), lambda: _passed(evidence), evidence)


def _write(tf: Any, path: str, batches: List[Any]) -> None:
    """Write each example as a record: the bytes of its image, then those of its label."""
    with tf.io.TFRecordWriter(path) as writer:
        for images, labels in batches:
            for image, label in zip(images.numpy(), labels.numpy()):
                writer.write(image.tobytes() + label.tobytes())


def _dataset(tf: Any, path: str, device: str) -> Any:
    def decode(record: Any) -> Any:
        image = tf.io.decode_raw(tf.strings.substr(record, 0, size), tf.float32)
        label = tf.io.decode_raw(tf.strings.substr(record, size, 8), tf.int64)
        return tf.reshape(image, shape), tf.reshape(label, ())

    shape = (16, 16, 3)
    size = 4 * 16 * 16 * 3
    dataset = tf.data.TFRecordDataset(path).map(decode, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.batch(training.BATCH, drop_remainder=True)
    return dataset.apply(tf.data.experimental.prefetch_to_device(device))


def _losses(tf: Any, batches: List[Any]) -> List[float]:
    step = training.step(tf, compiled=False)
    return [float(step(images, labels)[0]) for images, labels in batches]


def _right(tf: Any, fed: List[Any], batches: List[Any]) -> int:
    """Return how many batches contain exactly the values that were written, compared on the CPU."""
    with tf.device("/CPU:0"):
        return sum(
            all(bool(tf.reduce_all(tf.equal(tf.identity(a), b))) for a, b in zip(found, expected))
            for found, expected in zip(fed, batches)
        )


def _problems(evidence: Dict[str, Any]) -> List[Dict[str, Any]]:
    found, wanted, batches = [], evidence["device_type"], evidence["batches"]
    if not batches["count"] == batches["read"] == batches["right"]:
        found.append(problem("batches_wrong", **batches))
    if not all(f"{wanted}:" in device for device in evidence["devices"]):
        found.append(problem("batch_elsewhere", devices=evidence["devices"], wanted=wanted))
    return found + (training.losses_differ("memory", evidence) if evidence["losses"] else [])


def _passed(evidence: Dict[str, Any]) -> Dict[str, Any]:
    examples = BATCHES * training.BATCH
    return statement("data_fed", examples=examples, device_type=evidence["device_type"])


CHECK = Check(
    id="data_feed",
    title="Does tf.data feed the device with the right examples?",
    stage=TENSORFLOW,
    run=_run,
    limit_s=120,
    requires=("device",),
)
