"""Run cells in an IPython, and write what each one showed to standard output, as JSON.

The cells are a JSON list on standard input. With $ANSWER, the probe answers with that file.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from IPython.core.interactiveshell import InteractiveShell

if "ANSWER" in os.environ:
    import tests.embedded.answering  # noqa: F401 - it replaces the probe


def main() -> None:
    shell = InteractiveShell.instance()
    shown = []
    for cell in json.load(sys.stdin):
        result = shell.run_cell(cell, store_history=True)
        error = result.error_before_exec or result.error_in_exec
        value: Any = result.result
        bundle = (
            value._repr_mimebundle_() if hasattr(value, "_repr_mimebundle_") else {"text/plain": repr(value)}
        )
        shown.append({**bundle, "error": str(error) if error else ""})
    sys.__stdout__.write("\nSHOWN " + json.dumps(shown) + "\n")  # type: ignore[union-attr]


if __name__ == "__main__":
    main()
