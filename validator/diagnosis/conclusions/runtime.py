"""The running program: memory that is in use, libraries on the disk, backends, utilization, schedulers."""

from __future__ import annotations

import re

from ..cuda_errors import CUDA_ERROR, CUINIT
from ..observations import Observation, Observations

#: Percent of the GPU's time up to which it is hardly used.
_HARDLY_USED = 30
#: A process that uses this many MiB leaves little for others.
_MUCH = 1024
#: MB that are free on any GPU that TensorFlow runs on, unless other processes use the memory.
_LITTLE = 600
#: Digits of a number that is still plausible: of a memory size in MiB, and of one in bytes.
_MIB_DIGITS, _BYTES_DIGITS = 7, 15


def _number(text: str, digits: int) -> int | None:
    """Return a plausible number, or None."""
    return int(text) if text.isdecimal() and len(text) <= digits else None


def memory_in_use(observations: Observations) -> None:
    """Add memory that is in use before the program runs (a row of nvidia-smi)."""
    for one in observations.of("gpu_memory"):
        values = {name: one.values.get(name, "").strip() for name in ("used", "total")}
        used, total = (_number(value, _MIB_DIGITS) for value in values.values())
        if used and total and used * 2 > total:
            observations.conclude("memory_mostly_used", values, one)


def keras_backend(observations: Observations) -> None:
    """Add a backend in use that is not TensorFlow, or not the one that is configured."""
    configured = observations.with_value("variable", "name", "KERAS_BACKEND") or observations.first(
        "keras_backend_configured"
    )
    for one in observations.of("keras_backend"):
        if _backend_in_use(one) not in ("", "tensorflow"):
            observations.conclude("keras_backend_not_tensorflow", {"active": _backend_in_use(one)}, one)
    if configured is None or not configured.values.get("value"):
        return
    wanted = configured.values["value"].strip("'\"").lower()
    for one in observations.of("keras_backend"):
        active = _backend_in_use(one)
        if active and active != wanted and (active, wanted) != ("pytorch", "torch"):
            values = {"active": active, "wanted": wanted}
            observations.conclude("keras_backend_differs", values, one, configured)
            return
    if wanted in ("jax", "torch", "numpy", "openvino", "theano", "cntk"):
        observations.conclude("keras_backend_of_another_framework", {"value": wanted}, configured)


def _backend_in_use(one: Observation) -> str:
    return next((one.values[name].lower() for name in ("value", "said", "named") if one.values.get(name)), "")


def utilization(observations: Observations) -> None:
    """Add a low utilization of the GPU."""
    for one in observations.of("gpu_util"):
        percent = one.values.get("percent", "")
        if percent.isdecimal() and int(percent) <= _HARDLY_USED:
            observations.conclude("gpu_hardly_used", {"percent": percent}, one)


def library_files(observations: Observations) -> None:
    """Add a library that could not be opened, if a file of that name is somewhere else."""
    missing = observations.of("cuda_library_not_loaded") or observations.of("gpu_libraries_not_opened")
    for one in missing:
        wanted = one.values.get("library", "")
        for file in observations.of("library_file"):
            if not wanted or file.values["library"].startswith(wanted):
                where = file.values.get("path", "") + file.values["library"]
                sentence = f"{where} is there, but not where the loader looks"
                observations.conclude("library_installed_not_found", {"sentence": sentence}, one, file)


def processes(observations: Observations) -> None:
    """Add processes that hold much of a GPU's memory (lower table of nvidia-smi): own ones and others."""
    pids = {one.values["pid"] for one in observations.of("log_process")}
    scripts = {
        _file_name(name)
        for one in observations.of("script_run")
        for name in (one.values.get("name"), one.values.get("file"))
        if name
    }
    for one in observations.of("gpu_process"):
        memory, process = one.values.get("memory", ""), one.values["name"]
        if (_number(memory, _MIB_DIGITS) or 0) < _MUCH:
            continue
        own = one.values["pid"] in pids or any(_file_name(word) in scripts for word in process.split())
        values = {"pid": one.values["pid"], "process": process, "memory": memory}
        kind = "own_process_holds_memory" if own else "foreign_process_holds_memory"
        observations.conclude(kind, values, one)


def _file_name(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]


def memory_at_start(observations: Observations) -> None:
    """Add what follows from the GPU memory that was free when TensorFlow created its device."""
    for one in observations.of("gpu_created"):
        memory = _number(one.values.get("memory", ""), _MIB_DIGITS)
        if memory is None:
            continue
        if memory < _LITTLE:
            values = {"memory": one.values["memory"], "name": one.values["name"]}
            observations.conclude("little_memory_at_start", values, one)
        for failed in observations.of("device_allocation_failed"):
            asked = _number(failed.values.get("bytes", ""), _BYTES_DIGITS)
            if asked is not None and asked >= memory << 20:
                observations.conclude("whole_memory_refused", {"memory": one.values["memory"]}, failed, one)


#: Other kinds than errors of cuInit that are observed in a process without access to a GPU.
_WITHOUT_GPU = ("gpu_list_empty", "cudart_not_opened", "nvidia_smi_failed")


def slurm_job(observations: Observations) -> None:
    """Add a job of Slurm that requests no GPU, if its script, command or resources are known."""
    request = observations.first("slurm_request")
    missing = observations.with_value(CUDA_ERROR, "place", CUINIT) or next(
        (one for kind in _WITHOUT_GPU for one in observations.of(kind)), None
    )
    if request is not None and missing is not None and not observations.has("slurm_gpu_asked"):
        observations.conclude("slurm_job_without_gpu", {}, request, missing)


def kubernetes(observations: Observations) -> None:
    """Add Kubernetes, where containers are shown to run in it."""
    shown = [one for one in observations.of("container") if one.values.get("kind") == "kubernetes"]
    for one in (*shown, *observations.of("kubernetes_no_gpu")):
        observations.conclude("kubernetes", {}, one)


RULES = (
    slurm_job,
    kubernetes,
    memory_in_use,
    memory_at_start,
    keras_backend,
    utilization,
    library_files,
    processes,
)
