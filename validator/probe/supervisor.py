"""Run the stages and their workers in turn, and decide what the end of a worker means for its check.

A worker that dies or is killed is replaced by a fresh one for the checks that are left. Every worker leaves
at least one more result behind, so the loop ends. The stages run side by side: one loop reads the pipes of
all workers, within one time limit.
"""

import json
import os
import re
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Sequence

from ..problems import LIMIT, problem, sentence, statement
from . import pipes
from .check import CRASH, FAIL, TENSORFLOW, TIMEOUT, Check, Result, skipped
from .comparison import FULL_FLOAT32
from .pipes import Capture, tail
from .progress import Progress
from .worker import command

#: The module that holds `CHECKS`. Not `__package__`, which the zip importer of Python 3.9 leaves unset.
REGISTRY = __name__.rpartition(".")[0] + ".checks"
#: Bytes of a stage's standard error kept for the report: the first and the last half.
LOG_BYTES = 128 * 1024
#: Seconds for TensorFlow to be imported; a first import from a cold disk, with nothing compiled, takes a
#: minute on two cores.
IMPORT_LIMIT_S = 300.0
#: Seconds for a worker to get from one check to the next, and to exit after the last.
BETWEEN_LIMIT_S = 30.0
#: Seconds that a hanging process has to report where it hangs (faulthandler, on SIGABRT) before it is killed.
_LAST_WORDS_S = 2.0
_LAST_LINES = 30
#: Signals that no program sends to itself: the kernel without memory, a scheduler, a person.
_FROM_OUTSIDE = ("SIGKILL", "SIGTERM", "SIGINT")
#: The line before and after each check in the log (`pipes.section`).
_CHECK_MARK = re.compile(r"\[probe (?:begin|end): check \S+\]\n")


@dataclass
class Entry:
    """A check's result with the seconds it took."""

    result: Result
    duration_s: float


@dataclass
class Stage:
    """The checks of one stage, on their way through one worker after another.

    message: what a worker is told besides the ids of its checks; None until the facts are known.
    """

    name: str
    checks: Sequence[Check]
    progress: Progress
    registry: str = REGISTRY
    environment: Optional[Dict[str, str]] = None
    import_limit_s: float = IMPORT_LIMIT_S
    message: Optional[Dict[str, Any]] = None
    results: Dict[str, Entry] = field(default_factory=dict)
    log: Capture = field(default_factory=lambda: Capture(LOG_BYTES))
    process: Optional["subprocess.Popen[bytes]"] = None
    _current: Optional[Check] = None
    _settled: Optional[Dict[str, Any]] = None
    _began: float = 0.0
    _deadline: float = 0.0
    _ready: bool = False
    _told: bool = False
    _finished: bool = False
    _logged_before: int = 0
    _lines: pipes.Lines = field(default_factory=pipes.Lines)
    _events: int = -1
    _errors: int = -1
    _errors_open: bool = False

    @property
    def remaining(self) -> List[Check]:
        """Return the checks without a result."""
        return [check for check in self.checks if check.id not in self.results]

    @property
    def running(self) -> bool:
        """Return whether a worker is running."""
        return self.process is not None

    @property
    def deadline(self) -> float:
        """Return when the current step must be over (monotonic clock)."""
        return self._deadline

    @property
    def _phase(self) -> str:
        """Return what the worker is doing, as a word of the vocabulary `phase`."""
        return "check" if self._current is not None else "start" if self._ready else "import"

    def start(self) -> None:
        """Start a worker for the remaining checks. Its standard output joins its standard error."""
        self._events, events = os.pipe()
        self._errors, errors = os.pipe()
        self.process = subprocess.Popen(
            command(self.name, events, self.registry),
            stdin=subprocess.PIPE,
            stdout=errors,
            stderr=errors,
            pass_fds=(events,),
            start_new_session=True,
            env=self.environment,
        )
        os.close(events)
        os.close(errors)
        needs_import = self.name == TENSORFLOW
        self._ready, self._told, self._finished, self._current = not needs_import, False, False, None
        self._deadline = time.monotonic() + (self.import_limit_s if needs_import else BETWEEN_LIMIT_S)
        self._lines = pipes.Lines()
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
            self._deadline = time.monotonic() + BETWEEN_LIMIT_S
        try:
            self.process.stdin.write(text.encode() + b"\n")
            self.process.stdin.close()
        except BrokenPipeError:
            # It has died. `_ended` handles that, when the other pipe ends.
            return

    def register(self, selector: selectors.BaseSelector) -> None:
        """Listen to the worker."""
        selector.register(self._events, selectors.EVENT_READ, self)
        if self._errors_open:
            selector.register(self._errors, selectors.EVENT_READ, self)

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

    def _take(self, message: Dict[str, Any]) -> None:
        now, event = time.monotonic(), message["event"]
        self._deadline = now + BETWEEN_LIMIT_S
        if event == pipes.IMPORTED:
            self._ready = True
            self.progress.imported(message["duration_s"])
        elif event == pipes.IMPORT_FAILED:
            self._import_failed(message)
        elif event == pipes.BEGIN:
            self._current = next(check for check in self.checks if check.id == message["check"])
            self._began, self._deadline = now, now + self._current.limit_s
            self._settled = None
        elif event in (pipes.DOING, pipes.SETTLED) and self._current is not None:
            self._deadline = self._began + self._current.limit_s
            if event == pipes.DOING:
                self.progress.doing(self._current, message["statement"])
            else:
                self._settled = message
        elif event == pipes.END and self._current is not None:
            fields = {name: message[name] for name in ("outcome", "statement", "problems", "evidence")}
            result = Result(**fields)
            self._record(self._current, result, message["duration_s"])
            self._current = None
        elif event == pipes.DONE:
            self._finished = True

    def _record(self, check: Check, result: Result, duration_s: float) -> None:
        self.results[check.id] = Entry(result, duration_s)
        self.progress.ended(check, result)

    def _import_failed(self, message: Dict[str, Any]) -> None:
        """Record the failed import for the first check; running the others would only repeat it."""
        missing = message["missing"]
        fault = problem(
            "tensorflow_missing" if missing else "tensorflow_import_failed", error=message["error"]
        )
        self._give_up(
            Result(FAIL, None, [fault], {"traceback": message["traceback"]}),
            "tensorflow_not_installed" if missing else "tensorflow_not_importable",
        )

    def _give_up(self, first: Result, reason: str) -> None:
        """Record a result for the first of the remaining checks, and skip the others for that reason."""
        told_by = self.remaining[0].id
        for number, check in enumerate(self.remaining):
            self._record(check, first if number == 0 else skipped(statement(reason, check=told_by)), 0.0)

    def drop_waiting(self) -> None:
        """Record `timeout` for every check without a result: no time is left."""
        for check in self.remaining:
            self._record(check, Result(TIMEOUT, statement("not_begun")), 0.0)

    def _ended(self) -> None:
        """Record what the worker's exit or death means for the check it was running."""
        status = self._wait()
        self._close()
        name = _signal_name(status)
        if name:
            ended = statement("process_killed", signal=name, phase=self._phase)
        else:
            ended = statement("process_exited", status=status, phase=self._phase)
        if self.remaining:
            self._blame(CRASH, ended, {"status": status, "signal": name})

    def overdue(self, own_limit_s: Optional[float] = None) -> None:
        """Ask the worker where it hangs, kill its process group, and record a timeout.

        own_limit_s: the probe's own limit, if that and not the check's was reached.
        """
        assert self.process is not None
        limit = self._current.limit_s if self._current else self.import_limit_s
        late = statement("not_done_in_time", limit_s=limit, phase=self._phase)
        if own_limit_s is not None:
            late = statement("time_limit_reached", limit_s=own_limit_s, phase=self._phase)
        _signal_group(self.process, signal.SIGABRT)
        self._drain(_LAST_WORDS_S)
        self._wait()
        self._close()
        if self.remaining:
            self._blame(TIMEOUT, late, {"limit_s": limit})

    def _blame(self, outcome: str, ended: Dict[str, Any], evidence: Dict[str, Any]) -> None:
        """Record the worker's end for the check that it was running, or had to run next."""
        recent = self.log.recent(min(self.log.total - self._logged_before, LOG_BYTES // 2))
        # The two pipes may be read in any order, so only the log itself says where the check began.
        recent = _CHECK_MARK.split(recent)[-1]
        evidence["last_lines"] = tail(recent, lines=_LAST_LINES).splitlines()
        result = Result(outcome, ended, [], evidence)
        if self._current is not None and self._settled is not None:
            result = _limited(self._settled, outcome, ended, evidence)
        if self._current is not None:
            self._record(self._current, result, time.monotonic() - self._began)
        elif self._ready:
            self._record(self.remaining[0], result, 0.0)
        else:
            # A process that died during the import would die there again.
            self._give_up(result, "tensorflow_not_importable")

    def _wait(self) -> int:
        """Kill the whole group (a check may have left children) and return the worker's status."""
        assert self.process is not None
        try:
            status = self.process.wait(timeout=BETWEEN_LIMIT_S if self._finished else _LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            status = None
        _signal_group(self.process, signal.SIGKILL)
        return self.process.wait() if status is None else status

    def _drain(self, limit_s: float) -> None:
        """Read standard error until it ends or the time is up."""
        deadline = time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._errors, selectors.EVENT_READ)
            while selector.select(max(0.0, deadline - time.monotonic())):
                data = os.read(self._errors, 65536)
                self.log.add(data)
                if not data:
                    return

    def _close(self) -> None:
        assert self.process is not None
        self._drain(0.0)
        for descriptor in (self._events, self._errors):
            os.close(descriptor)
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()
        self.process = None

    def kill(self) -> None:
        """Kill the worker at once; its checks stay without a result."""
        if self.process is not None:
            _signal_group(self.process, signal.SIGKILL)
            self.process.wait()
            self._close()


def _limited(settled: Dict[str, Any], outcome: str, ended: Dict[str, Any], seen: Dict[str, Any]) -> Result:
    """Return the result that a check had settled before its process ended in full float32.

    A crash there is a limit. A time limit, or a signal that only other processes send, is none: it says that
    full float32 was not measured.
    """
    error = sentence(ended)
    if outcome == TIMEOUT or seen.get("signal") in _FROM_OUTSIDE:
        remark = problem("full_float32_not_measured", error=error)
    else:
        remark = {**settled["limit"], "severity": LIMIT, "error": error}
    evidence = {**settled["evidence"], FULL_FLOAT32: {"error": error, **seen}}
    return Result(settled["outcome"], settled["statement"], [*settled["problems"], remark], evidence)


def _signal_group(process: "subprocess.Popen[bytes]", number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return


def _signal_name(status: int) -> Optional[str]:
    return signal.Signals(-status).name if status < 0 else None


def run(stages: Sequence[Stage], collect: Callable[[], Dict[str, Any]], limit_s: float) -> None:
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
        while any(stage.running for stage in stages):
            _turn(stages, end, limit_s)
    finally:
        for stage in stages:
            stage.kill()


def _turn(stages: Sequence[Stage], end: float, limit_s: float) -> None:
    with selectors.DefaultSelector() as selector:
        for stage in (stage for stage in stages if stage.running):
            stage.register(selector)
        soonest = min([end, *(stage.deadline for stage in stages if stage.running)])
        for key, _ in selector.select(max(0.0, soonest - time.monotonic())):
            # A stage's other pipe may have ended it in this same turn.
            if key.data.running:
                key.data.read(key.fd)
    now = time.monotonic()
    for stage in (stage for stage in stages if stage.running):
        if now >= end:
            stage.overdue(own_limit_s=limit_s)
            stage.drop_waiting()
        elif now >= stage.deadline:
            stage.overdue()
    for stage in (stage for stage in stages if not stage.running and stage.remaining):
        stage.start()
