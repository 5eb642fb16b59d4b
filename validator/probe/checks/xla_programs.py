"""What XLA compiles is compiled and computes the same: a convolution, Keras's models, and clusters."""

from __future__ import annotations

import functools
import os
import statistics
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Union

from ...problems import problem, statement
from .. import child, tensorflow_devices, training
from ..check import FULL, TENSORFLOW, Context, Result, check, judged
from ..tensorflow_devices import device_type, gpus, refusal
from ..training import FLOAT32, Results, classifier, compile_model, describe, major

_PROGRAM = "forward and gradient"
#: Small, because an autotuner runs every configuration that cuDNN offers for each convolution of a program.
IMAGES, KERNEL = (4, 12, 12, 8), (3, 3, 8, 16)
#: For the tolerance: the convolution, the bias and the activation, each stored in the type; and as many again
#: in the backward pass. The longest sum is the gradient by the filter, over all positions of all images.
_ROUNDINGS, _LENGTH = 8, 4 * 12 * 12


@check(
    "Does XLA compile a convolution with bias and activation, and compute the same?",
    TENSORFLOW,
    limit_s=300,
    requires=("device",),
)
def xla_convolution(context: Context) -> Result:
    """Compile a convolution by itself, in each floating-point type, and look into the compiled program.

    XLA fuses convolution, bias and activation into one call of cuDNN (`__cudnn$convBiasActivationForward`)
    that uncompiled programs don't make. With TensorFlow 2.21 and cuDNN 9.3 or 9.5 its autotuner finds no
    configuration for that call on common GPUs (aws/deep-learning-containers#6417 and #6418), and Keras
    compiles with XLA by default.
    """
    tf = context.tensorflow
    kind = device_type(tf)

    def measured(*types: str) -> Result:
        programs = [_compiled_convolution(context, kind, type_) for type_ in types]
        return judge_xla_convolution({"device_type": kind, "types": list(types), "programs": programs})

    default, again = measured(FLOAT32, *training.half_types(tf)), functools.partial(measured, FLOAT32)
    return training.also_in_float32(context, "xla_convolution_float32", default, again)


def convolution_step(tf: Any, images: Any, kernel: Any, bias: Any) -> Results:
    """Return a convolution with bias and activation, and its gradient, as one program.

    Compiled together they take one convolution less than two programs, and all of them are autotuned.
    """
    given = {"input": images, "filter": kernel, "bias": bias}
    with tf.GradientTape() as tape:
        tape.watch(tuple(given.values()))
        activated = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(images, kernel, 1, "SAME"), bias))
        loss = tf.reduce_mean(tf.square(tf.cast(activated, tf.float32)))
    gradients = tape.gradient(loss, tuple(given.values()))
    return {
        "convolution with bias and activation": activated,
        **{f"gradient by {name}": gradient for name, gradient in zip(given, gradients)},
    }


def _compiled_convolution(context: Context, kind: str, type_: str) -> dict[str, Any]:
    """Compile and run the step in a type; compare it with the uncompiled step in float32 on the CPU."""
    tf = context.tensorflow
    doing = statement("compiling", program=f"convolution, {_PROGRAM}", type=type_)
    context.tell(child.DOING, statement=doing)
    precision = training.precision(tf) if type_ == FLOAT32 else type_
    with tf.device("/CPU:0"):
        shapes = enumerate((IMAGES, KERNEL, (KERNEL[-1],)))
        normal = [tf.random.stateless_normal(shape, seed=(5, number)) for number, shape in shapes]
        given = [tf.cast(tensor, type_) for tensor in normal]
        plain = tf.function(functools.partial(convolution_step, tf), autograph=False)
        expected = plain(*(tf.cast(tensor, FLOAT32) for tensor in given))
    seen: dict[str, Any] = {"program": _PROGRAM, "type": type_, "precision": precision}
    seen["tolerance"] = training.tolerance(precision, _ROUNDINGS, _LENGTH)
    with tf.device(f"/{kind}:0"):
        given = [tf.identity(tensor) for tensor in given]
        compiled = tf.function(functools.partial(convolution_step, tf), autograph=False, jit_compile=True)
        return {**seen, **training.tried(tf, compiled, given, expected, compiled=True)}


def judge_xla_convolution(evidence: dict[str, Any]) -> Result:
    problems, programs, kind = [], evidence["programs"], evidence["device_type"]
    for entry in programs:
        named = {"program": entry["program"], "type": entry["type"]}
        if entry["error"] is not None:
            problems.append(problem("convolution_not_compiled", **named, error=entry["error"]))
            continue
        if not entry["hlo"]["instructions"]:
            problems.append(problem("no_compiled_module"))
        elif kind == "GPU" and not tensorflow_devices.calls_cudnn(entry["hlo"]):
            problems.append(problem("convolution_without_cudnn", **named))
        mode = f"{entry['type']}, compiled"
        problems += training.wrong_results(entry["results"], kind, entry["tolerance"], "uncompiled", mode)

    compiled = [entry["hlo"] for entry in programs if entry["hlo"] is not None]
    targets = sorted({target for module in compiled for target in module["targets"]})
    told = {"types": evidence["types"], "difference": training.worst_of_all(programs), "targets": targets}
    return judged(problems, statement("convolution_compiled", device_type=kind, **told), evidence)


#: The steps of a training, for Keras and for clusters.
STEPS = 5
#: jit_compile=False, jit_compile=True, and what Keras chooses.
OFF, ON, AUTO = "off", "on", "auto"
#: The operations that every model needs, as parts of their names. Operations inside XLA programs are not
#: among those executed.
_COMPUTING = ("Conv2D", "MatMul")


@check(
    "Is model.compile(jit_compile=True) compiled, and does it compute the same?",
    TENSORFLOW,
    limit_s=300,
    requires=("device",),
)
def keras_jit(context: Context) -> Result:
    """Train a Keras model with each setting of jit_compile.

    Keras passes the request on to `tf.function`, or drops it with a warning that nobody reads. So the check
    looks at the operations that TensorFlow executed: if a convolution is among them, it was not compiled. A
    step that XLA can't compile must be rejected: if it trains, jit_compile was ignored.
    """
    tf = context.tensorflow
    kind = device_type(tf)
    evidence: dict[str, Any] = {"device_type": kind, "keras": describe(tf), "steps": STEPS}
    settings: dict[str, dict[str, Any]] = {
        OFF: {"jit_compile": False},
        ON: {"jit_compile": True},
        # Keras 2 has no such value; it chooses if no value is given.
        AUTO: {} if major(evidence["keras"]) == 2 else {"jit_compile": "auto"},
    }
    evidence["resolved"] = _resolved(tf)
    images, labels = training.batch(tf)

    def trained(modes: Sequence[str]) -> dict[str, Any]:
        seen: dict[str, Any] = {"precision": training.precision(tf)}
        updates: dict[str, list[Any]] = {}
        with tf.device(f"/{kind}:0"):
            for mode in modes:
                doing = statement("compiling", program=f"Keras, jit_compile {mode}", type="float32")
                context.tell(child.DOING, statement=doing)
                seen[mode], updates[mode] = _train_keras(tf, settings[mode], images, labels)
                seen[mode]["largest_difference"] = training.apart(updates[mode], updates[OFF])
            model = compile_model(tf, classifier(tf), jit_compile=True)
            # This creates the variables of the optimizer and the metrics.
            model.train_on_batch(images, labels)
            step = tf.function(lambda *batch: model.train_step(batch), jit_compile=True, autograph=False)
            module = step.experimental_get_compiler_ir(images, labels)(stage="optimized_hlo")
            seen["hlo"] = tensorflow_devices.summary(module)
        return seen

    evidence.update(trained(list(settings)))
    with tf.device(f"/{kind}:0"), child.section("provoked by keras_jit"):
        for mode in (OFF, ON):
            evidence[f"refused_{mode}"] = _refused(tf, settings[mode], images, labels)

    def again() -> Result:
        """Train as users who turn TensorFloat-32 off; what Keras chooses by itself is one of the two."""
        seen = trained((OFF, ON))
        chosen = seen[ON if evidence[AUTO]["jit_compile"] else OFF]
        return judge_keras_jit({**evidence, **seen, AUTO: chosen})

    return training.also_in_float32(context, "keras_jit_float32", judge_keras_jit(evidence), again)


def _train_keras(
    tf: Any, settings: dict[str, Any], images: Any, labels: Any
) -> tuple[dict[str, Any], list[Any]]:
    """Train a new model; return its losses, how many of the computing operations ran uncompiled, and what
    each step added to the last layer."""
    model = compile_model(tf, classifier(tf), **settings)
    start = time.perf_counter()
    first = functools.partial(training.fit, model, images, labels, 1)
    executed, (losses, updates) = tensorflow_devices.operations(first)
    first_s = time.perf_counter() - start
    start = time.perf_counter()
    more, later = training.fit(model, images, labels, STEPS - 1)
    usual_s, jit = (time.perf_counter() - start) / (STEPS - 1), _jit(model)
    computing = [entry for entry in executed if any(name in entry["op"] for name in _COMPUTING)]
    seen = {
        "losses": losses + more,
        "compile_s": first_s - usual_s if jit else None,
        "jit_compile": jit,
        "uncompiled": sum(entry["count"] for entry in computing),
        "device": model(images).device,
    }
    return seen, updates + later


def _refused(tf: Any, settings: dict[str, Any], images: Any, labels: Any) -> str | None:
    """Return the exception raised when the loss calls back into Python, which XLA can't compile; or None."""

    def loss(expected: Any, logits: Any) -> Any:
        entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=tf.cast(tf.reshape(expected, (-1,)), tf.int32), logits=logits
        )
        nothing = tf.numpy_function(lambda values: 0 * values, [tf.stop_gradient(entropy)], tf.float32)
        return entropy + tf.reshape(nothing, tf.shape(entropy))

    model = compile_model(tf, classifier(tf), loss, **settings)
    try:
        model.train_on_batch(images, labels)
    except tf.errors.OpError as error:
        return refusal(error)
    return None


def _resolved(tf: Any) -> dict[str, Any]:
    """Return how Keras interprets each value of `jit_compile`, for the classifier and a recurrent layer."""
    keras = tf.keras
    asked: dict[str, Any] = {"true": True, "false": False}
    # Keras 2 takes any text for True.
    if major(describe(tf)) != 2:
        asked["auto"] = "auto"
    inputs = keras.Input((8, 4))
    recurrent = keras.Model(inputs, keras.layers.Dense(2)(keras.layers.LSTM(4)(inputs)))
    found: dict[str, Any] = {}
    for name, model in (("classifier", classifier(tf)), ("recurrent", recurrent)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found[name] = {"default": _jit(compile_model(tf, model))}
            for word, value in asked.items():
                found[name][word] = _jit(compile_model(tf, model, jit_compile=value))
        said = [str(entry.message) for entry in caught if "jit_compile" in str(entry.message)]
        found[name]["warning"] = said[0][:300] if said else None
    return found


def _jit(model: Any) -> bool | None:
    """Return whether Keras will compile this model; None where this Keras doesn't say."""
    for name in ("jit_compile", "_jit_compile"):
        if hasattr(model, name):
            return bool(getattr(model, name))
    return None


def judge_keras_jit(evidence: dict[str, Any]) -> Result:
    evidence["tolerance"] = training.tolerance(evidence["precision"], 2 * training.ROUNDINGS, training.LENGTH)
    evidence["largest_difference"] = max(evidence[mode]["largest_difference"] for mode in (ON, AUTO))
    problems = []
    wanted, program = evidence["device_type"], evidence["hlo"]
    if evidence[ON]["jit_compile"] is False:
        problems.append(problem("jit_turned_off", mode=ON))
    for mode in (ON, AUTO):
        asked = mode == ON or evidence[AUTO]["jit_compile"]
        if asked and evidence[mode]["uncompiled"]:
            problems.append(problem("jit_compiled_nothing", mode=mode, device_type=wanted))
        problems += training.ran_elsewhere(evidence[mode]["device"], wanted, mode)
        problems += training.not_falling(evidence[mode]["losses"], mode)
    # Otherwise, a convolution would not be among the operations even if it was not compiled.
    if not evidence[OFF]["uncompiled"]:
        problems.append(problem("operation_not_executed", operation=" or ".join(_COMPUTING)))
    if not program["instructions"]:
        problems.append(problem("no_compiled_module"))
    elif wanted == "GPU" and not tensorflow_devices.calls_cudnn(program):
        problems.append(problem("convolution_without_cudnn", program="training step", type="float32"))
    if evidence["refused_on"] is None:
        problems.append(problem("uncompilable_step_trained"))
    if evidence["refused_off"] is not None:
        problems.append(problem("step_fails_without_jit", error=evidence["refused_off"]))
    problems += training.gradients_differ("jit_off", evidence)
    told = {"device_type": wanted, "instructions": program["instructions"]}
    chosen = {name: evidence["resolved"]["classifier"].get(name) for name in ("default", "auto")}
    return judged(problems, statement("keras_jit_works", **evidence["keras"], **told, **chosen), evidence)


#: Without this flag, clusters are made only on GPUs (tensorflow/compiler/jit/flags.cc).
CPU_FLAG = "--tf_xla_cpu_global_jit"
_LIMIT_S = 150.0
#: The field of the evidence about a Keras model.
KERAS = "keras_jit"
#: The arguments of `set_jit`, each for a new function.
Setting = Union[bool, str]
_SETTINGS: list[Setting] = [False, True, "autoclustering", False]


@check(
    "Does tf.config.optimizer.set_jit make clusters, and does XLA compile them?",
    TENSORFLOW,
    limit_s=330,
    depth=FULL,
)
def auto_clustering(context: Context) -> Result:
    """Count the clusters in the graph that is executed, and among the modules that XLA compiled.

    `set_jit` must be called before a function's first call, and on a CPU it has no effect unless TensorFlow
    was started with a flag. So the trials run in fresh interpreters, on a CPU with that flag and without.
    """
    measured = functools.partial(_cluster, context.tensorflow)
    return training.also_in_float32(context, "auto_clustering_float32", measured(), measured)


def _cluster(tf: Any) -> Result:
    kind = device_type(tf)
    evidence: dict[str, Any] = {
        "device_type": kind,
        "steps": STEPS,
        "cpu_flag": CPU_FLAG if kind == "CPU" else None,
        "flags": os.environ.get("TF_XLA_FLAGS"),
        "runs": None,
        "without_cpu_flag": None,
        **training.allowed(tf, 2 * training.ROUNDINGS, training.LENGTH),
    }
    full = evidence["precision"] == training.FULL_FLOAT32
    trials: dict[str, list[Setting]] = {"runs": _SETTINGS}
    if kind == "CPU":
        trials["without_cpu_flag"] = [True]
    for name, settings in trials.items():
        flags = (evidence["flags"], evidence["cpu_flag"] if name == "runs" else None)
        given = " ".join(flag for flag in flags if flag) or None
        with tensorflow_devices.dump() as directory:
            asked, chosen = (directory, settings, name == "runs", full), tensorflow_devices.flags(directory)
            environment = {"XLA_FLAGS": chosen, "TF_XLA_FLAGS": given}
            answer = child.fresh(_clustered, *asked, limit_s=_LIMIT_S, environment=environment)
        if answer.failure is not None:
            return child.broken_off("auto_clustering", answer, evidence)
        evidence[name] = [value for value in answer.values if "setting" in value]
        for value in answer.values:
            if KERAS in value:
                evidence[KERAS] = value[KERAS]
    return judge_auto_clustering(evidence)


def _clustered(
    tf: Any, directory: str, settings: list[Setting], keras: bool, full_float32: bool
) -> Iterator[dict[str, Any]]:
    """Train a new function under each setting. The function itself doesn't ask for XLA.

    keras: also train a model that asks for XLA, after set_jit(True), and one with neither: the two must not
    interfere with each other. full_float32: with TensorFloat-32 turned off.
    """
    gpus(tf)
    if full_float32:
        tf.config.experimental.enable_tensor_float_32_execution(False)
    images, labels = training.batch(tf)
    expected: list[Any] = []
    for setting in settings:
        tf.config.optimizer.set_jit(setting)
        before = len(tensorflow_devices.modules(directory))
        step = training.step(tf, compiled=False)
        start = time.perf_counter()
        found, (first, gradient) = tensorflow_devices.operations(functools.partial(step, images, labels))
        loss, first_s = float(first), time.perf_counter() - start
        rest = training.run(step, images, labels, STEPS - 1)
        gradients = [gradient.numpy(), *rest.gradients]
        expected = expected or gradients
        yield {
            "setting": setting,
            "get_jit": str(tf.config.optimizer.get_jit()),
            "clusters": sum(entry["count"] for entry in found if entry["op"] == "_XlaRun"),
            "operations": sum(entry["count"] for entry in found),
            "losses": [loss, *rest.losses],
            "compile_s": first_s - statistics.median(rest.seconds),
            "largest_difference": training.apart(gradients, expected),
            "modules": tensorflow_devices.modules(directory)[before:],
        }
    if not keras:
        return
    losses, updates = {}, {}
    for jit in (False, True):
        tf.config.optimizer.set_jit(jit)
        before = len(tensorflow_devices.modules(directory))
        model = compile_model(tf, classifier(tf), jit_compile=jit)
        losses[jit], updates[jit] = training.fit(model, images, labels, STEPS)
    yield {
        KERAS: {
            "losses": losses[True],
            "losses_off": losses[False],
            "largest_difference": training.apart(updates[True], updates[False]),
            "modules": tensorflow_devices.modules(directory)[before:],
        }
    }


def judge_auto_clustering(evidence: dict[str, Any]) -> Result:
    wanted, problems = evidence["device_type"], []
    off, *on, again = evidence["runs"]
    evidence["largest_difference"] = max(run["largest_difference"] for run in on)
    for run in on:
        setting = repr(run["setting"])
        if not run["clusters"]:
            problems.append(problem("set_jit_without_effect", setting=setting))
        elif not any(module["device_type"] == wanted for module in run["modules"]):
            problems.append(problem("clusters_not_compiled", setting=setting, device_type=wanted))
    if again["clusters"] > off["clusters"]:
        problems.append(problem("set_jit_not_taken_back"))
    keras = evidence[KERAS]
    if not any(module["device_type"] == wanted for module in keras["modules"]):
        problems.append(problem("jit_compiled_nothing", mode="twice", device_type=wanted))
    compared = {**keras, "tolerance": evidence["tolerance"]}
    problems += training.gradients_differ("jit_off", compared, "jit_compile=True after set_jit(True)")
    problems += training.gradients_differ("unclustered", evidence)
    if off["clusters"]:
        passed = statement("clusters_always", flags=evidence["flags"], clusters=off["clusters"])
        return judged(problems, passed, evidence)
    without = evidence["without_cpu_flag"]
    told = {"operations": off["operations"], "clusters": on[0]["clusters"], "left": on[0]["operations"]}
    count = without[0]["clusters"] if without else None
    told.update(cpu_flag=evidence["cpu_flag"], clusters_without_flag=count)
    return judged(problems, statement("clusters_made", device_type=wanted, **told), evidence)
