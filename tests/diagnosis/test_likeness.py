"""A complaint in words that no rule knows gets the cause whose descriptions it resembles most, as a guess."""

from __future__ import annotations

import pytest

from validator.diagnosis import diagnose_log, likeness

from ..corpus import words

#: For posts that were not learned: the least share of faults with a cause named, the least share of these
#: that is right, and the largest share of false alarms. Measured: 0.42, 0.91 and 0.11.
NAMED, RIGHT, ALARMS = 0.4, 0.88, 0.13

COMPLAINT = (
    "Two 3090 in one box, TF 2.9. As soon as I put the model under MirroredStrategy the fans of both cards"
    " spin up and the first step never comes, with one of them all goes well. Somebody told me to switch off"
    " the IOMMU in the BIOS."
)


@pytest.mark.slow
def test_most_guesses_about_posts_that_were_not_learned_are_right() -> None:
    texts = words.texts()
    held_out = (post for several in words.posts().values() for post in several[::4])
    posts = {likeness.prose(post.splitlines()) or post for post in held_out}
    table = words.train([one for one in texts if one[1] not in posts])
    asked = [(code, text) for code, text in texts if text in posts]
    guesses = [
        (code, found.code)
        for code, text in asked
        if (found := table.most_like(text)) and found.likelihood >= likeness.LIKELY
    ]
    faults = [(code, named) for code, named in guesses if code != likeness.NONE and named != likeness.NONE]
    harmless = [named for code, named in guesses if code == likeness.NONE and named != likeness.NONE]
    assert len(faults) >= NAMED * sum(code != likeness.NONE for code, _ in asked)
    assert sum(code == named for code, named in faults) >= RIGHT * len(faults)
    assert len(harmless) <= ALARMS * sum(code == likeness.NONE for code, _ in asked)


def test_the_file_was_learned_from_the_texts_that_are_here() -> None:
    assert likeness.table().learned_from == words.digest(words.texts())


def test_the_guess_is_possible_and_says_what_it_rests_on() -> None:
    diagnosis = diagnose_log(COMPLAINT)
    [cause] = diagnosis.causes
    assert (cause.code, cause.strength) == ("multi_gpu_hang", "possible")
    [evidence] = cause.evidence
    assert evidence.where == "words of the text"
    assert set(evidence.text.split(", ")) <= set(likeness.words_of(COMPLAINT))
    assert "mirroredstrategy" in evidence.text


@pytest.mark.parametrize(
    "beside",
    [
        "E tensorflow/core/some_file.cc:12] something that nobody has seen",
        "I run it on the CPU on purpose.",
        "I tensorflow/core/platform/cpu_feature_guard.cc:142] This TensorFlow binary is optimized with oneAPI"
        " Deep Neural Network Library (oneDNN) to use the following CPU instructions: AVX2 FMA",
    ],
)
def test_nothing_is_guessed_where_a_line_says_more(beside: str) -> None:
    stamp = "2024-05-01 10:00:00.123456: " if beside.startswith(("E ", "I tensorflow")) else ""
    assert diagnose_log(f"{COMPLAINT}\n{stamp}{beside}\n").causes == ()


@pytest.mark.parametrize(
    "text",
    [
        "my GPU is not used " * 2,
        "| GPU  Name of the card  Persistence mode | Bus-Id of it |\n" * 20,
        "- TensorFlow: 2.10\n" * 30,
    ],
    ids=["few words", "table", "form"],
)
def test_what_is_no_prose_is_like_nothing(text: str) -> None:
    assert likeness.table().most_like(text) is None


@pytest.mark.slow
def test_a_table_is_read_as_it_was_written() -> None:
    texts = [
        ("slow", "the training is slow and the card waits for the disk all the day"),
        ("full", "memory is full"),
        ("none", "everything is fine here"),
    ]
    learned = words.train(texts)
    table = likeness.Table.read(learned.write())
    assert table == learned
    found = table.most_like("our disk is so slow that the card waits and waits the whole day long, " * 2)
    assert found is not None and found.code == "slow" and found.likelihood > likeness.LIKELY
    assert {"disk", "waits", "slow", "card"} <= set(found.words)


def test_no_word_that_the_catalogue_does_not_have_is_shown() -> None:
    secret = "multigpuMirroredStrategyHang99"
    diagnosis = diagnose_log(f"{COMPLAINT} My password: {secret} does not help, {secret} neither.")
    [evidence] = diagnosis.causes[0].evidence
    assert evidence.text and secret.lower() not in evidence.text
