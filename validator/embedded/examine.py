"""Examine the Python that runs this: run the probe in a child process, and say what it found."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from ..diagnosis import diagnose_report
from ..engines.protocol import probe_request, run_probe
from ..errors import MissingError, ValidatorError
from ..model.diagnosis import Diagnosis
from ..model.report import CheckOutcome, Report, ReportError, read_report
from ..redaction.redact import names_in
from ..reports.diagnosis import shareable

#: The checks that tell whether TensorFlow computes on a GPU, and why not. They leave out those that train.
CHECKS = (
    *("driver", "gpu_device_nodes", "environment", "python_stack", "tpu_interference", "cuda_libraries"),
    *("cudnn_load", "library_conflicts", "compute_capability", "tensorflow_build", "gpu_visible"),
    "gpu_compute",
)
#: TensorFlow uses a GPU only if it sees one and computes on it: one that it can't use is still visible.
_DECISIVE = ("gpu_visible", "gpu_compute")


@dataclass(frozen=True)
class Examined:
    """A report, and its diagnosis."""

    report: Report
    diagnosis: Diagnosis

    @property
    def has_gpu(self) -> bool:
        """True if TensorFlow saw a GPU and computed on it."""
        found = [self.report.check(name) for name in _DECISIVE]
        return all(check is not None and check.outcome is CheckOutcome.PASS for check in found)


def examine(checks: tuple[str, ...] = CHECKS) -> Examined:
    """Run checks with this Python and the variables of this process. Raises ValidatorError."""
    if not sys.executable:
        raise MissingError(
            "this program runs Python without an executable, so no child process can examine it",
            hint="run `validator doctor --python PYTHON` with the Python of this environment",
        )
    environment = dict(os.environ)
    # The child runs in another directory than this process.
    if path := environment.get("PYTHONPATH"):
        environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, path.split(os.pathsep)))
    arguments = [word for name in checks for word in ("--only", name)]
    answer = run_probe(
        Path(sys.executable),
        probe_request("quick", arguments=arguments),
        lambda line: None,
        environment=environment,
    )
    try:
        report = read_report(answer)
    except ReportError as error:
        raise ValidatorError(f"the probe's report can't be read: {error}") from error
    return Examined(report, diagnose_report(report))


def shareable_diagnosis(examined: Examined) -> Diagnosis:
    """Return the diagnosis without names and credentials: logs of CI and saved notebooks are published."""
    return shareable(examined.diagnosis, names_in(json.dumps(examined.report.raw, indent=0)))
