"""Which copies of each CUDA library could load, which one does, and does it belong to the others?"""

import os
from typing import Any, Dict, List, Optional

from ..check import ERROR, FAIL, HOST, PASS, Check, Context, Result
from ..collectors import copies, loader
from .cuda_libraries import built_with, too_old

#: Libraries of one wheel that only work with one another's version.
_TOGETHER = ("libcublas.so", "libcublasLt.so")


def _run(context: Context) -> Result:
    tensorflow = context.facts["tensorflow"]
    answer = loader.open_libraries(tensorflow["directory"])
    opened = {value["soname"]: value for value in answer.values if "soname" in value}
    sonames = [
        soname for value in answer.values if "phase" in value for soname in value["attempts"] if soname
    ]
    if not sonames:
        return Result(ERROR, f"TensorFlow's loader did not tell what it opens ({answer.failure})")
    search = _Search(context.facts)
    libraries = [
        _library(soname, opened.get(soname), search, tensorflow) for soname in dict.fromkeys(sonames)
    ]
    parts = _cudnn_parts(libraries, search)
    problems = _older(libraries) + _mixed(libraries) + _strayed(libraries, parts)
    evidence = {
        "search_path": {copies.LIBRARY_PATH: search.directories, copies.RUNPATH: search.runpath},
        "libraries": libraries,
        "cudnn_parts": parts,
        "problems": problems,
    }
    if problems:
        return Result(FAIL, "; ".join(problem["wrong"] for problem in problems), evidence)
    return Result(PASS, _summary(libraries), evidence)


class _Search:
    """Where the loader looks for what TensorFlow opens."""

    def __init__(self, facts: Dict[str, Any]) -> None:
        framework = os.path.join(facts["tensorflow"]["directory"], loader.FRAMEWORK)
        self.directories = copies.library_path(facts["environment"]["variables"])
        self.runpath = [path for path in copies.runpath(framework) if os.path.isdir(path)]
        self.cache = copies.cached()

    def copies(self, soname: str, runpath: Optional[List[str]] = None) -> List[copies.Copy]:
        """In the order of the search. runpath: of the object that opens it, if not TensorFlow's."""
        searched = self.runpath if runpath is None else runpath
        return copies.copies(soname, self.directories, searched, self.cache)


def _library(
    soname: str, opened: Optional[Dict[str, Any]], search: _Search, tensorflow: Dict[str, Any]
) -> Dict[str, Any]:
    winner = opened["path"] if opened else None
    found = [
        {
            "path": copy.path,
            "found_by": copy.found_by,
            "version": copies.version_of(copy.path, soname),
        }
        for copy in search.copies(soname)
    ]
    return {
        "soname": soname,
        "path": winner,
        "version": opened["version"] if opened else None,
        "built_with": built_with(soname, tensorflow["built_with"]),
        # Not among the copies: something that was loaded before it brought it along.
        "found_by": next((copy["found_by"] for copy in found if copy["path"] == winner), None),
        "others": [copy for copy in found if copy["path"] != winner],
    }


def _cudnn_parts(libraries: List[Dict[str, Any]], search: _Search) -> List[Dict[str, Any]]:
    """cuDNN's sub-libraries, which its main library opens by name, and where each would come from."""
    main = next((entry for entry in libraries if entry["soname"].startswith("libcudnn.")), None)
    if main is None or main["path"] is None:
        return []
    suffix = f".so.{main['soname'].rpartition('.')[2]}"
    home = os.path.dirname(main["path"])
    names = {
        name
        for directory in (home, *search.directories)
        for name in _listed(directory)
        if name.startswith("libcudnn_") and name.endswith(suffix)
    }
    runpath = copies.runpath(main["path"])
    found = []
    for name in sorted(names):
        first = next(iter(search.copies(name, runpath)), None)
        path = first.path if first else None
        found.append(
            {
                "soname": name,
                "path": path,
                "found_by": first.found_by if first else None,
                "version": copies.version_of(path, name) if path else None,
            }
        )
    return found


def _listed(directory: str) -> List[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _older(libraries: List[Dict[str, Any]]) -> List[Dict[str, str]]:
    """An older copy that comes before one that fits."""
    found = []
    for entry in libraries:
        fitting = [
            copy
            for copy in entry["others"]
            if copy["version"] is not None and not too_old(copy["version"], entry["built_with"])
        ]
        if fitting and too_old(entry["version"], entry["built_with"]):
            said = (
                f"{entry['path']} ({entry['version']}), found by {entry['found_by']}, comes before"
                f" {fitting[0]['path']} ({fitting[0]['version']}), and TensorFlow was built with"
                f" {entry['built_with']}"
            )
            found.append(_problem("older_copy_wins", entry["soname"], said))
    return found


def _mixed(libraries: List[Dict[str, Any]]) -> List[Dict[str, str]]:
    """Libraries that only work together, of different versions."""
    together = [
        entry for entry in libraries if entry["soname"].startswith(tuple(f"{name}." for name in _TOGETHER))
    ]
    versions = {entry["version"] for entry in together if entry["version"]}
    if len(versions) < 2:
        return []
    said = " and ".join(f"{entry['soname']} {entry['version']} ({entry['path']})" for entry in together)
    return [_problem("cublas_versions_differ", together[0]["soname"], f"{said} are not of one version")]


def _strayed(libraries: List[Dict[str, Any]], parts: List[Dict[str, Any]]) -> List[Dict[str, str]]:
    """Sub-libraries of cuDNN from another place than its main library, or of another version."""
    if not parts:
        return []
    main = next(entry for entry in libraries if entry["soname"].startswith("libcudnn."))
    home = os.path.dirname(main["path"])
    elsewhere = [part for part in parts if part["path"] and os.path.dirname(part["path"]) != home]
    if elsewhere:
        shown = ", ".join(f"{part['path']} (found by {part['found_by']})" for part in elsewhere[:3])
        said = f"cuDNN itself is {main['path']}, but {len(elsewhere)} of its sub-libraries are not: {shown}"
        return [_problem("cudnn_parts_from_elsewhere", main["soname"], said)]
    versions = sorted({part["version"] for part in parts if part["version"]})
    if len(versions) > 1:
        said = f"the sub-libraries of cuDNN in {home} are of versions {', '.join(versions)}"
        return [_problem("cudnn_part_versions_differ", main["soname"], said)]
    return []


def _problem(problem: str, soname: str, wrong: str) -> Dict[str, str]:
    return {"problem": problem, "soname": soname, "severity": "fault", "wrong": wrong}


def _summary(libraries: List[Dict[str, Any]]) -> str:
    shadowed = [entry for entry in libraries if entry["others"]]
    opened = sum(entry["path"] is not None for entry in libraries)
    if not shadowed:
        return f"one copy of each of the {opened} CUDA libraries that TensorFlow opens can load"
    shown = "; ".join(
        f"{entry['soname']} is taken from {entry['path']} ({entry['found_by']}), not from"
        f" {', '.join(copy['path'] for copy in entry['others'])}"
        for entry in shadowed[:3]
    )
    return f"{len(shadowed)} of {opened} CUDA libraries have other copies, which do no harm: {shown}"


CHECK = Check(
    id="library_conflicts",
    title="no other copy of a CUDA library comes before the fitting one",
    stage=HOST,
    run=_run,
    limit_s=loader.LIMIT_S + 10,
    requires=("cuda-build",),
)
