"""A residual convolutional classifier from plain operations, in the sizes at which speed is measured.

`training` has the smallest model that shows that a step works. This one has what makes real models fast or
slow: many convolutions, batch normalization, elementwise operations between them. The shape is that of
ResNet-18 (He et al. 2015, arXiv:1512.03385), without its first pooling.
"""

import math
import statistics
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

LEARNING_RATE = 0.01
EAGER, GRAPH, XLA = "eager", "graph", "xla"


@dataclass(frozen=True)
class Size:
    """image: edge in pixels; width: channels of the first stage; blocks: residual blocks of each stage, of
    which each has twice the channels and half the edge of the one before."""

    image: int
    width: int
    blocks: Tuple[int, ...]
    classes: int = 10


#: A step must take long enough that what the host does around it is small: on a GPU a few milliseconds, at
#: a batch of 128. On two cores of a CPU it takes about 0.1 s at a batch of 32.
SIZES: Dict[str, Size] = {
    "CPU": Size(image=32, width=16, blocks=(1, 1, 1)),
    "GPU": Size(image=112, width=64, blocks=(2, 2, 2, 2)),
}


def batch(tf: Any, size: Size, examples: int) -> Tuple[Any, Any]:
    """Return images `[examples, image, image, 3]` that can be told apart, and labels; the same each time."""
    labels = tf.range(examples, dtype=tf.int32) % size.classes
    prototypes = tf.random.stateless_normal((size.classes, 8, 8, 3), seed=(1, 0))
    images = tf.image.resize(tf.gather(prototypes, labels), (size.image, size.image), method="nearest")
    return images + 0.1 * tf.random.stateless_normal(images.shape, seed=(2, 0)), labels


def shapes(size: Size) -> List[Tuple[int, ...]]:
    """Return the shapes of the weights, in the order in which the forward pass uses them."""
    found = _convolution(3, 3, size.width)
    channels = size.width
    for stage, blocks in enumerate(size.blocks):
        for block in range(blocks):
            wider = size.width * 2**stage
            if _strides(stage, block) > 1:
                found += _convolution(1, channels, wider)
            found += _convolution(3, channels, wider) + _convolution(3, wider, wider)
            channels = wider
    return [*found, (channels, size.classes)]


def _convolution(edge: int, before: int, after: int) -> List[Tuple[int, ...]]:
    """Return the shapes of a kernel and of the scale and offset of the normalization that follows."""
    return [(edge, edge, before, after), (after,), (after,)]


def _strides(stage: int, block: int) -> int:
    """Return the strides of a block: each stage but the first begins by halving the edge."""
    return 2 if stage and not block else 1


class Model:
    """The weights, and the step that trains them. Two models of one size start equal."""

    def __init__(self, tf: Any, size: Size) -> None:
        self.tf = tf
        self.size = size
        self.weights = [tf.Variable(_initial(tf, shape, number)) for number, shape in enumerate(shapes(size))]

    @property
    def weight_bytes(self) -> int:
        """Return the bytes of the weights in float32."""
        return 4 * sum(math.prod(shape) for shape in shapes(self.size))

    def step(self, mode: str) -> Callable[[Any, Any], Any]:
        """Return one step of gradient descent, `(images, labels) -> loss`, run as `mode` says."""
        tf = self.tf

        def train(images: Any, labels: Any) -> Any:
            with tf.GradientTape() as tape:
                logits = self._logits(images)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
                loss = tf.reduce_mean(losses)
            for weight, gradient in zip(self.weights, tape.gradient(loss, self.weights)):
                weight.assign_sub(LEARNING_RATE * gradient)
            return loss

        if mode == EAGER:
            return train
        function: Callable[[Any, Any], Any] = tf.function(train, jit_compile=mode == XLA, autograph=False)
        return function

    def _logits(self, images: Any) -> Any:
        tf, weights = self.tf, iter(self.weights)

        def convolve(values: Any, strides: int) -> Any:
            values = tf.nn.conv2d(values, next(weights), strides=strides, padding="SAME")
            # As Keras calls it: one kernel of cuDNN, and not the operations it is made of.
            return tf.compat.v1.nn.fused_batch_norm(values, next(weights), next(weights))[0]

        hidden = tf.nn.relu(convolve(images, 2))
        for stage, blocks in enumerate(self.size.blocks):
            for block in range(blocks):
                strides = _strides(stage, block)
                shortcut = convolve(hidden, strides) if strides > 1 else hidden
                inner = tf.nn.relu(convolve(hidden, strides))
                hidden = tf.nn.relu(shortcut + convolve(inner, 1))
        return tf.linalg.matmul(tf.reduce_mean(hidden, axis=(1, 2)), next(weights))


def _initial(tf: Any, shape: Tuple[int, ...], number: int) -> Any:
    """Return a weight at the start: kernels as in He et al. 2015 (arXiv:1502.01852), scales of 1, offsets of
    0."""
    if len(shape) > 1:
        deviation = math.sqrt(2.0 / math.prod(shape[:-1]))
        return deviation * tf.random.stateless_normal(shape, seed=(3, number))
    return tf.ones(shape) if number % 3 == 1 else tf.zeros(shape)


# Figures with their spread: a single measurement on a busy machine says little.


def spread(samples: Sequence[float]) -> Optional[Dict[str, float]]:
    """Return median, quartiles, extremes and number of the samples; None where there are none."""
    if not samples:
        return None
    first, median, third = (
        statistics.quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else [samples[0]] * 3
    )
    return {
        "median": median,
        "q1": first,
        "q3": third,
        "min": min(samples),
        "max": max(samples),
        "samples": len(samples),
    }


def ratios(above: Sequence[float], below: Sequence[float]) -> Optional[Dict[str, float]]:
    """Return the spread of `above / below`, pair by pair: both samples of a pair share their disturbances."""
    return spread([left / right for left, right in zip(above, below) if right > 0])
