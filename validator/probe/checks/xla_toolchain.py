"""Does XLA find ptxas and libdevice, and does the ptxas that it finds have a known bug?"""

import os
from typing import Any, Dict, List

from ...problems import problem, statement
from ...version_numbers import leading_numbers
from .. import xla_flags
from ..check import ERROR, TENSORFLOW, Check, Context, Result, judged
from ..collectors import kernels
from ..tables import table


def _run(context: Context) -> Result:
    search = kernels.search(os.path.dirname(context.tensorflow.__file__))
    if search is None:
        return Result(ERROR, statement("toolchain_search_unknown"))
    preferred = xla_flags.parse(os.environ.get("XLA_FLAGS", "")).value("xla_gpu_cuda_data_dir")
    return judge(
        search, preferred or kernels.DEFAULT_DIRECTORY, os.environ.get("PATH", ""), _capabilities(context)
    )


def judge(search: kernels.Search, preferred: str, path: str, capabilities: List[str]) -> Result:
    """Return the result for a search, the preferred directory, PATH, and the GPUs here."""
    looked_at = [
        {"path": candidate, "version": kernels.version(candidate)}
        for candidate in kernels.ptxas_candidates(search, preferred, path)
        if os.path.exists(candidate)
    ]
    ptxas = next(
        (one for one in looked_at if one["version"] and kernels.usable(search, one["version"])), None
    )
    libdevices = kernels.libdevice_candidates(search, preferred)
    libdevice = next((candidate for candidate in libdevices if os.path.isfile(candidate)), None)
    advisories = _advisories("ptxas", str(ptxas["version"]), capabilities) if ptxas else []
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
    problems = [
        problem(entry["code"], version=str(ptxas["version"]))
        for entry in advisories
        if ptxas and entry["applies"]
    ]
    if ptxas is None and looked_at:
        problems.append(problem("ptxas_unusable", found=looked_at))
    elif ptxas is None:
        problems.append(problem("ptxas_missing"))
    if libdevice is None:
        problems.append(problem("libdevice_missing"))
    return judged(problems, lambda: _passed(ptxas or {}, looked_at, str(libdevice)), evidence)


def _passed(ptxas: Dict[str, Any], looked_at: List[Dict[str, Any]], libdevice: str) -> Dict[str, Any]:
    others = sorted({one["version"] for one in looked_at if one["version"]} - {ptxas["version"]})
    return statement(
        "toolchain_found",
        version=ptxas["version"],
        path=ptxas["path"],
        libdevice=os.path.dirname(libdevice),
        others=others,
    )


def _advisories(tool: str, version: str, capabilities: List[str]) -> List[Dict[str, Any]]:
    """Return the advisories that cover the version, and whether each affects a GPU of this machine."""
    found = []
    for row in table("advisories")["advisories"]:
        affects = row["affects"]
        if affects["tool"] == tool and _within(version, affects):
            about = row.get("capabilities", {})
            applies = any(_within(capability, about) for capability in capabilities)
            told = {key: row[key] for key in ("code", "fixed", "source")}
            found.append({**told, "capabilities": about, "applies": applies})
    return found


def _within(version: str, bounds: Dict[str, str]) -> bool:
    number = leading_numbers(version)
    above = "from" not in bounds or number >= leading_numbers(bounds["from"])
    return above and ("below" not in bounds or number < leading_numbers(bounds["below"]))


def _capabilities(context: Context) -> List[str]:
    gpus = context.facts["host"]["gpus"]
    return sorted({gpu["compute_capability"] for gpu in gpus if gpu["compute_capability"]})


CHECK = Check(
    id="xla_toolchain",
    title="Does XLA find ptxas and libdevice, and is their version free of known bugs?",
    stage=TENSORFLOW,
    run=_run,
    limit_s=60,
    requires=("cuda-build",),
)
