"""Type commands into a shell, as a person does who follows a page.

The shell is a real one, so that pipes, redirections and exported variables mean what they mean there. This
process answers the calls of this tool, so that a test can give them an engine or a GPU that it made up, and
no call has to start a Python. Programs that can't be run here have a stand-in,
which is a shell script.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..commands import ROOT, Done, run

#: Programs that call this tool, as pages name them, and the words that come before those of the call.
PYTHONS = ("python", "python3")
OWN_PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "validator": (),
    "here": (),
    "build-matrix": ("build-matrix",),
}
_LIMIT_S = 300.0
#: What is started instead of these programs: it hands a call over, and prints what it is told.
SHIM = f"""\
#!{sys.executable} -SE
import json, os, socket, sys
name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
if name in {PYTHONS!r}:
    if words[:2] != ["-m", "validator"]:
        os.execv({sys.executable!r}, [{sys.executable!r}, *words])
    words = words[2:]
else:
    words = [*{dict(OWN_PROGRAMS)!r}[name], *words]
given = sys.stdin.read() if "-" in words else ""
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(os.environ["CONSOLE"])
    call = {{"words": words, "cwd": os.getcwd(), "environment": dict(os.environ), "stdin": given}}
    connection.sendall(json.dumps(call).encode())
    connection.shutdown(socket.SHUT_WR)
    with connection.makefile() as stream:
        answer = json.load(stream)
sys.stdout.write(answer["stdout"])
sys.stderr.write(answer["stderr"])
sys.stdout.flush()
if answer["instead"]:
    os.execvp(answer["instead"][0], answer["instead"])
sys.exit(answer["returncode"])
"""


@dataclass(frozen=True)
class Call:
    """A call of this tool. stdin: what it reads if it asks for `-`."""

    words: tuple[str, ...]
    cwd: Path
    environment: Mapping[str, str]
    stdin: str


@dataclass(frozen=True)
class Answer:
    """The output and the result of a call. instead: the program that takes the place of its process."""

    done: Done
    instead: tuple[str, ...] = ()


@dataclass(frozen=True)
class Console:
    """A shell that is waiting for a command. place: the directory with the programs."""

    place: Path
    _shell: subprocess.Popen[bytes]
    _ended: int
    _listening: socket.socket
    _answer: Callable[[Call], Answer]

    def type(self, command: str) -> Done:
        """Run a command in the shell, and return what it printed when it has ended."""
        script, out, err = (self.place / name for name in ("script", "stdout", "stderr"))
        script.write_text(f"{command}\n", encoding="utf-8")
        assert self._shell.stdin is not None
        self._shell.stdin.write(f". {script} >{out} 2>{err} </dev/null; echo $? >&{self._ended}\n".encode())
        self._shell.stdin.flush()
        status = self._status()
        return Done(command, status, out.read_text("utf-8"), err.read_text("utf-8"))

    def _status(self) -> int:
        """Answer calls until the command ends, and return its exit status."""
        sources: list[socket.socket | int] = [self._listening, self._ended]
        while True:
            ready, _, _ = select.select(sources, [], [], _LIMIT_S)
            assert ready, f"no end of {(self.place / 'script').read_text()}"
            if self._listening in ready:
                answer_call(self._listening, self._answer)
            else:
                said = os.read(self._ended, 16)
                assert said, "the shell has ended"
                return int(said)


def answer_call(listening: socket.socket, answer: Callable[[Call], Answer]) -> None:
    """Answer the call that waits at the socket."""
    connection, _ = listening.accept()
    with connection, connection.makefile() as stream:
        asked: dict[str, Any] = json.load(stream)
        call = Call(tuple(asked["words"]), Path(asked["cwd"]), asked["environment"], asked["stdin"])
        given = answer(call)
        connection.sendall(
            json.dumps(
                {
                    "stdout": given.done.stdout,
                    "stderr": given.done.stderr,
                    "returncode": given.done.returncode,
                    "instead": given.instead,
                }
            ).encode()
        )


def run_answering(words: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> Done:
    """Run a program that finds `SHIM` in place of this tool, and answer its calls until it ends."""
    # The path of a socket has to be short.
    with (
        tempfile.TemporaryDirectory(prefix="calls-") as name,
        socket.socket(socket.AF_UNIX) as listening,
        open(f"{name}/out", "w+") as out,
        open(f"{name}/err", "w+") as err,
    ):
        listening.bind(f"{name}/socket")
        listening.listen()
        with subprocess.Popen(
            words, cwd=cwd, env={**environment, "CONSOLE": f"{name}/socket"},
            stdin=subprocess.DEVNULL, stdout=out, stderr=err,
        ) as process:  # fmt: skip
            ended = os.pidfd_open(process.pid)
            sources: list[socket.socket | int] = [listening, ended]
            try:
                while ended not in (ready := select.select(sources, [], [], _LIMIT_S)[0]):
                    assert ready, f"{words} does not end"
                    answer_call(listening, _run_here)
            finally:
                process.kill()
                os.close(ended)
        return Done(words, process.returncode, Path(out.name).read_text(), Path(err.name).read_text())


def _run_here(call: Call) -> Answer:
    return Answer(run(*call.words, cwd=call.cwd, environment=call.environment, stdin=call.stdin))


@contextlib.contextmanager
def console(
    directory: Path,
    environment: Mapping[str, str],
    answer: Callable[[Call], Answer],
    stand_ins: Mapping[str, str],
) -> Iterator[Console]:
    """Open a shell in a directory. answer: runs the calls of this tool. stand_ins: scripts, by program."""
    # The path of a socket has to be short.
    with (
        tempfile.TemporaryDirectory(prefix="console-") as name,
        socket.socket(socket.AF_UNIX) as listening,
        contextlib.ExitStack() as stack,
    ):
        place = Path(name)
        programs = place / "bin"
        programs.mkdir()
        shim = place / "shim"
        _write_program(shim, SHIM)
        for program in (*PYTHONS, *OWN_PROGRAMS):
            (programs / program).symlink_to(shim)
        for program, script in stand_ins.items():
            _write_program(programs / program, f"#!/bin/bash -e\n{script}\n")
        listening.bind(f"{place}/socket")
        listening.listen()
        ended, theirs = os.pipe()
        stack.callback(os.close, ended)
        shell = stack.enter_context(
            subprocess.Popen(
                ["bash", "--norc", "--noprofile", "-s"],
                cwd=directory, stdin=subprocess.PIPE, pass_fds=[theirs],
                env={
                    **environment,
                    "PATH": f"{programs}:{os.environ['PATH']}",
                    "PYTHONPATH": str(ROOT),
                    "CONSOLE": f"{place}/socket",
                },
            )
        )  # fmt: skip
        assert shell.stdin is not None
        stack.callback(shell.stdin.close)
        # The shell writes to the same number, and a command that fails in a pipe has failed.
        shell.stdin.write(f"set -o pipefail; exec {ended}>&{theirs} {theirs}>&-\n".encode())
        os.close(theirs)
        yield Console(place, shell, ended, listening, answer)


def _write_program(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
