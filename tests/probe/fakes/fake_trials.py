"""Functions that misbehave in a fresh interpreter, each in its own way. Called by name in the child."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any


def report(tensorflow: Any, *arguments: object) -> Iterator[Any]:
    yield {"tensorflow": tensorflow.NAME, "arguments": list(arguments), "pid": os.getpid()}
    yield os.environ.get("ADDED"), os.environ.get("REMOVED")


def print_and_hang(tensorflow: Any) -> Iterator[Any]:
    print("what the library said", file=sys.stderr, flush=True)
    yield os.getpid()
    time.sleep(3600)


def say_and_hang(tensorflow: Any, path: str) -> Iterator[Any]:
    with open(path + ".part", "w") as file:
        file.write(str(os.getpid()))
    os.rename(path + ".part", path)
    yield
    time.sleep(3600)


def segfault(tensorflow: Any) -> Iterator[Any]:
    yield "begun"
    os.kill(os.getpid(), signal.SIGSEGV)


def leave(tensorflow: Any) -> Iterator[Any]:
    yield "begun"
    os._exit(3)


def raise_here(tensorflow: Any) -> Iterator[Any]:
    yield "begun"
    raise ZeroDivisionError("in the check")


def raise_there(tensorflow: Any) -> Iterator[Any]:
    yield "begun"
    tensorflow.fail()


def leave_a_child(tensorflow: Any) -> Iterator[Any]:
    """Leaves a grandchild behind that holds the output open."""
    yield subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"]).pid
