"""Does `tf.config.optimizer.set_jit` take effect: how many clusters does it make, and are they compiled?

It must be set before a function's first call, and on a CPU it is without effect unless TensorFlow was started
with a flag. So this is tried in fresh interpreters, on a CPU with that flag and without. The clusters are
counted in the graph that is executed, and in what XLA says it compiled.
"""

import os
from typing import Any, Dict, Iterator, List, Optional, Union

from .. import devices, fresh, hlo, training
from ..check import FAIL, FULL, PASS, TENSORFLOW, Check, Context, Result
from ..devices import exact_float32, gpus

STEPS = 5
#: Largest relative difference between the losses of a step; as in `xla_train_step`.
TOLERANCE = {"CPU": 1e-3, "GPU": 2e-2}
#: Without it clusters are made on GPUs alone (tensorflow/compiler/jit/flags.cc).
CPU_FLAG = "--tf_xla_cpu_global_jit"
_LIMIT_S = 150.0

#: What `set_jit` is given, one function after another.
Setting = Union[bool, str]
_SETTINGS: List[Setting] = [False, True, "autoclustering", False]


def _run(context: Context) -> Result:
    device_type = "GPU" if gpus(context.tensorflow) else "CPU"
    evidence: Dict[str, Any] = {
        "device_type": device_type,
        "steps": STEPS,
        "cpu_flag": CPU_FLAG if device_type == "CPU" else None,
        "flags": os.environ.get("TF_XLA_FLAGS"),
        "runs": None,
        "without_cpu_flag": None,
        "tolerance": TOLERANCE[device_type],
    }
    trials: Dict[str, List[Setting]] = {"runs": _SETTINGS}
    if device_type == "CPU":
        trials["without_cpu_flag"] = [True]
    for name, settings in trials.items():
        flag = evidence["cpu_flag"] if name == "runs" else None
        with hlo.dump() as directory:
            answer = fresh.call(
                _trial, directory, settings, limit_s=_LIMIT_S, environment=_environment(directory, flag)
            )
        if answer.failure is not None:
            broken = fresh.fault(answer, "training with automatic clustering")
            return Result(broken.outcome, broken.summary, {**evidence, **broken.evidence})
        evidence[name] = answer.values
    return _judged(evidence)


def _judged(evidence: Dict[str, Any]) -> Result:
    off, *on = evidence["runs"][:-1]
    evidence["largest_difference"] = max(training.difference(run["losses"], off["losses"]) for run in on)
    faults = _faults(evidence)
    if faults:
        return Result(FAIL, "; ".join(faults), evidence)
    return Result(PASS, _summary(evidence), evidence)


def _environment(directory: str, flag: Optional[str]) -> Dict[str, Optional[str]]:
    given = " ".join(part for part in (os.environ.get("TF_XLA_FLAGS"), flag) if part)
    return {"XLA_FLAGS": hlo.flags(directory), "TF_XLA_FLAGS": given or None}


def _trial(tf: Any, directory: str, settings: List[Setting]) -> Iterator[Dict[str, Any]]:
    """Train a fresh function under each setting; nothing in it asks for XLA."""
    gpus(tf)
    images, labels = training.batch(tf)
    for setting in settings:
        tf.config.optimizer.set_jit(setting)
        before = len(hlo.modules(directory))
        with exact_float32(tf):
            seen = _trained(training.step(tf, compiled=False), images, labels)
        yield {
            "setting": setting,
            "get_jit": str(tf.config.optimizer.get_jit()),
            **seen,
            "modules": hlo.modules(directory)[before:],
        }


def _trained(step: Any, images: Any, labels: Any) -> Dict[str, Any]:
    found, first = devices.operations(lambda: step(images, labels))
    rest = training.run(step, images, labels, STEPS - 1)
    return {
        "clusters": sum(entry["count"] for entry in found if entry["op"] == "_XlaRun"),
        "operations": sum(entry["count"] for entry in found),
        "losses": [float(first), *rest.losses],
    }


def _faults(evidence: Dict[str, Any]) -> List[str]:
    wanted, faults = evidence["device_type"], []
    off, *on, again = evidence["runs"]
    for run in on:
        compiled = [module for module in run["modules"] if module["device_type"] == wanted]
        if not run["clusters"]:
            faults.append(f"set_jit({run['setting']!r}) is without effect: no cluster in the executed graph")
        elif not compiled:
            faults.append(
                f"set_jit({run['setting']!r}) made clusters, but XLA compiled none for the {wanted}"
            )
    if again["clusters"] > off["clusters"]:
        faults.append("set_jit(False) does not take it back")
    if not evidence["largest_difference"] <= evidence["tolerance"]:
        faults.append(f"losses differ from those without clusters by {evidence['largest_difference']:.1e}")
    return faults


def _summary(evidence: Dict[str, Any]) -> str:
    off, on = evidence["runs"][:2]
    if off["clusters"]:
        return (
            f"TF_XLA_FLAGS={evidence['flags']} makes {off['clusters']} cluster(s) whatever set_jit is given"
        )
    made = f"set_jit(True) puts {off['operations']} operations into {on['clusters']} cluster(s) for the"
    if evidence["device_type"] == "GPU":
        return f"{made} GPU, {on['operations']} operations remain in the graph"
    (plain,) = evidence["without_cpu_flag"]
    return f"{made} CPU with TF_XLA_FLAGS={CPU_FLAG}, {plain['clusters']} without that flag"


CHECK = Check(
    id="auto_clustering",
    title="tf.config.optimizer.set_jit takes effect: clusters are made and compiled",
    stage=TENSORFLOW,
    run=_run,
    limit_s=330,
    required=False,
    depth=FULL,
)
