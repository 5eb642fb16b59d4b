"""The committed logs are TensorFlow's own output: run again, the faults give the same lines."""

from __future__ import annotations

import re

import pytest

from . import corpus
from .faults import RELEASES, faults
from .run import run

pytestmark = pytest.mark.engine

#: From each place where a fault shows: driver, libraries, runtime, device, XLA.
REPRODUCED = ("cuinit_999", "cudnn_missing", "driver_too_old", "launch_no_kernel_image", "xla_flags_unknown")


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", REPRODUCED)
def test_a_fault_gives_the_committed_lines(name: str, release: str) -> None:
    fault = faults()[name]
    committed = _telling(corpus.path(fault, release).read_text(encoding="utf-8"))
    assert committed, "a log without a line that tells something"
    assert committed <= _telling(run(fault, release))


def _telling(log: str) -> set[str]:
    """Return warnings, errors and exceptions, without what differs from run to run."""
    found = set()
    for line in log.splitlines():
        severe = re.match(r"(?:[\d-]+ [\d:.]+: ([WEF]) |([WEF])\d{4} [\d:.]+ +\d+ )(.*)", line)
        if severe:
            found.add(re.sub(r"0x[0-9a-f]+|\d+", "#", severe.group(3)))
        elif re.match(r"(?:[\w.]+\.)?\w*(?:Error|Exception): ", line):
            found.add(re.sub(r"0x[0-9a-f]+|\d+", "#", line))
    return found
