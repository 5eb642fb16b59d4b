"""Runs checks that need a GPU on the CPU of a real TensorFlow, and prints their results by mode as JSON.

Usage: ask_gate.py ARCHIVE [right] [broken]. right: with TensorFlow as it is. broken: parts of TensorFlow are
replaced first by ones that do what a fault does, so that each check must fail. They stay, so it comes last.
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
