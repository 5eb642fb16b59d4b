"""Make the table of the answers to the usual questions about machines, which the page reads without Python.

A question names a GPU, a driver, a system and a Python. The answers to thousands of them have most of their
parts in common: equal parts are written once, and the texts that name the GPU or the driver have marks in
their place. So GPUs of one compute capability share answers, and so do the releases of a driver branch.

Making the table takes minutes, so `scripts/compile-data --answers` does it for a release and for the nightly
page. It is only used if it was made from the facts and the code that are there. Without it, Python answers
every question, as it answers all that the table does not have.
"""

from __future__ import annotations

import datetime
import functools
import itertools
import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..compat import evidence, facts, hardware, known_issues
from ..compat.hardware import Branch, branch_of, branches
from ..compat.releases import driver_with, releases
from ..reports.page.answers import TABLE, digest, read_table
from ..reports.printable import clean, printable
from ..versions import DriverRelease, Version, leading_numbers
from .what_works import what_works

#: The systems that the page's form offers.
SYSTEMS = ("linux x86_64", "wsl2 x86_64", "windows x86_64", "macos x86_64", "linux aarch64", "linux jetson")
#: Marks in texts: the GPU's name, its part of a cell's name, the driver as a sentence names it, the driver,
#: the branch that the facts have for it, and the driver's own branch in a cell's name.
MARKS = GPU, LABEL, SAID, DRIVER, BRANCH, NUMBER = tuple(map(chr, range(0xE000, 0xE006)))
#: The oldest Python of the table, as of this project's images.
_OLDEST_PYTHON = (3, 9)
#: A release that is newer than all others of a branch.
_NEWEST = "9999.99"
#: The compute capabilities with which the releases of a branch are compared.
_PROBES = ("", "6.1", "8.9", "12.0")


@dataclass(frozen=True)
class Machine:
    """A GPU that stands for all others with the same answers. asked: how a person writes it."""

    asked: str
    label: str


def question(gpu: str, driver: str, system: str, python: str) -> dict[str, Any]:
    """Return a question as the page asks it where nothing was measured. system: one of SYSTEMS."""
    name, machine = system.split()
    return {
        "kind": "works", "gpu": gpu, "driver": driver, "system": name, "machine": machine, "python": python,
        "registry": None, "images": {}, "verdicts": {},
    }  # fmt: skip


def known_pythons() -> tuple[str, ...]:
    """Return the Pythons of the table; the first one is none in particular."""
    known = {python for release in releases() for python in release.pythons}
    return ("", *sorted((one for one in known if leading_numbers(one) >= _OLDEST_PYTHON), key=Version))


def known_drivers() -> tuple[str, ...]:
    """Return the drivers of the table: none in particular, each branch, and releases of those branches in
    which a release differs from its branch, because another release was measured.
    """
    measured = sorted({DriverRelease.parse(row["driver"]).branch for row in evidence.measurements()})
    return ("", *(str(one.number) for one in branches()), *(f"{number}.{_NEWEST}" for number in measured))


@functools.cache
def known_gpus() -> dict[str, hardware.Gpu]:
    """Return the GPUs whose names the table has, by the name in plain words: as `hardware.gpu` reads it."""
    names = [*hardware.gpu_names(), *(known.name for known in hardware.gpus())]
    words = [hardware.plain_words(name) for name in names]
    words += [word.partition(" ")[2] for word in words if word.startswith(("rtx ", "gtx "))]
    words += [f"{word}{suffix}" for word in words for suffix in (" ti", " super", " ti super", " d")]
    return {
        word: hardware.gpu(word)
        for word in words
        if word and hardware.plain_words(word) == word and hardware.is_known(word)
    }


def group(gpu: hardware.Gpu | str) -> str:
    """Return the name of the group of a GPU, or of a compute capability: all of it have the same answers.

    The rules use a GPU's capability, the architecture that it implies, and its model if that was measured or
    a condition names it. A capability alone does not tell the model.
    """
    capability = gpu if isinstance(gpu, str) else str(gpu.compute_capability)
    measured = {hardware.model_of(row["gpu"]): row["capability"] for row in evidence.measurements()}
    implied = {one.machine for one in hardware.gpus() if str(one.compute_capability) == capability}
    if isinstance(gpu, str):
        alone = implied != {None} or capability in measured.values()
        return f"{capability} alone" if alone else capability
    special = gpu.slug if gpu.slug in known_issues.named_gpus() or gpu.slug in measured else ""
    return " ".join(filter(None, (capability, gpu.machine, special)))


@functools.cache
def machines() -> dict[str, Machine]:
    """Return a GPU of each group by the group's name; the first one is none in particular."""
    found = {"": Machine("", "")}
    for gpu in known_gpus().values():
        found.setdefault(group(gpu), Machine(gpu.name, gpu.slug))
    for capability in capabilities():
        found.setdefault(group(capability), Machine(capability, f"sm{capability.replace('.', '')}"))
    return found


def capabilities() -> tuple[str, ...]:
    return tuple(map(str, sorted({one.compute_capability for one in hardware.gpus()})))


class Texts:
    """Puts marks into the texts of an answer about one machine."""

    def __init__(self, machine: Machine, driver: str) -> None:
        self._known: dict[str, str] = {}
        self._name = f"{machine.asked}, "
        self._said = f"driver {driver}" if driver else None
        if driver:
            number = driver.partition(".")[0]
            branch = branch_of(int(number))
            self._marks = (
                (re.compile(rf"(?<=^lifecycle-){branch.number if branch else number}$"), BRANCH),
                (re.compile(rf"@r{number}-{re.escape(machine.label)}$"), f"@r{NUMBER}-{LABEL}"),
                (re.compile(rf"(?<![\w.]){re.escape(driver)}(?!\.?\w)"), DRIVER),
                (re.compile(rf"\bR{branch.number if branch else number}(?!\.?\w)"), f"R{BRANCH}"),
            )

    def marked(self, text: str) -> str:
        """Return a text with marks."""
        found = self._known.get(text)
        if found is None:
            found = printable(text)
            for pattern, mark in self._marks if self._said else ():
                found = pattern.sub(mark, found)
            self._known[text] = found
        return found

    def machine(self, words: Sequence[str]) -> list[str]:
        """Return how a question was understood, with marks."""
        first = [GPU + word.removeprefix(self._name) for word in words if "compute capability" in word]
        return [*first, *(SAID if word == self._said else word for word in words[len(first) :])]


class Parts:
    """The parts of answers, each once. A part is a text, a number, a list or an object of other parts."""

    def __init__(self) -> None:
        self.texts: dict[Any, int] = {}
        self.kinds: dict[tuple[str, ...], int] = {}
        self.nodes: dict[tuple[int, ...], int] = {}

    def add(self, value: Any, texts: Texts) -> int:
        """Return the number of a part: of a text, or of a list or an object, which are below zero."""
        if isinstance(value, dict):
            words = {key: texts.machine(part) if key == "machine" else part for key, part in value.items()}
            kind = self.kinds.setdefault(tuple(words), len(self.kinds) + 1)
            return self._node((kind, *(self.add(part, texts) for part in words.values())))
        if isinstance(value, list | tuple):
            return self._node((0, *(self.add(part, texts) for part in value)))
        if isinstance(value, str):
            value = texts.marked(value)
        return self.texts.setdefault(value, len(self.texts))

    def _node(self, node: tuple[int, ...]) -> int:
        return -1 - self.nodes.setdefault(node, len(self.nodes))

    def packed(self) -> tuple[list[tuple[int, int, list[list[int]]]], dict[int, int]]:
        """Return the lists and objects in groups, and their new numbers by their old ones.

        A group has a kind, a size and the members as columns. A member is written as its difference from the
        one before it, which compresses to less than half of what the numbers themselves do.
        """
        alike: dict[tuple[int, int], list[int]] = {}
        for number, (kind, *members) in enumerate(self.nodes):
            alike.setdefault((kind, len(members)), []).append(number)
        new = {-1 - old: -1 - place for place, old in enumerate(itertools.chain(*alike.values()))}
        nodes = list(self.nodes)
        groups = []
        for (kind, _), numbers in alike.items():
            rows = [[new.get(member, member) for member in nodes[number][1:]] for number in numbers]
            columns = [
                [after - before for before, after in itertools.pairwise((0, *column))]
                for column in zip(*rows, strict=True)
            ]
            groups.append((kind, len(numbers), columns))
        return groups, new


def make_table(
    systems: Sequence[str] = SYSTEMS,
    groups: Sequence[str] | None = None,
    drivers: Sequence[str] | None = None,
    pythons: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Return the table as the page's script reads it. Each argument leaves the others out.

    words, capabilities: the name of a GPU, its part of a cell's name, and its group. until: the last month in
    which the answers are right. cuda, since: see the functions. kinds: the names of the members of each kind
    of object. nodes: the lists (kind 0) and objects, as in `Parts.packed`; a member is the number of a text,
    or of a list or an object, which is below zero. roots: the number of the answer for each system, group,
    driver and Python, in this order; 0 if the table does not have it.
    """
    by_name = machines()
    groups = list(by_name) if groups is None else groups
    drivers = list(known_drivers()) if drivers is None else drivers
    pythons = list(known_pythons()) if pythons is None else pythons
    parts, roots = Parts(), []
    for system, name, driver in itertools.product(systems, groups, drivers):
        texts = Texts(by_name[name], driver)
        for python in pythons:
            if system.endswith("jetson") and name and "jetson" not in name:
                roots.append(0)
                continue
            answer = what_works(question(by_name[name].asked, driver, system, python))
            roots.append(parts.add(answer, texts))
    nodes, new = parts.packed()
    return {
        "systems": systems,
        "groups": groups,
        "drivers": drivers,
        "pythons": pythons,
        "noise": [hardware.GLUED.pattern, hardware.NOISE.pattern],
        "words": {word: [gpu.name, gpu.slug, group(gpu)] for word, gpu in known_gpus().items()},
        "capabilities": {text: ["", f"sm{text.replace('.', '')}", group(text)] for text in capabilities()},
        "measured": [row["driver"] for row in evidence.measurements()],
        "until": last_month(datetime.date.today()),
        "cuda": cuda_versions(),
        "since": {
            "linux": since(drivers, "linux x86_64"),
            "windows": since(drivers, "wsl2 x86_64", "windows x86_64"),
        },
        "texts": list(parts.texts),
        "kinds": list(parts.kinds),
        "nodes": nodes,
        "roots": [new.get(root, 0) for root in roots],
    }


def last_month(today: datetime.date) -> str:
    """Return the month with which the next driver branch ends, as `2026-11`. Answers say which have ended."""
    month, known = f"{today:%Y-%m}", {branch.number for branch in branches()}
    rows = (row for row in facts.rows("drivers", "lifecycle") if row["branch"] in known and "by" not in row)
    return min(str(row["ends"]) for row in rows if row.get("ends", "") >= month)


def cuda_versions() -> dict[str, dict[str, int]]:
    """Return the branch of each CUDA version by the kind of system, if the version stands for the branch."""
    found: dict[str, dict[str, int]] = {}
    for kind, windows in (("linux", False), ("windows", True)):
        for branch in branches():
            driver = driver_with(branch.cuda, windows)
            if driver is not None and driver.is_branch:
                found.setdefault(kind, {})[str(branch.cuda)] = driver.branch
    return found


def since(drivers: Sequence[str], *systems: str) -> dict[int, str]:
    """Return the oldest release of each branch that has the same answers as the newest one.

    drivers: the branches, and other values, which are left out.

    A release is compared with the newest one at each release that the facts name, and at each number that
    drivers of Windows may have.
    """
    named = {
        DriverRelease.parse(text)
        for text in re.findall(r"\b[3-9]\d\d(?:\.\d{2,3}){1,2}\b", facts.COMPILED.read_text("utf-8"))
    }
    windows = not systems[0].startswith("linux")
    found = {}
    for branch in (branch for branch in branches() if str(branch.number) in drivers):
        numbers = [one for one in range(branch.number, branch.number + 6) if branch_of(one) == branch]
        numbers = numbers if windows else numbers[:1]
        points = {one for one in named if one.branch in numbers}
        points |= {DriverRelease.parse(f"{number}.0") for number in numbers}
        for point in sorted(points, reverse=True):
            if any(_differs(system, gpu, branch, point) for system in systems for gpu in _PROBES):
                break
            found[branch.number] = str(point)
    return found


def _differs(system: str, gpu: str, branch: Branch, release: DriverRelease) -> bool:
    """Return whether a release has another answer than the newest one of its branch."""
    wanted = clean(what_works(question(gpu, str(release), system, "")))
    filled = _answer_of_newest(system, gpu, branch)
    for mark, text in (
        (GPU, ""),
        (LABEL, f"sm{gpu.replace('.', '')}"),
        (SAID, f"driver {release}"),
        (DRIVER, str(release)),
        (BRANCH, str(branch.number)),
        (NUMBER, str(release.branch)),
    ):
        filled = filled.replace(mark, text)
    return filled != json.dumps(wanted, ensure_ascii=False)


@functools.cache
def _answer_of_newest(system: str, gpu: str, branch: Branch) -> str:
    """Return the answer for the newest release of a branch as JSON with marks."""
    driver = f"{branch.number}.{_NEWEST}"
    texts = Texts(Machine(gpu, f"sm{gpu.replace('.', '')}"), driver)
    answer = clean(what_works(question(gpu, driver, system, "")))

    def marked(value: Any) -> Any:
        if isinstance(value, str):
            return texts.marked(value)
        if isinstance(value, dict):
            return {key: marked(each) for key, each in value.items()}
        return [marked(each) for each in value] if isinstance(value, list) else value

    return json.dumps(marked({**answer, "machine": texts.machine(answer["machine"])}), ensure_ascii=False)


def main() -> None:
    """Write the table, unless it is current."""
    if read_table() is None:
        table = json.dumps(make_table(), separators=(",", ":"))
        written = TABLE.with_suffix(".new")
        written.write_bytes(digest().encode() + zlib.compress(table.encode(), 9))
        written.replace(TABLE)


if __name__ == "__main__":
    main()
