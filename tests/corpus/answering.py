"""Answer texts and reports with the `validator` in the working directory, all in one process.

It must run in any checkout, so it only uses the command line: `doctor … FILE --json`. It reads a list of
[name, options, file] from stdin and writes {name: [exit code, answer or null, text of stderr]} to stdout.
"""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import sys
from pathlib import Path
from typing import Any


def answer(options: list[str], file: str) -> tuple[Any, Any, str]:
    """Return the exit code, the answer as JSON or None, and what was printed to stderr."""
    sys.argv = ["validator", "doctor", *options, file, "--json"]
    out, err, code = io.StringIO(), io.StringIO(), None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            runpy.run_module("validator", run_name="__main__")
        except SystemExit as stop:
            code = stop.code
    printed = out.getvalue()
    return code, json.loads(printed) if printed else None, err.getvalue()


def main() -> None:
    import validator

    if Path(validator.__file__).parents[1] != Path.cwd():
        sys.exit(f"{validator.__file__} is not the validator of {Path.cwd()}")
    answers = {name: answer(options, file) for name, options, file in json.load(sys.stdin)}
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
