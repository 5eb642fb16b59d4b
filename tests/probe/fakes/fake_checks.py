"""A registry of checks that misbehave, each in its own way. Loaded by the worker in place of the real one."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NoReturn

from validator.probe.check import HOST, PASS, TENSORFLOW, Check, Context, Result

Run = Callable[[Context], Result]


def _fine(context: Context) -> Result:
    return Result(PASS, {"code": "fine"}, [], {"lock": context.lock})


def _settled(context: Context) -> NoReturn:
    """Passes, and dies in what comes after that."""
    context.tell("doing", statement={"code": "compiling", "program": "a step", "type": "float32"})
    settled = {"outcome": PASS, "statement": {"code": "fine"}, "problems": [], "evidence": {"seen": 1}}
    context.tell("settled", **settled, limit={"code": "settled_float32", "gpu": "NVIDIA H200"})
    _segfault(context)


def _settled_killed(context: Context) -> NoReturn:
    """Passes, and is killed from outside in what comes after that."""
    settled = {"outcome": PASS, "statement": {"code": "fine"}, "problems": [], "evidence": {"seen": 1}}
    context.tell("settled", **settled, limit={"code": "settled_killed_float32", "gpu": "NVIDIA H200"})
    os.kill(os.getpid(), signal.SIGKILL)
    _hang(context)


def _settled_hangs(context: Context) -> NoReturn:
    """Passes, and does not finish what comes after that."""
    settled = {"outcome": PASS, "statement": {"code": "fine"}, "problems": [], "evidence": {"seen": 1}}
    context.tell("settled", **settled, limit={"code": "settled_hangs_float32", "gpu": "NVIDIA H200"})
    _hang(context)


def _segfault(context: Context) -> NoReturn:
    print("the last words of a library", file=sys.stderr)
    os.kill(os.getpid(), signal.SIGSEGV)
    _hang(context)


def _talk(context: Context) -> Result:
    print("a line of the check", file=sys.stderr)
    return _fine(context)


def _leave(context: Context) -> NoReturn:
    print("F fatal: unknown flag", file=sys.stderr)
    os._exit(3)


def _hang(context: Context) -> NoReturn:
    while True:
        time.sleep(3600)


def _raise(context: Context) -> NoReturn:
    raise ZeroDivisionError("in the check")


def _flood(context: Context) -> Result:
    for _ in range(64):
        os.write(2, b"x" * 65535 + b"\n")
    return Result(PASS, {"code": "flooded"})


def _garbage(context: Context) -> Result:
    print('{"event": "end", "check": "fine", "outcome": "pass"}')
    os.write(1, b"\xff\xfe garbage without a line end")
    return Result(PASS, {"code": "printed"})


def _cut(context: Context) -> NoReturn:
    """Dies in the middle of a line on the pipe of the messages."""
    pipes = [int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2]
    for descriptor in pipes:
        if os.path.exists(f"/proc/self/fd/{descriptor}") and "pipe:" in os.readlink(
            f"/proc/self/fd/{descriptor}"
        ):
            os.write(descriptor, b'{"event": "end", "check": "cut", "outc')
    os._exit(0)


def _children(context: Context) -> NoReturn:
    """Leaves a child behind that holds standard error open, and dies."""
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    os.kill(os.getpid(), signal.SIGKILL)
    _hang(context)


def _not_json(context: Context) -> Result:
    return Result(PASS, {"code": "odd_evidence"}, [], {"object": object(), "nan": float("nan")})


def _in_tensorflow(context: Context) -> NoReturn:
    context.tensorflow.fail()
    raise AssertionError("the fake TensorFlow did not raise")


def _pid(context: Context) -> NoReturn:
    print(f"worker {os.getpid()}", file=sys.stderr)
    _hang(context)


def _host(name: str, run: Run, limit_s: float = 30.0, requires: tuple[str, ...] = ()) -> Check:
    return Check(name, f"fake: {name}", HOST, run, limit_s, requires, required=False)


def _tensorflow(name: str, run: Run, limit_s: float = 30.0) -> Check:
    return Check(name, f"fake: {name}", TENSORFLOW, run, limit_s)


CHECKS = (
    _host("fine", _fine),
    _host("segfault", _segfault),
    _host("leave", _leave),
    _host("hang", _hang, limit_s=0.5),
    _host("raise", _raise),
    _host("flood", _flood),
    _host("garbage", _garbage),
    _host("cut", _cut),
    _host("children", _children),
    _host("not_json", _not_json),
    _host("pid", _pid, limit_s=600),
    _host("needs_gpu", _fine, requires=("gpu",)),
    _host("settled", _settled),
    _host("settled_killed", _settled_killed),
    _host("settled_hangs", _settled_hangs, limit_s=1),
    _host("after", _fine),
    _host("talk", _talk),
    _tensorflow("tf_fine", _fine),
    _tensorflow("tf_fail", _in_tensorflow),
    _tensorflow("tf_raise", _raise),
    _tensorflow("tf_segfault", _segfault),
    _tensorflow("tf_after", _fine),
)
