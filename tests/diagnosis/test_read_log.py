"""From lines to observations: what a catalogue finds in text of all shapes."""

from __future__ import annotations

import pytest

from validator.diagnosis import text
from validator.diagnosis.messages import FAULT, UNRECOGNIZED, Catalogue, Message
from validator.diagnosis.observations import KEPT, Observations
from validator.diagnosis.read_log import observe

CATALOGUE = Catalogue(
    (
        Message("cuinit_failed", r"failed call to cuInit: (?P<name>CUDA_ERROR_\w+)"),
        Message("not_found", r"Could not find cuda drivers on your machine", {"library": "libcuda"}),
        Message("notice", r"rebuild TensorFlow", harmless="It is only a notice."),
        Message("shape", r"tensor with shape\s*\[(?P<shape>[\d,]+)\]"),
        Message(UNRECOGNIZED, r"\bE tensorflow|\w+Error: "),
    )
)
PREFIX = "2024-05-01 10:00:00.123456: E tensorflow/compiler/xla/stream_executor/cuda/cuda_driver.cc:266] "


def seen(pasted: str) -> Observations:
    return observe(text.read_text(pasted), CATALOGUE)


def test_a_line_gives_its_kind_its_values_and_its_number() -> None:
    found = seen("x\n" + PREFIX + "failed call to cuInit: CUDA_ERROR_NO_DEVICE: no device\n").first(
        "cuinit_failed"
    )
    assert found is not None
    assert dict(found.values) == {"name": "CUDA_ERROR_NO_DEVICE"}
    assert found.where == "line 2"
    assert found.text.endswith("no device")


def test_fixed_values_are_given_with_those_of_the_line() -> None:
    found = seen("Could not find cuda drivers on your machine, GPU will not be used.").first("not_found")
    assert found is not None and dict(found.values) == {"library": "libcuda"}


def test_the_same_again_is_counted_and_not_kept() -> None:
    found = seen((PREFIX + "failed call to cuInit: CUDA_ERROR_NO_DEVICE\n") * 5)
    assert [found.evidence(each).count for each in found.of("cuinit_failed")] == [5]


def test_other_words_of_the_same_kind_are_a_line_of_their_own() -> None:
    found = seen(
        "Could not find cuda drivers on your machine\nhm, Could not find cuda drivers on your machine\n"
    )
    assert [(each.where, found.evidence(each).count) for each in found] == [("line 1", 1), ("line 2", 1)]


def test_of_a_kind_with_a_million_values_a_bounded_number_is_kept() -> None:
    found = seen("".join(f"tensor with shape [{number}]\n" for number in range(1000)))
    assert len(found.of("shape")) == KEPT


def test_a_line_that_speaks_of_a_fault_and_is_nothing_known_is_not_understood() -> None:
    found = seen(PREFIX + "something new\n" + PREFIX + "failed call to cuInit: CUDA_ERROR_NO_DEVICE\n")
    assert [each.where for each in found.of(UNRECOGNIZED)] == ["line 1"]


def test_a_line_that_is_known_is_not_also_not_understood() -> None:
    assert not seen("ValueError: rebuild TensorFlow").has(UNRECOGNIZED)


def test_lines_that_a_terminal_or_a_mailer_broke_are_found() -> None:
    message = (
        "2024-05-01 10:00:00.1: I tsl/cuda_transfer.cc:32] Could not find cuda drivers on your machine, GPU"
    )
    for width in range(60, 96, 3):
        hard = "\n".join(message[start : start + width] for start in range(0, len(message), width))
        assert seen(hard).has("not_found"), width
    assert seen(message.replace(" on your", "\non your")).has("not_found")
    assert seen("> " + message.replace(" drivers", "\n> drivers")).has("not_found")


def test_a_broken_line_counts_once_and_is_understood() -> None:
    found = seen(PREFIX + "failed call to cuInit:\nCUDA_ERROR_NO_DEVICE\n")
    assert [found.evidence(each).count for each in found.of("cuinit_failed")] == [1]
    assert not found.has(UNRECOGNIZED)


def test_what_stands_alone_is_not_read_again_with_its_neighbours() -> None:
    found = seen(PREFIX + "failed call to cuInit: CUDA_ERROR_NO_DEVICE\nnext words on a line of their own\n")
    assert [each.values["name"] for each in found.of("cuinit_failed")] == ["CUDA_ERROR_NO_DEVICE"]


def test_a_file_of_many_lines_is_not_searched_for_broken_ones() -> None:
    message = (
        "2024-05-01 10:00:00.1: I tsl/cuda_transfer.cc:32] Could not find cuda\ndrivers on your machine\n"
    )
    assert seen(message).has("not_found")
    assert not seen(message + "x\n" * text.PASTE_LINES).has("not_found")


def test_harmless_messages_say_why() -> None:
    found = seen("To enable them, rebuild TensorFlow with the appropriate compiler flags.").first("notice")
    assert found is not None and found.harmless == "It is only a notice."


def test_lines_before_the_end_of_a_process_are_told_with_it() -> None:
    ends = Catalogue((*CATALOGUE.messages, Message(UNRECOGNIZED, r"^Aborted", {"ends": "process"})))
    pasted = "$ python x.py\nfirst\nsomething odd\n\nrebuild TensorFlow\nAborted (core dumped)\n"
    found = observe(text.read_text(pasted), ends)
    assert [each.text for each in found.of(FAULT)] == ["first", "something odd"]
    assert [each.text for each in found.of(UNRECOGNIZED)] == ["Aborted (core dumped)"]


def test_lines_before_the_end_of_a_process_are_told_though_they_show_nothing_themselves() -> None:
    """Of a long file most lines are not looked at singly; these are, afterwards."""
    ends = Catalogue((*CATALOGUE.messages, Message(UNRECOGNIZED, r"^Aborted", {"ends": "process"})))
    long = "x" * 2 * text.PIECE
    pasted = "step\n" * text.PASTE_LINES + f"{long}\n1/2\n\nlast words\n{' ' * 3000}\nAborted\n"
    found = observe(text.read_text(pasted), ends)
    assert [each.text for each in found.of(FAULT)][1:] == ["1/2", "last words"]
    assert [each.where for each in found.of(FAULT)][1:] == ["line 20002", "line 20004"]
    assert [each.where for each in found.of(UNRECOGNIZED)] == ["line 20006"]


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ("2024-05-01 10:00:00.123456: ", "2024-05-02 11:11:11.654321: "),
        ("E0000 00:00:1745000000.123456   12345 ", "E0000 00:00:1746111111.654321   12345 "),
    ],
)
def test_the_same_words_at_another_time_are_the_same(first: str, later: str) -> None:
    first += "E failed call to cuInit: CUDA_ERROR_NO_DEVICE\n"
    later += "E failed call to cuInit: CUDA_ERROR_NO_DEVICE\n"
    found = seen("x\n" + first + later + later.replace("NO_DEVICE", "UNKNOWN"))
    assert [(each.values["name"], each.where, found.evidence(each).count) for each in found] == [
        ("CUDA_ERROR_NO_DEVICE", "line 2", 2),
        ("CUDA_ERROR_UNKNOWN", "line 4", 1),
    ]


def test_what_only_tells_of_the_environment_makes_no_line_understood() -> None:
    fact = Catalogue((*CATALOGUE.messages, Message("path", r"/usr/local/cuda", fact=True)))
    found = observe(text.read_text("SomeError: in /usr/local/cuda/x\n"), fact)
    assert found.has("path") and found.has(UNRECOGNIZED)


def test_what_a_line_tells_alone_is_not_told_again_with_its_answer() -> None:
    variable = Message("variable", r"(?P<name>CUDA_\w+)=(?P<value>\S*)", fact=True)
    found = observe(text.read_text("$ CUDA_VISIBLE_DEVICES=99 python x.py\n2.18.1\n"), Catalogue((variable,)))
    assert [(each.values["value"], each.text) for each in found] == [
        ("99", "$ CUDA_VISIBLE_DEVICES=99 python x.py")
    ]


def test_a_known_line_that_speaks_of_a_fault_is_told_as_such_but_no_harmless_one() -> None:
    assert seen("ValueError: tensor with shape [1]").has(FAULT)
    assert not seen("ValueError: rebuild TensorFlow").has(FAULT)
