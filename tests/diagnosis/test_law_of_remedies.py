"""The law of remedies: whatever the cause, each remedy fits what the text says about the person."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from validator.compat import hardware
from validator.compat.releases import release_of_any_age, releases
from validator.diagnosis.catalogue import causes
from validator.diagnosis.combination import read_host, read_software
from validator.diagnosis.remedies import Reader, fitting_remedies
from validator.model.diagnosis import Remedy
from validator.model.prediction import MACOS, WINDOWS, Host
from validator.versions import leading_numbers

from ..laws import subjects_to_try
from .filled import VALUES, observed
from .test_remedy_releases import Case, installed, why_wrong

#: What only the other major version of TensorFlow has. Not even a sentence may name it.
ONLY_2 = (
    "says:" + r"mixed[ _]precision|mixed_float16|cuda_malloc_async|jit_compile|TF_GPU_ALLOCATOR",
    r"list_physical_devices|set_visible_devices|set_memory_growth|get_build_info|AUTOTUNE|tf\.debugging|tensor_float_32",
)
ONLY_1 = (
    "says:^(?:With|In|For) TensorFlow 1\\b|allow_growth = True",
    r"tf\.Session|ConfigProto|gpu_options|is_gpu_available",
    "tensorflow-gpu==",
)
#: What a text has to name before an answer may: a way of running, or a kind of machine.
UNNAMED = r"\b[Ll]aptop|^(?:In|On) (?:Colab|Kaggle)|^(?:Under|In|Inside) WSL|^(?:With|Under|Ask) Slurm"
#: What a text says about the person: name, lines, and what no command of a remedy may match then. A pattern
#: after a way's name and a colon is only for remedies of these ways.
SITUATIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "bare": ("$ python train.py", ("^docker", "^podman", "kubectl", "^srun", r"^wsl|\bwsl\.exe")),
    "docker": ("$ docker run -it tensorflow/tensorflow:2.15.0-gpu bash", ("^podman", "kubectl", "srun")),
    "podman": (
        "$ podman run -it docker.io/nvidia/cuda:12.3.2-base-ubuntu22.04",
        ("^docker", "--gpus", "kubectl"),
    ),
    "old docker": (
        "Docker version 18.03.1-ce\n$ docker run -it tensorflow/tensorflow:1.13.1-gpu",
        ("--gpus",),
    ),
    "pod": ("$ kubectl logs trainer", ("^docker", "^podman", "unset LD_LIBRARY_PATH", "srun")),
    "build": (
        "The command '/bin/sh -c python warm_up.py' returned a non-zero code: 1",
        ("^sudo", "^unset", "^export", "^docker run", "^nvidia-smi"),
    ),
    "slurm": ("#SBATCH --cpus-per-task=8", ("^docker", "^sudo (?:reboot|systemctl (?:isolate|restart))")),
    "apptainer": ("$ apptainer exec tf.sif python train.py", ("^docker run", "^podman", "kubectl")),
    "colab": ("I run this in Google Colab", ("host:.", "any pip:^(?![!#%]|import )", "^sudo", "^docker")),
    "tpu": ("I run this in Google Colab with the TPU runtime", ("pip install", "host:.")),
    "wsl": ("Windows 11, WSL2 Ubuntu 22.04", (r"wsl(?:\.exe)? --install", r"\$env:")),
    "windows": (
        "PS C:\\work> python train.py\nOS: Windows 11",
        (
            r"any host pip conda:^(?:export|unset|sudo|kill|env|grep|ls|find|lspci|ldconfig|dmesg|free) ",
            r"any host pip:\$\(python| && |\| grep|/usr/|/etc/|/proc/|/dev/",
        ),
    ),
    "frozen": (
        '  File "C:\\Program Files\\Scanner\\_internal\\tensorflow\\__init__.py", line 47',
        ("pip install",),
    ),
    "uv": ("$ uv pip install keras", ("pip:^python -m pip (?!--version)",)),
    "rebooted": ("I rebooted twice, no change.", ()),
    "growth": (
        "gpu: tf.config.experimental.set_memory_growth(gpu, True)",
        ("export TF_FORCE_GPU_ALLOW_GROWTH",),
    ),
    "unset": ("$ unset CUDA_VISIBLE_DEVICES", ("^unset CUDA_VISIBLE_DEVICES",)),
    "program": (
        'os.environ["CUDA_VISIBLE_DEVICES"] = "-1"',
        ("^unset CUDA_VISIBLE", "^env .*VISIBLE_DEVICES"),
    ),
    "wheels": ("nvidia-cudnn-cu12            9.3.0.75", ("-cu11",)),
    "extra": ("$ pip install tensorflow[and-cuda]==2.20.0", ()),
    "driver": ("NVIDIA driver version: 384.130\nCUDA 9.0", ()),
    "1 by release": ("TensorFlow version: 1.12.0", ONLY_2),
    "1 by code": ("sess = tf.Session(config=config)\nconfig.gpu_options.allow_growth = True", ONLY_2),
    "1 by wheel": (r"E c:\tf_jenkins\workspace\rel-win\m\windows-gpu\py\36\tensorflow\core", ONLY_2),
    "2 by release": ("TensorFlow version: 2.18.0", ONLY_1),
    "mac": ("OS: macOS 14.5", (r"(?i)nvidia|cuda|--gpus|ldconfig|apt-get|/proc/|LD_LIBRARY_PATH|^wsl",)),
    "jetson": ("I use a Jetson Nano with JetPack 4.6.", ("^nvidia-smi",)),
    "node": ("yarn add @tensorflow/tfjs-node-gpu", (r"\bpip\b", r"\bpython\b", "^conda")),
    "java": ("ai.djl.tensorflow:tensorflow-native-auto", (r"\bpip\b", r"\bpython\b", "^conda")),
    "c": ("I use the C++ API of TensorFlow", (r"\bpip\b", r"\bpython\b", "^conda")),
    "r": ("> library(tensorflow)", (r"\bpip install", "^conda")),
    "sagemaker": ("This is a SageMaker notebook.", ("^docker", "^(?!.*uv tool run).*validator ")),
    "finished": ("I use TF Serving on Linux", ("^# (?:in the program|model|dataset|tf)",)),
}
#: Situations that name the release or the system, so that no other machine is added.
ALONE = ("windows", "mac", "jetson", "1 by release", "1 by code", "1 by wheel", "2 by release", "driver")
#: Causes that are about the setting itself, in which it is not what was done already.
OWN_SUBJECT = {
    "bare": {
        "image_not_in_engine",
        "image_not_available",
        "wsl2_container_support_too_old",
        "container_no_gpu_access",
    },
    "growth": {"memory_growth_set_late", "memory_growth_differs"},
    "pod": {"image_not_available"},
    # The variable or the policy is in the text of such a cause, whatever release it names.
    "1 by release": {"allocator_wrong", "mixed_precision_without_gain"},
    "1 by code": {"allocator_wrong", "mixed_precision_without_gain"},
    "1 by wheel": {"allocator_wrong", "mixed_precision_without_gain"},
    # Only Docker loses a GPU in this way.
    "apptainer": {"container_lost_gpu"},
}
#: Causes that are about Docker itself, so that the person uses it.
ABOUT_DOCKER = {"docker_not_reachable", "docker_without_gpus_option"}
MACHINES = (
    Case(),
    Case(gpu="H100 PCIe", driver="535.183.01", tensorflow="2.18.0"),
    Case(gpu="RTX 5090", tensorflow="2.20.0"),
    Case(driver="570.124.06", python="3.12"),
    Case(tensorflow="2.10.1", python="3.10"),
    Case(gpu="Tesla K80", driver="390.48", tensorflow="1.15.5", python="3.6"),
)

Law = Callable[[str, str, Sequence[Remedy], Host], Iterator[str]]


def commands_fit(situation: str, code: str, remedies: Sequence[Remedy], host: Host) -> Iterator[str]:
    own = {*OWN_SUBJECT.get(situation, ()), *ABOUT_DOCKER}
    for pattern in SITUATIONS[situation][1] if code not in own else ():
        pattern = pattern.removeprefix("says:")
        ways, _, alone = pattern.partition(":") if re.match(r"[a-z ]+:", pattern) else ("", "", pattern)
        for remedy in remedies:
            for command in remedy.commands if not ways or remedy.way in ways.split() else ():
                if re.search(alone, command):
                    yield f"{remedy.way}: {command}"


def sentences_fit(situation: str, code: str, remedies: Sequence[Remedy], host: Host) -> Iterator[str]:
    """What the person can't have is not explained either, and no way is named that the text does not name."""
    patterns = [one.removeprefix("says:") for one in SITUATIONS[situation][1] if one.startswith("says:")]
    if situation in ("bare", "1 by release", "2 by release", "driver"):
        patterns.append(UNNAMED)
    own = OWN_SUBJECT.get(situation, ())
    for remedy in remedies if code not in own else ():
        if "can be changed for TensorFlow 2" in remedy.says:
            continue
        for sentence in re.split(r"(?<=[.?]) (?=[A-Z])", remedy.says):
            if any(re.search(pattern, sentence) for pattern in patterns):
                yield f"{remedy.way}: {sentence}"


def a_program_keeps_its_major_version(
    situation: str, code: str, remedies: Sequence[Remedy], host: Host
) -> Iterator[str]:
    """A program for TensorFlow 1 gets TensorFlow 2 only with the condition that it can be changed."""
    if not situation.startswith("1 "):
        return
    for remedy in remedies:
        moves = any(re.search(r"install .*tensorflow\S*[=~]=2\.", command) for command in remedy.commands)
        if moves and "can be changed for TensorFlow 2" not in remedy.says:
            yield f"{remedy.commands}"


def the_driver_that_is_there_is_not_the_remedy(
    situation: str, code: str, remedies: Sequence[Remedy], host: Host
) -> Iterator[str]:
    for remedy in remedies:
        needed = re.search(r"[Ii]nstall driver ([\d.]+) or a newer one", remedy.says)
        if needed and host.driver and leading_numbers(needed[1]) <= leading_numbers(str(host.driver)):
            yield f"{host.driver} is there: {remedy.says}"


def nothing_is_done_again(situation: str, code: str, remedies: Sequence[Remedy], host: Host) -> Iterator[str]:
    for remedy in remedies:
        if situation == "rebooted" and remedy.commands == ("sudo reboot",):
            yield "a reboot"
        # What can't be imported was installed into another Python.
        is_same = situation == "extra" and OWN[0] in ("", "2.20.0") and code != "tensorflow_not_installed"
        if is_same and remedy.commands[:1] == ('python -m pip install "tensorflow[and-cuda]==2.20.0"',):
            yield "the installation that did not help"


def what_it_installs_works(
    situation: str, code: str, remedies: Sequence[Remedy], host: Host
) -> Iterator[str]:
    """The conditions on a driver or GPU that is not known stand in a remedy of the same answer."""
    said = " ".join(remedy.says for remedy in remedies)
    for remedy in remedies:
        for made, machine in installed(remedy, host, None):
            if why := why_wrong(made, machine):
                yield f"{made.tensorflow}: {why}"
            release = release_of_any_age(made.tensorflow or "")
            needs = re.search(rf"TensorFlow {re.escape(made.tensorflow or '')} needs ([^.]*)", said)
            is_said = host.names_driver or (needs is not None and "driver" in needs[1])
            if release in releases() and made.wheel != "conda-forge" and not is_said:
                yield f"{made.tensorflow}: the driver that it needs is not said"


def an_environment_is_made_before_it_is_used(
    situation: str, code: str, remedies: Sequence[Remedy], host: Host
) -> Iterator[str]:
    for remedy in remedies:
        made = [n for n, one in enumerate(remedy.commands) if re.match(r"(?:uv venv|conda create)", one)]
        used = [n for n, one in enumerate(remedy.commands) if "pip install" in one]
        if made and used and min(used) < min(made):
            yield f"{remedy.commands}"


def what_fails_is_not_installed(
    situation: str, code: str, remedies: Sequence[Remedy], host: Host
) -> Iterator[str]:
    """The causes that rule out the release in use for this driver or GPU."""
    if code in ("driver_too_old", "compute_capability_unsupported"):
        own = OWN[0]
        for remedy in remedies:
            if own and any(f"=={own}" in command for command in remedy.commands):
                yield f"{own} fails here"


def the_first_remedy_is_no_alternative(
    situation: str, code: str, remedies: Sequence[Remedy], host: Host
) -> Iterator[str]:
    if not remedies or re.match(
        ALTERNATIVE, remedies[0].says.removeprefix("Ask whoever administers the machine: ")
    ):
        yield f"none, or an alternative to nothing: {remedies[:1]}"
    for remedy in remedies:
        if re.search(r"tf_upgrade_v2`\): (?:Or|Otherwise)\b", remedy.says):
            yield f"an alternative within a condition: {remedy.says}"


#: Commands that change something.
CHANGES = re.compile(
    r"(?:sudo )?(?:modprobe|ldconfig$|nvidia-ctk runtime|systemctl (?:re)?start|rmmod|docker restart)"
    r"|wsl\.exe --update|python -m pip (?:un)?install|conda install"
)
#: How a remedy begins that is one of several.
ALTERNATIVE = r"Or\b|Otherwise|If (?:this|that|it) does not help|If not,"
#: The release in use in the text that is judged.
OWN = [""]
LAWS: tuple[Law, ...] = (
    commands_fit,
    sentences_fit,
    a_program_keeps_its_major_version,
    the_driver_that_is_there_is_not_the_remedy,
    nothing_is_done_again,
    what_it_installs_works,
    an_environment_is_made_before_it_is_used,
    what_fails_is_not_installed,
    the_first_remedy_is_no_alternative,
)


def shells(commands: Sequence[str]) -> tuple[str, ...]:
    """Return the commands without those that are Python in a cell of a notebook, or PowerShell's alone."""
    others = ("import os; ", "uvx.exe ")
    return tuple(command for command in commands if not command.startswith(others))


def broken(situation: str, machine: Case) -> Iterator[str]:
    found = observed(f"{SITUATIONS[situation][0]}\n{machine.text if situation not in ALONE else ''}\n")
    host, software = read_host(found), read_software(found)
    values = {name: VALUES[name] for name in ("pid", "path", "renamed", "builds", "drivers", "cuda_needed")}
    values["system"] = host.system if host.system in (WINDOWS, MACOS) else "linux"
    if software.tensorflow:
        values["tensorflow"] = OWN[0] = software.tensorflow
    else:
        OWN[0] = ""
    if machine.gpu and situation not in ALONE:
        values["capability"] = str(hardware.gpu(machine.gpu).compute_capability)
    # Their own image works for them as far as it goes, and commands that look into it name it.
    reader = replace(Reader.of(found), image="")
    for cause in causes():
        ways = frozenset(entry.way for entry in cause.remedies)
        if not any(reader.precedence(way, ways) is not None for way in ways):
            # It is never the cause for this person, such as a lost container without a container.
            continue
        if cause.code == "platform_without_cuda_build" and host.system != WINDOWS:
            continue
        remedies = [
            replace(one, commands=shells(one.commands))
            for one in fitting_remedies(cause, values, found, reader)
        ]
        for law in LAWS:
            for why in law(situation, cause.code, remedies, host):
                yield f"{cause.code}, {law.__name__}: {why}"


@pytest.mark.parametrize("situation", SITUATIONS)
def test_every_remedy_of_every_cause_fits_the_person(situation: str) -> None:
    wrong = {
        f"{machine}: {why}"
        for machine in subjects_to_try(MACHINES, len(situation))
        for why in broken(situation, machine)
    }
    assert sorted(wrong) == []


@pytest.mark.slow
def test_what_the_person_ran_is_not_the_first_remedy_again() -> None:
    """Whatever a remedy installs, loads or restarts, somebody who did that gets the next remedy first."""
    tried, again = 0, []
    for cause in causes():
        for entry in cause.remedies:
            changes = [one for one in entry.commands if CHANGES.match(one) and "{" not in one]
            text = observed(f"$ {changes[0]}\n") if changes else observed("$ python train.py\n")
            remedies = fitting_remedies(cause, {"system": "linux"}, text, Reader.of(text))
            if changes and len(remedies) > 1:
                tried += 1
                again += [f"{cause.code}: {changes[0]}"] if changes[0] in remedies[0].commands else []
    assert tried > 10
    assert again == []
