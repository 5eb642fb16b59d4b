"""Identifies the modules that XLA compiled.

With `--xla_dump_to` XLA writes each module that it compiles, under the name of the function it came from. In
every release this is the one sign that a compilation took place, and of what.
"""

import contextlib
import hashlib
import os
import re
import tempfile
import time
from typing import Any, Callable, Dict, Iterator, List, Tuple

#: Lines of the compiled module kept as proof.
_PROOF_LINES, _WIDTH = 12, 200
#: `module_0072.a_inference_run_step_1581__.399.cpu_after_optimizations.txt`; on a GPU
#: `….sm_9.0_gpu_after_optimizations.txt`.
_OPTIMIZED = re.compile(r"module_\d+\..*(cpu|gpu)_after_optimizations\.txt")


def timed(call: Callable[..., Dict[str, Any]], *arguments: Any) -> Tuple[Dict[str, Any], float]:
    """Return the named tensors that a call returns, and the seconds until all of them were read back.

    `compile_s` in the evidence is the first call of a compiled program minus a later one: tracing,
    compilation and autotuning.
    """
    start = time.perf_counter()
    results = call(*arguments)
    for value in results.values():
        value.numpy()
    return results, time.perf_counter() - start


def proof(module: str) -> Dict[str, Any]:
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


def summary(module: str) -> Dict[str, Any]:
    """Return the name, size and digest of a compiled module, and the functions of libraries that it calls.

    targets: such as `__cudnn$convBiasActivationForward` and `__cublas$gemm`; of a custom call, or of a fusion
    that a library runs, which names its kind in the instruction's configuration.
    """
    seen = proof(module)
    kept = {key: seen[key] for key in ("module", "instructions", "sha256")}
    return {**kept, "targets": sorted(set(re.findall(r"__[a-z]\w*\$[\w$]+", module)))}


def calls_cudnn(summarized: Dict[str, Any]) -> bool:
    """Return whether a module calls cuDNN for a convolution, by a custom call or a fusion."""
    return any(target.startswith(("__cudnn$conv", "__cudnn$fusion")) for target in summarized["targets"])


@contextlib.contextmanager
def dump() -> Iterator[str]:
    """Make a directory for XLA to write to, in memory where possible, and remove it at the end."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="probe-", dir=memory) as directory:
        yield directory


def flags(directory: str) -> str:
    """Return `XLA_FLAGS` for a process that dumps there, with the present flags."""
    return f"{os.environ.get('XLA_FLAGS', '')} --xla_dump_to={directory} --xla_dump_hlo_as_text".strip()


def modules(directory: str) -> List[Dict[str, Any]]:
    """Return the dumped modules: each with `module`, `device_type`, `instructions`, `fusions`."""
    found = []
    for name in sorted(os.listdir(directory)):
        match = _OPTIMIZED.fullmatch(name)
        if match is None:
            continue
        with open(os.path.join(directory, name), encoding="utf-8", errors="replace") as file:
            seen = proof(file.read())
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
