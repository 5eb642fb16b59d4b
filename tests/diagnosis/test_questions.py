"""Questions are answered: however they are put, for the reader's own release and system, after any fault."""

from __future__ import annotations

import pytest

from validator.diagnosis import compile, diagnose_log
from validator.diagnosis.catalogue import ASKED, PLAIN_QUESTION, answers
from validator.model.diagnosis import GPU_USED, NO_FAULT, NOT_SHOWN, UNRECOGNIZED

QUESTIONS = [
    (row["values"]["of"], row["kind"], words)
    for _, row in compile.messages()
    if row["kind"] in (PLAIN_QUESTION, ASKED)
    for words in row["examples"]
]
#: What the answer to each question has to say.
SAYS = {
    "hide_messages": "TF_CPP_MIN_LOG_LEVEL=3",
    "newer_release": "usually runs with later releases of 1.x",
    "cpu_only": "CUDA_VISIBLE_DEVICES=-1",
    "limit_memory": "TF_FORCE_GPU_ALLOW_GROWTH=true",
    "growth_downsides": "fragment",
    "memory_beside_limit": "has a CUDA context on the GPU",
    "renumbered": "numbers the GPUs that it sees from 0",
    "choose_gpu": "CUDA_VISIBLE_DEVICES=1",
    "several_gpus": "MirroredStrategy",
    "other_maker": "use only NVIDIA GPUs",
    "versions": "built with",
    "cuda_needed": "only the driver has to be installed",
    "is_it_used": "list_physical_devices",
    "cpu_package": "computes on the CPU by itself",
    "gpu_image": "Images with TensorFlow and CUDA",
    "gpu_changed": "Nothing has to be built or installed again",
    "mkl": "speed up what runs on the CPU",
    "xla_device": "is the device that counts",
    "slow_start": "The first step does what the others don't",
    "use_gpu": "by itself if its build and libraries fit",
    "cuda_of_gpu": "Ampere 11.0",
    "flag_of_program": "whatever a program's own flag says",
    "local_rank": "hvd.rank()",
    "memory_needed": "the model, its input and the batch",
    "same_results": "set_random_seed",
    "memory_not_shown": "the driver does not tell nvidia-smi",
    "results_of_cpu": "computes the same on the CPU",
    "cudnn_layers": "their weights fit the plain layers",
    "part_on_cpu": "only the network itself runs on the GPU",
    "card_supported": "whose CUDA knows",
    "package_names": "only one of them in an environment",
}


@pytest.mark.parametrize(
    "words",
    [
        "How do I fix that TensorFlow is not using the GPU?",
        "Is there a way to stop it from running on the CPU? The card is idle.",
        "How do I switch from the CPU to the GPU?",
        "How can I get the network onto the GPU rather than the CPU?",
        "How can I solve the problem of no GPU being found?",
        "Can you tell me why it does not use the GPU?",
        "How to avoid that it runs on the CPU?",
    ],
)
def test_a_wish_for_the_gpu_is_not_answered_by_hiding_it(words: str) -> None:
    found = diagnose_log(f"{words}\n\nThank you for your work.\n")
    assert "CUDA_VISIBLE_DEVICES=-1" not in found.works
    assert found.answer != NO_FAULT


@pytest.mark.parametrize(
    "words",
    [
        "How can I run it on the CPU rather than on the GPU?",
        "Is it possible to run this without a GPU?",
        "How can I let it run on the CPU and not on the GPU?",
    ],
)
def test_a_wish_for_the_cpu_is_answered(words: str) -> None:
    assert "CUDA_VISIBLE_DEVICES=-1" in diagnose_log(f"{words}\n").works


def test_each_question_is_asked_in_ten_ways_or_more() -> None:
    of = [one for one, *_ in QUESTIONS]
    assert {one for one in answers() if of.count(one) < 10} == set()
    assert set(of) == set(answers()) == set(SAYS)


@pytest.mark.parametrize(("of", "kind", "words"), QUESTIONS)
def test_a_question_is_answered(of: str, kind: str, words: str) -> None:
    found = diagnose_log(f"{words}\n\nThank you for your work.\n")
    assert found.causes == ()
    assert SAYS[of] in found.works or (of == "versions" and "For CUDA" in found.works)
    # A question that people with a fault ask, too, does not show that there is none.
    assert found.answer == NO_FAULT if kind == PLAIN_QUESTION else found.answer in (NOT_SHOWN, UNRECOGNIZED)


@pytest.mark.parametrize(
    ("text", "says", "never"),
    [
        ("TensorFlow version: 1.14.0\nHow can I limit the GPU memory?", "tf.ConfigProto", "tf.config."),
        ("How can I limit the GPU memory? I run agent-jax.", "XLA_PYTHON_CLIENT_MEM_FRACTION", "tf.config"),
        ("yarn add @tensorflow/tfjs-node-gpu\nCan I run it on the CPU only?", "node train.js", "os.environ"),
        ("Run my C++ program on CPU with the GPU build of tensorflow_cc", "=-1 ./program", "python"),
        ("TensorFlow version: 1.14.0\nHow do I check that the GPU is used?", "is_gpu_available", "tf.config"),
        ("TensorFlow version: 1.14.0\nHow can I use both GPUs?", "multi_gpu_model", "strategy.scope"),
        ("OS: Windows 10\nDo I need to install CUDA?", "CUDA 11.2 and cuDNN 8.1", "on Linux"),
        ("Which CUDA version do I need for TensorFlow 2.4?", "CUDA 11.0 and cuDNN 8.0", "CUDA 12"),
        ("macOS 14, M2\nHow can I use the GPU?", "tensorflow-metal", "and-cuda"),
    ],
)
def test_the_answer_fits_the_person(text: str, says: str, never: str) -> None:
    works = diagnose_log(text).works
    assert says in works
    assert never not in works


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("TF prints all this stuff into my table. Can that be less chatty?", "TF_CPP_MIN_LOG_LEVEL"),
        ("My log is full of these. How do I get rid of that noise?", "TF_CPP_MIN_LOG_LEVEL"),
        ("All is well. For a benchmark I want one run on the CPU.", "CUDA_VISIBLE_DEVICES=-1"),
        ("Works, but how can I run it on my second card?", "CUDA_VISIBLE_DEVICES=1"),
    ],
)
def test_a_question_next_to_a_working_gpu_is_answered(words: str, says: str) -> None:
    created = (
        "2023-01-02 10:37:59.817454: I tensorflow/core/common_runtime/gpu/gpu_device.cc:1616] Created device"
        " /job:localhost/replica:0/task:0/device:GPU:0 with 22000 MB memory:  -> device: 0, name: NVIDIA"
        " GeForce RTX 3090, pci bus id: 0000:01:00.0, compute capability: 8.6"
    )
    found = diagnose_log(f"{words}\n{created}\n")
    assert found.answer == GPU_USED
    assert says in found.works


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            "How can I run it on the GPU?\nW tensorflow/stream_executor/platform/default/dso_loader.cc:64]"
            " Could not load dynamic library 'libcudnn.so.8'; dlerror: libcudnn.so.8: cannot open shared"
            " object file: No such file or directory",
            "cuda_library_missing_or_wrong_version",
        ),
        (
            "Can I limit the GPU memory?\nResourceExhaustedError: OOM when allocating tensor with shape[64,9]"
            " and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
            "gpu_out_of_memory",
        ),
    ],
)
def test_a_fault_comes_before_the_answer(text: str, cause: str) -> None:
    found = diagnose_log(text)
    assert found.causes[0].code == cause
    assert found.works == ""


def test_what_a_program_prints_is_no_question() -> None:
    line = (
        "2022-06-09 15:50:37.711178: I tensorflow/stream_executor/cuda/cudart_stub.cc:29] Ignore above cudart"
        " dlerror if you do not have a GPU set up on your machine. Is it possible to use only the CPU?"
    )
    assert diagnose_log(line).works == ""
