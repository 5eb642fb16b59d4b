"""Input of any kind gets an answer or a clear error."""

from __future__ import annotations

import io
import time
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from validator.diagnosis import diagnose_file
from validator.errors import InputError
from validator.model.diagnosis import Diagnosis

LOG = (
    "2024-05-01 10:00:00.1: E cuda_driver.cc:1] failed call to cuInit: CUDA_ERROR_NO_DEVICE: no device\n"
    "$ docker run -it tensorflow/tensorflow:2.15.0-gpu python train.py\n"
)
DOCKERFILE = """\
# syntax=docker/dockerfile:1
FROM nvidia/cuda:12.3.2-runtime-ubuntu22.04
FLY to the moon
ENV CUDA_VISIBLE_DEVICES=-1
RUN pip install \\
    --no-cache-dir \\
    tensorflow==2.16.1
HEALTHCHECK CMD [unbalanced "
COPY --from=\\
"""


def diagnosed(data: bytes) -> Diagnosis:
    return diagnose_file(io.BytesIO(data), "the file")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("colour", ["", "\x1b[1;31m"])
def test_text_of_any_encoding_and_colour_gets_the_same_answer(encoding: str, colour: str) -> None:
    expected = [cause.code for cause in diagnosed(LOG.encode()).causes]
    assert expected
    assert [cause.code for cause in diagnosed((colour + LOG).encode(encoding)).causes] == expected


def test_a_dockerfile_with_unknown_instructions_is_read() -> None:
    diagnosis = diagnosed(DOCKERFILE.encode())
    assert diagnosis.facts["tensorflow"] == "2.16.1"
    assert diagnosis.causes[0].code == "visible_devices_misset"


@pytest.mark.parametrize("zeros", ["\0", "\0" * 5000])
def test_zeros_that_a_crash_left_in_a_log_are_no_part_of_it(zeros: str) -> None:
    expected = diagnosed(LOG.encode()).causes[0].code
    for text in (LOG + zeros, zeros + LOG, LOG.replace("\n", f"\n{zeros}", 1)):
        assert diagnosed(text.encode()).causes[0].code == expected


def test_a_zip_archive_is_an_error_that_says_what_to_do() -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("log.txt", LOG)
    with pytest.raises(InputError, match="compressed") as raised:
        diagnosed(archive.getvalue())
    assert raised.value.hint


@pytest.mark.slow
@pytest.mark.parametrize("word", ["x", "docker run ", "pip install numpy ", "kind: Pod ", "| a | 1 ", "\\"])
def test_one_long_line_is_read(word: str) -> None:
    """The time is in proportion to the length. The benchmark measures a hundred megabytes."""
    begin = time.process_time()
    diagnosed((word * (1_000_000 // len(word))).encode())
    assert time.process_time() - begin < 5


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_text_that_is_cut_anywhere_gets_an_answer_or_a_clear_error(data: st.DataObject) -> None:
    encoding = data.draw(st.sampled_from(["utf-8", "utf-16", "utf-16-le"]))
    content = (LOG + DOCKERFILE).encode(encoding)
    start = data.draw(st.integers(0, len(content)))
    try:
        diagnosed(content[start:])
    except InputError as error:
        assert str(error)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_get_an_answer_or_a_clear_error(content: bytes) -> None:
    try:
        diagnosed(content)
    except InputError as error:
        assert str(error)
