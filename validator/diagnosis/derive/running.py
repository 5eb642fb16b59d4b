"""What goes on while it runs: memory that is taken, libraries that lie there, backends, utilisation."""

from __future__ import annotations

import re

from ..observations import Observation, Observations

#: Percent of the GPU's time up to which it is hardly used.
_HARDLY_USED = 30
#: MiB from which on a process holds enough to leave too little to another.
_MUCH = 1024
#: MB below which no GPU that TensorFlow runs on has its memory free; others hold it.
_LITTLE = 600


def memory_in_use(observations: Observations) -> None:
    """Memory that is taken though nothing of one's own runs (a row of nvidia-smi)."""
    for seen in observations.of("gpu_memory"):
        used, total = (seen.values.get(name, "").strip() for name in ("used", "total"))
        if (
            used.isdecimal()
            and total.isdecimal()
            and len(used) < 8
            and int(total)
            and int(used) * 2 > int(total)
        ):
            observations.derive("memory_mostly_used", {"used": used, "total": total}, seen)


def keras_backend(observations: Observations) -> None:
    """Another backend in use than TensorFlow, or than the variable or the file names."""
    wanted = next(
        (seen for seen in observations.of("variable") if seen.values.get("name") == "KERAS_BACKEND"),
        observations.first("keras_backend_configured"),
    )
    for seen in observations.of("keras_backend"):
        if _active(seen) not in ("", "tensorflow"):
            observations.derive("keras_backend_not_tensorflow", {"active": _active(seen)}, seen)
    if wanted is None or not wanted.values.get("value"):
        return
    value = wanted.values["value"].strip("'\"").lower()
    for seen in observations.of("keras_backend"):
        active = _active(seen)
        if active and active != value and not (active == "pytorch" and value == "torch"):
            observations.derive("keras_backend_differs", {"active": active, "wanted": value}, seen, wanted)
            return
    if value in ("jax", "torch", "numpy", "openvino", "theano", "cntk"):
        observations.derive("keras_backend_of_another_framework", {"value": value}, wanted)


def _active(seen: Observation) -> str:
    return next(
        (seen.values[name].lower() for name in ("value", "said", "named") if seen.values.get(name)), ""
    )


def utilisation(observations: Observations) -> None:
    """A low utilisation, told in numbers."""
    for seen in observations.of("gpu_util"):
        percent = seen.values.get("percent", "")
        if percent.isdecimal() and int(percent) <= _HARDLY_USED:
            observations.derive("gpu_hardly_used", {"percent": percent}, seen)


def library_files(observations: Observations) -> None:
    """A library that could not be opened, and a file of that name that lies somewhere."""
    missing = observations.of("cuda_library_not_loaded") or observations.of("gpu_libraries_not_opened")
    for seen in missing:
        wanted = seen.values.get("library", "")
        for file in observations.of("library_file"):
            if not wanted or file.values["library"].startswith(wanted):
                where = file.values.get("path", "") + file.values["library"]
                sentence = f"{where} is there, but not where the loader looks"
                observations.derive("library_installed_not_found", {"sentence": sentence}, seen, file)


def processes(observations: Observations) -> None:
    """Processes that hold much of a GPU's memory (lower table of nvidia-smi), this run's own and others."""
    pids = {seen.values["pid"] for seen in observations.of("log_process")}
    scripts = {
        re.split(r"[/\\]", name)[-1]
        for seen in observations.of("script_run")
        for name in (seen.values.get("name"), seen.values.get("file"))
        if name
    }
    for seen in observations.of("gpu_process"):
        memory, process = seen.values.get("memory", ""), seen.values["name"]
        if not (memory.isdecimal() and len(memory) < 8 and int(memory) >= _MUCH):
            continue
        named = {re.split(r"[/\\]", word)[-1] for word in process.split()}
        own = seen.values["pid"] in pids or bool(named & scripts)
        values = {"pid": seen.values["pid"], "process": process, "memory": memory}
        observations.derive(
            "own_process_holds_memory" if own else "foreign_process_holds_memory", values, seen
        )


def memory_at_start(observations: Observations) -> None:
    """What was left of a GPU's memory when TensorFlow made its device."""
    for seen in observations.of("gpu_created"):
        memory = seen.values.get("memory", "")
        if memory.isdecimal() and len(memory) < 8 and int(memory) < _LITTLE:
            values = {"memory": memory, "name": seen.values["name"]}
            observations.derive("little_memory_at_start", values, seen)
        for failed in observations.of("device_allocation_failed"):
            asked = failed.values.get("bytes", "")
            if (
                memory.isdecimal()
                and asked.isdecimal()
                and len(asked) < 16
                and int(asked) >= int(memory) << 20
            ):
                observations.derive("whole_memory_refused", {"memory": memory}, failed, seen)


#: What a process says that is shown no GPU.
_WITHOUT_GPU = ("cuinit_failed", "gpu_list_empty", "cudart_not_opened", "nvidia_smi_failed")


def slurm_job(observations: Observations) -> None:
    """A job of Slurm whose script, command or resources are told, and that asks for no GPU."""
    asked = observations.first("slurm_request")
    missing = next((seen for kind in _WITHOUT_GPU for seen in observations.of(kind)), None)
    if asked is not None and missing is not None and not observations.has("slurm_gpu_asked"):
        observations.derive("slurm_job_without_gpu", {}, asked, missing)


def kubernetes(observations: Observations) -> None:
    """Kubernetes, where containers are told to run in it."""
    told = [seen for seen in observations.of("container") if seen.values.get("kind") == "kubernetes"]
    for seen in (*told, *observations.of("kubernetes_no_gpu")):
        observations.derive("kubernetes", {}, seen)


RULES = (
    slurm_job,
    kubernetes,
    memory_in_use,
    memory_at_start,
    keras_backend,
    utilisation,
    library_files,
    processes,
)
