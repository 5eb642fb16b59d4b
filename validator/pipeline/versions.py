"""The versions that were really there, as the probe found them; never those that were asked for."""

from __future__ import annotations

from typing import Any

from ..model.report import Report


def versions_of(report: Report) -> dict[str, str]:
    """`python`, `tensorflow`, `cuda` (the runtime library's), `cudnn`; what was not found is left out."""
    runtime = next((found for found in _libraries(report) if "libcudart" in str(found.get("soname"))), {})
    cudnn = _evidence(report, "cudnn_load").get("library")
    found = {
        "python": report.environment.get("python"),
        "tensorflow": report.environment.get("tensorflow"),
        "cuda": runtime.get("version"),
        "cudnn": cudnn.get("version") if isinstance(cudnn, dict) else None,
    }
    return {name: str(version) for name, version in found.items() if version}


def _libraries(report: Report) -> list[dict[str, Any]]:
    found = _evidence(report, "cuda_libraries").get("libraries")
    # A report may come from a file that a person edited; what is of another shape tells nothing.
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def _evidence(report: Report, identifier: str) -> dict[str, Any]:
    check = report.check(identifier)
    return check.evidence if check else {}
