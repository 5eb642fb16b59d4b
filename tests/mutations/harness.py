"""Give mutated inputs to the program, and find those that don't end as documented.

Input number n of a kind follows from the seed alone, so that a run can go on where another one stopped, and a
failure can be made again. Inputs are read in batches, each in a child that is a copy of this process: nothing
is loaded twice, and an input that kills its process, takes too much memory or never ends costs one batch.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import random
import resource
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from .mutators import reduced
from .targets import DOCUMENTED, ROOT, TARGETS, Target

#: Seconds of the processor that an input may take, and seconds without progress after which a child is ended.
LONGEST_S, STUCK_S = 5.0, 90.0
#: Bytes of memory that a batch may need more than it had at its start, and what the system gives at all.
MOST_MEMORY, _ADDRESSES = 400 << 20, 3 << 30
#: A batch ends after so many seconds. The kinds take turns, so that they share the time equally.
_BATCH_S = 2.0
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
    most_memory: int = 0
    failures: dict[str, str] = field(default_factory=dict)

    def add(self, kind: str, batch: dict[str, Any]) -> None:
        self.inputs[kind] += batch["inputs"]
        self.refused[kind] += batch["refused"]
        self.commands += batch["commands"]
        self.slowest_s = max(self.slowest_s, batch["slowest_s"])
        self.most_memory = max(self.most_memory, batch["memory"])
        self.failures |= batch["failures"]

    def text(self) -> str:
        total = self.inputs.total()
        kinds = ", ".join(
            f"{kind} {count} ({self.refused[kind]} refused)" for kind, count in sorted(self.inputs.items())
        )
        return (
            f"{total} inputs in {self.seconds:.0f} s ({total / max(self.seconds, 0.001):.0f} per second),"
            f" {self.commands} through the command line; the slowest took {self.slowest_s:.2f} s, the largest"
            f" batch {self.most_memory >> 20} MB; {kinds}; {len(self.failures)} failures"
        )


@dataclass
class Harness:
    """A run. failures: where each failure is written, with its input.

    every: of the inputs that the command line can read, one of so many goes through it as well; 0 for none.
    """

    seed: int
    failures: Path
    every: int = 0
    kinds: tuple[str, ...] = tuple(TARGETS)
    summary: Summary = field(default_factory=Summary)

    def run(self, first: dict[str, int], count: int, most_s: float) -> dict[str, int]:
        """Run up to so many inputs of each kind, from these numbers. Return the numbers of the next ones."""
        began = time.monotonic()
        following = {kind: first.get(kind, 0) for kind in self.kinds}
        last = {kind: number + count for kind, number in following.items()}
        for kind in itertools.cycle(self.kinds):
            if following == last or time.monotonic() - began >= most_s:
                break
            if following[kind] < last[kind]:
                following[kind] = self._batch(kind, following[kind], last[kind])
        self.summary.seconds += time.monotonic() - began
        return following

    def _batch(self, kind: str, first: int, last: int) -> int:
        """Run a batch in a child, and return the number of the next input."""
        receiving, sending = os.pipe()
        progress = mmap.mmap(-1, 16)
        place = Path(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
        TARGETS[kind].input(random.Random(0))  # What the seeds need is loaded once, here.
        child = os.fork()
        if child == 0:
            try:
                os.close(receiving)
                batch = _Child(self, kind, progress, place).run(first, last)
                os.write(sending, json.dumps(batch).encode())
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(sending)
        seen = b""
        while not (ended := select.select([receiving], [], [], STUCK_S)[0]) and seen != progress[:]:
            seen = progress[:]
        if not ended:
            os.kill(child, signal.SIGKILL)
        with os.fdopen(receiving, "rb") as answer:
            data = answer.read()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        shutil.rmtree(place)
        if data:
            batch = json.loads(data)
            self.summary.add(kind, batch)
            return int(batch["next"])
        number = int.from_bytes(progress[:8], "little")
        problem = f"{kind}: it does not end" if not ended else f"{kind}: the process ends with {status}"
        given = TARGETS[kind].input(random.Random(f"{self.seed}:{kind}:{number}"))
        self._report(f"{kind}-{number}", TARGETS[kind], given, problem, "")
        self.summary.failures[problem] = f"{kind}-{number}"
        self.summary.inputs[kind] += number + 1 - first
        return number + 1

    def _report(self, name: str, target: Target, data: bytes, problem: str, details: str) -> None:
        self.failures.mkdir(parents=True, exist_ok=True)
        (self.failures / f"{name}{target.suffix}").write_bytes(data)
        (self.failures / f"{name}.why.txt").write_text(f"{problem}\n\n{details}", errors="backslashreplace")


class _Child:
    """A batch, in its process. progress: the number of the input, and of its commands, for the parent."""

    def __init__(self, harness: Harness, kind: str, progress: mmap.mmap, place: Path) -> None:
        self._harness, self._kind, self._progress, self._place = harness, kind, progress, place
        self._target = TARGETS[kind]
        self._refused, self._commands, self._slowest_s = 0, 0, 0.0
        self._failures: dict[str, str] = {}

    def run(self, first: int, last: int) -> dict[str, Any]:
        # The process that forked this one may have more already.
        most = _addresses() + _ADDRESSES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        signal.signal(signal.SIGPROF, _stop)
        warnings.simplefilter("ignore")
        before, ends = _peak(), time.monotonic() + _BATCH_S
        number = first
        while number < last and time.monotonic() < ends and _peak() - before <= MOST_MEMORY:
            self._progress[:8] = number.to_bytes(8, "little")
            self._one(number, before)
            number += 1
        return {
            "next": number, "inputs": number - first, "refused": self._refused, "commands": self._commands,
            "slowest_s": self._slowest_s, "memory": _peak() - before, "failures": self._failures,
        }  # fmt: skip

    def _one(self, number: int, memory: int) -> None:
        seed, kind = self._harness.seed, self._kind
        data = self._target.input(random.Random(f"{seed}:{kind}:{number}"))
        started = time.process_time()
        problem = self._problem(data)
        self._slowest_s = max(self._slowest_s, time.process_time() - started)
        if (most := _peak() - memory) > MOST_MEMORY:
            problem = (f"{kind}: it takes too much memory", f"{most} bytes")
        if problem is not None and problem[0] not in self._harness.summary.failures | self._failures:
            if problem[0].startswith(("it takes", kind)):
                small = data  # Each attempt would take as long.
            else:
                small = reduced(data, lambda shorter: (self._problem(shorter) or ("",))[0] == problem[0])
            self._report(number, small, *problem)
        every = self._harness.every
        if self._target.commands and every and number % every == 0:
            self._through_the_command_line(number, data)

    def _problem(self, data: bytes) -> tuple[str, str] | None:
        """Return what is wrong with how the program ends, and the details; None if nothing is."""
        signal.setitimer(signal.ITIMER_PROF, LONGEST_S)
        try:
            self._target.read(data, self._place)
        except DOCUMENTED as error:
            self._refused += 1
            if len(str(error)) > 20_000:
                return f"a message of {len(str(error))} characters", str(error)[:500]
        except TooLong:
            return f"it takes too long ({self._kind})", "".join(traceback.format_exc())
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

    def _through_the_command_line(self, number: int, data: bytes) -> None:
        path = self._place / f"{number}{self._target.suffix}"
        path.write_bytes(data)
        for command in self._target.commands:
            words = [word.replace("{}", str(path)) for word in shlex.split(command)]
            self._commands += 1
            self._progress[8:] = self._commands.to_bytes(8, "little")
            try:
                done = subprocess.run(
                    [sys.executable, "-m", "validator", *words],
                    cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                self._report(number, data, f"{command}: it does not end", "")
                continue
            if done.returncode not in _EXIT_CODES or b"Traceback" in done.stderr:
                said = done.stderr.decode(errors="replace")
                self._report(number, data, f"{command}: exit {done.returncode}", said)

    def _report(self, number: int, data: bytes, problem: str, details: str) -> None:
        self._failures[problem] = f"{self._kind}-{number}"
        self._harness._report(f"{self._kind}-{number}", self._target, data, problem, details)


def _stop(_: int, __: FrameType | None) -> None:
    raise TooLong


def _addresses() -> int:
    """Return how many bytes of addresses this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def next_of(state: Path, seed: int) -> dict[str, int]:
    """Return for each kind the number of the first input that no earlier run with this seed has run."""
    if not state.exists():
        return {}
    numbers: dict[str, dict[str, int]] = json.loads(state.read_text())
    return numbers.get(str(seed), {})


def remember(state: Path, seed: int, numbers: dict[str, int]) -> None:
    """Write down the numbers of the next inputs."""
    before = json.loads(state.read_text()) if state.exists() else {}
    partial = state.with_name(f"{state.name}.{os.getpid()}")
    partial.write_text(json.dumps(before | {str(seed): before.get(str(seed), {}) | numbers}))
    partial.replace(state)
