"""Choose the remedies of a cause that fit the release, the GPU, the system and what was observed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..compat.offers import PLACEHOLDERS, Filling, filling, nothing_works
from ..model.diagnosis import CAUSE_FOUND, GPU_USED, NO_FAULT, NO_GPU_LISTED, NOT_SHOWN, UNRECOGNIZED, Remedy
from ..model.prediction import Outcome, Prediction
from .causes import CauseEntry, RemedyEntry, chosen_finder, finder, language
from .observations import Observations, on_windows
from .situation import read_host, read_software

# Decide what kind of answer was found, what to do next, and which command finds out more.


#: How to start the program where it is neither checked out nor installed.
ANYWHERE = "uvx --from git+https://github.com/tensorflow-gpu-matrix/tensorflow-gpu-matrix validator"
#: The named condition that holds if the GPU was seen working, and the kind that is observed if somebody says
#: that they want no GPU.
_WORKS, _CPU_WANTED = "gpu_works", "cpu_wanted"
#: The kinds that are observed if TensorFlow lists a GPU, and if it lists none.
_GPU_LISTED, _NO_GPU_LISTED = "gpu_list", "gpu_list_empty"
#: Names of images that mean nothing to a shell.
_IMAGE = re.compile(r"[\w.-]+(?:[/:@][\w.-]+)*")
#: Conditions under which the image is not run with Docker, which is what `doctor --image` uses.
_OTHER_ENGINES = ("apptainer", "kubernetes")

_NOTHING = "nothing to fix; to measure whether training runs on the GPU, run this in that environment"
#: Kind of answer -> what to do next.
_NEXT_STEPS = {
    CAUSE_FOUND: "fix the first cause, then run `doctor` again in the environment where you train",
    UNRECOGNIZED: "no known cause fits these lines; run this in that environment, or paste everything that"
    " was printed since TensorFlow was imported",
    NO_GPU_LISTED: "paste everything that was printed since TensorFlow was imported, and the output of"
    " `nvidia-smi` and `pip list`; or run this in that environment",
    NOT_SHOWN: "run this in that environment: it shows whether the GPU is used, and if not, why",
    GPU_USED: _NOTHING,
    NO_FAULT: _NOTHING,
}
_ONLY_MACHINE = (
    "if TensorFlow does not use this GPU, paste what it printed since it was imported, and the output of"
    " `pip list`; or run this in that environment"
)


def answer(
    observations: Observations, prediction: Prediction, causes: Collection[object], faults: Collection[str]
) -> str:
    """Return which kind of answer this is. faults: the kinds that were observed and that no cause explains.

    There is no fault only if the GPU was seen working or is listed, and no facts speak against it, or if the
    CPU is used on purpose.
    """
    if causes:
        return CAUSE_FOUND
    if faults:
        return NO_GPU_LISTED if set(faults) == {_NO_GPU_LISTED} else UNRECOGNIZED
    # XLA alone may fail on a GPU that works.
    fails = (prediction.eager or prediction.outcome) is Outcome.FAILS
    if not fails and language().parse(_WORKS).holds(finder(observations, {})):
        return GPU_USED
    listed = observations.has(_GPU_LISTED) and not fails
    return NO_FAULT if listed or is_cpu_wanted(observations) else NOT_SHOWN


def is_cpu_wanted(observations: Observations) -> bool:
    """Return whether somebody says that TensorFlow is to use the CPU, so that it is no fault if it does."""
    return observations.has(_CPU_WANTED)


def next_step(answer: str, *, only_machine: bool) -> str:
    """Return what to do next, in one sentence. only_machine: the text shows a machine, but no TensorFlow."""
    return _ONLY_MACHINE if answer == NOT_SHOWN and only_machine else _NEXT_STEPS[answer]


def command(observations: Observations, probed: str = "") -> str:
    """Return the command that measures the environment which the text is about, as far as it is known.

    probed: the image that the probe ran in; empty if the text is not a probe's report about an image.
    """
    image = probed or _read_image(observations)
    return f"{ANYWHERE} doctor " + (f"--image {image}" if image else '--python "$(command -v python)"')


def _read_image(observations: Observations) -> str:
    """Return the image that the text is about; empty if `doctor --image` can't run it."""
    image = observations.value("docker_run", "image") or observations.value("image", "name") or ""
    find = finder(observations, {})
    other_engine = any(language().parse(engine).holds(find) for engine in _OTHER_ENGINES)
    return image if _IMAGE.fullmatch(image) and not other_engine else ""


# Find out how the reader installed and starts TensorFlow. It decides which remedies fit.


_INSTALLS = frozenset({"pip", "uv", "conda"})
#: Ways of starting on machines that several people share, where the reader has no root.
_SHARED = frozenset({"kubernetes", "slurm", "colab", "kaggle"})
#: For a way, another one whose remedies fit if a cause has none for the way itself.
_INSTEAD = {
    "uv": "pip",
    "conda": "pip",
    "podman": "docker",
    "compose": "docker",
    "kubernetes": "docker",
    "kaggle": "colab",
}
#: Container programs by the names under which they are observed.
_ENGINES = {
    "docker": "docker",
    "nvidia-docker": "docker",
    "nvidia-docker2": "docker",
    "nerdctl": "docker",
    "podman": "podman",
    "compose": "compose",
    "kubernetes": "kubernetes",
    "apptainer": "apptainer",
    "singularity": "apptainer",
}
#: Kinds whose observation alone shows a way.
_SHOWN_BY = {
    "slurm_request": "slurm",
    "apptainer": "apptainer",
    "conda": "conda",
    "conda_install": "conda",
    "wsl": "wsl",
    # Errors that only a container engine reports.
    "docker_no_gpu_driver": "docker",
    "docker_unknown_runtime": "docker",
    "docker_hook_failed": "docker",
    "cdi_unresolvable": "docker",
    "container_cli_error": "docker",
    "cgroup_lost_gpu": "docker",
}
_UV = re.compile(r"\buv (?:pip|add|sync|run|venv)\b")
#: A command of pip that uv has too.
_PIP_COMMAND = re.compile(
    r"(?P<python>[\w./\\-]*\bpython3?) -m pip"
    r" (?P<name>install|uninstall|list|show|freeze|check)\b(?P<rest>[^&|;#]*)"
)
#: Options of pip that have another name in uv, or none.
_UV_OPTIONS = {"-y": "", "--yes": "", "--force-reinstall": "--reinstall", "--no-cache-dir": "--no-cache"}
_PIP_OPTION = re.compile(rf" ({'|'.join(_UV_OPTIONS)})(?=\s|$)")


@dataclass(frozen=True)
class Reader:
    """The known facts about the person who reads the diagnosis.

    ways: how TensorFlow was installed and is started; empty if nothing is known. rebooted: the person says
    that the machine was rebooted. doctor: the command that runs the probe in their environment.
    """

    ways: frozenset[str]
    rebooted: bool = False
    doctor: str = "validator doctor"

    @classmethod
    def of(cls, observations: Observations, image: str = "") -> Reader:
        """Return what the observations tell about the reader. image: the one that was probed, if any."""
        return cls(_ways(observations), observations.has("rebooted"), command(observations, image))

    @property
    def has_root(self) -> bool:
        """False on machines that the reader shares with others and does not administer."""
        return not self.ways & _SHARED

    def precedence(self, way: str, available: frozenset[str]) -> int | None:
        """Return the place of a way's remedies: 0 for the reader's own, 1 for those that fit everyone.

        None: they are for others. available: the ways that the cause has remedies for.
        """
        if way in ("any", "host"):
            return 1
        # pip is the usual way of installing.
        for own in self.ways if self.ways & _INSTALLS else self.ways | {"pip"}:
            while own not in available and own in _INSTEAD:
                own = _INSTEAD[own]
            if own == way:
                return 0 if way in self.ways or way not in _INSTALLS else 1
        return None if self.ways else 2


def for_uv(command: str) -> str:
    """Return the uv command that does the same as a pip command."""
    return _PIP_COMMAND.sub(_as_uv, command)


def _as_uv(command: re.Match[str]) -> str:
    python = command["python"]
    # uv installs into the active environment if it is not told of another.
    into = "" if python in ("python", "python3") else f" --python {python}"
    return f"uv pip {command['name']}{into}" + _PIP_OPTION.sub(
        lambda option: f" {name}" if (name := _UV_OPTIONS[option[1]]) else "", command["rest"]
    )


def _ways(observations: Observations) -> frozenset[str]:
    ways = {way for kind, way in _SHOWN_BY.items() if observations.has(kind)}
    engines = {
        _ENGINES[name]
        for kind, value in (("container", "kind"), ("docker_run", "engine"))
        for observation in observations.of(kind)
        if (name := observation.values.get(value, "")) in _ENGINES
    }
    if engines:
        ways = (ways - {"docker"}) | engines
    elif any(observations.has(kind) for kind in ("container", "docker_run", "image")):
        ways.add("docker")
    hosts = {notebook.values.get("name", "") for notebook in observations.of("hosted_notebook")}
    ways |= hosts & _SHARED
    if on_windows(observations) is not None:
        # Where TensorFlow can use the GPU of a Windows machine.
        ways.add("wsl")
    for install in (*observations.of("pip_install"), *observations.of("pip_requested")):
        ways.add("uv" if _UV.search(install.text) else "pip")
    return frozenset(ways)


_NEEDED = "what `python -m validator predict --tensorflow RELEASE` names for your release (2.8 and later)"
#: How to find out a value that a command needs and the text does not contain.
_FIND_OUT = {
    "tensorflow": "your release, which `python -m pip show tensorflow` shows",
    "tensorflow_minor": "the first two numbers of your release, which `python -m pip show tensorflow` shows",
    "cuda_needed": _NEEDED,
    "cuda_major": "the first number of the CUDA that TensorFlow was built with: 12 from 2.15 on, 11 before",
    "cudnn_needed": _NEEDED,
    "cudnn_major": "the first number of that cuDNN",
    "release_for_gpu": "the newest release that runs on your GPU, as that command says (2.16.2 for Maxwell)",
    "driver_branch": "the first number of the driver's version, which `nvidia-smi` shows",
    "pid": "the process ID in the table of nvidia-smi",
    "image": "the image's name",
}
REBOOT = "reboot"
#: What remedies interrupt for others, with the sentence that says so.
INTERRUPTS = {
    REBOOT: "A reboot ends everything that runs on the machine, other people's work included.",
    "display": "This ends the graphical session with all of its programs.",
    "gpu": "Every program that uses a GPU of this machine has to end first.",
    "docker": "Restarting Docker may stop every container of the machine.",
    "kubelet": "Pods of this node are interrupted.",
}
#: Begins a remedy that is an alternative to those before it.
_OR = re.compile(r"^Or (\w)")
_ASK = "Ask whoever administers the machine:"
#: Text that has no special meaning to a shell between double quotes. Values come from pasted text.
_PLAIN = re.compile(r"[\w./@:+,~ \\\[\]-]*")
#: Stands for a release that only its log lines show to be older than 2.12.
_OLD = "2.10"
#: The system that remedies are for where it is not known.
_SYSTEM = "linux"


def fitting_remedies(
    entry: CauseEntry, values: Mapping[str, str], observations: Observations, reader: Reader
) -> tuple[Remedy, ...]:
    """Return the remedies that fit the facts and the reader, in the order to try them; at least one.

    The reader's own way comes first, and remedies for other ways are left out unless nothing is known of the
    reader. What interrupts other people comes last. A reader without root is told whom to ask.

    values: for the placeholders; `tensorflow`, `capability` and `system` also decide what fits.
    """
    find = chosen_finder(observations, {**_assumed(observations), **values})
    fitting = [remedy for remedy in entry.remedies if remedy.when.may_hold(find)]
    possible = _possible(fitting, entry.remedies, observations)
    return tuple(_remedies(_ranked(possible, reader), values, reader))


def _possible(
    fitting: Sequence[RemedyEntry], remedies: Sequence[RemedyEntry], observations: Observations
) -> list[tuple[RemedyEntry, Filling]]:
    """Return the remedies that some release of TensorFlow makes possible, each with what fills it in.

    If the release rules any of the fitting ones out, the reason why no release works comes after the others.
    If none fits at all, that reason comes instead of all remedies of the cause.
    """
    host, software = read_host(observations), read_software(observations)
    possible = []
    for entry in fitting or remedies:
        names = entry.placeholders & PLACEHOLDERS
        # Finding a release takes time.
        filled = filling(entry.way, names, entry.commands, host, software) if names else Filling({})
        if filled is not None:
            possible.append((entry, filled))
    if fitting and len(possible) == len(fitting):
        return possible
    for entry in remedies:
        names = entry.placeholders & PLACEHOLDERS
        reason = nothing_works(entry.way, names, entry.commands, host, software)
        if reason:
            return [*(possible if fitting else ()), (RemedyEntry("any", reason, ()), Filling({}))]
    return possible


def _ranked(
    possible: Sequence[tuple[RemedyEntry, Filling]], reader: Reader
) -> list[tuple[RemedyEntry, Filling]]:
    """Return the remedies for the reader, in the order to try them; all of them if none is for the reader."""
    ways = frozenset(entry.way for entry, _ in possible)
    ranked = []
    for entry, filled in possible:
        rank = reader.precedence(entry.way, ways)
        if rank is not None and not (reader.rebooted and entry.interrupts == REBOOT):
            ranked.append((bool(entry.interrupts), rank, entry, filled))
    ranked = ranked or [(bool(entry.interrupts), 0, entry, filled) for entry, filled in possible]
    return [(entry, filled) for _, _, entry, filled in sorted(ranked, key=lambda row: row[:2])]


def _remedies(
    ranked: Sequence[tuple[RemedyEntry, Filling]], values: Mapping[str, str], reader: Reader
) -> Iterator[Remedy]:
    """Yield the remedies, filled in. Only the first one that has a placeholder left explains it."""
    explained: set[str] = set()
    for number, (entry, filled) in enumerate(ranked):
        missing = entry.placeholders - {*values, *filled.values, "doctor"} - explained
        explained |= missing
        if number == 0:
            # The remedy that it is an alternative to may not fit the reader.
            entry = replace(entry, says=_OR.sub(lambda match: match[1].upper(), entry.says))
        yield _remedy(entry, values, filled, reader, _hints(missing))


def _hints(missing: Collection[str]) -> str:
    """Return how to find out values that are missing; empty if none needs an explanation."""
    names: dict[str, list[str]] = {}
    for name, hint in _FIND_OUT.items():
        if name in missing:
            names.setdefault(hint, []).append(name.upper())
    return "; ".join(
        f"{' and '.join(same)} {'are' if len(same) > 1 else 'is'} {hint}" for hint, same in names.items()
    )


def _remedy(
    entry: RemedyEntry, values: Mapping[str, str], filled: Filling, reader: Reader, hints: str
) -> Remedy:
    # Only values from the pasted text are checked for characters that are special to a shell.
    own = {"doctor": reader.doctor, **filled.values}
    plain = {name: value for name, value in values.items() if _PLAIN.fullmatch(value)}
    commands = [filled_in(command, {**plain, **own}) for command in entry.commands]
    # What the release needs comes before all commands and after those with which pip installs it.
    installs = [number for number, command in enumerate(commands, 1) if "pip install" in command]
    end = installs[-1] if installs else len(commands)
    commands = [*filled.before, *commands[:end], *filled.after, *commands[end:]]
    says = filled_in(entry.says, {**values, **own})
    sentences = [f"{says} ({hints}.)" if hints else says, *filled.notes]
    if entry.way == "host" and not reader.has_root:
        sentences.insert(0, _ASK)
        # Show no command that interrupts other people, so that nobody runs it by mistake.
        commands = [] if entry.interrupts else commands
    if entry.interrupts:
        sentences.append(INTERRUPTS[entry.interrupts])
    if "uv" in reader.ways and entry.way == "pip":
        commands = [for_uv(command) for command in commands]
    return Remedy(entry.way, " ".join(sentences), tuple(commands), entry.interrupts)


def _assumed(observations: Observations) -> Mapping[str, str]:
    """Return the facts to assume when remedies are chosen and these facts are not known."""
    return {"system": _SYSTEM, **({"tensorflow": _OLD} if observations.has("before_2_12") else {})}


class _Placeholders(dict[str, str]):
    """Values by name. A name without a value becomes `NAME`: a shell would read `<name>` as a redirection."""

    def __missing__(self, name: str) -> str:
        return name.upper()


def filled_in(template: str, values: Mapping[str, str]) -> str:
    """Return a template with its values. A value that is not known stays a placeholder, `NAME`."""
    return template.format_map(_Placeholders(values))
