"""Runs checks that need a GPU on the CPU of a real TensorFlow, and prints their results by mode as JSON.

Usage: ask_gate.py ARCHIVE [right] [tf32] [broken]. right: with TensorFlow as it is. tf32: from here on
products round their factors to TensorFloat-32, and the checks use its tolerances, as on GPUs of compute
capability 8.0 and later. broken: parts of TensorFlow are replaced first by ones that do what a fault does, so
that each check must fail. They stay, so it comes last.
"""

import functools
import importlib
import json
import sys
from collections.abc import Callable
from typing import Any

CHECKS = ("xla_convolution", "keras_jit", "attention", "embedding", "cudnn_rnn", "data_feed", "save_load")

sys.path.insert(0, sys.argv[1])
import tensorflow as tf  # noqa: E402 - the archive comes first

from validator.probe import comparison  # noqa: E402
from validator.probe.check import Context  # noqa: E402


def miscompile() -> None:
    """Let XLA compute something else: every floating-point result of a compiled function is off by a half."""
    original = tf.function

    def function(python_function: Any, **settings: Any) -> Any:
        if not settings.get("jit_compile"):
            return original(python_function, **settings)

        @functools.wraps(python_function)
        def wrong(*arguments: Any) -> Any:
            results = python_function(*arguments)
            return {name: value * tf.cast(1.5, value.dtype) for name, value in results.items()}

        return original(wrong, **settings)

    tf.function = function


def drop_jit() -> None:
    """Let Keras ignore jit_compile=True."""
    original = tf.keras.Model.compile

    @functools.wraps(original)
    def compile_(model: Any, *arguments: Any, **settings: Any) -> Any:
        return original(model, *arguments, **{**settings, "jit_compile": False})

    tf.keras.Model.compile = compile_


def other_recurrence() -> None:
    class Other(tf.keras.layers.LSTM):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            super().__init__(*arguments, recurrent_activation="tanh", **settings)

    tf.keras.layers.LSTM = Other


def lose_data() -> None:
    original = tf.io.decode_raw
    tf.io.decode_raw = lambda *arguments: original(*arguments) * 0


def forget_weights() -> None:
    class Nothing:
        def assert_existing_objects_matched(self) -> "Nothing":
            return self

        def expect_partial(self) -> "Nothing":
            return self

    tf.train.Checkpoint.read = lambda self, path: Nothing()


def round_to_tf32() -> None:
    """Let products of float32 see 10 bits of the mantissa, both ways, unless that is turned off."""

    def rounded(value: Any) -> Any:
        if value.dtype != tf.float32 or not tf.config.experimental.tensor_float_32_execution_enabled():
            return value
        # Round to nearest: add half of the last bit that is kept, and cut off the 13 below it.
        return tf.bitcast((tf.bitcast(value, tf.int32) + 0x1000) & ~0x1FFF, tf.float32)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def factor(value: Any) -> Any:
        return rounded(value), lambda gradient: gradient

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def product(value: Any) -> Any:
        return tf.identity(value), rounded

    def wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(left: Any, right: Any, *arguments: Any, **settings: Any) -> Any:
            left, right = tf.convert_to_tensor(left), tf.convert_to_tensor(right)
            return product(original(factor(left), factor(right), *arguments, **settings))

        return call

    for module, name in ((tf.nn, "conv2d"), (tf.nn, "convolution"), (tf.linalg, "matmul"), (tf, "matmul")):
        setattr(module, name, wrapped(getattr(module, name)))
    setattr(comparison, "gpus", lambda tf: ["a simulated GPU"])  # noqa: B010 - a name that it imports
    details = {"compute_capability": (8, 0), "device_name": "a simulated GPU"}
    tf.config.experimental.get_device_details = lambda gpu: details


FAULTS: dict[str, Callable[[], None]] = {
    "xla_convolution": miscompile,
    "attention": miscompile,
    "embedding": miscompile,
    "keras_jit": drop_jit,
    "cudnn_rnn": other_recurrence,
    "data_feed": lose_data,
    "save_load": forget_weights,
}
ORIGINAL_FUNCTION = tf.function


def results(mode: str) -> dict[str, Any]:
    found = {}
    if mode == "tf32":
        round_to_tf32()
    for name in CHECKS:
        tf.function = ORIGINAL_FUNCTION
        if mode == "broken":
            FAULTS[name]()
        check = importlib.import_module(f"validator.probe.checks.{name}").CHECK
        result = check.run(Context({}, None, tf))
        found[name] = {
            "outcome": result.outcome,
            "sentence": result.sentence,
            "codes": [problem["code"] for problem in result.problems],
            "evidence": result.evidence,
        }
    return found


print(json.dumps({mode: results(mode) for mode in sys.argv[2:]}))
