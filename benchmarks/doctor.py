"""Measure the time and memory that `doctor LOG` takes: `python benchmarks/doctor.py`.

Whole processes, each compared with a baseline in the same run:
 - a small log, compared with the start of a bare interpreter;
 - logs of 10 MB, compared with reading the file line by line: real TensorFlow logs with varied training
   output between them, Keras's progress bars, and what the allocator prints when memory runs out;
 - hostile inputs, for which `doctor` has to end: one endless line, lines that take backtracking engines
   forever, random bytes, a file of a gigabyte that is text at both ends, and one that is binary.

Limits: 0.25 s for the start; 1 s and 100 MB of memory for 10 MB; 10 s and 400 MB for hostile inputs.
Processor seconds are shown too, because they depend less on what else the machine is doing.
"""

from __future__ import annotations

import itertools
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
LOGS = REPOSITORY / "tests" / "corpus" / "captured"
SMALL = LOGS / "2.21.0" / "no_driver.log"
RUNS = 7
MB = 1_000_000

START_LIMIT_S = 0.25
LOG_LIMIT_S, LOG_LIMIT_MB = 1.0, 100
#: At most 32 MiB of an input are looked at, so that what takes longest is what is that long.
HOSTILE_LIMIT_S, HOSTILE_LIMIT_MB = 10.0, 400

READ = "import sys\nfor line in open(sys.argv[1], errors='replace'): pass"


@dataclass(frozen=True)
class Taken:
    """One process: wall-clock and processor seconds, and its peak resident memory in MB."""

    seconds: float
    processor: float
    megabytes: float


def main() -> int:
    # As an installation has it: with bytecode. The first run, which writes it, does not count.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        os.environ["PYTHONPYCACHEPREFIX"] = f"{name}/bytecode"
        bare = median([sys.executable, "-c", "pass"])
        fits = [
            row("a small log", median(doctor(SMALL)), bare, "a bare interpreter", START_LIMIT_S, LOG_LIMIT_MB)
        ]
        for title, pieces in (
            ("a log of 10 MB", training()),
            ("10 MB of progress bars", progress()),
            ("10 MB of an allocator's memory", allocator()),
        ):
            large = directory / "large.log"
            write(large, first(10 * MB, pieces))
            read = median([sys.executable, "-c", READ, str(large)])
            taken = median(doctor(large))
            fits.append(row(title, taken, read, "reading it", LOG_LIMIT_S, LOG_LIMIT_MB))
            large.unlink()
        for title, pieces, size in hostile():
            path = directory / "hostile.log"
            write(path, pieces)
            if size:
                stretch(path, size)
            fits.append(
                row(title, run(doctor(path)), bare, "a bare interpreter", HOSTILE_LIMIT_S, HOSTILE_LIMIT_MB)
            )
            path.unlink()
    return 0 if all(fits) else 1


def row(title: str, taken: Taken, other: Taken, baseline: str, limit_s: float, limit_mb: float) -> bool:
    """Print one line; whether it keeps to its limits."""
    print(
        f"{title:42} {taken.seconds:6.2f} s of {limit_s:4.1f} ({taken.processor:5.2f} s of processor),"
        f" {taken.megabytes:4.0f} MB of {limit_mb:3.0f}, {taken.seconds / other.seconds:5.1f} x {baseline}"
    )
    return taken.seconds <= limit_s and taken.megabytes <= limit_mb


def doctor(log: Path) -> list[str]:
    return [sys.executable, "-m", "validator", "doctor", str(log)]


def median(command: list[str]) -> Taken:
    """Return the median of several runs, after one that does not count."""
    run(command)
    taken = [run(command) for _ in range(RUNS)]
    return Taken(
        statistics.median(one.seconds for one in taken),
        statistics.median(one.processor for one in taken),
        statistics.median(one.megabytes for one in taken),
    )


def run(command: list[str]) -> Taken:
    begin = time.perf_counter()
    child = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=REPOSITORY, text=True
    )
    assert child.stderr is not None
    said = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - begin
    child.stderr.close()
    child.returncode = os.waitstatus_to_exitcode(status)
    # 1: a cause was named. 2: the input is not text, which is the right answer here.
    if child.returncode not in (0, 1, 2) or "Traceback" in said:
        raise SystemExit(f"{' '.join(command)}: status {child.returncode}\n{said}")
    return Taken(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / MB)


def first(size: int, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Return as many of the pieces as have this many bytes."""
    written = 0
    for piece in pieces:
        yield piece
        written += len(piece)
        if written >= size:
            return


def training() -> Iterator[bytes]:
    """Real logs, and between them the output of epochs with numbers of their own."""
    numbers = random.Random(1)
    real = [path.read_bytes() for path in sorted(LOGS.glob("*/*.log"))]
    for epoch in itertools.count():
        pieces = [real[epoch % len(real)], b"Epoch %d/1000000\n" % epoch]
        for step in range(200):
            loss, accuracy = numbers.random() * 3, numbers.random()
            pieces.append(
                f"{step + 1}/200 - {numbers.random():.1f}s {numbers.randrange(999)}ms/step"
                f" - accuracy: {accuracy:.4f} - loss: {loss:.4f}\n".encode()
            )
        yield b"".join(pieces)


def progress() -> Iterator[bytes]:
    """Yield one real log, and epochs whose progress bars write over their line, in colour."""
    numbers = random.Random(3)
    yield SMALL.read_bytes()
    for epoch in itertools.count():
        pieces, width = [f"Epoch {epoch}/1000000\n"], 0
        for step in range(200):
            done = "━" * (step // 10)
            bar = (
                f"\x1b[1m{step + 1:3}/200\x1b[0m \x1b[32m{done}\x1b[0m\x1b[37m{'━' * (20 - len(done))}\x1b[0m"
                f" \x1b[1m{numbers.randrange(60)}s\x1b[0m {numbers.randrange(999)}ms/step"
                f" - accuracy: {numbers.random():.4f} - loss: {numbers.random() * 3:.4f}"
            )
            pieces.append("\b" * width + "\r" + bar)
            width = len(bar)
        yield "".join([*pieces, "\n"]).encode()


def allocator() -> Iterator[bytes]:
    """ResourceExhaustedError, and what is printed with it: each piece of the memory, none as another."""
    numbers = random.Random(4)
    begin = b"2024-05-01 10:00:00.%06d: I tensorflow/core/common_runtime/bfc_allocator.cc:"
    yield b"ResourceExhaustedError: OOM when allocating tensor with shape[64,112,112,64] by GPU_0_bfc\n"
    yield begin % 1 + b"1010] BFCAllocator dump for GPU_0_bfc\n"
    for chunk in itertools.count():
        rows = [
            begin % numbers.randrange(10**6)
            + b"1058] InUse at %x of size %d next %d\n"
            % (numbers.randrange(16**12), numbers.randrange(10**8), numbers.randrange(10**4))
            for _ in range(50)
        ]
        yield b"".join([*rows, begin % 2 + b"1066] %d Chunks of size %d totalling 1.5KiB\n" % (chunk, chunk)])


def hostile() -> Iterator[tuple[str, Iterator[bytes], int]]:
    """Yield a name, the content, and the size to which the file is extended with zeros, or 0."""
    real = SMALL.read_bytes()
    noise = random.Random(2)
    yield "one endless line, 100 MB", (b"E0000 failed call to cuInit: " * 36_000 for _ in range(100)), 0
    yield "one line of commands, 100 MB", (b"docker run pip install " * 45_000 for _ in range(100)), 0
    cell = b'{"cell_type": "code", "source": ["pip install tensorflow"], "outputs": []}, '
    yield (
        "a notebook that is cut off, 32 MB",
        itertools.chain([b'{"cells": ['], (cell * 13_000 for _ in range(32))),
        0,
    )
    yield (
        "32 MB that backtracking would not survive",
        (b"((((" * 2000 + b" libcudnn.so." * 1000 + b"a" * 8000 + b"!\n" for _ in range(1100)),
        0,
    )
    yield "a million colours, 32 MB", (b"\x1b[31m\x1b]0;" * 100_000 for _ in range(32)), 0
    yield "32 MB of empty lines", (b"\n" * MB for _ in range(32)), 0
    yield "16 MB of random bytes", (noise.randbytes(MB).replace(b"\0", b"\1") for _ in range(16)), 0
    yield "1 GB, text at its head and zeros behind", (real for _ in range(6000)), 1000 * MB
    yield "1 GB, binary", (b"\x7fELF\2\1\1\0" for _ in range(1)), 1000 * MB


def write(path: Path, pieces: Iterator[bytes]) -> None:
    with path.open("wb") as stream:
        for piece in pieces:
            stream.write(piece)


def stretch(path: Path, size: int) -> None:
    """Let the file end at that size; the hole takes no room on the disk."""
    os.truncate(path, size)


if __name__ == "__main__":
    sys.exit(main())
