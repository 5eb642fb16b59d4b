"""A small convolutional classifier and its training step, from plain operations.

No Keras: it would take seconds to import, and the probe must work the same with Keras 2 and 3.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..problems import problem
from ..version_numbers import leading_numbers

CLASSES = 10
BATCH = 32
LEARNING_RATE = 0.05
#: For `comparison.tolerance`: a step has three products, and for each two products in its gradient, of two
#: factors each. The longest sum is the gradient by the first filter, over the positions of a batch.
ROUNDINGS, LENGTH = 3 * 3 * 2, BATCH * 8 * 8


@dataclass(frozen=True)
class Run:
    """The loss of each step, its gradient by the last layer, and its seconds (with reading the result)."""

    losses: list[float]
    gradients: list[Any]
    seconds: list[float]
    device: str


def batch(tf: Any) -> tuple[Any, Any]:
    """Return images `[BATCH, 16, 16, 3]` that can be told apart, and their labels; the same on every call."""
    labels = tf.range(BATCH, dtype=tf.int32) % CLASSES
    prototypes = tf.random.stateless_normal((CLASSES, 16, 16, 3), seed=(1, 0))
    noise = tf.random.stateless_normal((BATCH, 16, 16, 3), seed=(2, 0))
    return tf.gather(prototypes, labels) + 0.1 * noise, labels


def step(tf: Any, compiled: bool) -> Any:
    """Return a `tf.function` that trains a fresh copy of the model by one step.

    It returns the loss and the gradient by the last layer.
    """
    shapes = ((3, 3, 3, 8), (3, 3, 8, 16), (4 * 4 * 16, CLASSES))
    weights = [
        tf.Variable(0.1 * tf.random.stateless_normal(shape, seed=(3, number)))
        for number, shape in enumerate(shapes)
    ]

    def train(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            hidden = images
            for kernel in weights[:2]:
                hidden = tf.nn.relu(tf.nn.conv2d(hidden, kernel, strides=2, padding="SAME"))
            logits = tf.linalg.matmul(tf.reshape(hidden, (BATCH, -1)), weights[2])
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, weights)
        for weight, gradient in zip(weights, gradients):
            weight.assign_sub(LEARNING_RATE * gradient)
        return loss, gradients[-1]

    return tf.function(train, jit_compile=compiled, autograph=False)


def run(train: Any, images: Any, labels: Any, steps: int) -> Run:
    """Take `steps` steps; the first one's time includes tracing and compilation."""
    losses, seconds, gradients = [], [], []
    device = ""
    for _ in range(steps):
        start = time.perf_counter()
        loss, gradient = train(images, labels)
        losses.append(float(loss))
        seconds.append(time.perf_counter() - start)
        gradients.append(gradient.numpy())
        device = loss.device
    return Run(losses, gradients, seconds, device)


def apart(found: Sequence[Any], expected: Sequence[Any]) -> float:
    """Return the largest difference of two runs' gradients, or updates, by the last layer at each step.

    It is a share of the largest value at that step, and infinity where one is not finite. The first of them
    depends on all products of the forward pass, the later ones on those of the backward pass too. A kernel
    that loses a fifth of its terms changes them by more than half, but the losses by only some percent. The
    gradients by the other layers are left out: rounding turns single ReLUs of theirs on or off, and a batch
    normalization makes their sums cancel, which no tolerance derived from the sums allows for.
    """
    differences = [largest_share(left, right) for left, right in zip(found, expected)]
    return max(differences) if all(map(math.isfinite, differences)) else math.inf


def largest_share(found: Any, expected: Any) -> float:
    """Return the largest difference of two arrays, as a share of the largest value of the expected one."""
    return float(abs(found - expected).max() / abs(expected).max())


def difference(left: Sequence[float], right: Sequence[float]) -> float:
    """Return the largest relative difference between two runs' losses; infinity where one is not finite."""
    if not all(map(math.isfinite, (*left, *right))):
        return math.inf
    return max(abs(a - b) / max(abs(b), 1e-6) for a, b in zip(left, right))


# Problems of a training run that several checks report. mode: the way it ran, if a check tries several.


def ran_elsewhere(device: str, wanted: str, mode: str | None = None) -> list[dict[str, Any]]:
    """Return the problem that a step ran on another kind of device (`GPU`, `CPU`) than it should have."""
    if f"{wanted}:" in device:
        return []
    return [problem("step_ran_elsewhere", mode=mode, device=device, wanted=wanted)]


def not_falling(losses: Sequence[float], mode: str | None = None) -> list[dict[str, Any]]:
    """Return the problem that the loss doesn't fall, or isn't finite."""
    if all(map(math.isfinite, losses)) and losses[-1] < losses[0]:
        return []
    return [problem("loss_does_not_fall", mode=mode, first=losses[0], last=losses[-1])]


def losses_differ(
    reference: str, found: dict[str, Any], mode: str | None = None, code: str = "losses_differ"
) -> list[dict[str, Any]]:
    """Return the problem that `largest_difference` is above `tolerance`, or isn't a number.

    reference: a word of the vocabulary `reference`, for what they were compared with.
    """
    difference, tolerance = found["largest_difference"], found["tolerance"]
    if difference <= tolerance:
        return []
    fields = {"mode": mode, "reference": reference, "difference": difference, "tolerance": tolerance}
    return [problem(code, **fields)]


def gradients_differ(reference: str, found: dict[str, Any], mode: str | None = None) -> list[dict[str, Any]]:
    """Return the problem that the gradients or updates differ, as `losses_differ` does."""
    return losses_differ(reference, found, mode, "step_gradients_differ")


# A smaller model, with weights that several replicas share.


def two_layers(tf: Any, inputs: Any, labels: Any, weights: Any, examples: int) -> tuple[Any, Any]:
    """Return the loss of two dense layers, as its share of a batch of `examples`, and its gradients."""
    with tf.GradientTape() as tape:
        tape.watch(weights)
        logits = tf.linalg.matmul(tf.nn.relu(tf.linalg.matmul(inputs, weights[0])), weights[1])
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = tf.reduce_sum(losses) / examples
    return loss, tape.gradient(loss, weights)


def shared_weights(tf: Any, strategy: Any, starts: Sequence[Any]) -> list[Any]:
    """Return variables on all replicas, to which updates add up."""
    with strategy.scope():
        return [tf.Variable(start, aggregation=tf.VariableAggregation.SUM) for start in starts]


def shares(strategy: Any, whole: Any, examples: int) -> Any:
    """Return the parts of a batch of `examples` for the replicas."""
    share = examples // strategy.num_replicas_in_sync
    return strategy.experimental_distribute_values_from_function(
        lambda replica: whole[replica.replica_id_in_sync_group * share :][:share]
    )


# The same classifier as a user of Keras would write it, for Keras 2, Keras 3 and tf_keras.

#: High enough that five steps show in the loss, low enough that the largest model stays stable.
KERAS_LEARNING_RATE = 0.1


def describe(tf: Any) -> dict[str, Any]:
    """Return which Keras `tf.keras` is: `package` (`tf_keras` with `TF_USE_LEGACY_KERAS`) and `version`."""
    package = tf.keras.Model.__module__.partition(".")[0]
    return {"package": package, "version": getattr(sys.modules[package], "__version__", None)}


def major(description: dict[str, Any]) -> int | None:
    """Return 2 or 3; None where the version is unknown."""
    numbers = leading_numbers(str(description["version"]))
    return numbers[0] if numbers else None


def classifier(tf: Any, image: int = 16, width: int = 8) -> Any:
    """Return a small convolutional model, untrained; it has the same weights each time.

    image: edge in pixels; width: channels of the first convolution, of which the second has twice as many.
    """
    keras = tf.keras
    keras.utils.set_random_seed(1)
    inputs = keras.Input((image, image, 3))
    hidden = keras.layers.Conv2D(width, 3, strides=2, padding="same", activation="relu")(inputs)
    hidden = keras.layers.BatchNormalization()(hidden)
    hidden = keras.layers.Conv2D(2 * width, 3, strides=2, padding="same", activation="relu")(hidden)
    # Over the whole image, so that the size of the image does not change the size of the gradients.
    hidden = keras.layers.GlobalAveragePooling2D()(hidden)
    # Under a policy of mixed precision the logits stay in float32, as Keras's guide to it asks.
    return keras.Model(inputs, keras.layers.Dense(CLASSES, dtype="float32")(hidden))


def compile_model(tf: Any, model: Any, loss: Any | None = None, **settings: Any) -> Any:
    """Compile the model for gradient descent on the cross entropy; `settings` go to `Model.compile`."""
    keras = tf.keras
    model.compile(
        optimizer=keras.optimizers.SGD(KERAS_LEARNING_RATE),
        loss=loss or keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        **settings,
    )
    return model


def fit(model: Any, images: Any, labels: Any, steps: int) -> tuple[list[float], list[Any]]:
    """Train a Keras model; return each step's loss, and what all steps so far added to the last layer."""
    kernel = model.layers[-1].kernel
    before, losses, updates = kernel.numpy(), [], []
    for _ in range(steps):
        told = model.fit(images, labels, batch_size=len(labels), epochs=1, shuffle=False, verbose=0)
        losses.append(float(told.history["loss"][0]))
        updates.append(kernel.numpy() - before)
    return losses, updates
