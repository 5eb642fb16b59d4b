"""A simulated GPU: a real TensorFlow computes on the CPU, and every device of the tested side says GPU.

In TensorFloat-32, kernels on the tested side see the upper 10 bits of the mantissa of each float32 factor, as
tensor cores do; the side that they are compared with stays as it is. `FAULTS` is the one table of what can be
wrong, with the checks that must find it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

#: The kernels, where TensorFlow's own functions and gradients call them: the module, and the factors.
KERNELS = {
    "mat_mul": ("gen_math_ops", ("a", "b")),
    "conv2d": ("gen_nn_ops", ("input", "filter")),
    "conv2d_backprop_input": ("gen_nn_ops", ("filter", "out_backprop")),
    "conv2d_backprop_filter": ("gen_nn_ops", ("input", "out_backprop")),
}
#: Checks that compare one device with another; what is not placed on the CPU is the tested side. The others
#: compare what XLA compiled with what it did not.
BY_DEVICE = ("gpu_compute", "silent_cpu", "cudnn_rnn", "data_feed", "save_load")
FLOAT32, TF32 = "float32", "tf32"
PRECISIONS = {FLOAT32: (7, 0), TF32: (8, 0)}
_SEEN_BITS = ~0x1FFF


class Gpu:
    """The simulated GPU of one check: what is active at present, and how its kernels are wrong."""

    def __init__(self, tf: Any, check: str, precision: str) -> None:
        self.tf = tf
        self.by_device = check in BY_DEVICE
        self.precision = precision
        self.placed = ["GPU"]
        self.compiling = 0
        self.clustering = False
        #: What a kernel does to its factors, by its name.
        self.wrong: dict[str, Callable[[Any, dict[str, Any]], dict[str, Any]]] = {}
        self.name = "GPU"

    @property
    def tested(self) -> bool:
        """Return whether what is traced or computed now belongs to the tested side."""
        return bool(self.compiling or self.clustering or (self.by_device and self.placed[-1] == "GPU"))

    def seen(self, value: Any) -> Any:
        """Return a factor as a kernel sees it; its gradient is that of the factor itself."""
        tf = self.tf
        value = tf.convert_to_tensor(value)
        on = self.precision == TF32 and tf.config.experimental.tensor_float_32_execution_enabled()
        if not on or value.dtype != tf.float32:
            return value
        kept = tf.bitcast(tf.bitcast(value, tf.int32) & _SEEN_BITS, tf.float32)
        return value + tf.stop_gradient(kept - value)

    def kernel(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        @functools.wraps(original)
        def call(*arguments: Any, **settings: Any) -> Any:
            if not self.tested:
                return original(*arguments, **settings)
            bound = signature.bind(*arguments, **settings).arguments
            factors = {factor: self.seen(bound[factor]) for factor in KERNELS[name][1]}
            if name in self.wrong:
                transposed = {key: bound.get(f"transpose_{key}", False) for key in factors}
                factors = self.wrong[name](self.tf, {**factors, "transposed": transposed})
                del factors["transposed"]
            return original(**{**bound, **factors})

        return call

    @contextlib.contextmanager
    def device(self, original: Callable[..., Any], name: Any) -> Iterator[None]:
        self.placed.append("CPU" if name is not None and "CPU" in str(name).upper() else "GPU")
        try:
            with original(name if name is None else str(name).replace("GPU", "CPU")):
                yield
        finally:
            self.placed.pop()

    def function(self, original: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
        if not (arguments and settings.get("jit_compile")):
            return original(*arguments, **settings)

        @functools.wraps(arguments[0])
        def traced(*given: Any, **more: Any) -> Any:
            self.compiling += 1
            try:
                return arguments[0](*given, **more)
            finally:
                self.compiling -= 1

        return original(traced, *arguments[1:], **settings)

    def set_jit(self, original: Callable[..., Any], setting: Any) -> None:
        self.clustering = bool(setting)
        original(setting)

    def renamed(self, name: str) -> str:
        return name.replace("CPU:0", f"{self.name}:0")


@contextlib.contextmanager
def simulated(tf: Any, check: str, precision: str, directory: str) -> Iterator[Gpu]:
    """Let a check see a GPU. directory: where XLA dumps the modules of this process."""
    from validator.probe import child, tensorflow_devices
    from validator.probe.child import Answer

    gpu = Gpu(tf, check, precision)
    memory = {"current": 0, "peak": 1 << 30}
    details = {"compute_capability": PRECISIONS[precision], "device_name": "a simulated GPU"}
    tensor = type(tf.constant(0.0))
    device, modules, operations = tensor.device, tensorflow_devices.modules, tensorflow_devices.operations

    def executed(call: Callable[[], Any], nested: bool = False) -> Any:
        found, returned = operations(call, nested)
        kernels = ("CudnnRNNV3", "CudnnRNNBackpropV3") if nested else ()
        found += [{"op": name, "device": "CPU:0", "count": 1} for name in kernels]
        return [{**entry, "device": gpu.renamed(entry["device"])} for entry in found], returned

    def dumped(place: str) -> list[dict[str, Any]]:
        return [{**entry, "device_type": gpu.name} for entry in modules(place)]

    # A fresh process would not have the simulated GPU.
    def called(trial: Callable[..., Iterator[Any]], *arguments: Any, **settings: Any) -> Answer:
        return Answer(list(trial(tf, *arguments)), None, "")

    experimental = tf.config.experimental
    with contextlib.ExitStack() as stack:

        def put(place: Any, name: str, new: Any) -> None:
            stack.enter_context(mock.patch.object(place, name, new))

        for name, (module, _) in KERNELS.items():
            place = importlib.import_module(f"tensorflow.python.ops.{module}")
            put(place, name, gpu.kernel(name, getattr(place, name)))
        context = importlib.import_module("tensorflow.python.eager.context").Context
        put(context, "get_compiler_ir", functools.partialmethod(_compiler_ir, context.get_compiler_ir))
        # Keras 2 takes them from the second.
        for place in (tf, tf.compat.v2):
            put(place, "device", functools.partial(gpu.device, place.device))
            put(place, "function", functools.partial(gpu.function, place.function))
        set_jit = tf.config.optimizer.set_jit
        stack.callback(set_jit, False)
        put(tf.config.optimizer, "set_jit", functools.partial(gpu.set_jit, set_jit))
        put(tensor, "device", property(lambda value: gpu.renamed(device.__get__(value))))
        put(tf.config, "list_physical_devices", lambda kind=None: [mock.Mock(device_type="GPU")])
        put(experimental, "set_memory_growth", lambda device, on: None)
        put(experimental, "get_device_details", lambda device: details)
        put(experimental, "reset_memory_stats", lambda device: None)
        put(experimental, "get_memory_info", lambda device: memory)
        original = tf.data.experimental.prefetch_to_device
        put(tf.data.experimental, "prefetch_to_device", lambda name: original(name.replace("GPU", "CPU")))
        put(tensorflow_devices, "operations", executed)
        put(tensorflow_devices, "record", mock.Mock(side_effect=OSError("there is no GPU to record")))
        put(tensorflow_devices, "calls_cudnn", lambda summary: True)
        put(tensorflow_devices, "modules", dumped)
        put(child, "fresh", called)
        if check == "auto_clustering":
            for path in Path(directory).iterdir():
                path.unlink()
            put(tensorflow_devices, "dump", lambda: contextlib.nullcontext(directory))
        yield gpu


def _compiler_ir(context: Any, original: Callable[..., Any], device_name: Any, **rest: Any) -> Any:
    return original(context, device_name=device_name and device_name.replace("GPU", "CPU"), **rest)


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong.

    make: changes the GPU, or TensorFlow by `put(place, name, new)`, which is undone after the check.
    found_by: the checks that must fail, each with the codes of its problems.
    """

    make: Callable[[Gpu, Callable[[Any, str, Any], None]], None]
    found_by: Mapping[str, frozenset[str]] = field(default_factory=dict)


def _inner(tf: Any, factors: dict[str, Any]) -> dict[str, Any]:
    """Lose the last fifth of the terms of each sum of a matrix product."""
    axis = -2 if factors["transposed"]["a"] else -1
    terms = tf.shape(factors["a"])[axis]
    kept = tf.cast(tf.range(terms) < terms * 4 // 5, factors["a"].dtype)
    return {**factors, "a": factors["a"] * (kept[:, None] if axis == -2 else kept)}


def _without_a_row(tf: Any, factors: dict[str, Any]) -> dict[str, Any]:
    """Lose the last row of the filter of a convolution."""
    kept = tf.cast(tf.range(tf.shape(factors["filter"])[0]) < 2, factors["filter"].dtype)
    return {**factors, "filter": factors["filter"] * kept[:, None, None, None]}


def _without_an_image(tf: Any, factors: dict[str, Any]) -> dict[str, Any]:
    """Lose the gradients of the second half of a batch."""
    count = tf.shape(factors["out_backprop"])[0]
    kept = tf.cast(tf.range(count) < count // 2, factors["out_backprop"].dtype)
    return {**factors, "out_backprop": factors["out_backprop"] * kept[:, None, None, None]}


def _kernel(name: str, wrong: Callable[[Any, dict[str, Any]], dict[str, Any]]) -> Any:
    return lambda gpu, put: gpu.wrong.update({name: wrong})


def _miscompile(gpu: Gpu, put: Callable[..., None]) -> None:
    """Let XLA compute something else: each floating-point result of a compiled function is off by a half.

    Keras drops the results of its step; what is wrong inside of it, the kernels do.
    """
    tf, original = gpu.tf, gpu.tf.function

    def off(value: Any) -> Any:
        floating = getattr(getattr(value, "dtype", None), "is_floating", False)
        return value * tf.cast(1.5, value.dtype) if floating else value

    def function(*arguments: Any, **settings: Any) -> Any:
        if not (arguments and settings.get("jit_compile")):
            return original(*arguments, **settings)

        @functools.wraps(arguments[0])
        def wrong(*given: Any, **more: Any) -> Any:
            return tf.nest.map_structure(off, arguments[0](*given, **more))

        return original(wrong, *arguments[1:], **settings)

    put(tf, "function", function)


def _drop_jit(gpu: Gpu, put: Callable[..., None]) -> None:
    """Let Keras ignore jit_compile=True."""
    model = gpu.tf.keras.Model
    original = model.compile

    @functools.wraps(original)
    def compile_(self: Any, *arguments: Any, **settings: Any) -> Any:
        return original(self, *arguments, **{**settings, "jit_compile": False})

    put(model, "compile", compile_)


def _drop_set_jit(gpu: Gpu, put: Callable[..., None]) -> None:
    put(gpu.tf.config.optimizer, "set_jit", lambda setting: None)


def _stay_on_the_cpu(gpu: Gpu, put: Callable[..., None]) -> None:
    gpu.name = "CPU"


def _other_recurrence(gpu: Gpu, put: Callable[..., None]) -> None:
    layers = gpu.tf.keras.layers
    original = layers.LSTM

    class Other(original):  # type: ignore[misc, valid-type]
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            super().__init__(*arguments, recurrent_activation="tanh", **settings)

    put(layers, "LSTM", Other)


def _lose_data(gpu: Gpu, put: Callable[..., None]) -> None:
    original = gpu.tf.io.decode_raw
    put(gpu.tf.io, "decode_raw", lambda *arguments: original(*arguments) * 0)


def _forget_weights(gpu: Gpu, put: Callable[..., None]) -> None:
    status = mock.Mock(unsafe=True)
    status.assert_existing_objects_matched.return_value = status
    put(gpu.tf.train.Checkpoint, "read", lambda self, path: status)


_DIFFERS, _GRADIENTS = frozenset({"result_differs"}), frozenset({"step_gradients_differ"})
_FROM_CPU = frozenset({"result_differs_from_cpu"})
_ELSEWHERE, _STEP = frozenset({"operation_ran_elsewhere"}), frozenset({"step_ran_elsewhere"})

#: What finds a wrong convolution, forward or backward.
_CONVOLUTION = {
    "gpu_compute": _FROM_CPU,
    "silent_cpu": _GRADIENTS,
    "xla_convolution": _DIFFERS,
    "xla_train_step": _GRADIENTS,
    "auto_clustering": _GRADIENTS,
    "keras_jit": _GRADIENTS,
}
FAULTS = {
    "a matrix product loses terms": Fault(
        _kernel("mat_mul", _inner),
        {
            "gpu_compute": _FROM_CPU,
            "silent_cpu": _GRADIENTS,
            "xla_train_step": _GRADIENTS,
            "auto_clustering": _GRADIENTS,
            "keras_jit": _GRADIENTS,
            "cudnn_rnn": _DIFFERS,
        },
    ),
    "a convolution loses a row of its filter": Fault(
        _kernel("conv2d", _without_a_row),
        _CONVOLUTION,
    ),
    "the gradient by the input loses images": Fault(
        _kernel("conv2d_backprop_input", _without_an_image),
        _CONVOLUTION,
    ),
    "the gradient by the filter loses images": Fault(
        _kernel("conv2d_backprop_filter", _without_an_image),
        _CONVOLUTION,
    ),
    "XLA compiles something else": Fault(
        _miscompile,
        {
            "xla_convolution": _DIFFERS,
            "xla_train_step": _GRADIENTS,
            "attention": _DIFFERS,
            "embedding": _DIFFERS,
        },
    ),
    "Keras ignores jit_compile": Fault(
        _drop_jit,
        {"keras_jit": frozenset({"jit_turned_off", "jit_compiled_nothing", "uncompilable_step_trained"})},
    ),
    "set_jit is ignored": Fault(_drop_set_jit, {"auto_clustering": frozenset({"set_jit_without_effect"})}),
    "everything stays on the CPU": Fault(
        _stay_on_the_cpu,
        {
            "gpu_compute": _ELSEWHERE,
            "silent_cpu": _ELSEWHERE | {"loss_not_on_gpu"},
            "xla_convolution": _ELSEWHERE,
            "xla_train_step": _STEP,
            "keras_jit": _STEP,
            "attention": _ELSEWHERE,
            "embedding": _ELSEWHERE,
            "cudnn_rnn": _ELSEWHERE | {"rnn_without_cudnn"},
            "data_feed": frozenset({"batch_elsewhere"}),
            "save_load": _ELSEWHERE,
            "auto_clustering": frozenset({"clusters_not_compiled", "jit_compiled_nothing"}),
        },
    ),
    "a recurrent layer has another activation": Fault(_other_recurrence, {"cudnn_rnn": _DIFFERS}),
    "tf.data reads zeros": Fault(_lose_data, {"data_feed": frozenset({"batches_wrong", "losses_differ"})}),
    "a checkpoint loads nothing": Fault(_forget_weights, {"save_load": _DIFFERS}),
}
