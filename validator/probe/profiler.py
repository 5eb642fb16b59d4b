"""Find out with TensorFlow's profiler which kernels a GPU ran.

The profiler writes an `XSpace` message (openxla/xla, `third_party/tsl/tsl/profiler/protobuf/xplane.proto`).
Its Python classes are in a different package in every other release, so the few fields that are needed are
read from the wire format itself (protobuf.dev, "Encoding").
"""

import glob
import os
import re
import tempfile
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, Union

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
#: XSpace.planes; XPlane.name, .lines, .event_metadata; an entry of a map; XLine.name, .events;
#: XEvent.metadata_id, .duration_ps; XEventMetadata.name.
_PLANES, _PLANE_NAME, _LINES, _METADATA, _KEY, _VALUE, _LINE_NAME, _EVENTS, _EVENT_ID, _DURATION, _NAME = (
    *(1, 2, 3, 4, 1, 2, 2, 4),
    *(1, 3, 2),
)
#: The lines of a GPU's plane with the events; other lines are derived from these.
_STREAM = re.compile(r"Stream #")
_COPY = re.compile(r"mem(cpy|set)", re.IGNORECASE)


@dataclass(frozen=True)
class Event:
    """An event on a plane (`/device:GPU:0`) and a line (`Stream #13(Compute)`), and how long it ran."""

    plane: str
    line: str
    name: str
    seconds: float

    @property
    def is_kernel(self) -> bool:
        """Return whether this is a kernel on a GPU and not a copy."""
        on_gpu = self.plane.startswith("/device:GPU:") and _STREAM.match(self.line)
        return bool(on_gpu and not _COPY.match(self.name))


def record(tf: Any, work: Callable[[], None]) -> List[Event]:
    """Return what the profiler sees while `work` runs.

    The profiler can only write files. They go to a directory in memory where there is one, removed at once.
    """
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="probe-", dir=memory) as directory:
        # Only the devices: events of the host are not needed, and would be most of the file.
        options = tf.profiler.experimental.ProfilerOptions(
            host_tracer_level=0, python_tracer_level=0, device_tracer_level=1
        )
        tf.profiler.experimental.start(directory, options=options)
        try:
            work()
        finally:
            tf.profiler.experimental.stop()
        paths = glob.glob(os.path.join(directory, "**", "*.xplane.pb"), recursive=True)
        found: List[Event] = []
        for path in paths:
            with open(path, "rb") as file:
                found += events(file.read())
        return found


def events(space: bytes) -> List[Event]:
    """Return every event of a serialized XSpace. Raises ValueError for other data."""
    found = []
    for plane in _all(space, _PLANES):
        fields = list(_fields(plane))
        plane_name = _text(fields, _PLANE_NAME)
        names = dict(_metadata(entry) for entry in _messages(fields, _METADATA))
        for line in _messages(fields, _LINES):
            line_fields = list(_fields(line))
            line_name = _text(line_fields, _LINE_NAME)
            for event in _messages(line_fields, _EVENTS):
                numbers = _numbers(event)
                name = names.get(numbers.get(_EVENT_ID, 0), "")
                found.append(Event(plane_name, line_name, name, numbers.get(_DURATION, 0) / 1e12))
    return found


Field = Tuple[int, Union[int, bytes]]


def _metadata(entry: bytes) -> Tuple[int, str]:
    """Return an entry of the map from an event's id to its name."""
    value = next(_messages(list(_fields(entry)), _VALUE), b"")
    return _numbers(entry).get(_KEY, 0), _text(list(_fields(value)), _NAME)


def _all(message: bytes, number: int) -> Iterator[bytes]:
    return _messages(list(_fields(message)), number)


def _messages(fields: List[Field], number: int) -> Iterator[bytes]:
    return (value for found, value in fields if found == number and isinstance(value, bytes))


def _text(fields: List[Field], number: int) -> str:
    return next(_messages(fields, number), b"").decode(errors="replace")


def _numbers(message: bytes) -> Dict[int, int]:
    return {number: value for number, value in _fields(message) if isinstance(value, int)}


def _fields(message: bytes) -> Iterator[Field]:
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        number, kind = key >> 3, key & 7
        value: Union[int, bytes]
        if kind == _VARINT:
            value, position = _varint(message, position)
        elif kind in (_BYTES, _FIXED64, _FIXED32):
            size: Optional[int] = {_FIXED64: 8, _FIXED32: 4}.get(kind)
            if size is None:
                size, position = _varint(message, position)
            value, position = message[position : position + size], position + size
            if position > len(message):
                raise ValueError("a field of the profile is cut short")
        else:
            raise ValueError(f"the profile has a field of the unknown wire type {kind}")
        yield number, value


def _varint(message: bytes, position: int) -> Tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(message):
            raise ValueError("a number in the profile is cut short")
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position
