from __future__ import annotations

import hashlib
import io
import json

import pytest

from validator.errors import InputError
from validator.model import codec
from validator.model.record import Record
from validator.records import record_files

from .values import record


def written(*records: Record) -> bytes:
    stream = io.StringIO()
    record_files.write(records, stream)
    return stream.getvalue().encode()


def read(content: bytes) -> list[Record]:
    return list(record_files.read(io.BufferedReader(io.BytesIO(content)), "records.jsonl"))


def test_written_records_are_read_back() -> None:
    content = written(record(1), record(2))
    assert content.count(b"\n") == 2
    assert read(content) == [record(1), record(2)]
    assert read(b"\n" + content + b"\n") == [record(1), record(2)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "records.jsonl:2: it is not JSON: Expecting"),
        (b"[]", "records.jsonl:2: not a record: the record: expected `object`, got `array`"),
        (b"{}", "records.jsonl:2: not a record"),
        (b"\xff\xfe\x00", "records.jsonl:2: "),
        (b"[" * 100_000, "records.jsonl:2: "),
    ],
)
def test_the_error_names_the_wrong_line(line: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(written(record(1)) + line + b"\n")


def test_an_altered_record_is_rejected() -> None:
    document = json.loads(written(record(1)))
    document["verdict"] = "certified"
    with pytest.raises(InputError, match="it was altered"):
        read(json.dumps(document).encode())


@pytest.mark.parametrize(
    "change",
    [
        {"checks": "none"},
        {"checks": [{"id": "driver"}]},
        {"checks": [1]},
        {"versions": {"cuda": 12}},
        {"versions": 5},
        {"host": []},
        {"cell": 1},
        {"surplus": 1},
    ],
)
def test_a_record_that_could_not_be_shown_is_rejected(change: dict[str, object]) -> None:
    # The id is right, as whoever makes such a record would make it: only the content is wrong.
    document = record(1).document() | change
    content = {key: value for key, value in document.items() if key != "id"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    document["id"] = hashlib.sha256(text.encode()).hexdigest()[:32]
    with pytest.raises(InputError, match=r"records\.jsonl:1: not a record"):
        read(json.dumps(document).encode())


def test_an_endless_line_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    stream: io.BufferedReader = io.BufferedReader(io.BytesIO(b"x" * 20_000), 1000)
    monkeypatch.setattr(record_files, "LARGEST", 1000)
    monkeypatch.setattr(codec, "LARGEST", 1000)
    with pytest.raises(InputError, match=r"records\.jsonl:1: it is larger than"):
        list(record_files.read(stream, "records.jsonl"))
    assert stream.tell() == 1001
