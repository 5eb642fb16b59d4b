"""A case: one function, its inputs, and the step that is compiled from it."""

import math
from dataclasses import dataclass
from typing import Any, Callable, List, Tuple, Union

#: The input of a case: floats of this shape; integers; text.
Shape = Tuple[int, ...]


@dataclass(frozen=True)
class Ints:
    """Integers `0 <= n < below`."""

    shape: Shape
    below: int = 4


@dataclass(frozen=True)
class Texts:
    """Strings, each a number written out."""

    count: int = 4


Input = Union[Shape, Ints, Texts]


@dataclass(frozen=True)
class Case:
    """One function: `make(tf)` returns it, and it takes the inputs.

    gradient: also compile the gradient by the floats and the weights.
    core: no model compiles without it, so XLA is broken if it refuses it.
    """

    name: str
    group: str
    make: Callable[[Any], Callable[..., Any]]
    inputs: Tuple[Input, ...]
    gradient: bool = False
    core: bool = False


def inputs(tf: Any, case: Case) -> List[Any]:
    """Return the tensors of the case; they are the same each time."""
    return [_tensor(tf, entry, number) for number, entry in enumerate(case.inputs)]


def _tensor(tf: Any, entry: Input, number: int) -> Any:
    if isinstance(entry, Texts):
        return tf.constant([str(value) for value in range(entry.count)])
    if isinstance(entry, Ints):
        return tf.reshape(tf.range(math.prod(entry.shape), dtype=tf.int32) * 7 % entry.below, entry.shape)
    return tf.random.stateless_normal(entry, seed=(4, number))


def step(tf: Any, case: Case) -> Callable[..., Any]:
    """Return the case as one function of its tensors: the result, and the gradients where wanted."""
    function = case.make(tf)
    if not case.gradient:
        return function

    def with_gradients(*tensors: Any) -> Any:
        floats = [tensor for tensor in tensors if tensor.dtype.is_floating]
        with tf.GradientTape() as tape:
            tape.watch(floats)
            result = function(*tensors)
            loss = tf.add_n([tf.reduce_sum(tf.square(part)) for part in tf.nest.flatten(result)])
        # A case need not have every gradient.
        gradients = tape.gradient(loss, [*floats, *tape.watched_variables()])
        return result, [tf.convert_to_tensor(part) for part in gradients if part is not None]

    return with_gradients


#: Inputs that many cases take: a matrix, images, a volume, a sequence of vectors; each a batch.
ROWS, IMAGES, VOLUME, SEQUENCE = (4, 8), (2, 8, 8, 4), (1, 4, 4, 4, 2), (2, 6, 8)


def op(
    name: str,
    group: str,
    function: Callable[..., Any],
    *given: Input,
    gradient: bool = False,
    core: bool = False,
) -> Case:
    """Return a case of `function(tf, *tensors)`."""
    return Case(
        name, group, lambda tf: lambda *tensors: function(tf, *tensors), given, gradient=gradient, core=core
    )
