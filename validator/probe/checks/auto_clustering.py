"""Does `tf.config.optimizer.set_jit` take effect: how many clusters does it make, and are they compiled?

It must be set before a function's first call, and on a CPU it has no effect unless TensorFlow was started
with a flag. So the trials run in fresh interpreters, on a CPU both with that flag and without. The clusters
are counted in the graph that is executed, and among the modules that XLA reports as compiled.
"""

import os
import statistics
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple, Union

from ...problems import problem, statement
from .. import child, comparison, tensorflow_devices, training
from ..check import FULL, TENSORFLOW, Check, Context, Result, judged
from ..tensorflow_devices import gpus

STEPS = 5
#: Without this flag, clusters are made only on GPUs (tensorflow/compiler/jit/flags.cc).
CPU_FLAG = "--tf_xla_cpu_global_jit"
_LIMIT_S = 150.0

#: The arguments of `set_jit`, each for a new function.
Setting = Union[bool, str]
#: The field of the evidence about a Keras model.
KERAS = "keras_jit"
_SETTINGS: List[Setting] = [False, True, "autoclustering", False]


def _run(context: Context) -> Result:
    device_type = "GPU" if gpus(context.tensorflow) else "CPU"
    return comparison.also_in_float32(
        context,
        "auto_clustering_float32",
        _measured(context, device_type),
        lambda: _measured(context, device_type),
    )


def _measured(context: Context, device_type: str) -> Result:
    precision = comparison.precision(context.tensorflow)
    evidence: Dict[str, Any] = {
        "device_type": device_type,
        "steps": STEPS,
        "cpu_flag": CPU_FLAG if device_type == "CPU" else None,
        "flags": os.environ.get("TF_XLA_FLAGS"),
        "runs": None,
        "without_cpu_flag": None,
        "precision": precision,
        "tolerance": comparison.tolerance(precision, 2 * training.ROUNDINGS, training.LENGTH),
    }
    trials: Dict[str, List[Setting]] = {"runs": _SETTINGS}
    if device_type == "CPU":
        trials["without_cpu_flag"] = [True]
    for name, settings in trials.items():
        flag = evidence["cpu_flag"] if name == "runs" else None
        with tensorflow_devices.dump() as directory:
            answer = child.fresh(
                _trial,
                directory,
                settings,
                name == "runs",
                precision == comparison.FULL_FLOAT32,
                limit_s=_LIMIT_S,
                environment=_environment(directory, flag),
            )
        if answer.failure is not None:
            return child.broken_off("auto_clustering", answer, evidence)
        evidence[name] = [value for value in answer.values if "setting" in value]
        for value in answer.values:
            evidence.update({key: seen for key, seen in value.items() if key == KERAS})
    return _judged(evidence)


def _judged(evidence: Dict[str, Any]) -> Result:
    on = evidence["runs"][1:-1]
    evidence["largest_difference"] = max(run["largest_difference"] for run in on)
    return judged(_problems(evidence), lambda: _passed(evidence), evidence)


def _environment(directory: str, flag: Optional[str]) -> Dict[str, Optional[str]]:
    given = " ".join(part for part in (os.environ.get("TF_XLA_FLAGS"), flag) if part)
    return {"XLA_FLAGS": tensorflow_devices.flags(directory), "TF_XLA_FLAGS": given or None}


def _trial(
    tf: Any, directory: str, settings: List[Setting], keras: bool, full_float32: bool
) -> Iterator[Dict[str, Any]]:
    """Train a new function under each setting. The function itself doesn't ask for XLA.

    keras: also train a model that asks for XLA, after set_jit(True): the two must not interfere with
    each other. full_float32: with TensorFloat-32 turned off.
    """
    gpus(tf)
    if full_float32:
        tf.config.experimental.enable_tensor_float_32_execution(False)
    images, labels = training.batch(tf)
    expected: List[Any] = []
    for setting in settings:
        tf.config.optimizer.set_jit(setting)
        before = len(tensorflow_devices.modules(directory))
        seen, gradients = _trained(training.step(tf, compiled=False), images, labels)
        expected = expected or gradients
        yield {
            "setting": setting,
            "get_jit": str(tf.config.optimizer.get_jit()),
            **seen,
            "largest_difference": training.apart(gradients, expected),
            "modules": tensorflow_devices.modules(directory)[before:],
        }

    if keras:
        yield {KERAS: _with_keras(tf, directory, images, labels)}


def _with_keras(tf: Any, directory: str, images: Any, labels: Any) -> Dict[str, Any]:
    """Return the losses of a Keras model with jit_compile=True after set_jit(True), and of one with
    neither."""
    losses, updates, compiled = {}, {}, []
    for jit in (False, True):
        tf.config.optimizer.set_jit(jit)
        before = len(tensorflow_devices.modules(directory))
        model = training.compile_model(tf, training.classifier(tf), jit_compile=jit)
        losses[jit], updates[jit] = training.fit(model, images, labels, STEPS)
        compiled = tensorflow_devices.modules(directory)[before:]
    return {
        "losses": losses[True],
        "losses_off": losses[False],
        "largest_difference": training.apart(updates[True], updates[False]),
        "modules": compiled,
    }


def _trained(step: Any, images: Any, labels: Any) -> Tuple[Dict[str, Any], List[Any]]:
    """Return what one training shows, and the gradients of its steps."""
    start = time.perf_counter()
    found, (first, gradient) = tensorflow_devices.operations(lambda: step(images, labels))
    losses, first_s = [float(first)], time.perf_counter() - start
    rest = training.run(step, images, labels, STEPS - 1)
    seen = {
        "clusters": sum(entry["count"] for entry in found if entry["op"] == "_XlaRun"),
        "operations": sum(entry["count"] for entry in found),
        "losses": [*losses, *rest.losses],
        "compile_s": first_s - statistics.median(rest.seconds),
    }
    return seen, [gradient.numpy(), *rest.gradients]


def _problems(evidence: Dict[str, Any]) -> List[Dict[str, Any]]:
    wanted, found = evidence["device_type"], []
    off, *on, again = evidence["runs"]
    for run in on:
        compiled = [module for module in run["modules"] if module["device_type"] == wanted]
        if not run["clusters"]:
            found.append(problem("set_jit_without_effect", setting=repr(run["setting"])))
        elif not compiled:
            found.append(problem("clusters_not_compiled", setting=repr(run["setting"]), device_type=wanted))
    if again["clusters"] > off["clusters"]:
        found.append(problem("set_jit_not_taken_back"))
    keras = evidence[KERAS]
    if not any(module["device_type"] == wanted for module in keras["modules"]):
        found.append(problem("jit_compiled_nothing", mode="twice", device_type=wanted))
    compared = {**keras, "tolerance": evidence["tolerance"]}
    found += training.gradients_differ("jit_off", compared, "jit_compile=True after set_jit(True)")
    return found + training.gradients_differ("unclustered", evidence)


def _passed(evidence: Dict[str, Any]) -> Dict[str, Any]:
    off, on = evidence["runs"][:2]
    if off["clusters"]:
        return statement("clusters_always", flags=evidence["flags"], clusters=off["clusters"])
    without = evidence["without_cpu_flag"]
    return statement(
        "clusters_made",
        device_type=evidence["device_type"],
        operations=off["operations"],
        clusters=on["clusters"],
        left=on["operations"],
        cpu_flag=evidence["cpu_flag"],
        clusters_without_flag=without[0]["clusters"] if without else None,
    )


CHECK = Check(
    id="auto_clustering",
    title="Does tf.config.optimizer.set_jit make clusters, and does XLA compile them?",
    stage=TENSORFLOW,
    run=_run,
    limit_s=330,
    required=False,
    depth=FULL,
)
