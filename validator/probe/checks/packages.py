"""Can the packages that were added to the image be imported, and does TensorFlow still see the GPUs then?

Each package is imported before TensorFlow and after it, each time in a fresh interpreter: the one that comes
first decides which copies of the shared libraries are loaded.
"""

import json
import os
import sys
from typing import Any, Dict, List, Optional, Tuple

from ...problems import problem, statement
from .. import child
from ..check import OWN, Check, Context, Result, judged, skipped
from ..child import SIGNAL, TIMED_OUT, Answer, tail
from ..collectors.installed import import_names

#: Seconds for one interpreter: TensorFlow's import from a cold disk takes a minute.
_LIMIT_S = 180.0
_LAST_LINES = 20
#: The orders of the imports, by their names in the vocabulary `import_order`.
_BEFORE, _AFTER, _BOTH = "before", "after", "both"
_TENSORFLOW = "tensorflow"
#: Runs without the probe on `sys.path`: a package may have the name of one of its modules. The arguments are
#: the descriptor, the pid of the parent, and the modules as JSON.
_PROGRAM = """
import ctypes, importlib, json, os, sys
descriptor, parent, modules = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
sys.argv[1:] = []
sys.path[:] = [entry for entry in sys.path if entry]
os.set_inheritable(descriptor, False)
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
if os.getppid() != parent:
    os._exit(1)
def tell(event, **fields):
    os.write(descriptor, json.dumps({"event": event, **fields}).encode() + b"\\n")
try:
    for module in modules:
        tell("value", value={"begun": module})
        importlib.import_module(module)
    tensorflow = sys.modules["tensorflow"]
    tell("value", value={"begun": None})
    tell("value", value={"gpus": len(tensorflow.config.list_physical_devices("GPU"))})
except BaseException as error:
    import traceback
    traceback.print_exc()
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
    tell("raised", raised=f"{type(error).__name__}: {lines[0][:600]}", in_tensorflow=False)
sys.stdout.flush()
sys.stderr.flush()
os._exit(0)
"""


def _run(context: Context) -> Result:
    if not context.added:
        return judged([], lambda: statement("no_packages_added"), {"packages": []})
    if context.facts["tensorflow"] is None:
        return skipped(statement("tensorflow_not_installed", check=None))
    alone = _imports([_TENSORFLOW])
    if alone["failure"] is not None:
        return skipped(statement("tensorflow_not_importable", check="tensorflow_build"), {"alone": alone})
    versions = context.facts["environment"]["packages"]
    found = [_looked_at(name, versions.get(name)) for name in context.added]
    evidence = {"gpus": alone["gpus"], "limit_s": _LIMIT_S, "packages": found}
    return judged(_problems(evidence, context.lock or {}), lambda: _passed(evidence), evidence)


def _looked_at(name: str, version: Optional[str]) -> Dict[str, Any]:
    """Return `{package, version, modules, before, after}`; the last two are None without modules."""
    modules = import_names(name)
    found: Dict[str, Any] = {"package": name, "version": version, "modules": modules}
    return {
        **found,
        _BEFORE: _imports([*modules, _TENSORFLOW]) if modules else None,
        _AFTER: _imports([_TENSORFLOW, *modules]) if modules else None,
    }


def _imports(modules: List[str]) -> Dict[str, Any]:
    """Import modules in this order, then ask TensorFlow for the GPUs.

    Return `{gpus, module, failure, detail, last_lines}`: how many there are, or which module's import failed
    (None for the question itself), and how (`failure` is a kind of `child`).
    """

    def command(writer: int) -> List[str]:
        return [sys.executable, "-u", "-c", _PROGRAM, str(writer), str(os.getpid()), json.dumps(modules)]

    answer = child.ask(command, limit_s=_LIMIT_S)
    module, gpus = _reached(answer)
    failure = answer.failure
    return {
        "gpus": gpus,
        "module": module if failure else None,
        "failure": failure.kind if failure else None,
        "detail": str(failure) if failure else None,
        "last_lines": tail(answer.stderr, lines=_LAST_LINES).splitlines() if failure else [],
    }


def _reached(answer: Answer) -> Tuple[Optional[str], Optional[int]]:
    begun = [value["begun"] for value in answer.values if "begun" in value]
    gpus = [value["gpus"] for value in answer.values if "gpus" in value]
    return (begun[-1] if begun else None), (gpus[0] if gpus else None)


def _problems(evidence: Dict[str, Any], lock: Dict[str, str]) -> List[Dict[str, Any]]:
    found = []
    for entry in evidence["packages"]:
        if entry["modules"] is None:
            found.append(
                problem("locked_package_missing", package=entry["package"], locked=lock[entry["package"]])
            )
        elif entry["modules"]:
            found += _problems_of(entry, evidence["gpus"])
    return found


def _problems_of(entry: Dict[str, Any], gpus: int) -> List[Dict[str, Any]]:
    """Return what is wrong with a package: one problem for each order, or for both the same."""
    before, after = (_problem(entry["package"], order, entry[order], gpus) for order in (_BEFORE, _AFTER))
    if before is not None and after is not None and {**before, "order": _AFTER} == after:
        return [{**before, "order": _BOTH}]
    return [one for one in (before, after) if one is not None]


def _problem(package: str, order: str, seen: Dict[str, Any], gpus: int) -> Optional[Dict[str, Any]]:
    failure, module = seen["failure"], seen["module"]
    told = {"package": package, "order": order}
    if failure is None:
        lost = seen["gpus"] < gpus
        return problem("package_hides_gpus", visible=seen["gpus"], gpus=gpus, **told) if lost else None
    if module in (None, _TENSORFLOW):
        return problem("package_breaks_tensorflow", error=seen["detail"], **told)
    told["module"] = module
    if failure == TIMED_OUT:
        return problem("package_import_hangs", limit_s=_LIMIT_S, **told)
    if failure == SIGNAL:
        return problem("package_import_crashes", signal=seen["detail"], **told)
    return problem("package_import_fails", error=seen["detail"], **told)


def _passed(evidence: Dict[str, Any]) -> Dict[str, Any]:
    return statement("packages_imported", count=len(evidence["packages"]), gpus=evidence["gpus"])


CHECK = Check(
    id="packages",
    title="Can the added packages be imported, and are the GPUs still visible then?",
    stage=OWN,
    run=_run,
    limit_s=1500,
    requires=("lock",),
    required=False,
)
