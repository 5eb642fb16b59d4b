"""Does a TPU or another accelerator's plugin change which devices TensorFlow chooses?"""

import os
import re
from typing import Any, Dict, List

from ...problems import ADVISORY, FAULT, problem, statement
from ..check import HOST, Check, Context, Result, gpu_count, judged, skipped
from ..tables import table

#: Libraries of PluggableDevices, which TensorFlow loads when it is imported.
_PLUGINS = "tensorflow-plugins"


def _run(context: Context) -> Result:
    tensorflow, environment = context.facts["tensorflow"], context.facts["environment"]
    if tensorflow is None:
        return skipped(statement("tensorflow_not_installed", check=None))
    known = table("accelerators")
    variables = {
        name: environment["variables"][name]
        for name in known["variables"]
        if name in environment["variables"]
    }
    packages = [row for row in known["packages"] if row["name"] in environment["packages"]]
    plugins = _plugins(os.path.dirname(tensorflow["directory"]))
    there = gpu_count(context.facts) > 0
    problems = [problem("tpu_variable", subject=name) for name in variables]
    problems += [_package_problem(row, environment["packages"][row["name"]], there) for row in packages]
    if plugins:
        problems.append(problem("device_plugin_files", subject=plugins[0], files=plugins))
    evidence = {
        "variables": variables,
        "packages": {row["name"]: environment["packages"][row["name"]] for row in packages},
        "plugins": plugins,
    }
    passed = statement("nothing_replaces_cuda" if problems else "no_other_accelerator")
    return judged(problems, lambda: passed, evidence)


def _plugins(site: str) -> List[str]:
    """Return the file names in the directory next to TensorFlow that it loads plugins from."""
    try:
        return sorted(
            name for name in os.listdir(os.path.join(site, _PLUGINS)) if re.search(r"\.so(\.\d+)*$", name)
        )
    except OSError:
        return []


def _package_problem(row: Dict[str, str], version: str, gpu_here: bool) -> Dict[str, Any]:
    """Return the problem of an installed package. Replacing CUDA's devices is a fault only where a GPU is."""
    severity = FAULT if row["severity"] == FAULT and gpu_here else ADVISORY
    return problem(row["code"], severity, subject=row["name"], version=version)


CHECK = Check(
    id="tpu_interference",
    title="Does a TPU or another accelerator's plugin change which devices TensorFlow chooses?",
    stage=HOST,
    run=_run,
    limit_s=10,
    required=False,
)
