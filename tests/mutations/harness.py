"""Give mutated inputs to the program, and find those that don't end as documented.

Input number n of a kind follows from the seed alone, so that a run can go on where another one stopped, and a
failure can be made again.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from .mutators import reduced
from .targets import DOCUMENTED, ROOT, TARGETS, Target

#: Seconds of the processor that one input may take.
LONGEST_S = 5.0
_EXIT_CODES = (0, 1, 2, 3)


class TooLong(BaseException):
    """An input took more than `LONGEST_S`. Not an Exception, which the program might catch."""


@dataclass
class Summary:
    """The result of a run. inputs, refused: by kind. failures: a line for each different one."""

    inputs: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    commands: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    failures: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        total = self.inputs.total()
        kinds = ", ".join(
            f"{kind} {count} ({self.refused[kind]} refused)" for kind, count in sorted(self.inputs.items())
        )
        return (
            f"{total} inputs in {self.seconds:.0f} s ({total / max(self.seconds, 0.001):.0f} per second),"
            f" {self.commands} through the command line; the slowest took {self.slowest_s:.2f} s; {kinds};"
            f" {len(self.failures)} failures"
        )


@dataclass
class Harness:
    """A run. first: the number of the first input. failures: where each failure is written, with its input.

    every: of the inputs that the command line can read, one of so many goes through it as well; 0 for none.
    """

    seed: int
    failures: Path
    every: int = 0
    kinds: tuple[str, ...] = tuple(TARGETS)
    summary: Summary = field(default_factory=Summary)

    def run(self, first: int, count: int, most_s: float) -> int:
        """Run inputs, and return the number of the next one."""
        began = time.monotonic()
        schedule = [kind for kind in self.kinds for _ in range(TARGETS[kind].share)]
        number = first
        with _limited(), tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            while number < first + count and time.monotonic() - began < most_s:
                kind = schedule[number % len(schedule)]
                self._one(kind, number, Path(place))
                number += 1
        self.summary.seconds += time.monotonic() - began
        return number

    def _one(self, kind: str, number: int, place: Path) -> None:
        target = TARGETS[kind]
        data = target.input(random.Random(f"{self.seed}:{kind}:{number}"))
        self.summary.inputs[kind] += 1
        before = time.process_time()
        problem = self._problem(target, data, place)
        self.summary.slowest_s = max(self.summary.slowest_s, time.process_time() - before)
        if problem is not None and problem[0] not in self.summary.failures:
            small = reduced(
                data, lambda shorter: (self._problem(target, shorter, place) or ("",))[0] == problem[0]
            )
            self._report(f"{kind}-{number}", target, small, *problem)
        chosen = random.Random(f"{self.seed}:{number}")
        if target.commands and self.every and chosen.randrange(self.every) == 0:
            self._through_the_command_line(kind, target, number, data, place)

    def _problem(self, target: Target, data: bytes, place: Path) -> tuple[str, str] | None:
        """Return what is wrong with how the program ends, and the details; None if nothing is."""
        signal.setitimer(signal.ITIMER_PROF, LONGEST_S)
        try:
            target.read(data, place)
        except DOCUMENTED as error:
            self.summary.refused[next(kind for kind, each in TARGETS.items() if each is target)] += 1
            if len(str(error)) > 20_000:
                return f"a message of {len(str(error))} characters", str(error)[:500]
        except TooLong:
            return "it takes too long", "".join(traceback.format_exc())
        except Exception as error:
            signal.setitimer(signal.ITIMER_PROF, 0)
            frame = traceback.extract_tb(error.__traceback__)[-1]
            return (
                f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}",
                traceback.format_exc(),
            )
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        return None

    def _through_the_command_line(
        self, kind: str, target: Target, number: int, data: bytes, place: Path
    ) -> None:
        path = place / f"{number}{target.suffix}"
        path.write_bytes(data)
        for command in target.commands:
            words = [word.replace("{}", str(path)) for word in shlex.split(command)]
            self.summary.commands += 1
            try:
                done = subprocess.run(
                    [sys.executable, "-m", "validator", *words],
                    cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, timeout=120,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                self._report(f"{kind}-{number}", target, data, f"{command}: it does not end", "")
                continue
            if done.returncode not in _EXIT_CODES or b"Traceback" in done.stderr:
                said = done.stderr.decode(errors="replace")
                self._report(f"{kind}-{number}", target, data, f"{command}: exit {done.returncode}", said)

    def _report(self, name: str, target: Target, data: bytes, problem: str, details: str) -> None:
        self.summary.failures[problem] = name
        self.failures.mkdir(parents=True, exist_ok=True)
        (self.failures / f"{name}{target.suffix}").write_bytes(data)
        (self.failures / f"{name}.why.txt").write_text(f"{problem}\n\n{details}", errors="backslashreplace")


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def stop(_: int, __: FrameType | None) -> None:
        raise TooLong

    before = signal.signal(signal.SIGPROF, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGPROF, before)


def next_of(state: Path, seed: int) -> int:
    """Return the number of the first input that no earlier run with this seed and state has run."""
    if not state.exists():
        return 0
    numbers: dict[str, int] = json.loads(state.read_text())
    return numbers.get(str(seed), 0)


def remember(state: Path, seed: int, number: int) -> None:
    """Write down the number of the next input."""
    numbers = json.loads(state.read_text()) if state.exists() else {}
    partial = state.with_name(f"{state.name}.{os.getpid()}")
    partial.write_text(json.dumps(numbers | {str(seed): number}))
    partial.replace(state)
