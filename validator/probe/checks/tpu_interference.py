"""Does a TPU or another accelerator's plugin change which devices TensorFlow chooses?"""

import os
import re
from typing import Any, Dict, List

from ..check import FAIL, HOST, PASS, SKIP, Check, Context, Result, gpu_count
from ..tables import table

FAULT, NOTICE = "fault", "notice"
#: Libraries of PluggableDevices, which TensorFlow loads when it is imported.
_PLUGINS = "tensorflow-plugins"


def _run(context: Context) -> Result:
    tensorflow, environment = context.facts["tensorflow"], context.facts["environment"]
    if tensorflow is None:
        return Result(SKIP, "TensorFlow is not installed")
    known = table("accelerators")
    variables = {
        name: environment["variables"][name]
        for name in known["variables"]
        if name in environment["variables"]
    }
    packages = [row for row in known["packages"] if row["name"] in environment["packages"]]
    plugins = _plugins(os.path.dirname(tensorflow["directory"]))
    there = gpu_count(context.facts) > 0
    problems = _of_variables(variables, known["variables"]) + _of_packages(
        packages, environment["packages"], there
    )
    problems += _of_plugins(plugins)
    evidence = {
        "variables": variables,
        "packages": {row["name"]: environment["packages"][row["name"]] for row in packages},
        "plugins": plugins,
        "problems": problems,
    }
    faults = [problem["wrong"] for problem in problems if problem["severity"] == FAULT]
    if faults:
        return Result(FAIL, "; ".join(faults), evidence)
    notices = "; ".join(problem["wrong"] for problem in problems)
    return Result(PASS, notices or "no variable, package or plugin of another accelerator is here", evidence)


def _plugins(site: str) -> List[str]:
    """File names in the directory that TensorFlow loads plugins from, beside itself."""
    try:
        return sorted(
            name for name in os.listdir(os.path.join(site, _PLUGINS)) if re.search(r"\.so(\.\d+)*$", name)
        )
    except OSError:
        return []


def _of_variables(found: Dict[str, str], known: Dict[str, str]) -> List[Dict[str, Any]]:
    return [_problem("tpu_variable", NOTICE, name, f"{name} is set: {known[name]}") for name in found]


def _of_packages(rows: List[Dict[str, str]], installed: Dict[str, str], there: bool) -> List[Dict[str, Any]]:
    """What replaces CUDA's devices is a fault only where a GPU would have been used."""
    return [
        _problem(
            row["problem"],
            FAULT if row["severity"] == FAULT and there else NOTICE,
            row["name"],
            f"{row['name']} {installed[row['name']]}: {row['wrong']}",
        )
        for row in rows
    ]


def _of_plugins(names: List[str]) -> List[Dict[str, Any]]:
    if not names:
        return []
    said = f"TensorFlow loads {', '.join(names)} when it is imported, which adds or replaces devices"
    return [_problem("device_plugin", NOTICE, names[0], said)]


def _problem(problem: str, severity: str, subject: str, wrong: str) -> Dict[str, Any]:
    return {"problem": problem, "subject": subject, "severity": severity, "wrong": wrong}


CHECK = Check(
    id="tpu_interference",
    title="no TPU and no plugin of another accelerator changes which devices are chosen",
    stage=HOST,
    run=_run,
    limit_s=10,
    required=False,
)
