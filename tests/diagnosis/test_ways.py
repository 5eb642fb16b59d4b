"""How the reader installed and starts TensorFlow, and which remedies that leaves."""

from __future__ import annotations

import re
from types import MappingProxyType

import pytest

from validator.conditions import AnyOf
from validator.diagnosis.catalogue import CauseEntry, RemedyEntry, catalogue, causes
from validator.diagnosis.commands import for_uv
from validator.diagnosis.observations import Observations
from validator.diagnosis.observe import observe
from validator.diagnosis.remedies import INTERRUPTS, Reader, fitting_remedies
from validator.diagnosis.text import read_text
from validator.model.diagnosis import WAYS, Remedy

#: What shows that a command interrupts other people.
_INTERRUPTS = re.compile(r"\breboot\b|systemctl (?:isolate|restart)|\brmmod\b|modprobe -r|sudo shutdown")
#: Commands that change something, and those that only look.
_CHANGES = re.compile(
    rf"{_INTERRUPTS.pattern}|--gpu-reset|-pl \d|-mig |mig -c|\bkill |\bunset |\bpurge\b|docker (?:login|stop)"
    r"|^RUN |^(?:copy|cp|mv|rm|virsh edit) |\| *sudo "
    r"|^sudo (?!dmesg|fuser|grep|lspci|nvidia-smi mig -l)|kubectl (?:apply|create|delete)"
    r"|\b(?:pip|conda|apt-get|dnf|winget) (?:un)?install\b|\buv venv\b|build-matrix"
)
_LOOKS = re.compile(
    r"!?(?:sudo )?(?:cat|conda (?:info|list)|dkms|dmesg"
    r"|docker (?:context ls|image ls|info|inspect|manifest inspect|ps|version)"
    r"|docker run [^&|;]*(?:ldconfig -p|ls|nvidia-smi|pip (?:list|show))"
    r"|dpkg -l|echo|env(?= \|)|free|fuser|grep|id|kubectl (?:describe|get|logs)|ldconfig -p|ldd|ls|lsmod"
    r"|lspci|modinfo|mokutil --sb-state|nvcc --version|nvidia-ctk --version|nvidia-smi|python3? -c"
    r"|python3? -m pip (?:check|list|show|--version)|uname|where|which)(?!\w)"
)


def reader(text: str) -> Reader:
    return Reader.of(observe(read_text(text), catalogue()))


@pytest.mark.parametrize(
    ("text", "ways"),
    [
        ("a line", set()),
        ("$ pip install tensorflow", {"pip"}),
        ("$ uv pip install tensorflow", {"uv"}),
        ("$ conda install tensorflow", {"conda"}),
        ("$ docker run --gpus all -it tensorflow/tensorflow:2.15.0-gpu bash", {"docker"}),
        ("$ podman run --device nvidia.com/gpu=all -it nvidia/cuda:12.3.2-base-ubuntu22.04", {"podman"}),
        ("Attaching to train-1, tensorboard-1", {"compose"}),
        ("$ kubectl logs trainer", {"kubernetes"}),
        ("#SBATCH --cpus-per-task=8", {"slurm"}),
        ("$ apptainer exec --nv tf.sif python train.py", {"apptainer"}),
        ("I run this in Google Colab", {"colab"}),
        ("/kaggle/working/train.py", {"kaggle"}),
        ("Windows 11, WSL2 Ubuntu 20.04", {"wsl"}),
        (
            'docker: Error response: could not select device driver "" with capabilities: [[gpu]].',
            {"docker"},
        ),
    ],
)
def test_the_way_is_read(text: str, ways: set[str]) -> None:
    assert reader(text).ways == ways


def entry(*remedies: RemedyEntry) -> CauseEntry:
    return CauseEntry("cause", "Title.", "Means.", (), AnyOf(()), (), remedies, ("a source",))


def of(way: str, interrupts: str = "") -> RemedyEntry:
    return RemedyEntry(way, f"Do it {WAYS[way] or 'anyhow'}.", ("true",), interrupts=interrupts)


def shown(cause: CauseEntry, who: Reader) -> list[Remedy]:
    return list(fitting_remedies(cause, MappingProxyType({}), Observations(), who))


def ways(cause: CauseEntry, *who: str) -> list[str]:
    return [remedy.way for remedy in shown(cause, Reader(frozenset(who)))]


def test_the_readers_own_way_comes_first_and_others_stay_out() -> None:
    known = entry(of("any"), of("host"), of("pip"), of("conda"), of("docker"), of("slurm"))
    assert ways(known) == ["any", "host", "pip", "conda", "docker"]
    # pip works in an environment of conda too.
    assert ways(known, "conda") == ["conda", "any", "host", "pip"]
    assert ways(known, "docker") == ["docker", "any", "host", "pip"]
    assert ways(known, "slurm", "conda") == ["conda", "slurm", "any", "host", "pip"]


def test_the_nearest_way_stands_in_for_one_without_remedies() -> None:
    known = entry(of("pip"), of("docker"))
    assert ways(known, "compose") == ["docker", "pip"] or ways(known, "compose") == ["pip", "docker"]
    assert ways(known, "conda") == ["pip"]
    # There is always an answer.
    assert ways(entry(of("conda")), "docker") == ["conda"]


def test_what_interrupts_others_comes_last_and_says_so() -> None:
    known = entry(of("host", "reboot"), of("any"))
    first, last = shown(known, Reader(frozenset()))
    assert (first.way, last.interrupts) == ("any", "reboot")
    assert last.says.endswith(INTERRUPTS["reboot"])
    assert last.commands == ("true",)


@pytest.mark.parametrize("way", ["slurm", "kubernetes", "colab", "kaggle"])
def test_nobody_without_root_gets_commands_that_interrupt_others(way: str) -> None:
    remedies = shown(entry(of("host", "reboot"), of("host"), of("any")), Reader(frozenset({way})))
    assert [remedy.interrupts for remedy in remedies] == ["", "", "reboot"]
    assert remedies[2].commands == ()
    assert all("administers" in remedy.says for remedy in remedies if remedy.way == "host")


def test_nobody_who_rebooted_is_told_to_reboot() -> None:
    reboot = RemedyEntry("host", "Reboot.", ("sudo reboot",), interrupts="reboot")
    install = RemedyEntry("host", "Install.", ("sudo dnf install x", "sudo reboot"), interrupts="reboot")
    for text, left in (
        ("I rebooted twice, no change.", ["Install."]),
        ("I rebooted last week, and since today it fails.", ["Reboot.", "Install."]),
    ):
        seen = observe(read_text(text), catalogue())
        found = fitting_remedies(entry(reboot, install), MappingProxyType({}), seen, Reader.of(seen))
        assert [one.says.split(" A reboot")[0] for one in found] == left


def test_a_reader_with_uv_gets_its_commands() -> None:
    assert for_uv("python -m pip install x && python3 -m pip list") == "uv pip install x && uv pip list"
    assert for_uv("tf/bin/python -m pip install x") == "uv pip install --python tf/bin/python x"
    assert for_uv("python -m pip uninstall -y x   # y") == "uv pip uninstall x   # y"
    assert for_uv("python -m pip install --force-reinstall --no-cache-dir 'x' && ls -y") == (
        "uv pip install --reinstall --no-cache 'x' && ls -y"
    )
    known = entry(RemedyEntry("pip", "Do it.", ("python -m pip install x",)))
    assert shown(known, Reader(frozenset({"uv"})))[0].commands == ("uv pip install x",)


def test_the_doctor_is_run_where_the_reader_is() -> None:
    text = "$ docker run -it tensorflow/tensorflow:2.15.0-gpu bash"
    assert reader(text).doctor.endswith("doctor --image tensorflow/tensorflow:2.15.0-gpu")
    assert reader("a line").doctor.endswith('doctor --python "$(command -v python)"')


def test_every_command_that_interrupts_others_is_marked() -> None:
    unmarked = [
        f"{cause.code}: {command}"
        for cause in causes()
        for remedy in cause.remedies
        for command in remedy.commands
        if _INTERRUPTS.search(command) and not remedy.interrupts
    ]
    assert unmarked == []


def test_no_remedy_mixes_commands_that_look_with_commands_that_change_something() -> None:
    mixed = [
        f"{cause.code}: {remedy.commands}"
        for cause in causes()
        for remedy in cause.remedies
        for first, *others in [remedy.commands or ("",)]
        if looks(first) and any(changes(each) for each in others)
    ]
    assert mixed == []


@pytest.mark.parametrize(
    "command",
    [
        "docker image ls tensorflow-gpu-matrix",
        "docker run --rm IMAGE python3 -m pip list",
        "docker run --rm --gpus all IMAGE sh -c 'ldconfig -p | grep libcuda.so'",
        "echo \"$LD_LIBRARY_PATH\" | tr ':' '\\n' | grep -n compat",
        "env | grep XLA_FLAGS",
        "ldconfig -p | grep libcuda.so",
        "ldd --version | head -1",
        "nvidia-smi; cat /proc/driver/nvidia/version",
        "python -c 'import sys; print(sys.executable)'",
        "sudo fuser -v /dev/nvidia*",
    ],
)
def test_commands_that_only_look(command: str) -> None:
    assert looks(command) and not changes(command)


@pytest.mark.parametrize(
    "command",
    [
        "RUN ldconfig",
        "curl -fsSL https://get.docker.com | sudo sh",
        "docker login",
        "docker run --rm -it IMAGE sh -c 'pip install tensorflow'",
        "python -m pip uninstall -y tensorflow",
        "sudo ldconfig",
        "sudo nvidia-smi -i 0 -mig 0",
        "sudo reboot",
        "unset XLA_FLAGS",
    ],
)
def test_commands_that_change_something(command: str) -> None:
    assert changes(command) and not looks(command)


def looks(command: str) -> bool:
    return bool(_LOOKS.match(command)) and not changes(command)


def changes(command: str) -> bool:
    return bool(_CHANGES.search(command))


def test_every_mark_is_known() -> None:
    assert {remedy.interrupts for cause in causes() for remedy in cause.remedies} <= {"", *INTERRUPTS}
