"""The hooks of pytest that fail tests where TensorFlow doesn't use a GPU.

TensorFlow is asked once for a run of pytest, before the first test, in a child process: this process may not
want TensorFlow at all, and a TensorFlow that has initialized CUDA can't be asked under other settings. The
workers of pytest-xdist on one machine share the answer, because several children at a time would compete for
the memory of the GPU.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ..model.diagnosis import Diagnosis

MARKER = "requires_gpu"
#: The key of the file for the answer in a worker's input, and of the answer in its output.
_KEY = "validator_gpu"
_TITLE = "TensorFlow doesn't use a GPU"
#: Marks the tests that were failed here.
_FAILED = pytest.StashKey[bool]()


@dataclass(frozen=True)
class Answer:
    """The answer to whether TensorFlow uses a GPU.

    failure: the message of a test that needs one, in a few lines; empty if TensorFlow uses a GPU.
    explanation: what `doctor` prints, with styles for a terminal.
    """

    failure: str = ""
    explanation: str = ""


class GpuRequirement:
    """The hooks. Without a test that needs a GPU, they do nothing.

    every_test: whether every test needs one, or only those with the marker.
    """

    def __init__(self, *, every_test: bool) -> None:
        self._every_test = every_test
        self._answers: set[Answer] = set()
        #: Holds the answer that the workers of this controller share.
        self._directory: Path | None = None

    def pytest_report_header(self) -> str | None:
        return "require-gpu: asks TensorFlow for its GPU before the first test" if self._every_test else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Ask TensorFlow, if a test needs that, before a test of any worker takes memory of the GPU.

        The controller of pytest-xdist has no tests. Without that, it would ask on the wrong machine.
        """
        options = session.config.option
        if options.collectonly or (session.testsfailed and not options.continue_on_collection_errors):
            return
        if any(self._concerns(item) for item in getattr(session, "items", ())):
            worker = getattr(session.config, "workerinput", {})
            self._answers = {_shared_answer(worker.get(_KEY))}

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        # Tests that are skipped don't get here. Fixtures, which may train a model, are made after this.
        for answer in self._answers:
            if answer.failure and self._concerns(item):
                item.stash[_FAILED] = True
                pytest.fail(answer.failure, pytrace=False)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, Any, None]:
        """Report the test as failed: not as one with an error in its set-up, nor as one that may fail."""
        outcome = yield
        if call.when == "setup" and item.stash.get(_FAILED, False):
            report = outcome.get_result()
            report.when, report.outcome = "call", "failed"
            report.__dict__.pop("wasxfail", None)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Give a worker the file for the answer. On another machine, there is no such directory."""
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="validator-pytest-"))
        node.workerinput[_KEY] = str(self._directory / "answer.json")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        for answer in self._answers:
            if hasattr(session.config, "workeroutput"):
                session.config.workeroutput[_KEY] = asdict(answer)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        # A worker that crashed has no output.
        answer = getattr(node, "workeroutput", {}).get(_KEY)
        if answer:
            self._answers.add(Answer(**answer))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print what `doctor` prints, once, and not for every test."""
        for answer in self._answers:
            if not answer.explanation:
                continue
            import click

            styled = terminalreporter.hasmarkup
            text = answer.explanation if styled else click.unstyle(answer.explanation)
            terminalreporter.section(_TITLE, red=True, bold=True)
            for line in text.rstrip("\n").split("\n"):
                terminalreporter.write_line(line)

    def pytest_unconfigure(self) -> None:
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _concerns(self, item: pytest.Item) -> bool:
        return self._every_test or item.get_closest_marker(MARKER) is not None


def _shared_answer(path: str | None) -> Answer:
    """Return the answer in the file of all workers of this machine. The first worker writes it."""
    with contextlib.ExitStack() as stack:
        if path is None or (held := stack.enter_context(_held(path))) is None:
            return _answer()
        written = os.pread(held, os.fstat(held).st_size, 0)
        if written:
            return Answer(**json.loads(written))
        answer = _answer()
        os.write(held, json.dumps(asdict(answer)).encode())
        return answer


@contextlib.contextmanager
def _held(path: str) -> Iterator[int | None]:
    """Open a file that no other process may open meanwhile; None if its directory is not on this machine."""
    # Windows does not have it, and every pytest loads this module.
    import fcntl

    try:
        held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        yield None
        return
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield held
    finally:
        os.close(held)


def _answer() -> Answer:
    from ..errors import ValidatorError

    try:
        from ..reports.diagnosis import text
        from .examine import examine, shareable_diagnosis

        examined = examine()
    except ValidatorError as error:
        hint = f"\n{error.hint}" if error.hint else ""
        return Answer(f"It is not known whether TensorFlow uses a GPU: {error}{hint}")
    if examined.has_gpu:
        return Answer()
    diagnosis = shareable_diagnosis(examined)
    return Answer(_failure(diagnosis), text(diagnosis))


def _failure(diagnosis: Diagnosis) -> str:
    """Return the message of a test: the cause, then its fix. The evidence is at the end of the output."""
    from ..model.diagnosis import WAYS
    from ..reports.printable import one_line

    if not diagnosis.causes:
        return f"{_TITLE}. No known cause fits: see the end of pytest's output."
    cause = diagnosis.causes[0]
    remedy = cause.remedies[0]
    way = WAYS.get(remedy.way, remedy.way)
    lines = [f"{_TITLE}: {cause.headline}", f"To fix it{f' {way}' if way else ''}: {remedy.says}"]
    lines += [f"    {command}" for command in remedy.commands]
    lines.append(f"The evidence for {cause.code} is at the end of pytest's output.")
    return "\n".join(one_line(line) for line in lines)
