"""Are the driver's device files here, and may this user open them?

Required, since it is the one thing that a library put in the driver's place can't pretend: a kernel driver
that answers when its device is opened.
"""

import re

from ..check import FAIL, HOST, PASS, Check, Context, Result


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
    if missing:
        return Result(FAIL, f"missing: {', '.join(missing)}", evidence)
    closed = [f"{node['path']} ({node['error']})" for node in nodes if not node["opens"]]
    if closed:
        return Result(FAIL, f"can't be opened: {', '.join(closed)}", evidence)
    false = [node["path"] for node in nodes if not node["device"] or node["registered"] is False]
    if false:
        return Result(FAIL, f"not devices of the NVIDIA driver: {', '.join(false)}", evidence)
    return Result(PASS, f"{', '.join(node['path'] for node in nodes)} open", evidence)


CHECK = Check(
    id="gpu_device_nodes",
    title="the driver's device files exist, belong to it, and open",
    stage=HOST,
    run=_run,
    limit_s=10,
    requires=("gpu",),
)
