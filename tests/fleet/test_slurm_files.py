"""The files that jobs of Slurm leave in the shared directory, which any job of the user may write to."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from validator.fleet.protocol import CutError
from validator.fleet.settings import SlurmPlace, SlurmSection
from validator.fleet.slurm import SlurmFleet

HANDLE = "tfm-0123456789abcdef/0/tfm-aaaaaaaaaaaaaaaa"
ENDLESS = 3 << 30


@pytest.fixture
def array(tmp_path: Path) -> Path:
    """Return the directory of an array."""
    place = tmp_path / "arrays" / HANDLE.partition("/")[0]
    for part in ("results", "output"):
        (place / part).mkdir(parents=True)
    return place


def fleet(array: Path) -> SlurmFleet:
    place = SlurmPlace(constraint="r580")
    return SlurmFleet(SlurmSection(directory=str(array.parents[1]), host_classes={"r580-h100": place}))


def endless(path: Path) -> None:
    """Make a file without content that takes no space on the disk."""
    with path.open("wb") as stream:
        stream.truncate(ENDLESS)


def test_a_result_without_an_end_is_no_result(array: Path) -> None:
    endless(array / "results" / "0.1.frames")
    with pytest.raises(CutError, match=r"0\.1\.frames can't be read: it is larger than 167,772,160 bytes"):
        fleet(array).collect(HANDLE)


def test_a_pipe_as_a_result_does_not_block(array: Path) -> None:
    os.mkfifo(array / "results" / "0.1.frames")
    with pytest.raises(CutError, match="not a regular file"):
        fleet(array).collect(HANDLE)


@pytest.mark.parametrize("make", [os.mkfifo, endless])
def test_a_fault_without_an_end_says_nothing(array: Path, make: Callable[[Path], None]) -> None:
    path = array / "results" / "0.1.fault"
    make(path)
    found = fleet(array)._state(HANDLE, [], [path], in_queue=False)
    assert found is not None and found.detail == "it left the queue; waiting for its result"


@pytest.mark.slow
def test_only_the_end_of_an_endless_output_is_shown(array: Path) -> None:
    path = array / "output" / "0.1"
    endless(path)
    with path.open("ab") as stream:
        stream.write(b"the end\n")
    shown = fleet(array).logs(HANDLE)
    assert shown.endswith("the end\n") and len(shown) == 32 << 20
