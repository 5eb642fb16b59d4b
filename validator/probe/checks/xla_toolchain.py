"""Does XLA find ptxas and libdevice, and does a known fault cover the ptxas that it finds?"""

import os
from typing import Any, Dict, List, Optional, Tuple

from .. import flags
from ..check import ERROR, FAIL, PASS, TENSORFLOW, Check, Context, Result
from ..collectors import toolchain
from ..tables import table

FAULT, NOTICE = "fault", "notice"


def _run(context: Context) -> Result:
    search = toolchain.search(os.path.dirname(context.tensorflow.__file__))
    if search is None:
        return Result(ERROR, "this TensorFlow does not tell where its XLA looks for ptxas and libdevice")
    preferred = flags.parse(os.environ.get("XLA_FLAGS", "")).value("xla_gpu_cuda_data_dir")
    return judge(
        search, preferred or toolchain.DEFAULT_DIRECTORY, os.environ.get("PATH", ""), _capabilities(context)
    )


def judge(search: toolchain.Search, preferred: str, path: str, capabilities: List[str]) -> Result:
    """The result for a search, the preferred directory, PATH, and the GPUs here."""
    looked_at = [
        {"path": candidate, "version": toolchain.version(candidate)}
        for candidate in toolchain.ptxas_candidates(search, preferred, path)
        if os.path.exists(candidate)
    ]
    ptxas = next(
        (one for one in looked_at if one["version"] and toolchain.usable(search, one["version"])), None
    )
    libdevices = toolchain.libdevice_candidates(search, preferred)
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
    faults = _missing(ptxas, looked_at, libdevice)
    faults += [entry["summary"] for entry in advisories if entry["severity"] == FAULT and entry["applies"]]
    if ptxas is None or libdevice is None or faults:
        return Result(FAIL, "; ".join(faults), evidence)
    told = [
        f"{entry['summary']}; fixed in {entry['fixed']} ({entry['source']})"
        for entry in advisories
        if entry["applies"]
    ]
    return Result(PASS, "; ".join([_found(ptxas, looked_at, libdevice), *told]), evidence)


def _found(ptxas: Dict[str, Any], looked_at: List[Dict[str, Any]], libdevice: str) -> str:
    others = sorted({one["version"] for one in looked_at if one["version"]} - {ptxas["version"]})
    note = f", not ptxas {', '.join(others)}, which is here too" if others else ""
    where = os.path.dirname(libdevice)
    return f"XLA runs ptxas {ptxas['version']} ({ptxas['path']}) with libdevice in {where}{note}"


def _missing(
    ptxas: Optional[Dict[str, Any]], looked_at: List[Dict[str, Any]], libdevice: Optional[str]
) -> List[str]:
    faults = []
    remedy = "install nvidia-cuda-nvcc, or name a toolkit with XLA_FLAGS=--xla_gpu_cuda_data_dir=DIRECTORY"
    if ptxas is None and looked_at:
        shown = ", ".join(f"{one['path']} ({one['version'] or 'does not run'})" for one in looked_at)
        faults.append(f"XLA runs none of the ptxas that it finds: {shown}; {remedy}")
    elif ptxas is None:
        faults.append(f"XLA finds no ptxas, without which it compiles nothing for a GPU; {remedy}")
    if libdevice is None:
        faults.append(
            "XLA finds no libdevice.10.bc, without which it compiles no exponential or other special function"
            f" for a GPU; {remedy}"
        )
    return faults


def _advisories(tool: str, version: str, capabilities: List[str]) -> List[Dict[str, Any]]:
    """Those that cover the version, and whether a GPU that they are about is here."""
    found = []
    for row in table("advisories")["advisories"]:
        affects = row["affects"]
        if affects["tool"] == tool and _within(version, affects):
            about = row.get("capabilities", {})
            keys = ("id", "severity", "summary", "fixed", "source")
            applies = any(_within(capability, about) for capability in capabilities)
            found.append({**{key: row[key] for key in keys}, "capabilities": about, "applies": applies})
    return found


def _within(version: str, bounds: Dict[str, str]) -> bool:
    number = _number(version)
    above = "from" not in bounds or number >= _number(bounds["from"])
    return above and ("below" not in bounds or number < _number(bounds["below"]))


def _number(version: str) -> Tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _capabilities(context: Context) -> List[str]:
    gpus = context.facts["host"]["gpus"]
    return sorted({gpu["compute_capability"] for gpu in gpus if gpu["compute_capability"]})


CHECK = Check(
    id="xla_toolchain",
    title="XLA finds ptxas and libdevice, and no known fault of them fails it here",
    stage=TENSORFLOW,
    run=_run,
    limit_s=60,
    requires=("cuda-build",),
)
