"""Download Pyodide, with which the page answers questions, from npm."""

from __future__ import annotations

from pathlib import Path

from .npm import npm_package


def pyodide_package(version: str, integrity: str) -> Path:
    """Return the npm package `pyodide`. Raises what `npm_package` raises."""
    return npm_package("pyodide", version, integrity, "name the file with --answers")
