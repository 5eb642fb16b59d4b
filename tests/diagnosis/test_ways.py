"""How the reader installed and starts TensorFlow, and which remedies that leaves."""

from __future__ import annotations

import re
from types import MappingProxyType

import pytest

from validator.conditions import AnyOf
from validator.diagnosis.causes import CauseEntry, RemedyEntry, causes
from validator.diagnosis.messages import catalogue
from validator.diagnosis.observations import Observations
from validator.diagnosis.read_log import observe
from validator.diagnosis.remedies import INTERRUPTS, fitting_remedies
from validator.diagnosis.text import read_text
from validator.diagnosis.ways import Reader, for_uv
from validator.model.diagnosis import WAYS, Remedy

#: What shows that a command interrupts other people.
_INTERRUPTS = re.compile(r"\breboot\b|systemctl (?:isolate|restart)|\brmmod\b|modprobe -r|sudo shutdown")
#: Commands that change something, and those that only look.
_CHANGES = re.compile(
    rf"{_INTERRUPTS.pattern}|--gpu-reset|-pl \d|-mig |mig -c|\bkill |\bunset |\bpurge\b|docker stop"
    r"|^(?:RUN )?sudo (?!dmesg|fuser|grep|lspci|nvidia-smi mig -l)|kubectl create"
    r"|\b(?:pip|conda|apt-get|dnf) (?:un)?install\b"
)
_LOOKS = re.compile(
    r"(?:sudo )?(?:cat|conda info|dkms|dmesg|docker (?:inspect|ps|version)|dpkg -l|env \||free|fuser|grep|id"
    r"|kubectl (?:describe|get|logs)|ls|lsmod|lspci|modinfo|mokutil --sb-state|nvidia-ctk --version"
    r"|nvidia-smi|python -m pip (?:list|show)|uname)\b"
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
    assert ways(known) == ["any", "host", "pip", "conda", "docker", "slurm"]
    assert ways(known, "conda") == ["conda", "any", "host"]
    assert ways(known, "docker") == ["docker", "any", "host", "pip"]
    assert ways(known, "slurm", "conda") == ["conda", "slurm", "any", "host"]


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
    assert reader("I rebooted twice, no change.").rebooted
    who = Reader(frozenset(), rebooted=True)
    assert [one.interrupts for one in shown(entry(of("host", "reboot"), of("any")), who)] == [""]


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
        if looks(first) and any(not looks(each) and _CHANGES.search(each) for each in others)
    ]
    assert mixed == []
    assert looks("nvidia-smi; cat /proc/driver/nvidia/version") and not looks("sudo nvidia-smi -i 0 -mig 0")


def looks(command: str) -> bool:
    return bool(_LOOKS.match(command)) and not _CHANGES.search(command)


def test_every_mark_is_known() -> None:
    assert {remedy.interrupts for cause in causes() for remedy in cause.remedies} <= {"", *INTERRUPTS}
