"""Output of the tools around TensorFlow: nvidia-smi, Docker, pip, conda, Python, NCCL, other frameworks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from .console import Console

Observation = Mapping[str, Any]


def plain(text: str) -> str:
    """Without the collector's remarks in brackets; those of the person (the installer, WSL) stay."""
    return re.sub(r"\s*\((?!pip\)|conda\)|WSL\))[^)]*\)", "", str(text))


def ngc_banner(c: Console, seen: Observation) -> None:
    c.say(
        "================",
        "== TensorFlow ==",
        "================",
        "",
        "NVIDIA Release 19.08 (build 7791926)",
        "TensorFlow Version 1.14.0",
        "",
        "Container image Copyright (c) 2019, NVIDIA CORPORATION.  All rights reserved.",
        "Copyright 2017-2019 The TensorFlow Authors.  All rights reserved.",
        "",
        "Various files include modifications (c) NVIDIA CORPORATION.  All rights reserved.",
        "NVIDIA modifications are covered by the license terms that apply to the underlying project or file.",
        "",
        "WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.",
        "   Use 'nvidia-docker run' to start this container; see",
        "   https://github.com/NVIDIA/nvidia-docker/wiki/nvidia-docker .",
        "",
        "NOTE: MOFED driver for multi-node communication was not detected.",
        "      Multi-node communication performance may be reduced.",
    )


def container_cli_error(c: Console, seen: Observation) -> None:
    needs = seen["says"].split()[1]
    c.say(
        "docker: Error response from daemon: failed to create shim task: OCI runtime create failed: runc"
        " create failed:"
        " unable to start container process: error during container init: error running hook #0: error"
        " running hook:"
        " exit status 1, stdout: , stderr: Auto-detected mode as 'legacy'",
        f"nvidia-container-cli: requirement error: unsatisfied condition: {needs}, please update your driver"
        " to a newer"
        " version, or use an earlier cuda container: unknown.",
    )


def nvml_error(c: Console, seen: Observation) -> None:
    c.say("$ nvidia-smi", "Failed to initialize NVML: Driver/library version mismatch", "")


def nvidia_smi_failed(c: Console, seen: Observation) -> None:
    c.say("$ nvidia-smi")
    if "communicate" in seen["says"]:
        c.say(
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the"
            " latest"
            " NVIDIA driver is installed and running."
        )
    else:
        c.say("No devices were found", "", "So nvidia-smi is unable to find a GPU.")


def nvidia_smi(c: Console, seen: Observation) -> None:
    driver, cuda = seen["driver"], seen.get("cuda")
    gpu = seen.get("gpu") or c.facts.context["gpu"]
    used, total = re.findall(r"\d+", seen.get("memory", "0 of 3911 MiB"))
    name = re.sub(r"\s*\d+ GB", "", gpu)
    name = name if name.startswith(("Tesla", "NVIDIA")) else f"GeForce {name}"
    middle = f"Driver Version: {driver}"
    top = f"| NVIDIA-SMI {driver:<12} {middle:<28} " + (f"CUDA Version: {cuda:<9}" if cuda else " " * 23)
    where = seen.get("where", "")
    c.say(
        "root@3f1c2a9d0b7e:/# nvidia-smi" if "container" in where else "$ nvidia-smi",
        f"{c.tick():%a %b %d %H:%M:%S %Y}       ",
        "+-----------------------------------------------------------------------------+",
        f"{top:<78}|",
        "|-------------------------------+----------------------+----------------------+",
        "| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |",
        "|===============================+======================+======================|",
        f"|   0  {name[:20]:<20} Off  | 00000000:02:00.0 Off |                    0 |",
        f"| N/A   36C    P0    42W / 300W | {used:>6}MiB / {total:>5}MiB |      {seen.get('util', '0%')}     "
        " Default |",
        "+-------------------------------+----------------------+----------------------+",
        "                                                                               ",
        "+-----------------------------------------------------------------------------+",
        "| Processes:                                                       GPU Memory |",
        "|  GPU       PID   Type   Process name                             Usage      |",
        "|=============================================================================|",
        "|  No running processes found                                                 |",
        "+-----------------------------------------------------------------------------+",
    )


def fabricmanager_log(c: Console, seen: Observation) -> None:
    now, version = c.tick(), seen["version"]
    head = f"{now:%b %d %H:%M:%S} ip-172-31-14-7"
    c.say(
        "$ journalctl -u nvidia-fabricmanager",
        f"{head} systemd[1]: Starting NVIDIA fabric manager service...",
        f"{head} nv-fabricmanager[1843]: fabric manager NVIDIA GPU driver interface version {version} don't"
        " match with"
        f" driver version {version.rsplit('.', 1)[0]}.06. Please update with matching NVIDIA driver package.",
        f"{head} systemd[1]: nvidia-fabricmanager.service: Control process exited, code=exited,"
        " status=1/FAILURE",
        f"{head} systemd[1]: nvidia-fabricmanager.service: Failed with result 'exit-code'.",
        f"{head} systemd[1]: Failed to start NVIDIA fabric manager service.",
    )


def torch_cuda_available(c: Console, seen: Observation) -> None:
    c.say(">>> torch.cuda.is_available()", str(seen["value"]))


def torch_device_count(c: Console, seen: Observation) -> None:
    c.say(
        "$ nvidia-smi -L",
        "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f)",
        "  MIG 3g.20gb     Device  0: (UUID: MIG-e00cb0ba-79d1-5f2e-9d2b-6bd0e6c04b1a)",
        "  MIG 3g.20gb     Device  1: (UUID: MIG-97271b5c-3850-592c-8f80-7c9940e5edab)",
        '$ python -c "import torch; print(torch.cuda.device_count())"',
        str(seen["value"]),
    )


BACKENDS = {
    "tpu_driver": "NOT_FOUND: Unable to find driver in registry given worker: ",
    "tpu": "INVALID_ARGUMENT: TpuPlatform is not available.",
}


def jax_backend_notice(c: Console, seen: Observation) -> None:
    name = seen["backend"]
    reason = BACKENDS.get(name) or (
        f'NOT_FOUND: Could not find registered platform with name: "{name}". Available platform names are:'
        f" {seen.get('platforms')}"
    )
    c.say(
        f"I{c.tick():%m%d %H:%M:%S.%f} 140141 xla_bridge.py:328] Unable to initialize backend '{name}':"
        f" {reason}"
    )


def accelerator_selected(c: Console, seen: Observation) -> None:
    value = seen["value"]
    c.say(
        f"[{c.tick():%Y-%m-%d %H:%M:%S},114] [INFO] [real_accelerator.py:203:get_accelerator] Setting"
        f" ds_accelerator to {value} (auto detect)"
    )


def conda_builds_offered(c: Console, seen: Observation) -> None:
    package, version = seen["package"].split()
    c.say(
        f"$ conda search {package}={version}",
        "Loading channels: done",
        f"{'# Name':<28} {'Version':>9} {'Build':>22}  Channel",
    )
    builds = {"eigen": "eigen_py36h84d285f_0", "gpu": "gpu_py36hf933387_0", "mkl": "mkl_py36h5a57954_0"}
    for variant in seen["variants"]:
        c.say(f"{package:<28} {version:>9} {builds[variant]:>22}  pkgs/main")


def keras_backend(c: Console, seen: Observation) -> None:
    name = {"tensorflow": "TensorFlow"}.get(seen["value"], seen["value"])
    c.say(f"Using {name} backend", ">>> keras_core.backend.backend()", f"'{seen['value']}'")


def env(c: Console, seen: Observation) -> None:
    if seen["where"] == "os.environ":
        c.say(f">>> os.environ['{seen['name']}']", f"'{seen['value']}'")
    else:
        c.say(
            "$ tr '\\0' '\\n' < /proc/$(pgrep -n kur)/environ | grep CUDA", f"{seen['name']}={seen['value']}"
        )


def gpu_util(c: Console, seen: Observation) -> None:
    c.say(f"GPU-Util as nvidia-smi shows it: {seen['pattern']}.")


def slower_on_gpu(c: Console, seen: Observation) -> None:
    c.say("The same code takes longer on the GPU than on the CPU. Shouldn't the GPU be faster?")


def nccl_log(c: Console, seen: Observation) -> None:
    if "posix_fallocate" in seen["says"]:
        c.say(
            "",
            "gpu2:2143:2561 [1] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on"
            " device",
            "gpu2:2143:2561 [1] NCCL INFO include/shm.h:41 -> 2",
            "",
            "gpu2:2143:2561 [1] include/shm.h:48 NCCL WARN Error while creating shared memory segment"
            " nccl-shm-recv-9d2a8e2b5c2b0d64-0-2-3 (size 9637888)",
            "tensorflow.python.framework.errors_impl.UnknownError: ncclCommInitRank failed: unhandled system"
            " error",
        )
    else:
        c.say(
            "gpu2:2143:2561 [1] NCCL INFO Ring 00 : 1[1b000] -> 2[3d000] via direct shared memory",
            "gpu2:2145:2555 [3] NCCL INFO Ring 00 : 3[3e000] -> 0[1a000] via direct shared memory",
        )


def pip_no_matching_distribution(c: Console, seen: Observation) -> None:
    package = seen["package"]
    c.say(
        f"> pip install {package}",
        f"ERROR: Could not find a version that satisfies the requirement {package} (from versions:"
        f" {seen['versions_offered']})",
        f"ERROR: No matching distribution found for {package}",
    )


def numpy_abi_error(c: Console, seen: Observation) -> None:
    c.say(
        "",
        "A module that was compiled using NumPy 1.x cannot be run in",
        f"NumPy {seen['numpy']} as it may crash. To support both 1.x and 2.x",
        "versions of NumPy, modules must be compiled with NumPy 2.0.",
        "Some module may need to rebuild instead e.g. with 'pybind11>=2.12'.",
        "",
        "If you are a user of the module, the easiest solution will be to",
        "downgrade to 'numpy<2' or try to upgrade the affected module.",
        "We expect that some modules will need time to support NumPy 2.",
        "",
    )


PROTOBUF = (
    "TypeError: Descriptors cannot not be created directly.\n"
    "If this call came from a _pb2.py file, your generated code is out of date and must be regenerated with"
    " protoc >= 3.19.0.\n"
    "If you cannot immediately regenerate your protos, some other possible workarounds are:"
)


def import_failed(c: Console, seen: Observation) -> None:
    module, error = seen["module"], seen.get("error", "")
    if error.startswith("TypeError"):
        c.traceback(
            [
                ("<stdin>", 1, "<module>", "import tensorflow"),
                (
                    c.path("tensorflow/core/framework/tensor_shape_pb2.py"),
                    36,
                    "<module>",
                    "_descriptor.FieldDescriptor(",
                ),
                (
                    c.path("google/protobuf/descriptor.py"),
                    560,
                    "__new__",
                    "_message.Message._CheckCalledFromGeneratedFile()",
                ),
            ],
            PROTOBUF,
        )
    elif error == "ModuleNotFoundError":
        c.traceback(
            [(c.path("transformers/activations_tf.py"), 22, "<module>", f"import {module} as keras")],
            f"ModuleNotFoundError: No module named '{module}'",
        )
    else:
        c.traceback(
            [
                (c.path("../../gui_main.py"), 36, "<module>", f"import {module} as tf"),
                (
                    c.path("tensorflow/python/client/pywrap_tf_session.py"),
                    19,
                    "<module>",
                    "from tensorflow.python.client._pywrap_tf_session import *",
                ),
            ],
            "AttributeError: _ARRAY_API not found",
        )
        c.say(
            "ImportError: numpy.core._multiarray_umath failed to import",
            "ImportError: numpy.core.umath failed to import",
        )


def protobuf_hint(c: Console, seen: Observation) -> None:
    c.say(
        " 1. Downgrade the protobuf package to 3.20.x or lower.",
        " 2. Set PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python (but this will use pure-Python parsing and"
        " will be much slower).",
        "",
        "More information: https://developers.google.com/protocol-buffers/docs/news/2022-05-06#python-updates",
    )


def python_exception(c: Console, seen: Observation) -> None:
    says, kind = seen.get("says", ""), seen["type"]
    if "library" in seen:
        c.traceback(
            [
                (
                    c.path("tensorflow/python/pywrap_tensorflow.py"),
                    41,
                    "<module>",
                    "from tensorflow.python.pywrap_tensorflow_internal import *",
                ),
                (
                    c.path("tensorflow/python/pywrap_tensorflow_internal.py"),
                    24,
                    "swig_import_helper",
                    "_mod = imp.load_module('_pywrap_tensorflow_internal', fp, pathname, description)",
                ),
                ("/usr/lib/python3.5/imp.py", 342, "load_dynamic", "return _load(spec)"),
            ],
            f"{kind}: {seen['library']}: cannot open shared object file: No such file or directory",
        )
        c.say("", "Failed to load the native TensorFlow runtime.")
    elif "virtual devices" in says:
        c.traceback(
            [
                (
                    c.path("tensorflow/python/eager/context.py"),
                    1601,
                    "set_logical_device_configuration",
                    "raise RuntimeError(",
                )
            ],
            f"{kind}: Virtual devices cannot be modified after being initialized",
        )
    elif "dlopen" in says:
        c.traceback(
            [
                ("<stdin>", 1, "<module>", f"cuda.{seen['call']}(0)"),
                (
                    "cuda/_cuda/ccuda.pyx",
                    424,
                    "cuda._cuda.ccuda.cuPythonInit",
                    "raise RuntimeError('Failed to dlopen libcuda.so')",
                ),
            ],
            f"{kind}: Failed to dlopen libcuda.so",
        )
    else:
        c.traceback(
            [(c.path("transformers/activations_tf.py"), 27, "<module>", "raise ValueError(")],
            f"{kind}: Your currently installed version of Keras is Keras 3, but this is not yet supported in"
            " Transformers. Please install the backwards-compatible tf-keras package with `pip install"
            " tf-keras`.",
        )


TOOLS: Mapping[str, Callable[[Console, Observation], None]] = {
    function.__name__: function
    for function in (
        ngc_banner, container_cli_error, nvml_error, nvidia_smi_failed, nvidia_smi, fabricmanager_log,
        torch_cuda_available, torch_device_count, jax_backend_notice, accelerator_selected,
        conda_builds_offered, keras_backend, env, gpu_util, slower_on_gpu, nccl_log,
        pip_no_matching_distribution, numpy_abi_error, import_failed, protobuf_hint, python_exception,
    )
}  # fmt: skip
