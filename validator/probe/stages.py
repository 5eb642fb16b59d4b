"""Run the checks of the stages in workers, and decide what the end of a worker means for its check.

A worker that dies or is killed is replaced by a fresh one for the checks that are left. Every worker leaves
at least one more result behind, so the loop ends. The stages run side by side: one loop reads the pipes of
all workers, within one time limit. In the `tensorflow` stage a worker imports TensorFlow first, before it is
told what to do: the import takes seconds, and `collect` finds the facts in the meantime.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Callable

from ..problems import LIMIT, problem, sentence, statement, summary
from . import child
from .check import CRASH, ERROR, FAIL, SKIP, TENSORFLOW, TIMEOUT, Check, Context, Result, skipped
from .child import LAST_LINES, LAST_WORDS_S, Capture, signal_group, tail
from .tensorflow_devices import telling_line
from .training import FULL_FLOAT32

#: The module that holds `CHECKS`. Not `__package__`, which the zip importer of Python 3.9 leaves unset.
REGISTRY = __name__.rpartition(".")[0] + ".checks"
#: Bytes of a stage's standard error kept for the report: the first and the last half.
LOG_BYTES = 128 * 1024
#: Seconds for TensorFlow to be imported; a first import from a cold disk, with nothing compiled, takes a
#: minute on two cores.
IMPORT_LIMIT_S = 300.0
#: Seconds for a worker to get from one check to the next, and to exit after the last.
BETWEEN_LIMIT_S = 30.0
#: Signals that no program sends to itself: the kernel without memory, a scheduler, a person.
_FROM_OUTSIDE = ("SIGKILL", "SIGTERM", "SIGINT")
#: The line before and after each check in the log (`child.section`).
_CHECK_MARK = re.compile(r"\[probe (?:begin|end): check \S+\]\n")
#: Characters of an exception's message that a problem quotes.
_MESSAGE = 300


class Progress:
    """Write a line for each check that ends. The skipped ones come last, one line for each reason."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self.write = write
        self._skipped: dict[str, list[str]] = {}

    def ended(self, check: Check, result: Result) -> None:
        """Say how a check ended, or keep that for `finish` if it was skipped."""
        if result.outcome != SKIP:
            self.write(f"{check.id}: {result.outcome}: {result.sentence}")
            return
        # Leave out the check that says more about the reason, so that equal reasons are reported together.
        stated = {name: value for name, value in (result.statement or {}).items() if name != "check"}
        reason = summary({"statement": stated, "problems": result.problems})
        self._skipped.setdefault(reason, []).append(check.id)

    def finish(self) -> None:
        """Say which checks were skipped, also if the run was cut short."""
        for reason, checks in self._skipped.items():
            which = f"{checks[0]}: skip" if len(checks) == 1 else f"{len(checks)} checks skipped"
            self.write(f"{which}: {reason}")


@dataclass
class Stage:
    """The checks of one stage, on their way through one worker after another.

    message: what a worker is told besides the ids of its checks; None until the facts are known.
    results: by the checks' ids, each with the seconds that it took.
    process: the worker that runs now. deadline: when its current step must be over (monotonic clock).
    """

    name: str
    checks: Sequence[Check]
    progress: Progress
    registry: str = REGISTRY
    environment: dict[str, str] | None = None
    import_limit_s: float = IMPORT_LIMIT_S
    message: dict[str, Any] | None = None
    results: dict[str, tuple[Result, float]] = field(default_factory=dict)
    log: Capture = field(default_factory=lambda: Capture(LOG_BYTES))
    process: subprocess.Popen[bytes] | None = None
    deadline: float = 0.0
    _current: Check | None = None
    _settled: dict[str, Any] | None = None
    _began: float = 0.0
    _ready: bool = False
    _told: bool = False
    _finished: bool = False
    _logged_before: int = 0
    _lines: child.Lines = field(default_factory=child.Lines)
    _events: int = -1
    _errors: int = -1
    _errors_open: bool = False

    @property
    def remaining(self) -> list[Check]:
        return [check for check in self.checks if check.id not in self.results]

    @property
    def _phase(self) -> str:
        """Return what the worker is doing, as a word of the vocabulary `phase`."""
        return "check" if self._current is not None else "start" if self._ready else "import"

    def start(self) -> None:
        """Start a worker for the remaining checks. Its standard output joins its standard error."""
        self._errors, errors = os.pipe()
        command = child.interpreter("stages", self.name, self.registry)
        self.process, self._events = child.started(command, errors, self.environment, subprocess.PIPE)
        os.close(errors)
        needs_import = self.name == TENSORFLOW
        self._ready, self._told, self._finished, self._current = not needs_import, False, False, None
        self.deadline = time.monotonic() + (self.import_limit_s if needs_import else BETWEEN_LIMIT_S)
        self._lines = child.Lines()
        self._errors_open = True
        self._logged_before = self.log.total
        self.tell()

    def tell(self) -> None:
        """Send the worker its message, as soon as that is known."""
        if self.process is None or self.message is None or self._told:
            return
        assert self.process.stdin is not None
        text = json.dumps({**self.message, "checks": [check.id for check in self.remaining]})
        self._told = True
        if self._ready:
            # The facts may have taken longer than a worker is given between two checks.
            self.deadline = time.monotonic() + BETWEEN_LIMIT_S
        # If it has died, that is handled when the other pipe ends.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(text.encode() + b"\n")
            self.process.stdin.close()

    @property
    def pipes(self) -> list[int]:
        return [self._events, self._errors] if self._errors_open else [self._events]

    def read(self, descriptor: int) -> None:
        """Read from a pipe. The end of the pipe for messages is the end of the worker."""
        data = os.read(descriptor, 65536)
        if descriptor == self._errors:
            self.log.add(data)
            self._errors_open = bool(data)
            return
        for message in self._lines.feed(data):
            self._take(message)
        if not data:
            self._ended()

    def _take(self, message: dict[str, Any]) -> None:
        now, event = time.monotonic(), message["event"]
        self.deadline = now + BETWEEN_LIMIT_S
        if event == child.IMPORTED:
            self._ready = True
            self.progress.write(f"TensorFlow imported in {message['duration_s']:.1f} s")
        elif event == child.IMPORT_FAILED:
            # Running the other checks would only repeat it.
            code, reason = "tensorflow_import_failed", "tensorflow_not_importable"
            if message["missing"]:
                code, reason = "tensorflow_missing", "tensorflow_not_installed"
            fault = problem(code, error=message["error"])
            self._give_up(Result(FAIL, None, [fault], {"traceback": message["traceback"]}), reason)
        elif event == child.BEGIN:
            self._current = next(check for check in self.checks if check.id == message["check"])
            self._began, self.deadline = now, now + self._current.limit_s
            self._settled = None
        elif event in (child.DOING, child.SETTLED) and self._current is not None:
            self.deadline = self._began + self._current.limit_s
            if event == child.DOING:
                self.progress.write(f"{self._current.id}: {sentence(message['statement'])}")
            else:
                self._settled = message
        elif event == child.END and self._current is not None:
            fields = {name: message[name] for name in ("outcome", "statement", "problems", "evidence")}
            self._record(self._current, Result(**fields), message["duration_s"])
            self._current = None
        elif event == child.DONE:
            self._finished = True

    def _record(self, check: Check, result: Result, duration_s: float = 0.0) -> None:
        self.results[check.id] = result, duration_s
        self.progress.ended(check, result)

    def _give_up(self, first: Result, reason: str) -> None:
        """Record a result for the first of the remaining checks, and skip the others for that reason."""
        told_by = self.remaining[0].id
        for number, check in enumerate(self.remaining):
            self._record(check, first if number == 0 else skipped(statement(reason, check=told_by)))

    def _ended(self) -> None:
        """Record what the worker's exit or death means for the check it was running."""
        status = self.close(BETWEEN_LIMIT_S if self._finished else LAST_WORDS_S)
        name = signal.Signals(-status).name if status < 0 else None
        ended = statement("process_exited", status=status, phase=self._phase)
        if name:
            ended = statement("process_killed", signal=name, phase=self._phase)
        self._blame(CRASH, ended, {"status": status, "signal": name})

    def overdue(self, own_limit_s: float | None = None) -> None:
        """Ask the worker where it hangs, kill its process group, and record a timeout.

        own_limit_s: the probe's own limit, if that and not the check's was reached. No check begins after it.
        """
        assert self.process is not None
        limit = self._current.limit_s if self._current else self.import_limit_s
        late = statement("not_done_in_time", limit_s=limit, phase=self._phase)
        if own_limit_s is not None:
            late = statement("time_limit_reached", limit_s=own_limit_s, phase=self._phase)
        signal_group(self.process.pid, signal.SIGABRT)
        self._drain(LAST_WORDS_S)
        self.close(LAST_WORDS_S)
        self._blame(TIMEOUT, late, {"limit_s": limit})
        if own_limit_s is not None:
            for check in self.remaining:
                self._record(check, Result(TIMEOUT, statement("not_begun")))

    def _blame(self, outcome: str, ended: dict[str, Any], evidence: dict[str, Any]) -> None:
        """Record the worker's end for the check that it was running, or had to run next."""
        if not self.remaining:
            return
        recent = self.log.recent(min(self.log.total - self._logged_before, LOG_BYTES // 2))
        # The two pipes may be read in any order, so only the log itself says where the check began.
        recent = _CHECK_MARK.split(recent)[-1]
        evidence["last_lines"] = tail(recent, lines=LAST_LINES).splitlines()
        result = Result(outcome, ended, [], evidence)
        if self._current is not None:
            settled = self._settled
            if settled is not None:
                # The check ended in full float32. A crash there is a limit. A timeout, or a signal that only
                # other processes send, is not: it means that full float32 was not measured.
                remark = {**settled["limit"], "severity": LIMIT, "error": result.sentence}
                if outcome == TIMEOUT or evidence.get("signal") in _FROM_OUTSIDE:
                    remark = problem("full_float32_not_measured", error=result.sentence)
                seen = {**settled["evidence"], FULL_FLOAT32: {"error": result.sentence, **evidence}}
                problems = [*settled["problems"], remark]
                result = Result(settled["outcome"], settled["statement"], problems, seen)
            self._record(self._current, result, time.monotonic() - self._began)
        elif self._ready:
            self._record(self.remaining[0], result)
        else:
            # A process that died during the import would die there again.
            self._give_up(result, "tensorflow_not_importable")

    def _drain(self, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._errors, selectors.EVENT_READ)
            while selector.select(max(0.0, deadline - time.monotonic())):
                data = os.read(self._errors, 65536)
                self.log.add(data)
                if not data:
                    return

    def close(self, limit_s: float) -> int:
        """Kill the whole group (a check may have left children) and return the worker's status.

        limit_s: seconds for the worker to end by itself before that.
        """
        assert self.process is not None and self.process.stdin is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=limit_s)
        signal_group(self.process.pid, signal.SIGKILL)
        status = self.process.wait()
        self._drain(0.0)
        for descriptor in (self._events, self._errors):
            os.close(descriptor)
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process = None
        return status


def run(stages: Sequence[Stage], collect: Callable[[], dict[str, Any]], limit_s: float) -> None:
    """Run the stages side by side.

    collect: returns the message for the workers. It runs while the first workers start.
    limit_s: seconds after which every check without a result is recorded as `timeout`.
    """
    end = time.monotonic() + limit_s
    stages = [stage for stage in stages if stage.checks]
    try:
        for stage in stages:
            stage.start()
        message = collect()
        for stage in stages:
            stage.message = message
            stage.tell()
        while running := [stage for stage in stages if stage.process]:
            with selectors.DefaultSelector() as selector:
                for stage in running:
                    for descriptor in stage.pipes:
                        selector.register(descriptor, selectors.EVENT_READ, stage)
                soonest = min([end, *(stage.deadline for stage in running)])
                for key, _ in selector.select(max(0.0, soonest - time.monotonic())):
                    # A stage's other pipe may have ended it in this same turn.
                    if key.data.process:
                        key.data.read(key.fd)
            now = time.monotonic()
            for stage in stages:
                if stage.process and now >= min(end, stage.deadline):
                    stage.overdue(own_limit_s=limit_s if now >= end else None)
            for stage in stages:
                if not stage.process and stage.remaining:
                    stage.start()
    finally:
        for stage in stages:
            if stage.process is not None:
                stage.close(0.0)


# In the worker.


def main(descriptor: int, stage: str, registry: str) -> None:
    """Run the checks of a stage and exit. registry: the module that holds `CHECKS`."""
    child.prepare(descriptor)
    tell = functools.partial(child.send, descriptor)
    module, start = None, time.monotonic()
    if stage == TENSORFLOW:
        try:
            module = child.load_tensorflow()
        except BaseException as error:  # an import may raise anything, SystemExit included
            missing = isinstance(error, ModuleNotFoundError) and error.name == "tensorflow"
            lines, told = traceback.format_exc().splitlines()[-30:], tail(f"{type(error).__name__}: {error}")
            tell(child.IMPORT_FAILED, missing=missing, error=told, traceback=lines)
            os._exit(0)
        tell(child.IMPORTED, duration_s=time.monotonic() - start)
    message = json.loads(sys.stdin.readline())
    checks = {check.id: check for check in importlib.import_module(registry).CHECKS}
    context = Context(message["facts"], message["lock"], module, tuple(message["added"]), tell)
    for identifier in message["checks"]:
        tell(child.BEGIN, check=identifier)
        start = time.monotonic()
        with child.section(f"check {identifier}"):
            result = answer(checks[identifier], context)
        tell(child.END, check=identifier, **result.fields(), duration_s=time.monotonic() - start)
    tell(child.DONE)
    child.leave()


def answer(check: Check, context: Context) -> Result:
    """Return the check's result. An exception that TensorFlow raised is a failure, any other an error."""
    reason = check.unmet(context)
    if reason is not None:
        return skipped(reason)
    try:
        return check.run(context)
    except Exception as error:  # whatever a check raises must not affect the others
        fields = {"exception": type(error).__name__, "message": telling_line(error)[:_MESSAGE]}
        evidence = {"traceback": traceback.format_exc().splitlines()[-30:]}
        # A check of the user's own imports TensorFlow itself.
        tensorflow = context.tensorflow or sys.modules.get("tensorflow")
        if child.from_tensorflow(error, tensorflow):
            return Result(FAIL, None, [problem("tensorflow_raised", **fields)], evidence)
        return Result(ERROR, statement("check_raised", **fields), [], evidence)
