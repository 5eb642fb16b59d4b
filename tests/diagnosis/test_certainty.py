"""How certain a fact is: printed, stated or mentioned; and which of several values describes the fault."""

from __future__ import annotations

import pytest

from validator.diagnosis import text
from validator.diagnosis.catalogue import catalogue
from validator.diagnosis.observations import Certainty, Observation, Observations, is_in_passing
from validator.diagnosis.observe import observe

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
