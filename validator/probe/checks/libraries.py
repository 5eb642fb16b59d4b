"""The CUDA libraries, the kernels and the tools of this TensorFlow: are they found, and do they fit?"""

from __future__ import annotations

import functools
import os
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...problems import problem, statement
from ...version_numbers import leading_numbers
from .. import installed, loader, table, xla
from ..check import ERROR, FAIL, HOST, TENSORFLOW, Context, Result, check, judged, skipped
from ..child import Answer, tail
from ..host import CUDA_NAME
from ..loader import JIT, NONE, Coverage, older

#: The wheel of each library, without the suffix that names its CUDA major.
_WHEELS = {
    "cudart": "nvidia-cuda-runtime",
    "cublas": "nvidia-cublas",
    "cublasLt": "nvidia-cublas",
    "cufft": "nvidia-cufft",
    "cusolver": "nvidia-cusolver",
    "cusparse": "nvidia-cusparse",
    "cudnn": "nvidia-cudnn",
    "nccl": "nvidia-nccl",
    "cupti": "nvidia-cuda-cupti",
}
#: Files that a problem or statement lists.
_SHOWN = 3


def built_with(soname: str, wheels: dict[str, str]) -> str | None:
    """Return the version of a library that TensorFlow was built with, according to its metadata."""
    stem = _WHEELS.get(loader.short_name(soname))
    return next((version for name, version in wheels.items() if re.fullmatch(f"{stem}-cu\\d+", name)), None)


def too_old(version: str | None, floor: str | None) -> bool:
    """Return whether a version is below the lowest allowed one, by major and minor.

    The patch level doesn't count in TensorFlow's own rule for cuDNN (cuda_dnn.cc,
    IsSourceCompatibleWithCudnnLibrary).
    """
    if version is None or floor is None:
        return False
    return leading_numbers(version)[:2] < leading_numbers(floor)[:2]


def _opened(answer: Answer, soname: str) -> dict[str, Any]:
    """Return `path` and `version` of a library; None where it did not open."""
    seen: dict[str, Any] = next((value for value in answer.values if value.get("soname") == soname), {})
    return {name: seen.get(name) for name in ("path", "version")}


_LIMIT_S = loader.LIMIT_S + 10
_CUDA = ("cuda-build",)


@check(
    "Is every CUDA library that TensorFlow opens found, in a version that fits?",
    HOST,
    _LIMIT_S,
    requires=_CUDA,
)
def cuda_libraries(context: Context) -> Result:
    tensorflow = context.facts["tensorflow"]
    answer = loader.open_libraries(tensorflow["directory"])
    phases = {value["phase"]: value["attempts"] for value in answer.values if "phase" in value}
    libraries = [
        {
            "soname": soname,
            "phase": phase,
            **_opened(answer, soname),
            "built_with": built_with(soname, tensorflow["built_with"]),
            "error": error,
            "others": loader.neighbours(tensorflow["directory"], soname) if error else [],
        }
        for phase, attempts in phases.items()
        for soname, error in attempts.items()
    ]
    source = tensorflow["built_with_source"]
    evidence = {"opened_by": loader.FRAMEWORK, "libraries": libraries, "built_with_source": source}
    if answer.failure is not None:
        failure = str(answer.failure)
        evidence["last_lines"] = tail(answer.stderr, lines=20).splitlines()
        if "undefined symbol" in failure:
            return Result(ERROR, statement("loader_unknown", error=failure), [], evidence)
        return Result(FAIL, None, [problem("loading_ended_process", error=failure)], evidence)
    if not phases[loader.GATE_PHASE]:
        return Result(ERROR, statement("loader_silent", error=None), [], evidence)
    needed = [entry for entry in libraries if entry["phase"] == loader.GATE_PHASE]
    old = [entry for entry in needed if too_old(entry["version"], entry["built_with"])]
    problems = [_missing(entry) for entry in needed if entry["error"]]
    for entry in old:
        if entry["soname"].startswith("libcudnn."):
            told = {name: entry[name] for name in ("version", "built_with", "path")}
            problems.append(problem("cudnn_too_old", **told))
    passed = statement("libraries_found", count=len(needed), older=[entry["soname"] for entry in old])
    return judged(problems, passed, evidence)


def _missing(entry: dict[str, Any]) -> dict[str, Any]:
    soname, error = entry["soname"], entry["error"]
    same = [path for path in entry["others"] if path.rpartition("/")[2] == soname]
    if same:
        return problem("library_installed_not_found", soname=soname, path=same[0])
    if error.partition(":")[0] != soname:
        return problem("library_not_opened", soname=soname, error=error)
    others = sorted({path.rpartition("/")[2] for path in entry["others"]})
    return problem("library_not_found", soname=soname, others=others)


@check("Does cuDNN load with all its parts, in the locked version?", HOST, _LIMIT_S, requires=_CUDA)
def cudnn_load(context: Context) -> Result:
    tensorflow = context.facts["tensorflow"]
    answer = loader.open_cudnn(tensorflow["directory"])
    main = next((value for value in answer.values if "soname" in value), None)
    pins = (context.lock or {}).items()
    locked = next((pin for name, pin in pins if re.fullmatch(r"nvidia-cudnn-cu\d+", name)), None)
    major = (tensorflow["build"] or {}).get("cudnn_version")
    floor = built_with("libcudnn.so", tensorflow["built_with"])
    parts = [value for value in answer.values if "sub_library" in value]
    version_checks = {value["check"]: value["status"] for value in answer.values if "check" in value}
    evidence: dict[str, Any] = {"library": main, "sub_libraries": parts, "version_checks": version_checks}
    evidence.update(locked=locked, built_for_major=major, built_with=floor)
    evidence["built_with_source"] = tensorflow["built_with_source"]
    if answer.failure is not None:
        evidence["last_lines"] = tail(answer.stderr, lines=20).splitlines()
        ended = problem("cudnn_load_ended_process", error=str(answer.failure))
        return Result(FAIL, None, [ended], evidence)
    if main is None:
        return Result(FAIL, None, [problem("cudnn_not_tried")], evidence)
    if main["path"] is None:
        return Result(FAIL, None, [problem("cudnn_not_loaded", error=main["error"])], evidence)
    version, path = main["version"], main["path"]
    problems = []
    if locked is not None and leading_numbers(version) != leading_numbers(locked)[:3]:
        problems.append(problem("cudnn_not_as_locked", version=version, locked=locked, path=path))
    if major is not None and leading_numbers(version)[:1] != leading_numbers(major)[:1]:
        problems.append(problem("cudnn_of_another_major", version=version, built_for=major))
    elif too_old(version, floor):
        problems.append(problem("cudnn_too_old", version=version, built_with=floor, path=path))
    for entry in parts:
        # From 9.28 on, a part needs the driver's library. If there is none, the check `driver` reports it.
        if entry["error"] and not entry["error"].startswith(f"{CUDA_NAME}:"):
            told = {"part": entry["sub_library"], "error": entry["error"]}
            problems.append(problem("cudnn_part_not_loaded", **told))
    wrong = [(name, status) for name, status in version_checks.items() if status != 0]
    problems += [
        problem("cudnn_part_of_another_version", function=one, status=status) for one, status in wrong
    ]
    good = sum(not entry["error"] for entry in parts)
    return judged(problems, statement("cudnn_loaded", version=version, parts=good), evidence)


@check("Does another copy of a CUDA library load before the one that fits?", HOST, _LIMIT_S, requires=_CUDA)
def library_conflicts(context: Context) -> Result:
    tensorflow = context.facts["tensorflow"]
    answer = loader.open_libraries(tensorflow["directory"])
    sonames: dict[str, None] = {}
    for value in answer.values:
        sonames.update(dict.fromkeys(value.get("attempts", ())))
    if not sonames:
        error = str(answer.failure) if answer.failure else None
        return Result(ERROR, statement("loader_silent", error=error))
    directories = installed.library_path(context.facts["environment"]["variables"])
    framework = os.path.join(tensorflow["directory"], loader.FRAMEWORK)
    runpath = [path for path in installed.runpath(framework) if os.path.isdir(path)]
    cache = installed.cached()
    libraries = []
    for soname in sonames:
        opened = _opened(answer, soname)
        copies = installed.copies(soname, directories, runpath, cache)
        found = [{**asdict(copy), "version": installed.version_of(copy.path, soname)} for copy in copies]
        by = [copy["found_by"] for copy in found if copy["path"] == opened["path"]]
        libraries.append(
            {
                "soname": soname,
                **opened,
                "built_with": built_with(soname, tensorflow["built_with"]),
                # None if it is not among the copies, because a library that was loaded earlier opened it.
                "found_by": by[0] if by else None,
                "others": [copy for copy in found if copy["path"] != opened["path"]],
            }
        )
    main = next((entry for entry in libraries if entry["soname"].startswith("libcudnn.")), None)
    parts = _cudnn_parts(main, directories, cache) if main and main["path"] else []
    searched = {installed.LIBRARY_PATH: directories, installed.RUNPATH: runpath}
    evidence = {"search_path": searched, "libraries": libraries, "cudnn_parts": parts}
    problems = [entry for library in libraries for entry in _older_copy(library)]
    # cuBLAS's libraries only work together.
    names = ("libcublas.so.", "libcublasLt.so.")
    cublas = [entry for entry in libraries if entry["soname"].startswith(names)]
    if len({entry["version"] for entry in cublas if entry["version"]}) > 1:
        told = [{name: entry[name] for name in ("soname", "version", "path")} for entry in cublas]
        problems.append(problem("cublas_versions_differ", soname=cublas[0]["soname"], libraries=told))
    if main and parts:
        problems += _strayed_cudnn(main, parts)

    shadowed = [entry for entry in libraries if entry["others"]]
    shown = [{name: entry[name] for name in ("soname", "path", "found_by")} for entry in shadowed[:_SHOWN]]
    count = sum(entry["path"] is not None for entry in libraries)
    passed = statement("one_copy_each", count=count)
    if shadowed:
        passed = statement("other_copies_harmless", count=len(shadowed), opened=count, copies=shown)
    return judged(problems, passed, evidence)


def _cudnn_parts(
    main: dict[str, Any], directories: list[str], cache: dict[str, list[str]]
) -> list[dict[str, Any]]:
    """Return cuDNN's sub-libraries, which its main library opens by name, with the place of each."""
    names: set[str] = set()
    for directory in (Path(main["path"]).parent, *map(Path, directories)):
        names |= {path.name for path in directory.glob(f"libcudnn_*.so.{main['soname'].rpartition('.')[2]}")}
    runpath = installed.runpath(main["path"])
    found = []
    for name in sorted(names):
        first = next(iter(installed.copies(name, directories, runpath, cache)), None)
        place = asdict(first) if first else {"path": None, "found_by": None}
        version = installed.version_of(first.path, name) if first else None
        found.append({"soname": name, **place, "version": version})
    return found


def _older_copy(entry: dict[str, Any]) -> list[dict[str, Any]]:
    floor, known = entry["built_with"], [copy for copy in entry["others"] if copy["version"] is not None]
    fitting = [copy for copy in known if not too_old(copy["version"], floor)]
    if not fitting or not too_old(entry["version"], floor):
        return []
    told = {name: entry[name] for name in ("soname", "path", "version", "found_by", "built_with")}
    other = {"other_path": fitting[0]["path"], "other_version": fitting[0]["version"]}
    return [problem("older_copy_wins", **told, **other)]


def _strayed_cudnn(main: dict[str, Any], parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the problem that parts of cuDNN come from elsewhere, or have different versions."""
    home, soname = os.path.dirname(main["path"]), main["soname"]
    elsewhere = [part for part in parts if part["path"] and os.path.dirname(part["path"]) != home]
    if elsewhere:
        shown = [{name: part[name] for name in ("path", "found_by")} for part in elsewhere[:_SHOWN]]
        told = {"soname": soname, "path": main["path"], "count": len(elsewhere), "parts": shown}
        return [problem("cudnn_parts_from_elsewhere", **told)]
    versions = sorted({part["version"] for part in parts if part["version"]})
    if len(versions) > 1:
        told = {"soname": soname, "directory": home, "versions": versions}
        return [problem("cudnn_part_versions_differ", **told)]
    return []


@check(
    "Do the kernels of TensorFlow and cuDNN run on these GPUs with this driver?",
    HOST,
    _LIMIT_S,
    requires=("cuda-build", "gpu"),
)
def compute_capability(context: Context) -> Result:
    host, tensorflow = context.facts["host"], context.facts["tensorflow"]
    opened = loader.open_libraries(tensorflow["directory"]).values
    versions = (value["version"] for value in opened if str(value.get("soname")).startswith("libcudnn."))
    cudnn, driver_cuda = next(versions, None), host["driver_cuda"]
    minimum = loader.cudnn_minimum(cudnn) if cudnn else None
    gpus: list[dict[str, Any]] = []
    for gpu in host["gpus"]:
        capability = gpu["compute_capability"]
        if capability:
            found = loader.coverage(tensorflow["version"], tensorflow["build"], capability)
            reached = asdict(found) if found else dict.fromkeys(Coverage.__dataclass_fields__)
            has_cudnn = None if minimum is None else not older(capability, minimum)
            named = {"name": gpu["name"], "compute_capability": capability}
            gpus.append({**named, **reached, "cudnn": has_cudnn})
    evidence = {"driver_cuda": driver_cuda, "cudnn": cudnn, "cudnn_minimum": minimum, "gpus": gpus}
    if not gpus:
        return skipped(statement("compute_capability_unknown"), evidence)
    if any(gpu["kernels"] is None for gpu in gpus):
        return skipped(statement("kernels_unknown"), evidence)
    problems, without_cudnn, shown = [], [], []
    fields = ("name", "compute_capability", "kernels", "isa", "compiled", "without", "units")
    for gpu in gpus:
        # Whether the driver is known to compile the PTX.
        known = bool(driver_cuda and gpu["cuda"] and not older(driver_cuda, gpu["cuda"]))
        shown.append({**{key: gpu[key] for key in fields}, "certain": known or gpu["kernels"] != JIT})
        named = {"gpu": gpu["name"], "compute_capability": gpu["compute_capability"]}
        if gpu["kernels"] == NONE and gpu["without"] == gpu["units"]:
            problems.append(problem("no_kernels_for_gpu", **named))
        elif gpu["kernels"] == NONE:
            told = {key: gpu[key] for key in ("without", "units")}
            problems.append(problem("some_kernels_not_for_gpu", **named, **told))
        elif gpu["isa"] and gpu["cuda"] and driver_cuda and older(driver_cuda, gpu["cuda"]):
            told = {key: gpu[key] for key in ("compiled", "units", "isa", "cuda")}
            problems.append(problem("driver_lacks_ptx", **named, **told, driver_cuda=driver_cuda))
        if gpu["cudnn"] is False:
            without_cudnn.append(problem("cudnn_has_no_kernels", **named, cudnn=cudnn, minimum=minimum))

    return judged(problems + without_cudnn, statement("kernels_run", gpus=shown), evidence)


@check("Is the imported TensorFlow built with CUDA, and is it the installed one?", TENSORFLOW, 30, _CUDA)
def tensorflow_build(context: Context) -> Result:
    tf, installed_version = context.tensorflow, context.facts["tensorflow"]["version"]
    build = dict(tf.sysconfig.get_build_info())
    version = tf.version.VERSION
    compiled = {"git_version": tf.version.GIT_VERSION, "compiler_version": tf.version.COMPILER_VERSION}
    # Ignore what the versions of the wheel and the library spell differently: `-rc1` and `rc1`,
    # `-dev20261127` and `.dev20261127`, `.post1`, and a local version.
    plain = functools.partial(re.sub, r"(\.post\d+)?(\+.*)?$|-|\.(?=dev)", "")
    problems = []
    if installed_version is not None and plain(installed_version) != plain(version):
        problems.append(problem("tensorflow_shadowed", imported=version, installed=installed_version))
    cuda, cudnn = build.get("cuda_version"), build.get("cudnn_version")
    passed = statement("tensorflow_built_for", version=version, cuda=cuda, cudnn=cudnn)
    return judged(problems, passed, {"version": version, **compiled, "build": build})


@check("Does XLA find ptxas and libdevice, and is their version free of known bugs?", TENSORFLOW, 60, _CUDA)
def xla_toolchain(context: Context) -> Result:
    search = xla.search(os.path.dirname(context.tensorflow.__file__))
    if search is None:
        return Result(ERROR, statement("toolchain_search_unknown"))
    preferred = xla.parse(os.environ.get("XLA_FLAGS", "")).value("xla_gpu_cuda_data_dir")
    gpus = context.facts["host"]["gpus"]
    capabilities = sorted({gpu["compute_capability"] for gpu in gpus if gpu["compute_capability"]})
    path = os.environ.get("PATH", "")
    return judge_xla_toolchain(search, preferred or xla.DEFAULT_DIRECTORY, path, capabilities)


def judge_xla_toolchain(search: xla.Search, preferred: str, path: str, capabilities: list[str]) -> Result:
    """Return the result for a search, the preferred directory, PATH, and the GPUs here."""
    there = [file for file in xla.ptxas_candidates(search, preferred, path) if os.path.exists(file)]
    looked_at = [{"path": file, "version": xla.ptxas_version(file)} for file in there]
    runs = (entry for entry in looked_at if entry["version"] and xla.usable(search, entry["version"]))
    ptxas = next(runs, None)
    libdevices = xla.libdevice_candidates(search, preferred)
    libdevice = next((candidate for candidate in libdevices if os.path.isfile(candidate)), None)
    advisories = _ptxas_advisories(str(ptxas["version"]), capabilities) if ptxas else []
    evidence = {
        "preferred": preferred,
        "roots": list(search.roots),
        "path_comes_first": not search.preferred_first,
        "ptxas": ptxas,
        "ptxas_found": looked_at,
        "libdevice": libdevice,
        "capabilities": capabilities,
        "advisories": advisories,
    }
    tool = ptxas or {"version": None, "path": None}
    known = [entry["code"] for entry in advisories if entry["applies"]]
    problems = [problem(code, version=str(tool["version"])) for code in known]
    if ptxas is None and looked_at:
        problems.append(problem("ptxas_unusable", found=looked_at))
    elif ptxas is None:
        problems.append(problem("ptxas_missing"))
    if libdevice is None:
        problems.append(problem("libdevice_missing"))
    others = sorted({entry["version"] for entry in looked_at if entry["version"]} - {tool["version"]})
    place = os.path.dirname(str(libdevice))
    return judged(problems, statement("toolchain_found", **tool, libdevice=place, others=others), evidence)


def _ptxas_advisories(version: str, capabilities: list[str]) -> list[dict[str, Any]]:
    """Return the advisories that cover the version, and whether each affects a GPU of this machine."""

    def within(version: str, bounds: dict[str, str]) -> bool:
        number = leading_numbers(version)
        above = "from" not in bounds or number >= leading_numbers(bounds["from"])
        return above and ("below" not in bounds or number < leading_numbers(bounds["below"]))

    found = []
    for row in table("advisories")["advisories"]:
        if row["affects"]["tool"] == "ptxas" and within(version, row["affects"]):
            about = row.get("capabilities", {})
            told = {key: row[key] for key in ("code", "fixed", "source")}
            applies = any(within(capability, about) for capability in capabilities)
            found.append({**told, "capabilities": about, "applies": applies})
    return found
