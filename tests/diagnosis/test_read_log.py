"""From lines to observations: what a catalogue finds in all kinds of text."""

from __future__ import annotations

import pytest

from validator.diagnosis import diagnose_log, text
from validator.diagnosis.catalogue import FAULT, UNRECOGNIZED, Catalogue, Message
from validator.diagnosis.observations import KEPT, WIDTH, Observation, Observations
from validator.diagnosis.observe import observe

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


def count(found: Observations, observation: Observation) -> int:
    (evidence,) = found.evidence([observation])
    return evidence.count


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


@pytest.mark.parametrize("end", ["", "x" * 1000])
def test_evidence_that_was_cut_ends_with_an_ellipsis(end: str) -> None:
    line = f"Could not load dynamic library 'libcudart.so.11.0'; dlerror: cannot open the file {end}"
    odd = f"E tensorflow/core: something odd happened {end}"
    known, unknown = diagnose_log(line).causes[0].evidence[0], diagnose_log(odd).unknown[0]
    for shown, whole in ((known.text, line), (unknown.text, odd)):
        assert shown == (f"{whole[: WIDTH - 1]}…" if end else whole.strip()) and len(shown) <= WIDTH


def test_a_repeated_line_is_counted() -> None:
    found = seen((PREFIX + "failed call to cuInit: CUDA_ERROR_NO_DEVICE\n") * 5)
    assert [count(found, each) for each in found.of("cuinit_failed")] == [5]


def test_different_words_of_one_kind_are_separate_lines() -> None:
    found = seen(
        "Could not find cuda drivers on your machine\nhm, Could not find cuda drivers on your machine\n"
    )
    assert [(each.where, count(found, each)) for each in found] == [("line 1", 1), ("line 2", 1)]


def test_only_so_many_observations_of_one_kind_are_kept() -> None:
    found = seen("".join(f"tensor with shape [{number}]\n" for number in range(1000)))
    assert len(found.of("shape")) == KEPT


def test_a_line_about_a_fault_that_is_not_known_is_unrecognized() -> None:
    found = seen(PREFIX + "something new\n" + PREFIX + "failed call to cuInit: CUDA_ERROR_NO_DEVICE\n")
    assert [each.where for each in found.of(UNRECOGNIZED)] == ["line 1"]


def test_a_known_line_is_not_unrecognized() -> None:
    assert not seen("ValueError: rebuild TensorFlow").has(UNRECOGNIZED)


def test_lines_that_a_terminal_or_a_mailer_wrapped_are_found() -> None:
    message = (
        "2024-05-01 10:00:00.1: I tsl/cuda_transfer.cc:32] Could not find cuda drivers on your machine, GPU"
    )
    for width in range(60, 96, 3):
        hard = "\n".join(message[start : start + width] for start in range(0, len(message), width))
        assert seen(hard).has("not_found"), width
    assert seen(message.replace(" on your", "\non your")).has("not_found")
    assert seen("> " + message.replace(" drivers", "\n> drivers")).has("not_found")


def test_a_wrapped_line_counts_once_and_is_recognized() -> None:
    found = seen(PREFIX + "failed call to cuInit:\nCUDA_ERROR_NO_DEVICE\n")
    assert [count(found, each) for each in found.of("cuinit_failed")] == [1]
    assert not found.has(UNRECOGNIZED)


def test_a_complete_line_is_not_read_again_with_its_neighbours() -> None:
    found = seen(PREFIX + "failed call to cuInit: CUDA_ERROR_NO_DEVICE\nnext words on a line of their own\n")
    assert [each.values["name"] for each in found.of("cuinit_failed")] == ["CUDA_ERROR_NO_DEVICE"]


def test_a_long_file_is_not_searched_for_wrapped_lines() -> None:
    message = (
        "2024-05-01 10:00:00.1: I tsl/cuda_transfer.cc:32] Could not find cuda\ndrivers on your machine\n"
    )
    assert seen(message).has("not_found")
    assert not seen(message + "x\n" * text.PASTE_LINES).has("not_found")


def test_a_harmless_message_says_why() -> None:
    found = seen("To enable them, rebuild TensorFlow with the appropriate compiler flags.").first("notice")
    assert found is not None and found.harmless == "It is only a notice."


def test_lines_before_the_end_of_a_process_are_given_with_it() -> None:
    ends = Catalogue((*CATALOGUE.messages, Message(UNRECOGNIZED, r"^Aborted", {"ends": "process"})))
    pasted = "$ python x.py\nfirst\nsomething odd\n\nrebuild TensorFlow\nAborted (core dumped)\n"
    found = observe(text.read_text(pasted), ends)
    assert [each.text for each in found.of(FAULT)] == ["first", "something odd"]
    assert [each.text for each in found.of(UNRECOGNIZED)] == ["Aborted (core dumped)"]


def test_lines_before_the_end_of_a_process_are_given_even_if_they_show_nothing() -> None:
    """Most lines of a long file are not read one by one, but these are."""
    ends = Catalogue((*CATALOGUE.messages, Message(UNRECOGNIZED, r"^Aborted", {"ends": "process"})))
    long = "x" * 2 * text.PIECE
    pasted = "step\n" * text.PASTE_LINES + f"{long}\n1/2\n\nlast words\n{' ' * 3000}\nAborted\n"
    found = observe(text.read_text(pasted), ends)
    assert [each.text for each in found.of(FAULT)][1:] == ["1/2", "last words"]
    assert [each.where for each in found.of(FAULT)][1:] == [
        f"line {text.PASTE_LINES + 2}",
        f"line {text.PASTE_LINES + 4}",
    ]
    assert [each.where for each in found.of(UNRECOGNIZED)] == [f"line {text.PASTE_LINES + 6}"]


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ("2024-05-01 10:00:00.123456: ", "2024-05-02 11:11:11.654321: "),
        ("E0000 00:00:1745000000.123456   12345 ", "E0000 00:00:1746111111.654321   12345 "),
    ],
)
def test_the_time_of_a_line_does_not_matter(first: str, later: str) -> None:
    first += "E failed call to cuInit: CUDA_ERROR_NO_DEVICE\n"
    later += "E failed call to cuInit: CUDA_ERROR_NO_DEVICE\n"
    found = seen("x\n" + first + later + later.replace("NO_DEVICE", "UNKNOWN"))
    assert [(each.values["name"], each.where, count(found, each)) for each in found] == [
        ("CUDA_ERROR_NO_DEVICE", "line 2", 2),
        ("CUDA_ERROR_UNKNOWN", "line 4", 1),
    ]


def test_a_fact_does_not_explain_the_line_that_it_is_in() -> None:
    fact = Catalogue((*CATALOGUE.messages, Message("path", r"/usr/local/cuda", fact=True)))
    found = observe(text.read_text("SomeError: in /usr/local/cuda/x\n"), fact)
    assert found.has("path") and found.has(UNRECOGNIZED)


def test_a_fact_in_a_question_is_not_repeated_with_the_answer() -> None:
    variable = Message("variable", r"(?P<name>CUDA_\w+)=(?P<value>\S*)", fact=True)
    found = observe(text.read_text("$ CUDA_VISIBLE_DEVICES=99 python x.py\n2.18.1\n"), Catalogue((variable,)))
    assert [(each.values["value"], each.text) for each in found] == [
        ("99", "$ CUDA_VISIBLE_DEVICES=99 python x.py")
    ]


def test_a_known_line_can_report_a_fault_unless_it_is_harmless() -> None:
    assert seen("ValueError: tensor with shape [1]").has(FAULT)
    assert not seen("ValueError: rebuild TensorFlow").has(FAULT)
