"""The whole answer: causes, harmless messages, unrecognized lines, and the next step."""

from __future__ import annotations

import io
import shlex
from dataclasses import fields

import pytest

from validator.cli import doctor
from validator.compat.offers import newest_that_works
from validator.diagnosis import diagnose_file, diagnose_log
from validator.errors import InputError
from validator.model.codec import encode
from validator.model.diagnosis import Diagnosis
from validator.model.prediction import Host
from validator.reports.printable import headline

from .answers import diagnosed

STAMP = "2024-05-01 10:00:00.123456: "
CUINIT = STAMP + "E tensorflow/compiler/xla/stream_executor/cuda/cuda_driver.cc:266] failed call to cuInit: "
NUMA = (
    STAMP
    + "I tensorflow/compiler/xla/stream_executor/cuda/cuda_gpu_executor.cc:995] successful NUMA node read"
    " from SysFS had negative value (-1), but there must be at least one NUMA node, so returning NUMA node"
    " zero."
)


def test_a_cause_has_evidence_remedies_and_a_next_step() -> None:
    found = diagnose_log(
        "TensorFlow 2.13.0\n" + CUINIT + "CUDA_ERROR_SYSTEM_NOT_READY: system not yet initialized\n"
    )
    (cause,) = found.causes
    assert cause.code == "fabric_manager_not_ready"
    assert [(line.where, line.count) for line in cause.evidence] == [("line 2", 1)]
    assert any("nvidia-fabricmanager" in command for remedy in cause.remedies for command in remedy.commands)
    assert found.facts["tensorflow"] == "2.13.0"
    assert found.read == "2 lines"
    assert found.next_step.startswith("fix the first cause")


def test_harmless_lines_are_not_a_fault() -> None:
    found = diagnose_log((NUMA + "\n") * 3)
    assert found.causes == () and found.unknown == ()
    assert [(entry.code, entry.evidence[0].count) for entry in found.harmless] == [("numa_notice", 3)]
    assert found.answer == "not_shown"
    assert found.next_step.startswith("run this in that environment: it shows whether the GPU is used")


REGISTERED = "[PhysicalDevice(name='/physical_device:GPU:0', device_type='GPU')]\n"
STEP = "Epoch 1/5\n1875/1875 [==============================] - 4s 2ms/step - loss: 0.2161\n"


def test_there_is_no_fault_only_where_tensorflow_was_seen_to_have_the_gpu() -> None:
    assert diagnose_log("I use TensorFlow 2.21.0\n").answer == "not_shown"
    assert diagnose_log(REGISTERED).answer == "no_fault"
    trained = diagnose_log(REGISTERED + STEP)
    assert (trained.answer, trained.missing) == ("gpu_used", ())
    assert trained.next_step.startswith("nothing to fix")


def test_facts_that_cannot_work_are_no_answer_without_a_fault() -> None:
    """The text is not about the environment that works."""
    found = diagnose_log("TensorFlow 2.18.0 with NVIDIA driver version 470.57.02\n" + REGISTERED + STEP)
    assert (found.answer, found.causes) == ("not_shown", ())


NVIDIA_SMI = """\
| NVIDIA-SMI {driver}              Driver Version: {driver}      CUDA Version: 12.4     |
|   0  NVIDIA GeForce {gpu}        Off |   00000000:01:00.0  On |                  N/A |
|  0%   45C    P8             12W /  170W |     512MiB /  12288MiB |      1%      Default |
"""


@pytest.mark.slow
def test_nvidia_smi_alone_is_answered_with_what_works_and_what_to_paste() -> None:
    found = diagnose_log(NVIDIA_SMI.format(driver="550.54.15", gpu="RTX 3060"))
    assert found.answer == "not_shown" and found.facts["gpu"].endswith("RTX 3060")
    assert found.facts["driver"] == "550.54.15" and found.facts["driver_cuda"] == "12.4"
    suggested = newest_that_works(Host(gpu="rtx 3060", driver="550.54.15", system="linux"), None)
    assert suggested is not None
    assert found.works == (
        f"On this GPU and driver, TensorFlow {suggested.release.version} should work:"
        f' `python -m pip install "{suggested.requirement}"`.'
    )
    assert "paste what it printed since it was imported" in found.next_step and "pip list" in found.next_step
    # What that release needs besides is said too.
    assert "XLA fails" in diagnose_log(NVIDIA_SMI.format(driver="570.86", gpu="RTX 5090")).works


def test_a_driver_with_which_nothing_works_is_said_with_one_that_helps() -> None:
    found = diagnose_log(NVIDIA_SMI.format(driver="390.48", gpu="GTX 1080"))
    assert found.works.startswith("No release of TensorFlow since 2.8 is expected to use this GPU")
    assert " needs driver 525.60.13 or newer; this is 390.48." in found.works
    assert found.works.endswith("Driver 525.60.13 or newer would help.")
    newer = diagnose_log(NVIDIA_SMI.format(driver="590.44", gpu="GTX 1080"))
    assert newer.causes and newer.works == ""


def test_what_works_is_not_said_where_it_does_not_help() -> None:
    smi = NVIDIA_SMI.format(driver="550.54.15", gpu="RTX 3060")
    assert diagnose_log("NVIDIA GeForce RTX 3060").works == "" == diagnose_log("Hello").works
    assert diagnose_log(smi + REGISTERED + STEP).works == "", "the GPU works"
    assert diagnose_log(f"{smi}CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: failed call to cuInit\n").works == ""


@pytest.mark.parametrize(
    "text", ["[]", "Out[3]: []\n", ">>> tf.config.list_physical_devices('GPU')\n[]\n", "Num GPUs: []\n"]
)
def test_an_empty_list_is_a_symptom_and_the_answer_says_what_to_paste(text: str) -> None:
    found = diagnose_log(text)
    assert (found.answer, found.causes) == ("no_gpu_listed", ())
    assert headline(found) == "TensorFlow lists no GPU, but this does not show why."
    assert found.unknown and "`nvidia-smi` and `pip list`" in found.next_step
    # Another fault is not hidden behind it.
    assert diagnose_log(f"{text}\nE tensorflow/core: something odd happened\n").answer == "unrecognized"


def test_an_empty_list_among_other_words_is_only_a_list() -> None:
    assert diagnose_log("the result of my search\n[]\n").answer == "not_shown"


def test_missing_facts_are_named() -> None:
    found = diagnose_log("I use TensorFlow 2.18.1 with Python 3.11 on an RTX 3090.\n")
    assert found.answer == "not_shown"
    assert {"driver", "cudnn", "wheel"} <= set(found.missing)
    assert not {"tensorflow", "python", "gpu"} & set(found.missing)


@pytest.mark.parametrize(
    ("text", "end"),
    [
        (
            "$ docker run --gpus all tensorflow/tensorflow:2.18.0-gpu",
            "--image tensorflow/tensorflow:2.18.0-gpu",
        ),
        ("$ python train.py\nTensorFlow 2.18.0", '--python "$(command -v python)"'),
        ("$ apptainer run --nv docker://tensorflow/tensorflow:2.18.0-gpu", '--python "$(command -v python)"'),
    ],
)
def test_the_last_line_is_a_command_for_the_way_it_was_started(text: str, end: str) -> None:
    command = diagnose_log(text).next_command
    assert command.startswith("uvx --from git+https://") and command.endswith(f"validator doctor {end}")


def test_its_command_has_options_that_doctor_has() -> None:
    words = shlex.split(diagnose_log("$ docker run tensorflow/tensorflow:2.18.0-gpu").next_command)
    options = words[words.index("doctor") + 1 :]
    parsed = doctor.doctor_command.make_context("doctor", list(options))
    assert parsed.params["image"] == "tensorflow/tensorflow:2.18.0-gpu"


def test_a_known_message_without_a_cause_is_not_recognized() -> None:
    found = diagnose_log(CUINIT + "CUDA_ERROR_INVALID_VALUE: invalid argument\n")
    assert found.causes == ()
    assert [line.where for line in found.unknown] == ["line 1"]
    assert found.next_step.startswith("no known cause fits these lines")


def test_unrecognized_lines_are_given_next_to_a_cause() -> None:
    text = (
        CUINIT
        + "CUDA_ERROR_SYSTEM_NOT_READY: x\n"
        + STAMP
        + "E tensorflow/core/new.cc:1] something new went wrong\n"
    )
    found = diagnose_log(text)
    assert [cause.code for cause in found.causes] == ["fabric_manager_not_ready"]
    assert [line.where for line in found.unknown] == ["line 2"]


def test_remedies_are_for_the_known_way_of_installing() -> None:
    text = (
        "Could not load dynamic library 'libcudnn.so.8'; dlerror: libcudnn.so.8: cannot open shared object"
        " file\n"
    )
    ways = [
        remedy.way
        for remedy in diagnose_log("(base) user@host:~$ conda activate tf\n" + text).causes[0].remedies
    ]
    # pip works in an environment of conda too, and comes after conda's own.
    assert ways.index("conda") < ways.index("pip")
    ways = [remedy.way for remedy in diagnose_log(text).causes[0].remedies]
    assert ways.index("pip") < ways.index("conda")


def test_commands_name_the_versions_that_the_release_needs() -> None:
    found = diagnose_log(
        "tensorflow 2.10.0\nCould not load dynamic library 'libcudnn.so.8'; dlerror: not found\n"
    )
    commands = [command for remedy in found.causes[0].remedies for command in remedy.commands]
    assert any("cudatoolkit=11.2" in command and "cudnn>=8.1" in command for command in commands)


def test_a_file_and_a_text_have_the_same_answer() -> None:
    text = CUINIT + "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\n"
    assert diagnose_file(io.BytesIO(text.encode()), "log") == diagnose_log(text)


def test_an_empty_text_is_rejected() -> None:
    with pytest.raises(InputError, match=r"^the text is empty"):
        diagnose_log(" \n")


def test_the_answer_is_plain_json() -> None:
    answer = encode(diagnose_log(CUINIT + "CUDA_ERROR_NO_DEVICE: x\n" + NUMA))
    assert set(answer) == {field.name for field in fields(Diagnosis)}
    assert answer["causes"][0]["code"] == "visible_devices_misset"
    assert answer["harmless"][0]["code"] == "numa_notice"


@pytest.mark.parametrize(
    "line",
    [
        "E: Unable to locate package nvidia-container-toolkit",
        "make: *** [Makefile:3: all] Error 1",
        "nvcc fatal   : Don't know what to do with 'kernels.cux'",
        "[1]    4242 segmentation fault (core dumped)  python train.py",
        "bash: line 1: some-tool: command not found",
        "docker: something that nobody has seen.",
        "Job for docker.service failed because the control process exited with error code.",
        "could not connect to server: Connection refused",
        "thread 'main' panicked at src/main.rs:1",
        "Traceback (most recent call last):",
        "AssertionError",
        "somewhere.SomethingNew: that nobody has seen",
        "2024-05-01 10:00:00.1: F tensorflow/core/some_file.cc:12] something that nobody has seen",
        "Aborted",
    ],
)
def test_a_line_about_a_fault_is_never_called_harmless(line: str) -> None:
    found = diagnose_log(f"$ python train.py\n{line}\n")
    assert not found.causes
    assert [each.text for each in found.unknown] == [line]
    assert found.next_step.startswith("no known cause fits these lines")


NOT_LOADED = (
    "{path}/default/dso_loader.cc:64] Could not load dynamic library 'libcudart.so.11.0'; dlerror:"
    " libcudart.so.11.0: cannot open shared object file: No such file or directory"
)


@pytest.mark.parametrize(
    ("before", "path", "extra"),
    [
        # Up to 2.11 a release names the library; the extra and-cuda is there from 2.14 on.
        ("", "tensorflow/stream_executor/platform", False),
        ("", "tensorflow/compiler/xla/stream_executor/platform", False),
        ("TensorFlow 2.10.1\n", "tensorflow/compiler/xla/stream_executor/platform", False),
        ("TensorFlow 2.14.0\n", "tensorflow/stream_executor/platform", True),
    ],
)
def test_lines_of_an_old_release_get_remedies_for_old_releases(before: str, path: str, extra: bool) -> None:
    (cause,) = diagnose_log(f"{before}{STAMP}W {NOT_LOADED.format(path=path)}\n").causes
    commands = [command for remedy in cause.remedies for command in remedy.commands]
    assert any("[and-cuda]" in command for command in commands) is extra
    assert any("cudatoolkit=11" in command for command in commands) or extra


def test_prefixes_of_docker_compose_change_nothing() -> None:
    line = CUINIT + "UNKNOWN ERROR (303)\n"
    alone, composed = (diagnose_log(f"{name}{line}{name}[]\n") for name in ("", "trainer-1  | "))
    assert [cause.code for cause in alone.causes] == ["libcuda_wrong_or_not_found"]
    assert [cause.code for cause in composed.causes] == ["libcuda_wrong_or_not_found"]


def test_a_likely_cause_is_called_likely() -> None:
    assert diagnosed("written/negation.txt").causes[0].headline.startswith("Likely: ")
    slow = diagnose_log("Why is it so slow?\n\nThe training is slow on my RTX 3090.\n")
    assert slow.causes[0].headline.startswith("Possibly: ")
    assert diagnosed("written/oom.txt").causes[0].headline == diagnosed("written/oom.txt").causes[0].title


def test_a_line_counts_once() -> None:
    factories = next(
        each for each in diagnosed("written/harmless-only.txt").harmless if each.code == "factory_notice"
    )
    assert [(each.where, each.count) for each in factories.evidence] == [
        ("line 2", 1),
        ("line 3", 1),
        ("line 4", 1),
    ]
    assert all(each.count == 1 for each in diagnosed("written/numpy2.txt").causes[0].evidence)


@pytest.mark.parametrize("before", ["", "Hello\n"])
def test_a_command_and_its_answer_are_one_piece_of_evidence(before: str) -> None:
    command = (
        "$ docker run --rm tensorflow/tensorflow:2.15.0 python -c"
        " \"import tensorflow as tf; print(tf.config.list_physical_devices('GPU'))\""
    )
    (cause,) = diagnose_log(f"{before}{command}\n[]\n").causes
    assert [one.text for one in cause.evidence] == [f"{command}: []"]
