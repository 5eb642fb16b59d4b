"""The kernels in TensorFlow's profiles, and that no profile is left behind."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.probe.tensorflow_devices import events, record


def varint(value: int) -> bytes:
    data = b""
    while value > 0x7F:
        data += bytes([value & 0x7F | 0x80])
        value >>= 7
    return data + bytes([value])


def field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def plane(name: str, lines: dict[str, list[str]]) -> bytes:
    """Return a plane whose lines hold events of these names, each of 2 microseconds."""
    names = sorted({event for events in lines.values() for event in events})
    numbers = {event: number + 300 for number, event in enumerate(names)}
    metadata = [
        field(4, field(1, number) + field(2, field(1, number) + field(2, event)))
        for event, number in numbers.items()
    ]
    encoded = [
        field(
            3,
            field(1, 7)
            + field(2, line)
            + b"".join(
                field(4, field(1, numbers[event]) + field(2, 10**12) + field(3, 2_000_000))
                for event in events
            )
            # A fixed64 and a fixed32, which are skipped.
            + varint(15 << 3 | 1)
            + bytes(8)
            + varint(15 << 3 | 5)
            + bytes(4),
        )
        for line, events in lines.items()
    ]
    return field(1, field(1, 3) + field(2, name) + b"".join(encoded) + b"".join(metadata))


STREAM = {"Stream #13(Compute)": ["sgemm", "sgemm", "MemcpyD2D", "fusion_1"]}


def test_kernels_are_distinguished_from_copies_and_derived_lines() -> None:
    space = (
        plane("/host:CPU", {"tf_XLAEigen": ["sgemm"]})
        + plane(
            "/device:GPU:0",
            {
                **STREAM,
                "Stream #14(MemcpyH2D)": ["MemcpyH2D", "Memset"],
                "XLA Ops": ["fusion.1"],
                "Steps": ["1"],
            },
        )
        + plane("/device:GPU:1", STREAM)
    )
    found = events(space)
    assert len(found) == 13
    assert {event.seconds for event in found} == {2e-6}
    kernels = [(event.plane, event.name) for event in found if event.is_kernel]
    each = ["sgemm", "sgemm", "fusion_1"]
    assert kernels == [(f"/device:GPU:{number}", name) for number in (0, 1) for name in each]


def test_nothing_ran() -> None:
    assert events(b"") == []
    assert events(plane("/device:GPU:0", {})) == []


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_rejected(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        events(data)


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_truncated_profile_is_rejected(cut: int) -> None:
    with pytest.raises(ValueError, match="cut short"):
        events(plane("/device:GPU:0", STREAM)[:-cut])


class Profiler:
    """`tf.profiler.experimental`, which writes into the directory that it is given."""

    ProfilerOptions = SimpleNamespace

    def start(self, directory: str, options: Any) -> None:
        self.directory = Path(directory)

    def stop(self) -> None:
        path = self.directory / "plugins" / "profile" / "2026_01_01" / "host.xplane.pb"
        path.parent.mkdir(parents=True)
        path.write_bytes(plane("/device:GPU:0", STREAM))


def test_a_recording_leaves_nothing_behind() -> None:
    profiler, worked = Profiler(), []
    tf = SimpleNamespace(profiler=SimpleNamespace(experimental=profiler))
    found = record(tf, lambda: worked.append(True))
    assert sum(event.is_kernel for event in found) == 3
    assert worked == [True]
    assert not profiler.directory.exists()


def test_an_interrupted_recording_is_stopped_and_removed() -> None:
    profiler = Profiler()
    tf = SimpleNamespace(profiler=SimpleNamespace(experimental=profiler))

    def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        record(tf, work)
    assert not profiler.directory.exists()
