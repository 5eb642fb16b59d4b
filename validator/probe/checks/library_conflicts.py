"""Is there another copy of a CUDA library that loads before the one that fits?"""

import os
from typing import Any, Dict, List, Optional

from ...problems import problem, statement
from ..check import ERROR, HOST, Check, Context, Result, judged
from ..collectors import installed, loader
from .cuda_libraries import built_with, too_old

#: Files that a problem or statement lists.
_SHOWN = 3
#: Libraries of one wheel that only work together in the same version.
_TOGETHER = ("libcublas.so", "libcublasLt.so")


def _run(context: Context) -> Result:
    tensorflow = context.facts["tensorflow"]
    answer = loader.open_libraries(tensorflow["directory"])
    opened = {value["soname"]: value for value in answer.values if "soname" in value}
    sonames = [
        soname for value in answer.values if "phase" in value for soname in value["attempts"] if soname
    ]
    if not sonames:
        error = str(answer.failure) if answer.failure else None
        return Result(ERROR, statement("loader_silent", error=error))
    search = _Search(context.facts)
    libraries = [
        _library(soname, opened.get(soname), search, tensorflow) for soname in dict.fromkeys(sonames)
    ]
    parts = _cudnn_parts(libraries, search)
    evidence = {
        "search_path": {installed.LIBRARY_PATH: search.directories, installed.RUNPATH: search.runpath},
        "libraries": libraries,
        "cudnn_parts": parts,
    }
    problems = _older(libraries) + _mixed(libraries) + _strayed(libraries, parts)
    return judged(problems, lambda: _passed(libraries), evidence)


class _Search:
    """The directories where the loader looks for the libraries that TensorFlow opens."""

    def __init__(self, facts: Dict[str, Any]) -> None:
        framework = os.path.join(facts["tensorflow"]["directory"], loader.FRAMEWORK)
        self.directories = installed.library_path(facts["environment"]["variables"])
        self.runpath = [path for path in installed.runpath(framework) if os.path.isdir(path)]
        self.cache = installed.cached()

    def copies(self, soname: str, runpath: Optional[List[str]] = None) -> List[installed.Copy]:
        """Return the copies in the order of the search. runpath: of the object that opens it, if not
        TensorFlow."""
        searched = self.runpath if runpath is None else runpath
        return installed.copies(soname, self.directories, searched, self.cache)


def _library(
    soname: str, opened: Optional[Dict[str, Any]], search: _Search, tensorflow: Dict[str, Any]
) -> Dict[str, Any]:
    winner = opened["path"] if opened else None
    found = [
        {
            "path": copy.path,
            "found_by": copy.found_by,
            "version": installed.version_of(copy.path, soname),
        }
        for copy in search.copies(soname)
    ]
    return {
        "soname": soname,
        "path": winner,
        "version": opened["version"] if opened else None,
        "built_with": built_with(soname, tensorflow["built_with"]),
        # None if it is not among the copies, because a library that was loaded earlier opened it.
        "found_by": next((copy["found_by"] for copy in found if copy["path"] == winner), None),
        "others": [copy for copy in found if copy["path"] != winner],
    }


def _cudnn_parts(libraries: List[Dict[str, Any]], search: _Search) -> List[Dict[str, Any]]:
    """Return cuDNN's sub-libraries, which its main library opens by name, with the place of each."""
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
    runpath = installed.runpath(main["path"])
    found = []
    for name in sorted(names):
        first = next(iter(search.copies(name, runpath)), None)
        path = first.path if first else None
        found.append(
            {
                "soname": name,
                "path": path,
                "found_by": first.found_by if first else None,
                "version": installed.version_of(path, name) if path else None,
            }
        )
    return found


def _listed(directory: str) -> List[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _older(libraries: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Return each older copy that comes before one that fits."""
    found = []
    for entry in libraries:
        fitting = [
            copy
            for copy in entry["others"]
            if copy["version"] is not None and not too_old(copy["version"], entry["built_with"])
        ]
        if fitting and too_old(entry["version"], entry["built_with"]):
            told = {name: entry[name] for name in ("soname", "path", "version", "found_by", "built_with")}
            other = {"other_path": fitting[0]["path"], "other_version": fitting[0]["version"]}
            found.append(problem("older_copy_wins", **told, **other))
    return found


def _mixed(libraries: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Return the problem that libraries which only work together have different versions."""
    together = [
        entry for entry in libraries if entry["soname"].startswith(tuple(f"{name}." for name in _TOGETHER))
    ]
    versions = {entry["version"] for entry in together if entry["version"]}
    if len(versions) < 2:
        return []
    told = [{name: entry[name] for name in ("soname", "version", "path")} for entry in together]
    return [problem("cublas_versions_differ", soname=together[0]["soname"], libraries=told)]


def _strayed(libraries: List[Dict[str, Any]], parts: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Return the problem that parts of cuDNN come from elsewhere, or have different versions."""
    if not parts:
        return []
    main = next(entry for entry in libraries if entry["soname"].startswith("libcudnn."))
    home = os.path.dirname(main["path"])
    elsewhere = [part for part in parts if part["path"] and os.path.dirname(part["path"]) != home]
    if elsewhere:
        return [
            problem(
                "cudnn_parts_from_elsewhere",
                soname=main["soname"],
                path=main["path"],
                count=len(elsewhere),
                parts=[{name: part[name] for name in ("path", "found_by")} for part in elsewhere[:_SHOWN]],
            )
        ]
    versions = sorted({part["version"] for part in parts if part["version"]})
    if len(versions) > 1:
        fields = {"soname": main["soname"], "directory": home, "versions": versions}
        return [problem("cudnn_part_versions_differ", **fields)]
    return []


def _passed(libraries: List[Dict[str, Any]]) -> Dict[str, Any]:
    shadowed = [entry for entry in libraries if entry["others"]]
    opened = sum(entry["path"] is not None for entry in libraries)
    if not shadowed:
        return statement("one_copy_each", count=opened)
    told = [{name: entry[name] for name in ("soname", "path", "found_by")} for entry in shadowed[:_SHOWN]]
    return statement("other_copies_harmless", count=len(shadowed), opened=opened, copies=told)


CHECK = Check(
    id="library_conflicts",
    title="Does another copy of a CUDA library load before the one that fits?",
    stage=HOST,
    run=_run,
    limit_s=loader.LIMIT_S + 10,
    requires=("cuda-build",),
)
