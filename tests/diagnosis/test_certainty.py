"""How certain a fact is: printed, stated or mentioned; and which of several values describes the fault."""

from __future__ import annotations

import itertools
from collections.abc import Collection

import pytest

from validator.diagnosis import compile, diagnose_log, text
from validator.diagnosis.catalogue import POSSIBLE, catalogue, finder, language
from validator.diagnosis.diagnose import COMPLAINTS
from validator.diagnosis.observations import Certainty, Observation, Observations, is_in_passing
from validator.diagnosis.observe import observe
from validator.diagnosis.remedies import ANYWHERE
from validator.model.diagnosis import GPU_USED, NO_FAULT

from ..laws import subjects_to_try
from .facts_read import facts_read

FAULT = "E0000 00:00:1 cuda_driver.cc:152] failed call to cuInit: CUDA_ERROR_NO_DEVICE: no device\n"


def seen(pasted: str) -> Observations:
    return observe(text.read_text(pasted), catalogue())


@pytest.mark.parametrize(
    ("sentence", "value", "passing"),
    [
        ("it worked on TensorFlow 2.15", "2.15", True),
        ("It works fine with CUDA 11.8, but not with CUDA 12.2", "11.8", True),
        ("It works fine with CUDA 11.8, but not with CUDA 12.2", "12.2", False),
        ("TensorFlow 2.10 works", "2.10", True),
        ("TensorFlow 2.10 doesn't work", "2.10", False),
        ("Previously I used TF 2.12", "2.12", True),
        ("I upgraded from TensorFlow 2.10 to TensorFlow 2.16", "2.10", True),
        ("I upgraded from TensorFlow 2.10 to TensorFlow 2.16", "2.16", False),
        ("I downgraded from 2.16 to 2.15", "2.15", True),
        ("Downgrading to TF 2.15 helped", "2.15", True),
        ("I get the same error with CUDA 12.4", "12.4", True),
        ("I also tried TF 2.18", "2.18", True),
        ("I tried TF 2.18 and the GPU is not found", "2.18", False),
        ("it is not working with TF 2.18", "2.18", False),
        ("TF stopped working with CUDA 12.2", "12.2", False),
        ("nvidia-smi works with driver 535.104", "535.104", False),
        ("Python 3.10 or later is needed", "3.10", True),
        ("my system is up to date, driver 535.104", "535.104", False),
        ("I use TensorFlow 2.16 and nothing works.", "2.16", False),
        ("We see this since TF 2.16", "2.16", False),
        ("requires CUDA 11.8. I have CUDA 12.1", "12.1", False),
    ],
)
def test_a_value_in_passing(sentence: str, value: str, passing: bool) -> None:
    assert is_in_passing(sentence, value) is passing


def test_only_what_is_judged_is_given_and_what_was_printed_comes_first() -> None:
    found = Observations()
    mentioned = Observation("driver", {"version": "470.1"}, certainty=Certainty.MENTIONED)
    stated = Observation("driver", {"version": "535.1"}, certainty=Certainty.STATED)
    printed = Observation("driver", {"version": "550.1"})
    found.add(mentioned)
    assert not found.has("driver") and found.first("driver") is None
    found.add(stated)
    found.add(printed)
    assert found.of("driver") == (printed, stated)
    assert found.mentioned("driver") == (mentioned,)
    assert found.value("driver", "version") == "550.1"
    assert found.with_value("driver", "version", "470.1") is None
    assert list(found) == [mentioned, stated, printed]


def test_a_preferred_observation_comes_first_among_equals() -> None:
    found = Observations()
    first, second = (Observation("cuda", {"version": version}) for version in ("11.8", "12.2"))
    found.add(first)
    found.add(second)
    found.prefer(second)
    assert found.of("cuda") == (second, first)


def test_a_version_that_worked_is_not_judged() -> None:
    found = seen("My GPU is not used.\nIt worked on TensorFlow 2.15 but I need a newer one.\n" + FAULT)
    assert not found.has("tensorflow")
    assert [one.values["version"] for one in found.mentioned("tensorflow")] == ["2.15"]
    assert facts_read(found).tensorflow is None


def test_what_a_program_prints_counts_before_what_a_person_states() -> None:
    found = seen("I have a problem.\nI use TensorFlow 2.15 here.\ntf.__version__\n2.16.1 []\n")
    assert facts_read(found).tensorflow == "2.16.1"


def test_of_several_printed_values_the_last_before_the_fault_counts() -> None:
    before = "Cuda compilation tools, release 11.8, V11.8.89\n"
    after = "Cuda compilation tools, release 12.2, V12.2.140\n"
    later = "Cuda compilation tools, release 12.4, V12.4.1\n"
    assert facts_read(seen("hello\n" + before + after + FAULT + later)).cuda == "12.2"
    assert facts_read(seen("hello\n" + FAULT + before + after)).cuda == "11.8"


def test_of_two_lists_of_packages_the_last_before_the_fault_counts() -> None:
    pasted = "Before:\ntensorflow 2.15.0\nnumpy 1.26.4\nAfter:\ntensorflow 2.16.1\n"
    known = facts_read(seen(pasted + FAULT))
    assert known.tensorflow == "2.16.1"
    assert known.packages == {"tensorflow": "2.16.1", "numpy": "1.26.4"}


def test_a_title_counts_only_where_the_text_does_not_say_more() -> None:
    title = "TensorFlow 1.14 can't find my GPU\n"
    assert facts_read(seen(title + "Please help.\n")).tensorflow == "1.14"
    found = seen(title + "2.16.1 []\n")
    assert facts_read(found).tensorflow == "2.16.1"
    assert [one.values["version"] for one in found.mentioned("tensorflow")] == ["1.14"]


def test_a_situation_holds_what_the_text_says() -> None:
    found = seen(
        "GPU is not found\n"
        "| NVIDIA-SMI 550.54.14     Driver Version: 550.54.14     CUDA Version: 12.4     |\n"
        "|   0  NVIDIA GeForce RTX 3090        Off | 00000000:01:00.0  On |                  N/A |\n"
        "Python 3.11.4\n"
        "tensorflow                   2.16.1\n"
        "nvidia-cudnn-cu12            8.9.7.29\n"
        "Linux host 5.15.90.1-microsoft-standard-WSL2 #1 SMP x86_64 GNU/Linux\n"
    )
    known = facts_read(found)
    assert (known.tensorflow, known.python) == ("2.16.1", "3.11.4")
    assert (known.driver, known.driver_cuda, known.cuda) == ("550.54.14", "12.4", None)
    assert known.gpu == "NVIDIA GeForce RTX 3090"
    assert (known.system, known.variant, known.extra) == ("wsl2", "gpu", True)
    assert known.packages == {"tensorflow": "2.16.1", "nvidia-cudnn-cu12": "8.9.7.29"}


def examples(*, kinds: Collection[str] = (), stated: bool = False) -> list[str]:
    """Return the first example of each row of the data that is of one of the kinds, or that a person says."""
    rows = [row for _, row in compile.messages()]
    wanted = [row for row in rows if row["kind"] in kinds or (stated and row.get("certainty") == "stated")]
    return [row["examples"][0] for row in wanted]


@pytest.mark.slow
def test_there_is_no_all_clear_over_a_complaint_or_an_error() -> None:
    complaints = [
        *examples(kinds=("failure_said", "hang_said", "process_dies_said")),
        "ModuleNotFoundError: No module named 'tensorflow.contrib'",
    ]
    questions = examples(kinds=("plain_question",))
    assert len(complaints) > 3 and len(questions) > 10
    cleared = [
        (question, complaint)
        for question, complaint in subjects_to_try(list(itertools.product(questions, complaints)))
        if diagnose_log(f"{question}\n\nMore about it:\n{complaint}\n").answer in (NO_FAULT, GPU_USED)
    ]
    assert cleared == []


@pytest.mark.slow
def test_what_one_line_of_a_title_says_is_possible_at_most() -> None:
    said = subjects_to_try(examples(stated=True), 3)
    surer = [
        (title, cause.code)
        for title in said
        for cause in diagnose_log(f"{title}\n\nHello, what can I do?\n").causes
        if {one.where for one in cause.evidence} == {"line 1"}
        and cause.strength != POSSIBLE
        and not cause.reasons
        and all(one.certainty is not Certainty.OBSERVED for one in seen(f"{title}\n\nHello.\n"))
    ]
    assert len(said) > 20
    assert surer == []


@pytest.mark.slow
def test_a_title_gives_way_to_harmless_messages_of_a_gpu_that_works() -> None:
    works = (
        "2024-05-01 10:00:00.1: I tensorflow/core/common_runtime/gpu/gpu_device.cc:1928] Created device"
        " /job:localhost/replica:0/task:0/device:GPU:0 with 14000 MB memory:  -> device: 0, name: Tesla T4,"
        " pci bus id: 0000:00:04.0, compute capability: 7.5\n"
        "successful NUMA node read from SysFS had negative value (-1), but there must be at least one NUMA"
        " node, so returning NUMA node zero\n"
    )
    assert diagnose_log(works).harmless
    named = []
    for title in subjects_to_try(examples(stated=True), 5):
        pasted = f"{title}\n\n{works}"
        # A title that says itself that the GPU is not used contradicts the log.
        if not language().parse("gpu_works").holds(finder(seen(pasted), {})):
            continue
        found = diagnose_log(pasted).causes
        only_titled = all({one.where for one in cause.evidence} == {"line 1"} for cause in found)
        # A program can run out of memory, hang or die on a GPU that works.
        if any({one.kind, one.values.get("of")} & COMPLAINTS for one in seen(f"{title}\n")):
            continue
        # Facts that can't work together contradict the log, too.
        only_titled = only_titled and not any(cause.reasons for cause in found)
        if (
            found
            and only_titled
            and all(one.certainty is not Certainty.OBSERVED for one in seen(f"{title}\n"))
        ):
            named.append((title, [cause.code for cause in found]))
    assert named == []


@pytest.mark.parametrize(
    "place", ["I run this in Google Colab", "/kaggle/working", "SageMaker", "OS: Windows 11"]
)
def test_no_path_of_this_machine_is_printed_for_another_one(place: str) -> None:
    command = diagnose_log(f"{place}\nThe kernel dies\n").next_command
    assert "git+https" in command and ANYWHERE not in command
