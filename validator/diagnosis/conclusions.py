"""Draw conclusions from several observations: versions that don't fit one another, hidden devices.

Each rule adds an observation of its own kind, which the list of causes can use as a sign. No rule names
a cause: that two versions don't fit is a fact, and the causes say what it means. What a condition in `data/`
can say is no rule here.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..compat import hardware, kernels, releases
from ..compat.judge import why_hidden
from ..compat.known_issues import trait_holds
from ..compat.releases import Release, release_of_any_age
from ..model.prediction import Outcome
from ..versions import ComputeCapability, leading_numbers, major, minor_in, whole_number
from .catalogue import CPU_WANTED, CUDA_ERROR, CUINIT, PLAIN_QUESTION, section, table
from .combination import read_software
from .observations import (
    DISTRIBUTIONS,
    Certainty,
    Observation,
    Observations,
    normalized,
    on_windows,
    package,
    release,
)

#: The first compute capability that the newest wheels have kernels for (2.17 dropped 5.x).
_OLDEST = ComputeCapability(6, 0)
#: A driver branch that compiles every PTX.
_ANY_DRIVER = 9999
#: The place in TensorFlow's source that a log line names. JAX's are below external/org_tensorflow.
_PLACE = re.compile(r"(?<![\w/.])([\w/.-]*\w\.(?:cc|h)):(\d{1,5})\]")
_PYTHON = re.compile(r"python ?(3\.\d{1,2})", re.IGNORECASE)
#: A line of a list of packages that names the toolkit.
_TOOLKIT = re.compile(r"\bcudatoolkit\b", re.IGNORECASE)
#: Conda builds without CUDA.
_CPU_BUILD = re.compile(r"(eigen|mkl|cpu)_")
#: Libraries whose names hold the version of their CUDA. Up to CUDA 10.0, all of them do.
_CUDA_LIBRARY = re.compile(
    r"(?:lib)?cu(?P<name>dart|blas|fft|rand|solver|sparse)(?:\.so\.(?P<so>\d+(?:\.\d+)?)(?:\.\d+)*"
    r"|64_(?P<dll>1[0-2]|\d{2,3})\.dll)"
)
#: A process that uses this many MiB leaves little for others.
_MUCH = 1024
#: The most digits of a plausible number: for a memory size in MiB, and for one in bytes.
_MIB_DIGITS = 7
_BYTES_DIGITS = 15
#: The bytes that count as all of each GiB of a card.
_NEARLY_ALL = 0.9 * 2**30
#: Kinds other than cuInit errors that are observed in a process without access to a GPU.
_WITHOUT_GPU = ("gpu_list_empty", "cudart_not_opened", "nvidia_smi_failed")
#: Kinds of texts that ask whether results are right for another reason than a missing GPU.
_RESULTS_IN_DOUBT = (
    "gpu_wished", "nan_said", "not_working_said", "both_results_said", "wrong_result_said", "gpu_works_said",
    "gpu_used_said", "training_slow_said",
)  # fmt: skip


def conclude(observations: Observations) -> None:
    """Add all conclusions. An empty list of GPUs comes first, because other rules build on it."""
    for rule in RULES:
        rule(observations)


# GPUs that are hidden, or missing without a message.


def empty_list(observations: Observations) -> None:
    """Add an empty list on its own line, after a question for GPUs or the start of TensorFlow."""
    empty = observations.first("empty_list")
    before = (observations.first(kind) for kind in ("gpu_list_asked", "factory_notice", "cpu_feature_notice"))
    question = next((observation for observation in before if observation is not None), None)
    if observations.has("gpu_list") or observations.has("gpu_list_empty"):
        return
    if question is not None and empty is not None:
        observations.conclude("gpu_list_empty", {}, question, empty)


def visible_devices(observations: Observations) -> None:
    """Add values of CUDA_VISIBLE_DEVICES and NVIDIA_VISIBLE_DEVICES that hide GPUs.

    Source: CUDA programming guide, environment variables.
    """
    counts = (whole_number(counted.values.get("count", ""), 3) for counted in observations.of("gpu_count"))
    count = max((number for number in counts if number is not None), default=None)
    no_device = observations.with_value("cuda_error", "code", "100")
    for variable in observations.of("variable"):
        name, value = variable.values.get("name"), variable.values.get("value", "").strip("'\" ")
        reason = None
        if name == "NVIDIA_VISIBLE_DEVICES":
            reason = "no device" if value in ("void", "none") else None
        elif name == "CUDA_VISIBLE_DEVICES":
            first = value.split(",")[0].strip()
            entries = value.split(",")
            if count and re.fullmatch(r"\d{1,9}", first) and int(first) >= count:
                reason = f"there is no GPU {int(first)}: the machine has only {count}, numbered from 0"
            elif len(set(entries)) < len(entries):
                reason = "it names the same GPU twice, which CUDA refuses"
            elif no_device is not None and value.startswith(("GPU-", "MIG-")):
                reason = "CUDA finds no GPU with this UUID"
            else:
                reason = why_hidden(value)
        if name and reason:
            observations.conclude("devices_hidden", {"name": name, "value": value, "why": reason}, variable)


def capability(observations: Observations) -> str | None:
    """Return the compute capability of the GPU, printed rather than stated; None where GPUs differ."""
    known = list(_gpu_capabilities(observations))
    printed = {value for one, value in known if one.certainty is Certainty.OBSERVED}
    values = printed or {value for _, value in known}
    return values.pop() if len(values) == 1 else None


def newest_release_for(capability: str, *, windows: bool = False) -> str | None:
    """Return the newest stable release whose wheel has machine code for a GPU that today's wheels dropped.

    windows: it has to use the GPU there. Return None for other GPUs, and if no such release is known.
    """
    wanted = ComputeCapability.or_none(capability)
    if wanted is None or wanted >= _OLDEST:
        return None
    for known in reversed(releases.releases()):
        works = not windows or releases.has_cuda_on_windows(known.version)
        works = works and kernels.run_on(known.version, wanted, _ANY_DRIVER).outcome is Outcome.WORKS
        if works and not known.prerelease:
            return known.version
    return None


def _gpu_capabilities(observations: Observations) -> Iterator[tuple[Observation, str]]:
    for stated in observations.of("compute_capability"):
        if leading_numbers(stated.values.get("value", "")):
            yield stated, stated.values["value"]
    for gpu in observations.of("gpu"):
        if hardware.is_known(gpu.values["name"]):
            yield gpu, str(hardware.gpu(gpu.values["name"]).compute_capability)


def gpu_newer_than_cuda(observations: Observations) -> None:
    """Add a GPU that is newer than the CUDA of an old release, such as an RTX 3090 with TensorFlow 1.15."""
    # NVIDIA's builds of 1.15 have a newer CUDA than the release of that number.
    if observations.with_value("own_build", "of", "nvidia") and not observations.has("nvidia_build_helps"):
        return
    used, likely = release(observations), likely_releases(observations)
    old = (
        one for one in observations.of("cuda") if (leading_numbers(one.values["version"]) or (11,)) < (11,)
    )
    stated = next(old, None) if used is None else None
    named = releases.newest_with(stated.values["version"]) if stated else None
    stated = stated if named and (not likely or named in likely) else None
    build = release_of_any_age(used[0]) if used else named if stated else next(reversed(likely), None)
    for gpu, value in _gpu_capabilities(observations) if build else ():
        if build and trait_holds("cuda-older-than-ampere", tensorflow=build.version, capability=value):
            values = {"built_with": build.cuda, "newer": value, **({"tensorflow": used[0]} if used else {})}
            bases = [one for one in (used[1] if used else None, stated) if one is not None]
            observations.conclude("gpu_newer_than_cuda", values, gpu, *bases)
            return


def capability_below_stated(observations: Observations) -> None:
    """Add a GPU that is below the compute capability that the build needs according to the text."""
    said = observations.first("minimum_capability_said")
    if said is None:
        return
    minimum = said.values.get("minimum") or said.values["least"]
    for known, value in _gpu_capabilities(observations):
        if leading_numbers(value) < leading_numbers(minimum):
            values = {"cc": value, "minimum": minimum}
            observations.conclude("capability_below_stated", values, known, said)
            return


def driver_parts(observations: Observations) -> None:
    """Add a driver library and a kernel module whose versions differ."""
    kernel = observations.first("kernel_driver_version")
    for kind in ("libcuda_version", "nvml_library_version"):
        library = observations.first(kind)
        if kernel is None or library is None:
            continue
        versions = {"kernel": kernel.values.get("version", ""), "library": library.values.get("version", "")}
        # Versions are written with and without leading zeros: 470.57.2 and 470.57.02.
        numbers = {leading_numbers(version): name for name, version in versions.items()}
        if len(numbers) == 2 and () not in numbers and len({len(parts) for parts in numbers}) == 1:
            values = {**versions, "older": numbers[min(numbers)]}
            observations.conclude("driver_versions_differ", values, library, kernel)


def driver_in_logs(observations: Observations) -> None:
    """Add the driver that TensorFlow itself reports: the kernel module's, or else that of libcuda, which may
    come from a cuda-compat package."""
    reported = observations.first("kernel_driver_version") or observations.first("libcuda_version")
    if reported is not None and not observations.has("driver"):
        # TensorFlow prints 580.159.04 as 580.159.4.
        version = re.sub(r"^(\d+\.\d+)\.([1-9])$", r"\1.0\2", reported.values["version"])
        observations.conclude("driver", {"version": version}, reported)


def cudnn_in_logs(observations: Observations) -> None:
    """Add the cuDNN that TensorFlow says it has loaded."""
    loaded = observations.first("cudnn_loaded")
    if loaded is not None and not observations.has("cudnn"):
        version = ".".join(map(str, _cudnn_numbers(loaded.values["number"])))
        observations.conclude("cudnn", {"version": version}, loaded)


def cuda_of_the_machine(observations: Observations) -> None:
    """Add the CUDA version that the driver supports, if a person states it next to a list of packages that
    names the toolkit in another version."""
    stated = [one for one in observations.of("cuda") if one.certainty is Certainty.STATED]
    toolkits = [package(observations, "cudatoolkit"), *(one for one in stated if _TOOLKIT.search(one.text))]
    toolkit = next((one for one in toolkits if one is not None), None)
    if toolkit is None or observations.has("driver_cuda") or observations.has("driver"):
        return
    version = leading_numbers(toolkit.values["version"])[:2]
    for one in stated:
        older = leading_numbers(one.values["version"])[:2]
        if one not in toolkits and older < version[: len(older)]:
            observations.conclude("driver_cuda", one.values, one)
            observations.prefer(toolkit if toolkit.kind == "cuda" else one)
            return


def systems(observations: Observations) -> None:
    """Add the system or processor, if its wheels have no CUDA in some or all releases."""
    system = on_windows(observations) or observations.with_value("os", "name", "macos")
    if system is not None:
        observations.conclude("macos" if system.values["name"] == "macos" else "on_windows", {}, system)
        return
    for machine in observations.of("machine"):
        if machine.values.get("name", "").lower() in ("aarch64", "arm64"):
            observations.conclude("linux_on_arm", {}, machine)
            return


def no_gpu_needed(observations: Observations) -> None:
    """Add that the CPU will do: a person says that there is no GPU, and nothing fails, or asks only whether
    what was computed without one is right."""
    said = observations.first("no_gpu_said")
    if said is not None and not any(map(observations.has, table("failures"))):
        observations.conclude(CPU_WANTED, {}, said)
    asked = observations.with_value(PLAIN_QUESTION, "of", "results_of_cpu")
    if asked is not None and not any(map(observations.has, _RESULTS_IN_DOUBT)):
        observations.conclude(CPU_WANTED, {}, asked)


def compat_library(observations: Observations) -> None:
    """Add a directory of cuda-compat on the loader's path."""
    for variable in observations.of("variable"):
        if variable.values.get("name") == "LD_LIBRARY_PATH":
            directories = variable.values.get("value", "").split(":")
            compat = [path for path in directories if re.search(r"cuda[^/]*/compat/?$", path)]
            if compat:
                observations.conclude("compat_library_on_path", {"path": compat[0]}, variable)


def no_reason_given(observations: Observations) -> None:
    """Add that a build with CUDA found no GPU and printed no reason, as from 2.13 to 2.17 without libcuda.

    Only a build with CUDA registers its factories twice, which it reports (2.14 to 2.20). From 2.18 on, a
    failed call to cuInit is always printed.
    """
    empty = observations.first("gpu_list_empty") or observations.first("device_not_registered")
    factory = observations.first("factory_notice")
    if empty is None or factory is None or any(map(observations.has, table("reasons"))):
        return
    used = release(observations)
    is_silent = used is None or (2, 13) <= leading_numbers(used[0]) < (2, 18)
    if is_silent and observations.with_value(CUDA_ERROR, "place", CUINIT) is None:
        observations.conclude("no_gpu_without_a_reason", {}, empty, factory)


# Signs of the age of a release and of its libraries.


def cuda_of_libraries(observations: Observations) -> str:
    """Return the CUDA (`10.1`, `11.0`) that the names of libraries hold, or an empty text.

    Those that were not found count before those that were opened.
    """
    missing, opened = (observations.of(kind) for kind in ("cuda_library_not_loaded", "library_opened_notice"))
    for one in (*missing, *opened):
        match = _CUDA_LIBRARY.fullmatch(one.values.get("library") or one.values.get("older", ""))
        if match is None:
            continue
        dll = match["dll"] or ""
        numbers = leading_numbers(
            match["so"] or (dll if dll in ("10", "11", "12") else f"{dll[:-1]}.{dll[-1]}")
        )
        if len(numbers) > 1:
            return f"{numbers[0]}.{numbers[1]}"
        if match["name"] in ("dart", "blas"):
            return "10.1" if numbers == (10,) else f"{numbers[0]}.0"
        if (match["name"], numbers) == ("solver", (11,)):
            # CUDA 11 and 12 have it: the release in use says which one is meant, or else the toolkit.
            used = release(observations)
            build = release_of_any_age(used[0]) if used else None
            stated = [build.cuda] if build else [one.values["version"] for one in observations.of("cuda")]
            return "12.0" if "12" in map(major, stated) else "11.0"
    return ""


def gpu_of_ptxas(observations: Observations) -> str | None:
    """Return the compute capability that a ptxas does not know, or else that of the GPU."""
    unknown = observations.first("ptxas_does_not_know_gpu")
    if unknown is None:
        return capability(observations)
    digits = unknown.values.get("arch", "").strip("sm_af")
    return unknown.values.get("cc") or f"{digits[:-1]}.{digits[-1:]}"


def cudnn_version(printed: str) -> str:
    """Return a version of cuDNN with its dots: `5.1` for 5103."""
    return ".".join(map(str, _cudnn_numbers(printed)[:2]))


def likely_releases(observations: Observations) -> tuple[Release, ...]:
    """Return the releases, oldest first, that fit what the log shows: the places in TensorFlow's source, the
    names of libraries, the cuDNN of the build, and Python. Empty if the log shows at most the Python."""
    missing = [one.values.get("library", "") for one in observations.of("cuda_library_not_loaded")]
    since, until = _printed_by(frozenset(one.text for one in observations), frozenset(missing))
    compiled = observations.value("cudnn_version_mismatch", "compiled")
    names = [match[1] for name in missing if (match := re.search(r"cudnn(?:\.so\.|64_)(\d)", name))]
    named = leading_numbers(names[0]) if names else ()
    loaded = _cudnn_numbers(observations.value("cudnn_loaded", "number") or "")[:1]
    cudnn = _cudnn_numbers(compiled) if compiled else named or loaded
    cuda = cuda_of_libraries(observations)
    if not (since or until or compiled or named or cuda):
        return ()
    windows = on_windows(observations) is not None
    # Newer releases don't print the names of libraries.
    newest = releases.newest_with(cuda, windows=windows) if cuda else None

    def fits(one: Release) -> bool:
        minor = leading_numbers(one.version)[:2]
        if (since and minor < since) or (until and minor > until):
            return False
        if windows and not releases.has_cuda_on_windows(one.version):
            return False
        if newest and (
            minor > leading_numbers(newest.version)[:2] or _named(one.cuda) != _named(newest.cuda)
        ):
            return False
        inspected = releases.build(one.version)
        headers = leading_numbers(inspected.cudnn if inspected and inspected.cudnn else one.cudnn)
        return headers[: len(cudnn)] == cudnn[: len(headers)]

    stable = (*releases.older_releases(), *(one for one in releases.releases() if not one.prerelease))
    found = [one for one in stable if fits(one)]
    python = minor_in(read_software(observations).python)
    with_wheel = [one for one in found if python is None or python in one.pythons]
    return tuple(with_wheel or found)


def _named(cuda: str) -> tuple[int, ...]:
    """Return the numbers of a CUDA that the names of its libraries hold: both up to CUDA 10."""
    numbers = leading_numbers(cuda)
    return numbers[:1] if numbers >= (11,) else numbers[:2]


@functools.lru_cache(maxsize=8)  # a diagnosis asks several times
def _printed_by(texts: frozenset[str], libraries: frozenset[str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the first and the last release that print all the lines and name all the libraries that do not
    load, as far as `places` tells."""
    # Logs of Windows have backslashes in paths.
    paths = (text.replace("\\", "/") for text in texts)
    places = {match.groups() for path in paths for match in _PLACE.finditer(path)}

    def shown(row: Mapping[str, Any]) -> bool:
        if "file" not in row:
            pattern = row.get("pattern", "(?!)")
            return row.get("library") in libraries or any(re.search(pattern, text) for text in texts)
        return any(
            (file.startswith(row["file"]) or file.endswith(f"/{row['file']}"))
            and int(line) in row.get("lines", (int(line),))
            for file, line in places
        )

    rows = [row for row in section("places") if shown(row)]
    since = max((leading_numbers(row.get("since", "")) for row in rows), default=())
    until = min((leading_numbers(row["until"]) for row in rows), default=())
    # Lines of different releases contradict each other, so they show none.
    return (since, until) if since <= until else ((), ())


def likely_release(observations: Observations) -> Release | None:
    """Return the newest release that fits what the log shows; None if they open different CUDA versions."""
    found = likely_releases(observations)
    return found[-1] if len({_named(one.cuda) for one in found}) == 1 else None


def toolkit_of_another_version(observations: Observations) -> None:
    """Add a toolkit of another version than the runtime library that was not found.

    The names of libraries hold the major and the minor version up to CUDA 10, and only the major version from
    11 on.
    """
    missing = observations.first("cuda_library_not_loaded")
    requested = cuda_of_libraries(observations)
    if missing is None or not requested:
        return
    wanted = leading_numbers(requested)
    for toolkit in observations.of("cuda"):
        present = leading_numbers(toolkit.values["version"])
        parts = 1 if wanted[0] >= 11 or len(present) < 2 else 2
        if present and wanted[:parts] != present[:parts]:
            values = {
                "library": missing.values["library"],
                "found": toolkit.values["version"],
                "asked": requested,
            }
            observations.conclude("toolkit_of_another_version", values, missing, toolkit)


def cuda_of_another_major(observations: Observations) -> None:
    """Add a CUDA that is stated without a minor version (`11`), if the release was built with another one.

    `compat` judges whole versions.
    """
    used, stated = release(observations), observations.first("cuda")
    build = release_of_any_age(used[0]) if used else None
    if used is None or build is None or stated is None:
        return
    present = leading_numbers(stated.values["version"])
    if len(present) == 1 and present[0] != leading_numbers(build.cuda)[0]:
        values = {"tensorflow": used[0], "built_with": build.cuda, "found": stated.values["version"]}
        observations.conclude("cuda_of_another_major", values, stated, used[1])


def cudnn_newer_than_built(observations: Observations) -> None:
    """Add a cuDNN that is rejected although it is newer than the one of the build.

    A build is old if it is from before cuDNN 8, when no wheel could bring its libraries.
    """
    for mismatch in observations.of("cudnn_version_mismatch"):
        loaded, built = (_cudnn_numbers(mismatch.values.get(name, "")) for name in ("runtime", "compiled"))
        if built and loaded > built:
            values = {**mismatch.values, "build": "old" if built[0] < 8 else "recent"}
            observations.conclude("cudnn_newer_than_built", values, mismatch)


def cudnn_older_than_cuda(observations: Observations) -> None:
    """Add a stated cuDNN of which NVIDIA published no build for the stated CUDA."""
    cuda, cudnn = observations.first("cuda"), observations.first("cudnn")
    versions = {one.kind: one.values.get("version", "") for one in (cuda, cudnn) if one is not None}
    if cuda is not None and cudnn is not None and trait_holds("cudnn-older-than-cuda", **versions):
        observations.conclude(
            "cudnn_older_than_cuda", {"old": versions["cudnn"], "toolkit": versions["cuda"]}, cudnn, cuda
        )


def _cudnn_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of `9.1.0`, `8, 9, 2` or of one number: 5103, and five or more digits from 9 on."""
    numbers = leading_numbers(version.replace(", ", "."))
    if len(numbers) != 1:
        return numbers
    unit = 1000 if numbers[0] < 10_000 else 10_000
    return numbers[0] // unit, numbers[0] % unit // 100, numbers[0] % 100


def official_image(observations: Observations) -> None:
    """Add official GPU images whose TensorFlow can't open their cuDNN or CUDA, with both versions.

    `latest` is an older image if another release is stated or the log is that of another one. Tags that name
    Python 2 or 3 ended with 2.1.
    """
    stated, likely = release(observations), likely_releases(observations)
    shown = stated[0] if stated else likely[-1].version if likely else ""
    newest = not shown or trait_holds("official-image-cudnn", tensorflow=shown)
    for image in observations.of("image"):
        name = image.values.get("name", "")
        match = re.search(r"tensorflow/tensorflow:(\d[\w.]*|latest|nightly)[\w.-]*-gpu", name)
        if match is None:
            continue
        moving = match[1] in ("latest", "nightly") and "-py" not in name
        if (moving and newest) or trait_holds("official-image-cudnn", tensorflow=match[1]):
            values = {"image": name, "holds": "cuDNN 8.9", "opens": "cuDNN 9"}
            observations.conclude("official_image", values, image)
        elif not moving and trait_holds("official-image-cuda", tensorflow=match[1]):
            values = {"image": name, "holds": "CUDA 11.8", "opens": "CUDA 12"}
            observations.conclude("official_image", values, image)


# Python, its packages and its files against the release in use.


def shadowing_file(observations: Observations) -> None:
    """Add a file tensorflow.py of the user. Packages have files of that name in their own directories."""
    for file in observations.of("tensorflow_py_file"):
        path = file.values["path"].strip()
        if not re.search(r"(?:site|dist)-packages", path):
            renamed = path.removesuffix("tensorflow.py") + "my_script.py"
            observations.conclude("shadowing_file", {"path": path, "renamed": renamed}, file)


def python_too_new(observations: Observations) -> None:
    """Add a Python that is newer than every one that the newest release has a wheel for."""
    unsupported, python = observations.first("python_not_supported"), observations.first("python")
    named = _PYTHON.search(unsupported.text) if unsupported else None
    shown = unsupported or python
    minor = leading_numbers(named[1] if named else python.values["version"] if python else "")[:2]
    newest = [known for known in releases.releases() if not known.prerelease][-1].pythons
    if shown is not None and len(minor) == 2 and minor > leading_numbers(newest[-1]):
        values = {"python": f"{minor[0]}.{minor[1]}", "pythons": f"{newest[0]} to {newest[-1]}"}
        observations.conclude("python_newer_than_wheels", values, shown)


def model_of_another_release(observations: Observations) -> None:
    """Add a model that a newer release wrote than the one that loads it, or one from before Keras 3."""
    for model in observations.of("model_moved"):
        saved, loaded = model.values["saved"], model.values["loaded"]
        if leading_numbers(saved)[:2] > leading_numbers(loaded)[:2]:
            observations.conclude("model_newer_than_release", model.values, model)
        elif trait_holds("keras-3", tensorflow=loaded) and not trait_holds("keras-3", tensorflow=saved):
            observations.conclude("model_older_than_keras", model.values, model)


def tensorflow_packages(observations: Observations) -> None:
    """Add builds without CUDA, and several distributions that overwrite one another's files."""
    installed: dict[str, Observation] = {}
    for one in observations.of("package"):
        name, version = normalized(one.values["name"]), one.values["version"]
        build = one.values.get("build", "")
        if name in DISTRIBUTIONS:
            installed.setdefault(name, one)
        # The name of a conda build says by itself whether it has CUDA. "tensorflow 1.14" alone on a line is
        # how people write which release they use; a list of packages has the whole version.
        listed = "=" in one.text or len(leading_numbers(version)) > 2
        if (
            name == "tensorflow"
            and not build
            and listed
            and trait_holds("gpu-in-own-package", tensorflow=version)
        ):
            observations.conclude("build_without_cuda", {"build": f"tensorflow {version}"}, one)
        if name in ("tensorflow", "tensorflow-base") and _CPU_BUILD.match(build):
            observations.conclude("build_without_cuda", {"build": build}, one)
    for name in ("tensorflow-cpu", "tf-nightly-cpu"):
        if list(installed) == [name]:
            observations.conclude("build_without_cuda", {"build": name}, installed[name])
    # tensorflow and tensorflow-gpu, and tensorflow and tensorflow-intel, belong together.
    several = [name for name in installed if name not in ("tensorflow-gpu", "tensorflow-intel")]
    if len(several) > 1:
        values = {"packages": ", ".join(several)}
        observations.conclude("several_tensorflow_packages", values, *map(installed.__getitem__, several))


def library_files(observations: Observations) -> None:
    """Add a library that could not be opened, if a file of that name is somewhere else."""
    for missing in observations.of("cuda_library_not_loaded") or observations.of("gpu_libraries_not_opened"):
        for file in observations.of("library_file"):
            if file.values["library"].startswith(missing.values.get("library", "")):
                directory = file.values.get("path", "").rstrip("/")
                place = f" in {directory}" if directory else ""
                sentence = f"{file.values['library']} is there{place}, but not where the loader looks"
                values = {"sentence": sentence, **({"directory": directory} if directory else {})}
                observations.conclude("library_installed_not_found", values, missing, file)


# The running program: memory that is in use, backends, schedulers.


def memory_in_use(observations: Observations) -> None:
    """Add memory that is in use before the program runs (a row of nvidia-smi)."""
    for row in observations.of("gpu_memory"):
        values = {name: row.values.get(name, "").strip() for name in ("used", "total")}
        used, total = (whole_number(value, _MIB_DIGITS) for value in values.values())
        if used and total and used * 2 > total:
            observations.conclude("memory_mostly_used", values, row)


def little_of_the_card(observations: Observations) -> None:
    """Add a device with less than a quarter of the card's memory, unless the program sets a limit itself."""
    total = _card_memory(observations)
    for device in observations.of("gpu_created"):
        free = whole_number(device.values.get("memory", ""), _MIB_DIGITS)
        if total and free and free * 4 < total << 10 and not observations.has("memory_limit_set"):
            values = {"free": str(free), "total": f"{total} GB", "name": device.values["name"]}
            observations.conclude("little_of_the_card", values, device)


def whole_memory_refused(observations: Observations) -> None:
    """Add that TensorFlow can't allocate all the memory that was free when it created its device, or nearly
    all of the card's."""
    total = _card_memory(observations)
    for failed in observations.of("device_allocation_failed"):
        size = whole_number(failed.values.get("bytes", ""), _BYTES_DIGITS)
        if size is None:
            continue
        for device in observations.of("gpu_created"):
            memory = whole_number(device.values.get("memory", ""), _MIB_DIGITS)
            if memory is not None and size >= memory << 20:
                values = {"memory": device.values["memory"]}
                observations.conclude("whole_memory_refused", values, failed, device)
        amount = failed.values.get("amount")
        if amount and total and size >= total * _NEARLY_ALL and not observations.has("whole_memory_refused"):
            values = {"total": f"{total} GB", "amount": amount}
            observations.conclude("whole_card_refused", values, failed)


def _card_memory(observations: Observations) -> int | None:
    """Return the memory of the largest card in GiB, if it is known."""
    sizes = (one.values.get("size") or one.values["named"] for one in observations.of("card_memory"))
    totals = [round(float(size)) for size in sizes if re.fullmatch(r"\d{1,3}(?:\.\d+)?", size)]
    return max(totals, default=None)


def processes(observations: Observations) -> None:
    """Add processes that hold much of a GPU's memory (lower table of nvidia-smi): own ones and others."""
    own_pids = {logged.values["pid"] for logged in observations.of("log_process")}
    scripts = {
        _file_name(run.values[key])
        for run in observations.of("script_run")
        for key in ("name", "file")
        if run.values.get(key)
    }
    for process in observations.of("gpu_process"):
        pid, name, memory = process.values["pid"], process.values["name"], process.values.get("memory", "")
        if (whole_number(memory, _MIB_DIGITS) or 0) < _MUCH:
            continue
        own = pid in own_pids or any(_file_name(word) in scripts for word in name.split())
        kind = "own_process_holds_memory" if own else "foreign_process_holds_memory"
        observations.conclude(kind, {"pid": pid, "process": name, "memory": memory}, process)


def _file_name(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]


def keras_backend(observations: Observations) -> None:
    """Add a backend in use that is not TensorFlow, or not the one that is configured."""
    configured = observations.with_value("variable", "name", "KERAS_BACKEND") or observations.first(
        "keras_backend_configured"
    )
    wanted = configured.values.get("value", "").strip("'\"").lower() if configured else ""
    differs = False
    for backend in observations.of("keras_backend"):
        names = [
            backend.values[name].lower() for name in ("value", "said", "named") if backend.values.get(name)
        ]
        active = names[0] if names else ""
        if active not in ("", "tensorflow"):
            observations.conclude("keras_backend_not_tensorflow", {"active": active}, backend)
        is_same = active in ("", wanted) or (active, wanted) == ("pytorch", "torch")
        if configured is not None and wanted and not is_same and not differs:
            differs = True
            values = {"active": active, "wanted": wanted}
            observations.conclude("keras_backend_differs", values, backend, configured)
    if configured is None or differs:
        return
    if wanted in ("jax", "torch", "numpy", "openvino", "theano", "cntk"):
        observations.conclude("keras_backend_of_another_framework", {"value": wanted}, configured)


def slurm_job(observations: Observations) -> None:
    """Add a job of Slurm that requests no GPU, if its script, command or resources are known."""
    request = observations.first("slurm_request")
    missing = observations.with_value(CUDA_ERROR, "place", CUINIT) or next(
        (first for kind in _WITHOUT_GPU if (first := observations.first(kind)) is not None), None
    )
    if request is not None and missing is not None and not observations.has("slurm_gpu_asked"):
        observations.conclude("slurm_job_without_gpu", {}, request, missing)


RULES = (
    empty_list,
    visible_devices,
    gpu_newer_than_cuda,
    capability_below_stated,
    driver_parts,
    driver_in_logs,
    cudnn_in_logs,
    cuda_of_the_machine,
    compat_library,
    no_reason_given,
    systems,
    no_gpu_needed,
    toolkit_of_another_version,
    cuda_of_another_major,
    cudnn_newer_than_built,
    cudnn_older_than_cuda,
    official_image,
    shadowing_file,
    python_too_new,
    model_of_another_release,
    tensorflow_packages,
    slurm_job,
    memory_in_use,
    little_of_the_card,
    whole_memory_refused,
    keras_backend,
    library_files,
    processes,
)
