"""Do the driver's device files exist, and may this user open them?

This is required because a library that replaces the driver can't fake device files that a kernel driver
opens.
"""

import re

from ...problems import problem, statement
from ..check import HOST, Check, Context, Result, judged


def _run(context: Context) -> Result:
    host = context.facts["host"]
    nodes = host["device_nodes"]
    evidence = {"wsl": host["wsl"], "nodes": nodes}
    gpu = r"/dev/dxg" if host["wsl"] else r"/dev/nvidia\d+"
    needed = [gpu] if host["wsl"] else [gpu, r"/dev/nvidiactl", r"/dev/nvidia-uvm"]
    missing = [
        pattern.replace(r"\d+", "0")
        for pattern in needed
        if not any(re.fullmatch(pattern, node["path"]) for node in nodes)
    ]
    problems = [problem("device_file_missing", path=path) for path in missing]
    problems += [
        problem("device_file_closed", path=node["path"], error=node["error"])
        for node in nodes
        if not node["opens"]
    ]
    problems += [
        problem("device_file_foreign", path=node["path"])
        for node in nodes
        if node["opens"] and (not node["device"] or node["registered"] is False)
    ]
    paths = [node["path"] for node in nodes]
    return judged(problems, lambda: statement("device_files_open", paths=paths), evidence)


CHECK = Check(
    id="gpu_device_nodes",
    title="Do the driver's device files exist, belong to the driver, and open?",
    stage=HOST,
    run=_run,
    limit_s=10,
    requires=("gpu",),
)
