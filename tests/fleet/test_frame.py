"""Frames: whole or refused, whatever else is in the log."""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from validator.fleet.inside import LARGEST, frame
from validator.fleet.protocol import MOST, CutError, read_frames

contents = st.binary(max_size=6000)
#: Lines of anything that is not ours.
noise = st.lists(
    st.binary(max_size=60).filter(lambda line: b"\n" not in line and not line.startswith(b"tfm-"))
)


def lines(*parts: bytes) -> bytes:
    return b"".join(part + b"\n" for part in parts)


@given(contents)
@example(b"")
@example(b"\n\r\n")
@example(b"tfm-end report\n")
def test_what_was_framed_is_read(content: bytes) -> None:
    assert read_frames(frame("report", content), "report") == {"report": content}


@given(contents, noise, noise)
def test_lines_around_a_frame_do_not_count(content: bytes, before: list[bytes], after: list[bytes]) -> None:
    log = lines(*before) + frame("report", content) + lines(*after)
    assert read_frames(log) == {"report": content}


@given(st.binary(min_size=3000, max_size=9000), st.data())
def test_lines_between_those_of_a_frame_do_not_count(content: bytes, data: st.DataObject) -> None:
    mixed = b""
    for line in frame("report", content).splitlines(keepends=True):
        mixed += line + lines(*data.draw(noise))
    assert read_frames(mixed) == {"report": content}


def test_words_without_an_end_of_line_do_not_hide_a_frame() -> None:
    assert read_frames(b"progress 50%" + frame("report", b"{}")) == {"report": b"{}"}


@settings(max_examples=300)
@given(contents, st.data())
def test_a_frame_that_was_cut_anywhere_is_refused(content: bytes, data: st.DataObject) -> None:
    whole = frame("report", content)
    # Without its last line break, the log is still whole.
    length = data.draw(st.integers(0, len(whole) - 2))
    with pytest.raises(CutError):
        read_frames(whole[:length], "report")


@given(contents, st.data())
def test_a_frame_without_its_beginning_is_refused(content: bytes, data: st.DataObject) -> None:
    whole = frame("report", content).lstrip(b"\n")
    with pytest.raises(CutError):
        read_frames(whole[data.draw(st.integers(1, len(whole))) :], "report")


@given(st.binary(min_size=1, max_size=6000), st.data())
def test_an_altered_byte_is_refused(content: bytes, data: st.DataObject) -> None:
    whole = bytearray(frame("report", content))
    place = data.draw(st.integers(0, len(whole) - 2))
    other = data.draw(st.integers(0, 255).filter(lambda value: value != whole[place]))
    whole[place] = other
    try:
        found = read_frames(bytes(whole), "report")
    except CutError:
        return
    # In the empty first line, or in bits that base64 ignores, a change leaves the content as it was.
    assert found == {"report": content}


def test_a_lost_or_repeated_line_is_refused() -> None:
    whole = frame("report", bytes(range(256)) * 40).splitlines(keepends=True)
    data = [number for number, line in enumerate(whole) if line.startswith(b"tfm-data")]
    assert len(data) > 2
    for number in data:
        with pytest.raises(CutError):
            read_frames(b"".join(whole[:number] + whole[number + 1 :]))
        with pytest.raises(CutError):
            read_frames(b"".join(whole[: number + 1] + whole[number:]))
    swapped = [*whole]
    swapped[data[0]], swapped[data[1]] = swapped[data[1]], swapped[data[0]]
    with pytest.raises(CutError, match="SHA-256"):
        read_frames(b"".join(swapped))


def test_several_frames_may_be_mixed_line_by_line() -> None:
    first, second = (frame(name, name.encode() * 3000).splitlines(keepends=True) for name in ("a", "b"))
    mixed = b"".join(line for pair in zip(first, second, strict=True) for line in pair)
    assert read_frames(mixed, "a", "b") == {"a": b"a" * 3000, "b": b"b" * 3000}


def test_the_same_frame_twice_counts_once() -> None:
    assert read_frames(frame("report", b"{}") * 2) == {"report": b"{}"}


def test_two_frames_with_one_name_and_different_contents_are_refused() -> None:
    with pytest.raises(CutError, match="two frames outside"):
        read_frames(frame("outside", b"of the node") + frame("outside", b"of the container"))


def test_two_runs_of_one_job_that_wrote_at_once_are_refused() -> None:
    first, second = (frame("report", text * 5000).splitlines(keepends=True) for text in (b"1", b"2"))
    mixed = b"".join(line for pair in zip(first, second, strict=True) for line in pair)
    with pytest.raises(CutError, match="begins again"):
        read_frames(mixed)


def test_a_frame_that_is_not_there_is_refused() -> None:
    with pytest.raises(CutError, match="no frame report"):
        read_frames(b"slurmstepd: error: disk full\n", "report")


@pytest.mark.parametrize("length", [LARGEST + 1, 10**9, 9_999_999_999])
def test_a_length_beyond_every_report_is_refused_before_any_data(length: int) -> None:
    with pytest.raises(CutError, match="more than any report"):
        read_frames(lines(b"tfm-frame report %d " % length + b"0" * 64))


@pytest.mark.parametrize(
    "length", [b"-1", b"+5", b"05", b"1e3", b"0x10", b"99999999999999999999", b"", b"five"]
)
def test_a_length_that_is_not_one_begins_no_frame(length: bytes) -> None:
    content = b"5 lit"
    sha256 = hashlib.sha256(content).hexdigest().encode()
    log = lines(
        b"tfm-frame report %s %s" % (length, sha256),
        b"tfm-data report " + base64.b64encode(content),
        b"tfm-end report",
    )
    with pytest.raises(CutError):
        read_frames(log, "report")


def test_data_beyond_the_length_is_refused_at_once() -> None:
    header = b"tfm-frame report 3 " + b"0" * 64
    with pytest.raises(CutError, match="more than the 3 bytes"):
        read_frames(lines(header, b"tfm-data report " + base64.b64encode(b"1234")))


def test_frames_without_end_are_refused() -> None:
    with pytest.raises(CutError, match=f"more than {MOST} frames"):
        read_frames(b"".join(frame(f"f{number}", b"") for number in range(MOST + 1)))


@pytest.mark.parametrize("name", ["Report", "../report", "a b", "", "a" * 65])
def test_names_that_are_not_names_begin_no_frame(name: str) -> None:
    assert read_frames(frame(name, b"")) == {}
