"""The versions that were really there, as the probe found them; never those that were asked for."""

from __future__ import annotations

from typing import Any

from ..model.report import Report


def versions_of(report: Report) -> dict[str, str]:
    """`python`, `tensorflow`, `cuda` (the runtime library's), `cudnn`; what was not found is left out."""
    runtime = next((found for found in _libraries(report) if "libcudart" in str(found.get("soname"))), {})
    cudnn = report.check("cudnn_load")
    found = {
        "python": report.environment.get("python"),
        "tensorflow": report.environment.get("tensorflow"),
        "cuda": runtime.get("version"),
        "cudnn": (cudnn.evidence.get("library") or {}).get("version") if cudnn else None,
    }
    return {name: str(version) for name, version in found.items() if version}


def _libraries(report: Report) -> list[dict[str, Any]]:
    check = report.check("cuda_libraries")
    return list(check.evidence.get("libraries") or []) if check else []
