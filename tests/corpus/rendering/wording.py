"""TensorFlow's output for each observed kind, by release; read in sources, wheels and public threads.

One function per kind; each takes the console, the observation and the case's facts. Values that a message
carries but the facts don't tell are neutral fillers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .console import Console
from .wording_tools import TOOLS

Observation = Mapping[str, Any]
Wording = Callable[[Console, Observation], None]


def numa_notice(c: Console, seen: Observation) -> None:
    more = (
        " See more at https://github.com/torvalds/linux/blob/v6.0/Documentation/ABI/testing/sysfs-bus-pci#L344-L355"
        if c.facts.release >= (2, 12)
        else ""
    )
    line = {(2, 6): 937, (2, 9): 975}.get(c.facts.release, 1082)
    for _ in range(seen.get("times", 1)):
        c.log(
            "I",
            c.executor(f"cuda/cuda_gpu_executor.cc:{line}"),
            "successful NUMA node read from SysFS had negative value (-1), but there must be at least one"
            " NUMA"
            " node, so returning NUMA node zero" + more,
        )


def cpu_feature_notice(c: Console, seen: Observation) -> None:
    features, release = seen.get("features", "AVX2 FMA"), c.facts.release
    if release < (1, 13):
        c.log(
            "I",
            "tensorflow/core/platform/cpu_feature_guard.cc:141",
            f"Your CPU supports instructions that this TensorFlow binary was not compiled to use: {features}",
        )
        return
    about = (
        "This TensorFlow binary is optimized to use available CPU instructions in performance-critical"
        " operations."
        if release >= (2, 12)
        else "This TensorFlow binary is optimized with oneAPI Deep Neural Network Library (oneDNN) to use the"
        f" following CPU instructions in performance-critical operations:  {features}"
    )
    enable = f"the following instructions: {features}," if release >= (2, 12) else "them"
    c.log(
        "I",
        f"tensorflow/core/platform/cpu_feature_guard.cc:{210 if release >= (2, 14) else 182}",
        f"{about}\nTo enable {enable} in other operations, rebuild TensorFlow with the appropriate compiler"
        " flags.",
    )


FACTORIES = {
    "cuFFT": ("cuda/cuda_fft.cc", 477),
    "cuDNN": ("cuda/cuda_dnn.cc", 8310),
    "cuBLAS": ("cuda/cuda_blas.cc", 1418),
}


def factory_notice(c: Console, seen: Observation) -> None:
    for index, plugin in enumerate(seen["plugins"]):
        file, line = FACTORIES[plugin]
        c.log(
            "E",
            c.executor(f"{file}:{line}"),
            f"Unable to register {plugin} factory: Attempting to register factory for plugin {plugin} when"
            " one has"
            " already been registered",
        )
        if index == 0 and any(other["kind"] == "absl_init_notice" for other in c.facts.observed):
            c.lines.insert(
                len(c.lines) - 1,
                "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
            )


def absl_init_notice(c: Console, seen: Observation) -> None:
    """Printed once, before absl's first line; factory_notice has put it there where both are seen."""
    if not any(other["kind"] == "factory_notice" for other in c.facts.observed):
        c.say("WARNING: All log messages before absl::InitializeLog() is called are written to STDERR")


def trt_warning(c: Console, seen: Observation) -> None:
    c.log(
        "W", "tensorflow/compiler/tf2tensorrt/utils/py_utils.cc:38", "TF-TRT Warning: Could not find TensorRT"
    )


def gpu_list(c: Console, seen: Observation) -> None:
    if c.facts.source.endswith("53184"):
        c.say(f"Num GPUs Available:  {seen['count']}")
        return
    names = ", ".join(
        f"PhysicalDevice(name='/physical_device:GPU:{index}', device_type='GPU')"
        for index in range(seen["count"])
    )
    c.say(f"[{names}]")


def gpu_list_empty(c: Console, seen: Observation) -> None:
    c.say(">>> tf.config.list_physical_devices('GPU')", "[]")


def physical_devices(c: Console, seen: Observation) -> None:
    names = ", ".join(
        f"PhysicalDevice(name='/physical_device:{name}', device_type='{name.split(':')[0]}')"
        for name in seen["value"]
    )
    c.say(">>> tf.config.experimental.list_physical_devices()", f"[{names}]")


def built_with_cuda(c: Console, seen: Observation) -> None:
    c.say(">>> tf.test.is_built_with_cuda()", str(seen["value"]))


def compute_capability_ignored(c: Console, seen: Observation) -> None:
    count, _, name = seen["gpu"].partition("x ")
    for index in range(int(count)):
        c.log(
            "I",
            "tensorflow/core/common_runtime/gpu/gpu_device.cc:1406",
            f"Ignoring visible gpu device (device: {index}, name: {name}, pci bus id: 0000:0{index + 1}:00.0,"
            f" compute capability: {seen['cc']}) with Cuda compute capability {seen['cc']}. The minimum"
            " required"
            f" Cuda capability is {seen['minimum']}.",
        )


def cudnn_version_mismatch(c: Console, seen: Observation) -> None:
    runtime, compiled, line = str(seen["runtime"]), str(seen["compiled"]), 319
    if "." not in runtime:
        # Up to 1.9 the versions were numbers, with the "compatibility version" of each.
        c.log(
            "E",
            c.executor("cuda/cuda_dnn.cc:378"),
            f"Loaded runtime CuDNN library: {runtime} (compatibility version {runtime[:2]}00) but source was"
            " compiled"
            f" with {compiled} (compatibility version {compiled[:2]}00).  If using a binary install, upgrade"
            " your"
            " CuDNN library to match.  If building from sources, make sure the library loaded at runtime"
            " matches a"
            " compatible version specified during compile configuration.",
        )
        return
    if c.facts.release < (2, 3) or runtime.startswith("7"):
        rule = (
            "CuDNN library major and minor version needs to match or have higher minor version in case of"
            " CuDNN 7.0"
            " or later version."
        )
    else:
        rule = "CuDNN library needs to have matching major version and equal or higher minor version."
    for _ in range(2):
        c.log(
            "E",
            c.executor(f"cuda/cuda_dnn.cc:{line}"),
            f"Loaded runtime CuDNN library: {runtime} but source was compiled with: {compiled}.  {rule} If"
            " using a"
            " binary install, upgrade your CuDNN library.  If building from sources, make sure the library"
            " loaded at"
            " runtime is compatible with the version specified during compile configuration.",
        )


CUINIT = {
    "CUDA_ERROR_UNKNOWN": "unknown error",
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": "forward compatibility was attempted on non supported HW",
    "CUDA_ERROR_ECC_UNCORRECTABLE": "uncorrectable ECC error encountered",
}


def cuinit_failed(c: Console, seen: Observation) -> None:
    place = c.executor("cuda/cuda_driver.cc:271")
    c.log("E", place, f"failed call to cuInit: {seen['code']}: {CUINIT[seen['code']]}")
    diagnostics = c.executor("cuda/cuda_diagnostics.cc")
    c.log("I", f"{diagnostics}:169", "retrieving CUDA diagnostic information for host: workstation")
    c.log("I", f"{diagnostics}:176", "hostname: workstation")


def libcuda_version(c: Console, seen: Observation) -> None:
    c.log("I", c.executor("cuda/cuda_diagnostics.cc:200"), f"libcuda reported version is: {seen['value']}")


def kernel_driver_version(c: Console, seen: Observation) -> None:
    c.log("I", c.executor("cuda/cuda_diagnostics.cc:204"), f"kernel reported version is: {seen['value']}")


def kernel_dso_mismatch(c: Console, seen: Observation) -> None:
    c.log(
        "E",
        c.executor("cuda/cuda_diagnostics.cc:313"),
        f"kernel version {seen['kernel']} does not match DSO version {seen['dso']} -- cannot find working"
        " devices in"
        " this configuration",
    )


def cuda_error(c: Console, seen: Observation) -> None:
    code = seen["code"]
    if "no kernel image" in code:
        c.log(
            "F",
            "tensorflow/core/kernels/random_op_gpu.h:232",
            "Non-OK-status: GpuLaunchKernel(FillPhiloxRandomKernelLaunch<Distribution>, num_blocks,"
            " block_size, 0,"
            " d.stream(), gen, data, size, dist) status: Internal: no kernel image is available for execution"
            " on the"
            " device",
        )
    elif code == "804":
        torch_warning(c, "804", CUINIT["CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"])


def torch_warning(c: Console, code: str, words: str) -> None:
    c.say(
        f"{c.path('torch/cuda/__init__.py')}:52: UserWarning: CUDA initialization: Unexpected error from"
        " cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might"
        " have"
        f" already set an error? Error {code}: {words} (Triggered internally at"
        " ../c10/cuda/CUDAFunctions.cpp:109.)",
        "  return torch._C._cuda_getDeviceCount() > 0",
    )


def cuda_init_error(c: Console, seen: Observation) -> None:
    torch_warning(c, seen["code"], "system not yet initialized")


def fatal(c: Console, seen: Observation) -> None:
    error = next(other for other in c.facts.observed if other["kind"] == "cuda_error")
    c.log(
        "F",
        "tensorflow/stream_executor/lib/statusor.cc:34",
        "Attempting to fetch value instead of handling error Internal: failed initializing StreamExecutor for"
        " CUDA"
        f" device ordinal 0: Internal: failed call to {error['call']}: {error['code']}:"
        f" {CUINIT[error['code']]}",
    )
    c.say("Aborted (core dumped)")


def driver_insufficient(c: Console, seen: Observation) -> None:
    c.traceback(
        [
            ("train.py", 61, "<module>", "model.fit(x, y, epochs=10)"),
            (
                c.path("tensorflow_core/python/client/session.py"),
                699,
                "__init__",
                "self._session = tf_session.TF_NewSessionRef(self._graph._c_graph, opts)",
            ),
        ],
        f"tensorflow.python.framework.errors_impl.InternalError: {seen['call']}() failed. Status: CUDA driver"
        " version"
        " is insufficient for CUDA runtime version",
    )


def oom(c: Console, seen: Observation) -> None:
    shape = seen["shape"]
    c.log(
        "W",
        "tensorflow/core/framework/op_kernel.cc:1158",
        f"Resource exhausted: OOM when allocating tensor with shape{shape}",
    )
    c.traceback(
        [("train_image_classifier.py", 573, "<module>", "tf.app.run()")],
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with"
        f" shape{shape}\n"
        "\t [[Node: gradients/AddN_12 = AddN[N=2, T=DT_FLOAT,"
        ' _device="/job:localhost/replica:0/task:0/gpu:0"]'
        "(gradients/L2Loss_grad/mul, gradients/MatMul_grad/MatMul_1)]]",
    )


def xla_autotune_failed(c: Console, seen: Observation) -> None:
    c.log(
        "W",
        c.xla("service/gpu/gpu_conv_algorithm_picker.cc:792"),
        "Failed to determine best cudnn convolution algorithm for: %cudnn-conv ="
        " (f32[1,320,64,64]{3,2,1,0}, u8[0]{0}) custom-call(f32[1,4,64,64]{3,2,1,0} %copy.1,"
        " f32[320,4,3,3]{3,2,1,0}"
        " %copy.2), window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01,"
        ' custom_call_target="__cudnn$convForward"',
    )
    c.say(
        "** (RuntimeError) Failed to determine best cudnn convolution algorithm for:",
        "%cudnn-conv = (f32[1,320,64,64]{3,2,1,0}, u8[0]{0}) custom-call(f32[1,4,64,64]{3,2,1,0} %copy.1)",
        "",
        "To ignore this failure and try to use a fallback algorithm (which may have suboptimal performance),"
        " use"
        " XLA_FLAGS=--xla_gpu_strict_conv_algorithm_picker=false.  Please also file a bug for the root cause"
        " of"
        " failing autotuning.",
        "    (exla 0.4.1) lib/exla/computation.ex:92: EXLA.Computation.unwrap!/1",
    )


def libdevice_missing(c: Console, seen: Observation) -> None:
    place = c.xla("service/gpu/llvm_gpu_backend/gpu_backend_lib.cc:326")
    missing = "libdevice is required by this HLO module but was not found at ./libdevice.10.bc"
    c.log(
        "W",
        c.xla("service/gpu/nvptx_helper.cc:56"),
        "Can't find libdevice directory ${CUDA_DIR}/nvvm/libdevice. This may result in compilation or runtime"
        " failures, if the program we try to run uses routines from libdevice.\n"
        "Searched for CUDA in the following directories:\n  ./cuda_sdk_lib\n  /usr/local/cuda-11.2\n "
        " /usr/local/cuda\n"
        "  .\nYou can choose the search directory by setting xla_gpu_cuda_data_dir in HloModule's"
        " DebugOptions.  For most"
        " apps, setting the environment variable XLA_FLAGS=--xla_gpu_cuda_data_dir=/path/to/cuda will work.",
    )
    c.log("W", place, missing)
    c.log(
        "W",
        "tensorflow/core/framework/op_kernel.cc:1830",
        "OP_REQUIRES failed at xla_ops.cc:446 : INTERNAL: libdevice not found at ./libdevice.10.bc",
    )
    c.say(
        "Traceback (most recent call last):",
        '  File "/home/user/train.py", line 16, in <module>',
        "    model.fit(x, y)",
        "tensorflow.python.framework.errors_impl.InternalError: Graph execution error:",
        "",
        "Node: 'StatefulPartitionedCall_2'",
        "libdevice not found at ./libdevice.10.bc",
        "\t [[{{node StatefulPartitionedCall_2}}]] [Op:__inference_train_function_683]",
    )


def ptxas_not_runnable(c: Console, seen: Observation) -> None:
    c.log(
        "W",
        c.executor("gpu/asm_compiler.cc:80"),
        "Couldn't get ptxas version string: INTERNAL: Couldn't invoke ptxas --version",
    )
    c.log(
        "W",
        c.executor("gpu/redzone_allocator.cc:318"),
        "INTERNAL: Failed to launch ptxas\nRelying on driver to perform ptx compilation. \nModify $PATH to"
        " customize ptxas location.\nThis message will be only logged once.",
    )


def xla_unsupported_op(c: Console, seen: Observation) -> None:
    op, device = seen["op"].split(" / ")[0], seen["device"]
    name = (
        "__inference_one_step_on_data_993[]"
        if op.startswith("Cudnn")
        else "cluster_train_step_4185[_XlaMustCompile=true]"
    )
    words = (
        f"Detected unsupported operations when trying to compile graph {name} on {device}: {op} (No"
        f" registered '{op}'"
        f" OpKernel for {device} devices compatible with node {{{{node {op}}}}}){{{{node {op}}}}}"
    )
    c.log(
        "W",
        "tensorflow/core/framework/op_kernel.cc:1828",
        f"OP_REQUIRES failed at xla_ops.cc:503 : INVALID_ARGUMENT: {words}",
    )
    c.say(f"tensorflow.python.framework.errors_impl.InvalidArgumentError: {words}")


def flag_value_error(c: Console, seen: Observation) -> None:
    flag = seen["flag"]
    c.log(
        "E",
        "tensorflow/core/util/command_line_flags.cc:106",
        "Couldn't interpret value =/home/user/lib/python2.7/site-packages/tensorflow/compiler/xla for flag"
        f" {flag}.",
    )


def op_kernel_not_registered(c: Console, seen: Observation) -> None:
    op = seen["op"]
    c.say(
        "tensorflow.python.framework.errors_impl.InvalidArgumentError: No OpKernel was registered to support"
        f" Op '{op}'"
        f' used by {{{{node {op}}}}} with these attrs: [reduction="sum", shared_name="c1", T=DT_FLOAT,'
        " num_devices=2]",
        f"Registered devices: [{', '.join(seen['devices'])}]",
        "Registered kernels:",
        "  <no registered kernels>",
        "",
        f"\t [[{op}]] [Op:__inference_train_function_2229]",
    )


WORDING: Mapping[str, Wording] = {
    **TOOLS,
    **{
        function.__name__: function
        for function in (
            numa_notice, cpu_feature_notice, factory_notice, absl_init_notice, trt_warning, gpu_list,
            gpu_list_empty, physical_devices, built_with_cuda, compute_capability_ignored,
            cudnn_version_mismatch, cuinit_failed, libcuda_version, kernel_driver_version,
            kernel_dso_mismatch, cuda_error, cuda_init_error, fatal, driver_insufficient, oom,
            xla_autotune_failed, libdevice_missing, ptxas_not_runnable, xla_unsupported_op,
            flag_value_error, op_kernel_not_registered,
        )
    },
}  # fmt: skip
