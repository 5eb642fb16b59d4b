"""The remedies that fit, and the values in them."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Any

import pytest

from validator.compat.offers import filling
from validator.conditions import AnyOf
from validator.diagnosis import diagnose_log, remedies
from validator.diagnosis.catalogue import CauseEntry, RemedyEntry, causes, language, table
from validator.diagnosis.commands import for_release
from validator.diagnosis.observations import Observation, Observations
from validator.diagnosis.remedies import Reader
from validator.model.diagnosis import Remedy
from validator.model.prediction import Host, Software

from ..corpus import reader
from . import shell
from .answers import diagnosed
from .filled import observed


def entry(*conditions: Any, command: str = "run it") -> CauseEntry:
    made = tuple(
        RemedyEntry("any", f"{number}.", (command,), language().parse(when))
        for number, when in enumerate(conditions)
    )
    return CauseEntry("cause", "Title.", "Means.", (), AnyOf(()), (), made, ("a source",))


def shown(
    found: CauseEntry, values: dict[str, str] | None = None, kinds: tuple[str, ...] = ()
) -> tuple[Remedy, ...]:
    observations = Observations()
    for kind in kinds:
        observations.add(Observation(kind, MappingProxyType({})))
    return remedies.fitting_remedies(found, values or {}, observations, Reader(frozenset()))


@pytest.mark.parametrize(
    ("kind", "version", "wanted", "fits"),
    [
        ("tensorflow", "2.18.1", ">=2.16", True),
        ("tensorflow", "2.15.1", ">=2.16", False),
        ("tensorflow", "2.16.2", "==2.16.1", False),
        ("tensorflow", "2.16.1", "==2.16.1", True),
        ("tensorflow", "2.16", "==2.16.1", False),
        ("tensorflow", "", ">=2.16", True),
        ("tensorflow", "", "==2.16.1", False),
        ("capability", "12.0a", ">=10.0", True),
        ("capability", "3.5", ">=6.0,<7.5", False),
        ("capability", "7.0", ">=6.0,<7.5", True),
        ("capability", "", ">=6.0", True),
    ],
)
def test_a_remedy_fits_a_range(kind: str, version: str, wanted: str, fits: bool) -> None:
    found = shown(entry({kind: wanted}, "always"), {kind: version}, ("always",))
    assert [each.says for each in found] == (["0.", "1."] if fits else ["1."])


def test_fitting_remedies_are_returned_or_what_decides_is_asked_for() -> None:
    both = entry({"tensorflow": ">=2.16"}, {"tensorflow": "<2.16"})
    assert [each.says for each in shown(both, {"tensorflow": "2.18.1"})] == ["0."]
    assert [each.says for each in shown(both)] == ["0.", "1."]
    asked = shown(entry({"system": "windows"}))
    assert [each.says.startswith("What helps depends on the system") for each in asked] == [True]


def test_remedies_depend_on_systems_and_observations() -> None:
    known = entry({"system": "windows"}, {"system": "linux"}, "conda", {"none": ["conda"]})
    assert [each.says for each in shown(known)] == ["1.", "3."]
    assert [each.says for each in shown(known, {"system": "windows"}, ("conda",))] == ["0.", "2."]


@pytest.mark.parametrize(
    ("place", "release"),
    [
        ("tensorflow/stream_executor/cuda/cuda_driver.cc:271", "2.10"),
        ("tensorflow/compiler/xla/stream_executor/cuda/cuda_diagnostics.cc:175", "2.14"),
        ("external/local_tsl/tsl/cuda/cudart_stub.cc:31", "2.15"),
        ("cuda_dnn.cc:8310", "2.18"),
    ],
)
def test_the_place_in_the_source_stands_for_the_newest_release_that_prints_it(
    place: str, release: str
) -> None:
    found = observed(f"2024-05-01 10:00:00.123456: E {place}] failed call to cuInit: CUDA_ERROR_NO_DEVICE")
    known = entry({"tensorflow": f">={release},<{release}.9"}, {"tensorflow": "<2.10"})
    for values, says in (({}, "0."), ({"tensorflow": "2.9.1"}, "1.")):
        shown = remedies.fitting_remedies(known, values, found, Reader(frozenset()))
        assert [each.says for each in shown] == [says]


def test_a_remedy_pins_a_release_that_works_where_it_installs() -> None:
    """A remedy for WSL2 is not for Windows, and one that makes an environment is not for the old Python."""
    text = "Hello\nTensorFlow 2.16 on Windows 11 with Python 3.14 can't use the GPU.\n"
    pins = {remedy.way: "\n".join(remedy.commands) for remedy in diagnose_log(text).causes[0].remedies}
    assert '"tensorflow[and-cuda]==2.20.0"' in pins["wsl"]
    asked = (
        "Hello\npip install tensorflow\nERROR: No matching distribution found for tensorflow\nPython 3.14.0\n"
    )
    commands = [one for remedy in diagnose_log(asked).causes[0].remedies for one in remedy.commands]
    assert any("--python 3.13" in one and '"tensorflow[and-cuda]==2.20.0"' in one for one in commands)


@pytest.mark.parametrize("name", ["captured/2.21.0/library_path_not_set.log", "written/tf221-cusolver.txt"])
def test_a_release_that_works_with_a_library_path_is_not_replaced_by_an_older_one(name: str) -> None:
    cause = diagnosed(name).causes[0]
    assert cause.code == "library_path_not_set"
    commands = [command for remedy in cause.remedies for command in remedy.commands]
    assert commands[0].startswith("export LD_LIBRARY_PATH=")
    assert not any("pip install" in command for command in commands)


def test_the_libraries_of_such_a_release_come_with_its_library_path() -> None:
    text = (
        "TensorFlow version: 2.21.0\nLinux, NVIDIA driver 580.65.06, RTX 4090\n"
        "Could not load dynamic library 'libcudart.so.12'; dlerror: libcudart.so.12: cannot open\n"
    )
    first = diagnose_log(text).causes[0]
    assert first.code == "cuda_library_missing_or_wrong_version"
    (pip,) = (remedy for remedy in first.remedies if remedy.way == "pip")
    assert pip.commands[0] == 'python -m pip install "tensorflow[and-cuda]==2.21.0"'
    assert pip.commands[1].startswith("export LD_LIBRARY_PATH=")


WINDOWS = "Windows 11\nPython 3.12.1\nRTX 3060, driver 551.23\n> pip install tensorflow==2.18.0\n"


def test_all_that_a_remedy_installs_goes_into_one_environment() -> None:
    listed = f"{WINDOWS}>>> tf.config.list_physical_devices('GPU')\n[]\n"
    pip = next(one for one in diagnose_log(listed).causes[0].remedies if one.way == "pip")
    assert pip.commands == (
        "py -3.10 -m venv tf210",
        r'tf210\Scripts\python -m pip install "tensorflow==2.10.1"',
        r'tf210\Scripts\python -m pip install "numpy<2"',
    )
    text = "GPU: RTX 5090\nPython version: 3.12.0\nTensorFlow version: 2.21.0\n"
    install = 'python3 -m venv tf && tf/bin/python -m pip install "{pin_to_keep}"'
    made = RemedyEntry("pip", "Do it.", (install,))
    known = CauseEntry("cause", "Title.", "Means.", (), AnyOf(()), (), (made,), ("a source",))
    (remedy,) = remedies.fitting_remedies(known, {}, observed(text), Reader(frozenset()))
    assert remedy.commands[1].startswith("export LD_LIBRARY_PATH=$(tf/bin/python -c ")


def test_an_environment_for_another_python_is_made_in_the_way_of_windows() -> None:
    host = Host(gpu="rtx 3060", driver="551.23", system="windows")
    install = 'python -m pip install "{pin_that_works}"'
    filled = filling("pip", {"pin_that_works"}, [install], host, Software(python="3.12"))
    assert filled is not None
    assert filled.before == ("uv venv --seed --python 3.10 tf-gpu", r"tf-gpu\Scripts\activate")


def test_quotes_of_requirements_work_in_every_shell() -> None:
    """In cmd, a single quote is a character like any other, and `<` reads from a file."""
    commands = [line for cause in causes() for one in cause.remedies for line in one.commands]
    assert len(commands) > 400
    single = [one for one in commands if re.search(r"pip install [^|]*'", one) and "sh -c" not in one]
    assert single == []


def test_values_that_a_shell_would_run_are_not_filled_in() -> None:
    known = entry({"all": []}, command='mv "{path}" x')
    assert shown(known, {"path": "/home/me/my code/tensorflow.py"})[0].commands == (
        'mv "/home/me/my code/tensorflow.py" x',
    )
    for path in ("`reboot`.py", "$(reboot).py", '"; reboot; ".py', "a;b", "a&b", "a|b", "a\nb"):
        assert shown(known, {"path": path})[0].commands == ('mv "PATH" x',)


def test_an_unknown_value_is_explained() -> None:
    known = entry({"all": []}, command="pip install tensorflow=={tensorflow}")
    assert "TENSORFLOW is your release" in shown(known)[0].says
    assert shown(known, {"tensorflow": "2.18.0"})[0].says == "0."


def test_a_placeholder_is_explained_once() -> None:
    both = "install '{tensorflow}' '{image}'"
    first, second = shown(entry("always", {"all": []}, command=both), {}, ("always",))
    assert "TENSORFLOW is your release, which `python -m pip show tensorflow` shows" in first.says
    assert first.says.count("TENSORFLOW") == first.says.count("IMAGE") == 1
    assert second.says == "1."
    assert second.commands == ("install 'TENSORFLOW' 'IMAGE'",)
    later, other = "install '{image}.{pid}'", "install '{image}'"
    made = tuple(RemedyEntry("any", "Do it.", (one,)) for one in (other, later))
    known = CauseEntry("cause", "Title.", "Means.", (), AnyOf(()), (), made, ("a source",))
    assert shown(known)[1].says == "Do it. (PID is the process ID in the table of nvidia-smi.)"


def test_no_placeholder_is_a_redirection_of_the_shell() -> None:
    """A reader who forgets to fill in a value starts no program without it and writes no file."""
    wrong = []
    for cause in causes():
        for remedy in shown(cause):
            for command in remedy.commands:
                try:
                    shell.calls(command)
                except shell.ShellSyntaxError:
                    wrong.append(f"{cause.code}: {command}")
            wrong += re.findall(r"`[^`]*<[^`]*`", remedy.says)
    assert wrong == []


_CUDNN_8 = "Could not load dynamic library 'libcudnn.so.8'; dlerror: libcudnn.so.8: cannot open shared object"


def test_the_first_remedy_is_not_an_alternative() -> None:
    first = diagnose_log(f"TensorFlow version 2.10.0\n{_CUDNN_8} file\n").causes[0].remedies[0]
    assert first.says.startswith("Install the CUDA 11.2 and cuDNN 8.1 of this release")
    both = diagnose_log(f"TensorFlow version 2.15.0\n{_CUDNN_8} file\n").causes[0].remedies
    assert [each.says.startswith("Or install the CUDA") for each in both[:2]] == [False, True]
    for cause in causes():
        assert not any(remedy.says.startswith("Or ") for remedy in shown(cause)[:1])


_BY_LINES = "TensorFlow 2.18 prints these lines; in the command, write your exact version."


@pytest.mark.parametrize(
    ("facts", "release", "says"),
    [
        ("TensorFlow version: 2.18.1\n", "2.18.1", ""),
        ("", "2.18.1", f"{_BY_LINES} TensorFlow 2.18.1 needs driver"),
        (
            "Python version: 3.12.3\nGPU: RTX 3090\n",
            "2.18.1",
            f"{_BY_LINES} TensorFlow 2.18.1 needs driver 5",
        ),
        ("GPU: RTX 3090\nDriver Version: 570.124.06\n", "2.18.1", _BY_LINES),
        (
            "TensorFlow version: 2.18.1\nPython version: 3.13.0\n",
            "2.20.0",
            "This replaces TensorFlow 2.18.1 with 2.20.0, because 2.18.1 does not work here: tensorflow"
            " 2.18.1 has no wheel for Python 3.13",
        ),
    ],
)
def test_a_remedy_says_if_it_installs_another_release(facts: str, release: str, says: str) -> None:
    log = reader.entry("captured/2.18.1/cudnn_older_major.log").content().decode()
    remedies = diagnose_log(log + facts).causes[0].remedies
    (pip,) = (one for one in remedies if one.way == "pip" and "tensorflow" in one.commands[0])
    assert any(f'"tensorflow[and-cuda]=={release}"' in command for command in pip.commands)
    assert says in pip.says
    assert bool(says) == any(words in pip.says for words in ("write your exact version", "This replaces"))


def test_the_package_with_cuda_is_of_the_same_release_as_the_one_without() -> None:
    (cause,) = diagnose_log("tensorflow-cpu               2.21.0\n").causes
    assert "the package tensorflow of the same release is built with CUDA" in cause.means
    pip = cause.remedies[0]
    assert 'python -m pip install "tensorflow[and-cuda]==2.21.0"' in pip.commands
    assert not any("2.20.0" in one for one in (pip.says, *pip.commands))


def test_the_remedy_for_a_package_without_cuda_says_why_it_installs_another_release() -> None:
    (cause,) = diagnose_log("tensorflow-cpu               2.18.1\nPython version: 3.13.0\n").causes
    assert "This replaces TensorFlow 2.18.1 with 2.20.0, because 2.18.1 does not" in cause.remedies[0].says


@pytest.mark.parametrize(
    ("file", "there", "not_there"),
    [
        ("tf24-cudart-win.txt", ["CUDA 11.0 and cuDNN 8.0"], ["ldconfig", "Or install"]),
        ("cudnn-initialize-oom-24.txt", ["# in the program"], ["python -c"]),
        ("docker-no-driver.txt", ["apt-get install -y nvidia-container-toolkit"], ["Kubernetes"]),
        ("wsl-libcuda.txt", ["export LD_LIBRARY_PATH="], ["cudatoolkit="]),
        ("blackwell-5090.txt", ["tensorflow[and-cuda]==2.21.0", "2.22.0rc0"], ["newer release", "nvcr.io"]),
        ("sm-35-old.txt", ["use TensorFlow 2.14.1"], ["Blackwell", "25.02"]),
        ("colab-no-runtime.txt", ["Change runtime type"], ["apt-get", "mokutil"]),
        ("cuda-too-new.txt", ["same major version"], ["-e NVIDIA_DISABLE_REQUIRE"]),
        ("nvml-unknown-cgroup.txt", ["docker restart"], ["modprobe"]),
        ("tf-keras-patch.txt", ["tf_keras~=2.18.0"], ["keras~=2.18.1", "Before TensorFlow 2.16"]),
        ("glibc.txt", ["docker run"], ["uv venv"]),
        ("shadow-file.txt", ['mv "/home/u/proj/tensorflow.py"'], ["uninstall"]),
        ("held-memory.txt", ["kill 3141"], []),
        (
            "tensorflow-not-installed-420.txt",
            ["wsl --install", 'pip install "tensorflow==2.10.1"', 'pip install "numpy<2"'],
            ["LD_LIBRARY_PATH"],
        ),
        ("visible-devices-misset-416.txt", ["--gres=gpu:1"], ["unset CUDA_VISIBLE_DEVICES"]),
        ("libcuda-wrong-or-not-found-418.txt", ["no Linux driver"], ["ubuntu-drivers"]),
        ("container-no-gpu-access-421.txt", ["nvidia.com/gpu: 1"], ["apt-get", "docker run"]),
        ("compat-geforce.txt", ["LD_LIBRARY_PATH"], ["rmmod"]),
    ],
)
def test_the_remedies_fit_the_text(file: str, there: list[str], not_there: list[str]) -> None:
    first = diagnosed(f"written/{file}").causes[0]
    said = "\n".join(line for remedy in first.remedies for line in (remedy.says, *remedy.commands))
    assert [words for words in there if words not in said] == []
    assert [words for words in not_there if words in said] == []


def test_what_a_release_needs_besides_comes_right_after_it() -> None:
    text = "GPU: RTX 5090\nPython version: 3.14.0\nTensorFlow version: 2.19.0\n"
    made = RemedyEntry(
        "pip", "Do it.", ('python -m pip install "{pin_to_keep}"', "python -c 'import tensorflow'")
    )
    known = CauseEntry("cause", "Title.", "Means.", (), AnyOf(()), (), (made,), ("a source",))
    (remedy,) = remedies.fitting_remedies(known, {}, observed(text), Reader(frozenset()))
    kinds = [re.split("[ =]", command)[:2] for command in remedy.commands]
    assert kinds == [["uv", "venv"], ["python", "-m"], ["export", "LD_LIBRARY_PATH"], ["python", "-c"]]
    assert '"tensorflow[and-cuda]==2.21.0"' in remedy.commands[1]
    assert "and Python 3.10 to 3.13. Make an environment with Python 3.13 first." in remedy.says
    assert "XLA fails" in remedy.says


def test_commands_are_written_for_the_release_and_the_image_of_the_reader() -> None:
    growth = "in the program, right after the import: for gpu in x: set_memory_growth(gpu, True)"
    listed = "python -c 'import tensorflow as tf; print(tf.config.list_physical_devices(\"GPU\"))'"
    assert "allow_growth" in for_release(growth, (1, 15))
    assert "tf.test.is_gpu_available()" in for_release(listed, (1, 15))
    assert "tf.config.experimental.list_physical_devices" in for_release(listed, (2, 0))
    assert for_release(listed, (2, 1)) == for_release(listed, ()) == listed
    computed = "print(tf.nn.relu(tf.ones((1, 8))).shape)"
    assert for_release(computed, (1, 11)) == "print(tf.Session().run(tf.nn.relu(tf.ones((1, 8)))).shape)"
    assert for_release(computed, (2, 0)) == computed
    own = "$ docker run --rm -it tensorflow/tensorflow:2.11.0-gpu bash\n"
    (cause,) = diagnose_log(
        f"{own}/proc/driver/nvidia/version does not exist\nfailed call to cuInit\n"
    ).causes
    commands = " ".join(command for remedy in cause.remedies for command in remedy.commands)
    assert "tensorflow/tensorflow:2.11.0-gpu nvidia-smi" in commands and " IMAGE" not in commands


@pytest.mark.parametrize("system", ["linux", "windows", ""])
@pytest.mark.parametrize("ways", [("conda",), ("pip",), ("docker",), ("colab",), ("slurm",), ()])
def test_no_remedy_of_any_cause_shows_a_value_that_nothing_explains(
    system: str, ways: tuple[str, ...]
) -> None:
    values = {"system": system} if system else {}
    for cause in causes():
        needed = {name for one in cause.remedies for name in one.placeholders} - table("find_out").keys()
        named = {name.upper() for name in needed}
        for remedy in remedies.fitting_remedies(cause, values, observed("a line"), Reader(frozenset(ways))):
            words = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", " ".join((remedy.says, *remedy.commands))))
            assert not named & words, cause.code


def test_no_remedy_has_a_placeholder_for_a_version_that_the_text_does_not_show() -> None:
    for text in ("libcublas.so.10: cannot open shared object file: No such file or directory", "no GPU"):
        for cause in diagnose_log(f"TensorFlow does not see the GPU\n{text}\n").causes:
            for remedy in cause.remedies:
                assert not re.search("_NEEDED|BUILDS", " ".join((remedy.says, *remedy.commands)))


def test_a_last_resort_is_named_only_where_no_other_cause_is() -> None:
    said = "My training only uses the CPU and not the GPU.\n"
    assert [one.code for one in diagnose_log(said).causes] == ["gpu_unused_without_a_reason"]
    known = diagnose_log(f"{said}tensorflow-cpu               2.21.0\n").causes
    assert [one.code for one in known] == ["cpu_only_build"]
