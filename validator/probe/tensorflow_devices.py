"""TensorFlow's devices: where it computes and on which kernels, what XLA compiled, and what it prints."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from ..problems import statement


def gpus(tf: Any) -> list[Any]:
    """Return the GPUs that TensorFlow sees, after setting them to take memory as they need it.

    By default TensorFlow takes almost all of every GPU's memory, which a probe must not do on a machine that
    others use. Growth can be set only before the first operation runs, so every check gets its GPUs here.
    """
    found: list[Any] = tf.config.list_physical_devices("GPU")
    for gpu in found:
        tf.config.experimental.set_memory_growth(gpu, True)
    return found


def device_type(tf: Any) -> str:
    """Return the kind of device that the checks use: `GPU`, or `CPU` where TensorFlow sees no GPU."""
    return "GPU" if gpus(tf) else "CPU"


def allocated(tf: Any, reset: bool = False) -> dict[str, int] | None:
    """Return the bytes that the first GPU's allocator has handed out: `current` and `peak`.

    reset: start a new peak before. None where TensorFlow made no such device, or the allocator keeps no
    counts, as cudaMallocAsync's in some releases.
    """
    try:
        if reset:
            tf.config.experimental.reset_memory_stats("GPU:0")
        info: dict[str, int] = tf.config.experimental.get_memory_info("GPU:0")
        return info
    except (ValueError, tf.errors.OpError):
        return None


def operations(call: Callable[[], Any], nested: bool = False) -> tuple[list[dict[str, Any]], Any]:
    """Return each executed `op` with its `device` (`GPU:0`) and `count`, and what the call returned.

    call: the first call of a `tf.function`, when TensorFlow makes the graphs that it will execute. The public
    API shows only the graph before that; these show placement, fused operations and XLA's clusters.
    nested: also the operations of functions that these graphs call, such as the layers of Keras 2 are.
    """
    context = importlib.import_module("tensorflow.python.eager.context")
    context.enable_graph_collection()
    try:
        returned = call()
        metadata = context.export_run_metadata()
    finally:
        context.disable_graph_collection()
    # The optimized graph has lost the bodies of its functions, so they are those before optimization.
    bodies = {
        function.signature.name: function.node_def
        for graphs in (metadata.function_graphs if nested else ())
        for function in graphs.pre_optimization_graph.library.function
    }
    counts: Counter[tuple[str, str]] = Counter()

    def count(nodes: Iterable[Any], bodies: dict[str, Any], device: str) -> None:
        for node in nodes:
            # `GPU:0` of `/job:localhost/replica:0/task:0/device:GPU:0`.
            own = node.device.rpartition("device:")[2] or device
            counts[node.op, own] += 1
            for value in node.attr.values():
                for called in (value.func, *value.list.func):
                    # Graph optimization appends that to the name of a function that it adapts to its call.
                    name = called.name.partition("_specialized_for_")[0]
                    if name in bodies:
                        # Visit each function once, because it may call itself.
                        rest = {other: body for other, body in bodies.items() if other != name}
                        count(bodies[name], rest, own)

    for graph in metadata.partition_graphs:
        count(graph.node, bodies, "")
    found = [{"op": op, "device": device, "count": number} for (op, device), number in sorted(counts.items())]
    return found, returned


# TensorFlow's profiler, which shows the kernels that a GPU ran, writes an `XSpace` message (openxla/xla,
# `third_party/tsl/tsl/profiler/protobuf/xplane.proto`). Its Python classes are in a different package in
# every other release, so the few fields that are needed are read from the wire format itself (protobuf.dev,
# "Encoding").

#: XSpace.planes; XPlane.name, .lines, .event_metadata; an entry of a map; XLine.name, .events;
#: XEvent.metadata_id, .duration_ps; XEventMetadata.name.
_PLANES, _PLANE_NAME, _LINES, _METADATA, _KEY, _VALUE = 1, 2, 3, 4, 1, 2
_LINE_NAME, _EVENTS, _EVENT_ID, _DURATION, _NAME = 2, 4, 1, 3, 2
#: The lines of a GPU's plane with the events; other lines are derived from these.
_STREAM = re.compile(r"Stream #")
_COPY = re.compile(r"mem(cpy|set)", re.IGNORECASE)


@dataclass(frozen=True)
class Event:
    """An event on a plane (`/device:GPU:0`) and a line (`Stream #13(Compute)`), and how long it ran."""

    plane: str
    line: str
    name: str
    seconds: float

    @property
    def is_kernel(self) -> bool:
        on_gpu = self.plane.startswith("/device:GPU:") and _STREAM.match(self.line)
        return bool(on_gpu and not _COPY.match(self.name))


def record(tf: Any, work: Callable[[], object]) -> list[Event]:
    """Return what the profiler sees while `work` runs. The profiler can only write files."""
    profiler = tf.profiler.experimental
    with dump() as directory:
        # Only the devices: events of the host are not needed, and would be most of the file.
        levels = {"host_tracer_level": 0, "python_tracer_level": 0, "device_tracer_level": 1}
        profiler.start(directory, options=profiler.ProfilerOptions(**levels))
        try:
            work()
        finally:
            profiler.stop()
        return [event for path in Path(directory).rglob("*.xplane.pb") for event in events(path.read_bytes())]


def kernels(tf: Any, work: Callable[[], object]) -> tuple[list[Event], dict[str, Any] | None]:
    """Return the kernels that the profiler saw while `work` ran; if it saw none, also why, as a statement."""
    try:
        seen = [event for event in record(tf, work) if event.is_kernel]
    except (OSError, ValueError, tf.errors.OpError) as error:
        return [], statement("profiler_failed", exception=type(error).__name__, message=str(error)[:200])
    return seen, None if seen else statement("profiler_saw_nothing")


def events(space: bytes) -> list[Event]:
    """Return every event of a serialized XSpace. Raises ValueError for other data."""

    def text(parts: dict[int, list[bytes]], number: int) -> str:
        return parts.get(number, [b""])[0].decode(errors="replace")

    found = []
    for plane in _fields(space)[1].get(_PLANES, []):
        _, parts = _fields(plane)
        names = {}
        for entry in parts.get(_METADATA, []):
            # An entry of the map from an event's id to its metadata.
            key, value = _fields(entry)
            names[key.get(_KEY, 0)] = text(_fields(value.get(_VALUE, [b""])[0])[1], _NAME)
        for line in parts.get(_LINES, []):
            _, of_line = _fields(line)
            for event in of_line.get(_EVENTS, []):
                numbers, _ = _fields(event)
                name, seconds = names.get(numbers.get(_EVENT_ID, 0), ""), numbers.get(_DURATION, 0) / 1e12
                found.append(Event(text(parts, _PLANE_NAME), text(of_line, _LINE_NAME), name, seconds))
    return found


def _fields(message: bytes) -> tuple[dict[int, int], dict[int, list[bytes]]]:
    """Return the last number, and all bytes (text and messages), of each field of a message."""
    numbers: dict[int, int] = {}
    parts: dict[int, list[bytes]] = {}
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        number, kind = key >> 3, key & 7
        if kind == 0:
            numbers[number], position = _varint(message, position)
            continue
        if kind == 2:
            size, position = _varint(message, position)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"the profile has a field of the unknown wire type {kind}")
        value, position = message[position : position + size], position + size
        if position > len(message):
            raise ValueError("a field of the profile is cut short")
        parts.setdefault(number, []).append(value)
    return numbers, parts


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(message):
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position
    raise ValueError("a number in the profile is cut short")


# With `--xla_dump_to` XLA writes each module that it compiles, under the name of the function it came from.
# In every release this is the one sign that a compilation took place, and of what.

#: Lines of the compiled module kept as proof.
_PROOF_LINES, _WIDTH = 12, 200
#: `module_0072.a_inference_run_step_1581__.399.cpu_after_optimizations.txt`; on a GPU
#: `….sm_9.0_gpu_after_optimizations.txt`.
_OPTIMIZED = re.compile(r"module_\d+\..*(cpu|gpu)_after_optimizations\.txt")


def timed(call: Callable[..., dict[str, Any]], *arguments: Any) -> tuple[dict[str, Any], float]:
    """Return the named tensors that a call returns, and the seconds until all of them were read back.

    `compile_s` in the evidence is the first call of a compiled program minus a later one: tracing,
    compilation and autotuning.
    """
    start = time.perf_counter()
    results = call(*arguments)
    for value in results.values():
        value.numpy()
    return results, time.perf_counter() - start


def compiled(function: Any, *given: Any) -> tuple[dict[str, Any], float, dict[str, Any]]:
    """Call a compiled function; return its results, `compile_s`, and the summary of its module."""
    results, first = timed(function, *given)
    _, again = timed(function, *given)
    module = function.experimental_get_compiler_ir(*given)(stage="optimized_hlo")
    return results, first - again, summary(module)


def proof(module: str) -> dict[str, Any]:
    """Return what identifies a compiled module: its name, size, digest and first lines.

    The metadata of each instruction is left out: it names source files, which differ between installations.
    """
    module = re.sub(r", metadata=\{[^}]*\}", "", module)
    name = re.match(r"HloModule ([^\s,]+)", module)
    lines = module.splitlines()
    return {
        "module": name[1] if name else None,
        "instructions": sum(" = " in line for line in lines),
        "fusions": len(re.findall(r"= \S+ fusion\(", module)),
        "sha256": hashlib.sha256(module.encode()).hexdigest(),
        "first_lines": [line[:_WIDTH] for line in lines[:_PROOF_LINES]],
    }


def summary(module: str) -> dict[str, Any]:
    """Return the name, size and digest of a compiled module, and the functions of libraries that it calls.

    targets: such as `__cudnn$convBiasActivationForward` and `__cublas$gemm`; of a custom call, or of a fusion
    that a library runs, which names its kind in the instruction's configuration.
    """
    seen = proof(module)
    kept = {key: seen[key] for key in ("module", "instructions", "sha256")}
    return {**kept, "targets": sorted(set(re.findall(r"__[a-z]\w*\$[\w$]+", module)))}


def calls_cudnn(summarized: dict[str, Any]) -> bool:
    """Return whether a module calls cuDNN for a convolution, by a custom call or a fusion."""
    return any(target.startswith(("__cudnn$conv", "__cudnn$fusion")) for target in summarized["targets"])


@contextlib.contextmanager
def dump() -> Iterator[str]:
    """Make a directory for TensorFlow to write to, in memory where possible, and remove it at the end."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="probe-", dir=memory) as directory:
        yield directory


def flags(directory: str) -> str:
    """Return `XLA_FLAGS` for a process that dumps there, with the present flags."""
    return f"{os.environ.get('XLA_FLAGS', '')} --xla_dump_to={directory} --xla_dump_hlo_as_text".strip()


def modules(directory: str) -> list[dict[str, Any]]:
    """Return the dumped modules: each with `module`, `device_type`, `instructions`, `fusions`."""
    found = []
    for path in sorted(Path(directory).iterdir()):
        match = _OPTIMIZED.fullmatch(path.name)
        if match is not None:
            seen = proof(path.read_text(encoding="utf-8", errors="replace"))
            kept = {key: seen[key] for key in ("module", "instructions", "fusions")}
            found.append({**kept, "device_type": match[1].upper()})
    return found


#: Lines of an exception that say where something is wrong, but not what.
_AROUND = re.compile(
    r"Graph execution error|Detected at node|<stack traces|File \"|in user code|The op is created at"
    r"|tf2xla conv"
)
#: What differs between two runs, or repeats that it was XLA.
_PASSING = re.compile(
    r"Detected unsupported operations when trying to compile graph \S* ?on |__inference_\S+_\d+"
    r"|\[_Xla[^\]]*\]|\{\{[^}]*\}\}|\[Op:\w+\]|compatible with node "
)


def telling_line(error: BaseException) -> str:
    """Return the line of an exception that says what is wrong, without line breaks around it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if not _AROUND.match(line)]
    return (telling or lines or ["no message"])[0]


def refusal(error: BaseException) -> str:
    """Return the line of an exception that says why XLA did not compile, minus what differs between runs."""
    line = _PASSING.sub("", telling_line(error))
    return f"{type(error).__name__}: {re.sub(r'  +', ' ', line).strip()[:_WIDTH]}"
