"""The shape of `validator/`: what imports what, how large everything is, and which tests a change needs.

`scripts/structure` prints the sizes, and `scripts/test --changed` runs the tests that this module names.
"""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
ROOT = REPOSITORY / "validator"
#: A file with fewer lines is small.
SMALL = 100
#: What a person asks first, with the files of this repository that it needs.
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "plan": ("plan", "--profile", "nightly"),
    "predict": ("predict", "--tensorflow", "2.21.0", "--gpu", "h200", "--driver", "580"),
    "doctor": ("doctor", "tests/corpus/captured/h200-580.159.04/convolutions_one_by_one.log"),
    "lint": ("lint", "pyproject.toml"),
    "report": ("report", "--profile", "quick"),
}


def modules(root: Path = ROOT) -> list[Path]:
    """Return our modules, without those of others in `_vendor`."""
    return sorted(path for path in root.rglob("*.py") if "_vendor" not in path.parts)


@functools.cache
def imports_of(path: Path) -> tuple[tuple[str, int], ...]:
    """Return the absolute dotted names that a module imports, with their lines."""
    package = ["validator", *path.relative_to(ROOT).parent.parts]
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *(node.module.split(".") if node.module else [])])
            names += [(f"{module}.{alias.name}", node.lineno) for alias in node.names]
    return tuple(names)


def room_of(name: str) -> str:
    """Return the room of a dotted name of ours; a name of the package itself is `__init__`."""
    parts = name.split(".")
    if len(parts) < 2 or not ((ROOT / parts[1]).exists() or (ROOT / f"{parts[1]}.py").exists()):
        return "__init__"
    return parts[1]


@functools.cache
def importers() -> Mapping[Path, set[Path]]:
    """Return each module with the modules that import it."""
    places = {path: path.with_suffix("").relative_to(REPOSITORY).parts for path in modules()}
    by_name = {".".join(parts).removesuffix(".__init__"): path for path, parts in places.items()}
    found: dict[Path, set[Path]] = {path: set() for path in places}
    for path in places:
        for name, _ in imports_of(path):
            target = by_name.get(name) or by_name.get(name.rpartition(".")[0])
            if target is not None and target != path:
                found[target].add(path)
    return found


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def function_lengths() -> list[int]:
    """Return how many lines each function has, in order."""
    return sorted(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def loaded_by(arguments: Iterable[str]) -> int:
    """Return how many of our modules a command loads, whatever it answers."""
    program = (
        "import atexit, sys; names = sys.modules; atexit.register(lambda: print(sum(name.split('.')[0] =="
        " 'validator' and '_vendor' not in name for name in names), file=sys.stderr));"
        "sys.argv[0] = 'validator'; from validator.__main__ import main; main()"
    )
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    return int(done.stderr.splitlines()[-1])


def sizes() -> Iterator[str]:
    """Yield lines of Markdown with all sizes."""
    lines = {path: lines_of(path) for path in modules()}
    rooms: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for path, count in lines.items():
        inner = path.relative_to(ROOT).parts
        rooms[inner[0] if len(inner) > 1 else "(top)"] += count
        files[inner[0] if len(inner) > 1 else "(top)"] += 1
    yield "| room | files | lines |\n|---|---|---|"
    for room, count in rooms.most_common():
        yield f"| {room} | {files[room]} | {count:,} |"
    yield f"| all | {len(lines)} | {sum(lines.values()):,} |"
    small = [path for path, count in lines.items() if count < SMALL and path.name != "__init__.py"]
    single = [path for path in small if len(importers()[path]) == 1]
    lengths = function_lengths()
    tests = sum(map(lines_of, (REPOSITORY / "tests").rglob("*.py")))
    docs = sum(len(path.read_bytes()) for path in (REPOSITORY / "docs").rglob("*.md"))
    yield f"\n{len(small)} files have fewer than {SMALL} lines; {len(single)} of them have one importer."
    yield (
        f"A function has {sum(lengths) / len(lengths):.1f} lines; nine of ten have at most"
        f" {lengths[len(lengths) * 9 // 10]}."
    )
    yield f"tests/ has {tests:,} lines, {tests / sum(lines.values()):.2f} for each of the code."
    yield f"The pages in docs/ have {docs / 1000:.0f} KB."
    yield "\n| command | modules that it loads |\n|---|---|"
    for name, arguments in COMMANDS.items():
        yield f"| `{name}` | {loaded_by(arguments)} |"


def changed_files(revision: str | None = None) -> list[str]:
    """Return the files that differ from a revision, including those that Git does not track yet.

    revision: by default where this branch left origin/main, or else the last commit.
    """

    def git(*arguments: str) -> list[str]:
        done = subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True)
        return done.stdout.splitlines() if done.returncode == 0 else []

    revision = revision or next(iter(git("merge-base", "HEAD", "origin/main")), "HEAD")
    return sorted({*git("diff", "--name-only", revision), *git("ls-files", "--others", "--exclude-standard")})


def selected_tests(changed: Iterable[str], allowed: Mapping[str, set[str]]) -> list[str]:
    """Return the directories and files of tests for changed files.

    These are the tests of the rooms that changed, those of the rooms that may import them, the changed files
    of tests, and the tests of the documentation if it or a command changed. allowed: room -> what it may
    import.
    """
    touched, tests = set(), set()
    for name in changed:
        parts = Path(name).parts
        if parts[0] == "validator" and len(parts) > 1:
            touched.add(Path(parts[1]).stem)
        elif parts[0] == "tests" and name.endswith(".py"):
            own = parts[-1].startswith("test_")
            tests.add(name if own else str(Path(*parts[:2])) if len(parts) > 2 else "tests")
        if parts[0] == "docs" or name.endswith(".md") or parts[:2] == ("validator", "cli"):
            tests.add("tests/test_docs.py")
    rooms = touched | {room for room, others in allowed.items() if others & touched}
    tests |= {f"tests/{room}" for room in rooms} | {f"tests/test_{name}.py" for name in touched}
    if touched:
        tests.add("tests/test_layers.py")
    present = {name for name in tests if (REPOSITORY / name).exists()}
    return sorted(name for name in present if not any(str(above) in present for above in Path(name).parents))


def main() -> None:
    if sys.argv[1:2] == ["changed"]:
        from .test_layers import ALLOWED

        print(*selected_tests(changed_files(*sys.argv[2:3]), ALLOWED), sep="\n")
    else:
        print(*sizes(), sep="\n")


if __name__ == "__main__":
    main()
