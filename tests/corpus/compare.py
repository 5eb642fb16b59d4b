"""Compare the answers of two checkouts to every entry of the corpus.

Both answer the corpus of the new one, each with its own package and its own `.venv` (without one, with the
Python that runs this). Differences are printed entry by entry; the exit code is 1 if there are any.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

_ANSWERING = Path(__file__).with_name("answering.py").read_text(encoding="utf-8")
#: Writes the texts and reports of the corpus into a directory, and prints what `answering.py` reads.
_EXPORTING = """
import json, pathlib, sys
from tests.corpus import reader

jobs = []
for number, entry in enumerate(reader.entries()):
    if not entry.name.startswith(sys.argv[2]):
        continue
    file = pathlib.Path(sys.argv[1], str(number))
    file.write_bytes(entry.content())
    jobs.append([entry.name, ["--report"] if entry.kind == "reports" else [], str(file)])
print(json.dumps(jobs))
"""
#: Differences shown for one entry, and characters of each value.
_SHOWN, _WIDTH = 12, 200

Answers = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/compare-answers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("old", type=Path, help="a checkout of this project")
    parser.add_argument("new", type=Path, help="another one; the corpus is read from it")
    parser.add_argument("--only", default="", metavar="PREFIX", help="only entries with names that start so")
    parser.add_argument(
        "--ignore-wording",
        action="store_true",
        help="compare codes, strengths, places, counts, facts, commands and exit codes, but no sentences",
    )
    options = parser.parse_args(arguments)
    old, new = options.old.resolve(), options.new.resolve()
    with tempfile.TemporaryDirectory() as directory:
        jobs = _python(new, "", _EXPORTING, directory, options.only)
        with ThreadPoolExecutor() as pool:
            answers = pool.map(lambda checkout: json.loads(_python(checkout, jobs, _ANSWERING)), (old, new))
            before, after = answers
    differing = 0
    for name in before:
        found = list(differences(name, before[name], after[name], wording=not options.ignore_wording))
        if found:
            differing += 1
            print(name)
            print("".join(f"  {line}\n" for line in found[:_SHOWN]), end="")
            if len(found) > _SHOWN:
                print(f"  and {len(found) - _SHOWN} more")
    compared = f"{len(before)} answers compared{', wording ignored' if options.ignore_wording else ''}"
    print(f"{compared}: {f'{differing} differ' if differing else 'no difference'}")
    # Without an entry nothing was shown to be the same.
    return 1 if differing or not before else 0


def differences(name: str, before: list[Any], after: list[Any], *, wording: bool) -> Iterator[str]:
    """Yield the differences between two answers, one line each.

    before, after: exit code, the JSON document or None, and what was printed to stderr
    wording: whether sentences are compared too; the lines of a pasted text always are
    """
    if before[1] is None or after[1] is None:
        # Two errors are not two answers, however alike they are.
        yield f"no answer: {_shown(before[2])} -> {_shown(after[2])}"
        return
    if wording:
        answers = [{"exit code": code, "stderr": err, **document} for code, document, err in (before, after)]
    else:
        # What a report's evidence says may be a sentence of a check.
        keys = ("where", "count") if name.startswith("reports/") else ("text", "where", "count")
        answers = [{"exit code": code, **_without_wording(doc, keys)} for code, doc, _ in (before, after)]
    flat = [dict(_leaves("", answer)) for answer in answers]
    for place in dict.fromkeys([*flat[0], *flat[1]]):
        values = [each.get(place) for each in flat]
        if values[0] != values[1] or (place in flat[0]) is not (place in flat[1]):
            yield f"{place}: {_shown(values[0])} -> {_shown(values[1])}"


def _without_wording(answer: Answers, evidence: tuple[str, ...]) -> Answers:
    def seen(entries: list[Answers]) -> list[Answers]:
        return [{key: entry[key] for key in evidence} for entry in entries]

    return {
        "causes": [
            {
                **{key: cause[key] for key in ("code", "strength", "explains", "sources")},
                "evidence": seen(cause["evidence"]),
                "remedies": [{key: one[key] for key in ("way", "commands")} for one in cause["remedies"]],
            }
            for cause in answer["causes"]
        ],
        "harmless": [
            {"code": entry["code"], "evidence": seen(entry["evidence"])} for entry in answer["harmless"]
        ],
        "unknown": seen(answer["unknown"]),
        "facts": answer["facts"],
    }


def _leaves(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield each value with its place, such as `causes[0].code`. An empty list or dictionary is a value."""
    if isinstance(value, dict) and value:
        for key, child in value.items():
            yield from _leaves(f"{place}.{key}" if place else key, child)
    elif isinstance(value, list) and value:
        for index, child in enumerate(value):
            yield from _leaves(f"{place}[{index}]", child)
    else:
        yield place, value


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}..."


def _python(checkout: Path, stdin: str, code: str, *arguments: str) -> str:
    """Run code in a checkout, which comes first on the import path, and return what it prints."""
    own = checkout / ".venv" / "bin" / "python"
    done = subprocess.run(
        [own if own.exists() else sys.executable, "-c", code, *arguments],
        cwd=checkout,
        # Nothing is written into a checkout.
        env={**os.environ, "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"},
        input=stdin,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"Python failed in {checkout}:\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
