"""Runs the probe over the stubs and judges its report."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from validator.certify import acceptance
from validator.model.record import GpuIdentity, Outside, Verdict, labelled
from validator.model.report import (
    COMPUTING_CHECKS,
    CheckOutcome,
    CheckResult,
    Computed,
    Evidence,
    Host,
    Report,
    read_report,
)
from validator.model.verdict import REQUIRED_CHECKS, judge

from .environments import nvidia_libraries
from .stubs import Stubs

#: A process that aborts under a stub may hang while it does so; the checks that are left are then timeouts.
LIMIT_S = 40
#: The required checks that only a real GPU passes.
GATES = ("gpu_device_nodes", "gpu_compute", "xla_train_step")


def probe(
    python: Path,
    archive: Path,
    stubs: Stubs,
    first: Sequence[str],
    variables: Mapping[str, str],
    *arguments: str,
) -> Report:
    """Return an environment's report with these stubs first on the loader's path, then NVIDIA's libraries."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "TF_", "LD_"))
    }
    path = [*(stubs.place(name) for name in first), *nvidia_libraries(python)]
    done = subprocess.run(
        [python, archive, "--time-limit", str(LIMIT_S), *arguments],
        env={**inherited, "LD_LIBRARY_PATH": os.pathsep.join(map(str, path)), **variables},
        cwd="/", capture_output=True, timeout=2 * LIMIT_S, check=True,
    )  # fmt: skip
    return read_report(done.stdout)


def agreeing(host: Host) -> Outside:
    """Return a reading of the host that agrees with everything that a report says."""
    gpus = tuple(GpuIdentity(str(gpu.uuid), str(gpu.name), str(gpu.compute_capability)) for gpu in host.gpus)
    return Outside(host.driver, host.kernel_driver, gpus)


def agreeing_labels(host: Host) -> Outside:
    """Return labels of a node that agree with everything that a report says."""
    names = [str(gpu.name).replace(" ", "-") for gpu in host.gpus]
    capability = str(host.gpus[0].compute_capability) if host.gpus else ""
    return labelled(str(host.driver), names[0] if names else "", capability, len(names))


def never_certified(report: Report) -> None:
    """Check that the gates alone prevent a certificate, also if every other required check had passed.

    No gate may be the one that is fooled: what only a GPU can do was not done.
    """
    others = tuple(
        CheckResult(
            name,
            CheckOutcome.PASS,
            required=True,
            evidence=Computed(device_type="GPU") if name in COMPUTING_CHECKS else Evidence(),
        )
        for name in REQUIRED_CHECKS
        if name not in GATES
    )
    gates = tuple(check for check in report.checks if check.id in GATES)
    for judged in (report, msgspec.structs.replace(report, checks=(*others, *gates))):
        # As if the host said the same about its driver and its GPUs.
        for outside in (agreeing(judged.host), agreeing_labels(judged.host)):
            judgement = judge(judged, outside=outside, labels_trusted=True)
            assert judgement.verdict is not Verdict.CERTIFIED, judgement
    compute, step = report.check("gpu_compute"), report.check("xla_train_step")
    assert compute is not None and compute.outcome is not CheckOutcome.PASS, compute
    assert step is not None
    assert step.outcome is not CheckOutcome.PASS or step.evidence.raw["device_type"] == "CPU", step
    nodes = report.check("gpu_device_nodes")
    assert nodes is not None and nodes.outcome is not CheckOutcome.PASS, nodes
    # Certification uses the host facts too.
    assert list(acceptance.signs_of_emulation(report))
