"""Locks and bases of which lists are made."""

from __future__ import annotations

from datetime import date

from validator.assemble.base_finder import BaseContents, SystemPackage
from validator.model.spec import Lock, Wheel

NAME = "tf2.21.0-cpu-py311"
WHEELS = (
    Wheel("absl-py", "2.5.1", "a" * 64, "absl_py-2.5.1-py3-none-any.whl", 10),
    Wheel("ours", "1.0+cu12", "b" * 64, "ours-1.0+cu12-py3-none-any.whl", 20, "wheels/ours.whl"),
    Wheel("tensorflow", "2.21.0", "c" * 64, "tensorflow-2.21.0-cp311-cp311-manylinux_2_27_x86_64.whl"),
)
LOCK = Lock(
    NAME, "3.11", "x86_64-manylinux_2_28", ("tensorflow==2.21.0",), WHEELS, resolved=date(2026, 11, 20)
)
#: As a base of Docker's official images: its own Python is not a package.
BASE = BaseContents(
    f"registry:python:3.11-slim-bookworm@sha256:{'7' * 64}",
    "debian",
    "12",
    (
        SystemPackage("bash", "5.2.15-2+b13", "amd64", "bash", "5.2.15-2", "d" * 64),
        SystemPackage("bsdutils", "1:2.38.1-5+deb12u3", "amd64", "util-linux", "2.38.1-5+deb12u3"),
        SystemPackage("tzdata", "2026a-0+deb12u1", "all", "tzdata", "2026a-0+deb12u1"),
    ),
    "3.11.14",
)
