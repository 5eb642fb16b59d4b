"""Is what is installed what the lock says, name by name?"""

from typing import Dict, List

from ..check import FAIL, HOST, PASS, Check, Context, Result

#: Tolerated though not locked: what an interpreter's own distribution or `python -m venv` brings along.
#: Nothing of it takes part in a training run.
BOOTSTRAP = frozenset({"pip", "setuptools", "wheel"})


def _run(context: Context) -> Result:
    installed = context.facts["environment"]["packages"]
    lock = context.lock or {}
    differences = _differences(lock, installed)
    evidence = {
        "locked": len(lock),
        "tolerated": sorted(BOOTSTRAP & (installed.keys() - lock.keys())),
        "differences": differences,
    }
    if differences:
        shown = "; ".join(differences[:5])
        more = f"; and {len(differences) - 5} more" if len(differences) > 5 else ""
        return Result(FAIL, f"{shown}{more}", evidence)
    return Result(PASS, f"all {len(lock)} packages are as locked", evidence)


def _differences(lock: Dict[str, str], installed: Dict[str, str]) -> List[str]:
    names = sorted((lock.keys() | installed.keys()) - (BOOTSTRAP - lock.keys()))
    return [
        f"{name}: locked {lock.get(name, 'not at all')}, installed {installed.get(name, 'not at all')}"
        for name in names
        if lock.get(name) != installed.get(name)
    ]


CHECK = Check(
    id="lock_match",
    title="what is installed equals the lock, name by name",
    stage=HOST,
    run=_run,
    limit_s=10,
    requires=("lock",),
)
