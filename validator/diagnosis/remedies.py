"""Choose the remedies of a cause that fit the release, the GPU, the system and what was observed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..compat.offers import KEEP, PLACEHOLDERS, Filling, filling, has_extra, nothing_works, why_not
from ..compat.releases import Release, newest_of_year, newest_with
from ..conditions import Find
from ..model.diagnosis import CAUSE_FOUND, GPU_USED, NO_FAULT, NO_GPU_LISTED, NOT_SHOWN, UNRECOGNIZED, Remedy
from ..model.prediction import Host, Outcome, Prediction
from ..versions import leading_numbers
from .catalogue import (
    CPU_WANTED,
    PLAIN_QUESTION,
    CauseEntry,
    RemedyEntry,
    Rule,
    chosen_finder,
    finder,
    language,
    law,
    table,
)
from .combination import read_host, read_software
from .commands import for_engine, for_notebook, for_powershell, for_release, for_uv, of_program
from .conclusions import likely_releases
from .observations import Observation, Observations, on_windows, release, works_with

# Decide what kind of answer was found, what to do next, and which command finds out more.


#: How to start the program where it is neither checked out nor installed.
ANYWHERE = "uvx --from git+https://github.com/tensorflow-gpu-matrix/tensorflow-gpu-matrix validator"
#: The named condition that holds if the GPU was seen working.
WORKS = "gpu_works"
#: The kinds that are observed if TensorFlow lists or opens a GPU, or if somebody looks only at Windows' Task
#: Manager; and the one that is observed if TensorFlow lists none.
_GPU_LISTED, _NO_GPU_LISTED = ("gpu_list", "gpu_count", "task_manager"), "gpu_list_empty"
#: A command of this program in a remedy.
_OWN_COMMAND = re.compile(r"(?<![\w./-])validator (?P<name>\w+)")
#: Names of images that mean nothing to a shell.
_IMAGE = re.compile(r"(?!nvidia-smi$)[\w.-]+(?:[/:@][\w.-]+)*")
#: Conditions under which the image is not run with Docker, which is what `doctor --image` uses.
_OTHER_ENGINES = ("apptainer", "kubernetes")


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
    if not fails and language().parse(WORKS).holds(finder(observations, {})):
        return GPU_USED
    complains = language().parse("complains").holds(finder(observations, {}))
    used = observations.of("gpu_used_said")
    if used and not fails and not any("more" in one.values for one in used):
        return UNRECOGNIZED if complains else GPU_USED
    listed_or_asked = any(map(observations.has, (*_GPU_LISTED, PLAIN_QUESTION)))
    clear = (listed_or_asked and not fails) or observations.has(CPU_WANTED)
    return NO_FAULT if clear and not complains else NOT_SHOWN


def next_step(answer: str, *, only_machine: bool) -> str:
    """Return what to do next, in one sentence. only_machine: the text shows a machine, but no TensorFlow."""
    step: str = table("next_steps")["only_machine" if answer == NOT_SHOWN and only_machine else answer]
    return step


def command(observations: Observations, probed: str = "") -> str:
    """Return the command that measures the environment which the text is about, as far as it is known.

    probed: the image that the probe ran in; empty if the text is not a probe's report about an image.
    """
    image = probed or _read_image(observations)
    # Guides name the base nvidia/cuda, which has no TensorFlow, to test Docker.
    image = "" if image.startswith("nvidia/cuda") else image
    start, python = ANYWHERE, '"$(command -v python)"'
    # ANYWHERE becomes a path of this machine where an answer is printed for a person; these don't.
    if observations.has("hosted_notebook"):
        start = ANYWHERE.replace("uvx", "!uv tool run", 1)
    elif on_windows(observations):
        start, python = ANYWHERE.replace("uvx", "uvx.exe", 1), "(Get-Command python).Source"
    if not image and language().parse("not_python").holds(finder(observations, {})):
        # Node.js and .NET have no environment of Python that could be measured.
        return f"{start} doctor OUTPUT.txt   # what the program printed"
    return f"{start} doctor " + (f"--image {image}" if image else f"--python {python}")


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
#: Ways that people name when they use them and something is wrong with what is installed.
_NAMED = _SHARED | {"apptainer", "docker", "podman", "compose", "wsl"}
_UV = re.compile(r"\b(?:uv (?:pip|add|sync|run|venv)|poetry (?:add|install|run))\b")
#: The kind that is observed if the build of an image fails.
_BUILDS = "docker_build_failed"
#: The year at the beginning of a line that TensorFlow printed.
_DATED = re.compile(r"^\W*(20\d\d)-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWEF] ")
#: A line of a Python program that sets a variable of the environment.
_PROGRAM_SETS = re.compile(
    r"^(?:\W|In \[\d*\]:|import os\b)*(?:os\.)?(?:environ(?:\[[^\]]+\]\s*=|\.setdefault\()|putenv\()"
)


@dataclass(frozen=True)
class Reader:
    """The known facts about the person who reads the diagnosis.

    ways: how TensorFlow was installed and is started; empty if nothing is known. release: the numbers of
    their TensorFlow if it is older than 2.1. image: the one that they run, if any. doctor: the command that
    runs the probe in their environment. windows: their shell is that of Windows. old_docker: their Docker has
    no option --gpus. builds: it is the build of an image that fails. sets: the variables that their program
    sets itself, each with the line that does it. ran: the commands that they ran and that change something.
    quotes: False if sentences and commands must not contain words of the text.
    """

    ways: frozenset[str]
    release: tuple[int, ...] = ()
    image: str = ""
    doctor: str = "validator doctor"
    windows: bool = False
    old_docker: bool = False
    builds: bool = False
    sets: Mapping[str, str] = field(default_factory=dict)
    ran: frozenset[str] = frozenset()
    quotes: bool = True

    @classmethod
    def of(cls, observations: Observations, image: str = "", *, quotes: bool = True) -> Reader:
        """Return what the observations tell about the reader. image: the one that was probed, if any."""
        return cls(
            _ways(observations),
            _old_release(observations),
            _read_image(observations) if quotes else "",
            command(observations, image) if quotes else command(Observations()),
            windows=on_windows(observations) is not None,
            old_docker=language().parse("old_docker").holds(finder(observations, {})) is True,
            builds=observations.has(_BUILDS),
            sets={
                one.values["name"]: one.text
                for one in observations.of("variable")
                if quotes and _PROGRAM_SETS.search(one.text)
            },
            ran=frozenset(_plainly(one.values["command"]) for one in observations.of("command_run")),
            quotes=quotes,
        )

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
        if way == "pip" and "conda" in self.ways:
            # pip works in an environment of conda too.
            return 1
        # pip is the usual way of installing.
        for own in self.ways if self.ways & _INSTALLS else self.ways | {"pip"}:
            while own not in available and own in table("instead"):
                own = table("instead")[own]
            if own == way:
                return 0 if way in self.ways or way not in _INSTALLS else 1
        usual = {"host", *_INSTALLS, *(() if way in ("colab", "kaggle") else ("any",))}
        return None if self.ways or (way in _NAMED and available & usual) else 2


def _old_release(observations: Observations) -> tuple[int, ...]:
    """Return the numbers of a release before 2.1, stated or shown by the log or by code for TensorFlow 1."""
    used = release(observations)
    asked = observations.value("pip_no_matching_distribution", "version")
    numbers = leading_numbers(used[0] if used else asked or assumed(observations).get("tensorflow", ""))
    return numbers if numbers < (2, 1) else ()


def _ways(observations: Observations) -> frozenset[str]:
    ways = {way for kind, way in table("shown_by").items() if observations.has(kind)}
    known = table("engines")
    engines = {
        known[name]
        for kind, value in (("container", "kind"), ("docker_run", "engine"))
        for observation in observations.of(kind)
        if (name := observation.values.get(value, "")) in known
    }
    if engines:
        ways = (ways - {"docker"}) | engines
    elif any(observations.has(kind) for kind in ("container", "docker_run", "image")):
        ways.add("docker")
    if not observations.has("notebook_followed_said"):
        hosts = ((one.values.get("name", ""), one.text.lower()) for one in observations.of("hosted_notebook"))
        # People also name the service where the same code works, without a line of the notebook that fails.
        ways |= {name for name, line in hosts if "!pip" in line or not works_with(line, name)} & _SHARED
    if on_windows(observations) is not None:
        # Where TensorFlow can use the GPU of a Windows machine.
        ways.add("wsl")
    for install in (*observations.of("pip_install"), *observations.of("pip_requested")):
        ways.add("uv" if _UV.search(install.text) else "pip")
    return frozenset(ways)


#: Values without which a remedy says nothing.
_KNOWN = frozenset(
    {"cuda_needed", "cudnn_needed", "pin_for_cudnn", "builds", "releases_for_cuda", "drivers"}
    | {"driver_needed", "release_for_driver", "gpu_package", "cuda_for_gpu", "wheel_python", "program"}
    | {"own_requirement"}
)
#: Values that name the libraries of the reader's release.
_LIBRARIES = frozenset({"cuda_needed", "cudnn_needed"})
REBOOT = "reboot"
#: What remedies interrupt for others, with the sentence that says so.
INTERRUPTS = {
    REBOOT: "A reboot ends everything that runs on the machine, other people's work included.",
    "display": "This ends the graphical session with all of its programs.",
    "gpu": "Every program that uses a GPU of this machine has to end first.",
    "docker": "Restarting Docker may stop every container of the machine.",
    "kubelet": "Pods of this node are interrupted.",
}
#: Stands for the reader's image in commands.
_NO_IMAGE = re.compile(r"(?<= )IMAGE(?= |$)")
#: A requirement of TensorFlow 2.
_TENSORFLOW_2 = re.compile(r"\btensorflow\S*[=~]=2\.")
#: Begins a remedy that is an alternative to those before it.
_OR = re.compile(r"^(?:Or,?|Otherwise,|If (?:this|that|it) does not help(?: although [^,]+)?,|If not,) (\w)")
#: The space between two sentences.
_SENTENCES = re.compile(r"(?<=[.?]) (?=[A-Z])")
_ASK = "Ask whoever administers the machine:"
#: Text that has no special meaning to a shell between double quotes. Values come from pasted text.
_PLAIN = re.compile(r"[\w./@:+,~=* \\\[\]-]*")
#: They stand for a release that only its Python (2.11 is the last for 3.7) or its code shows to be old.
_OLDEST, _OLD_PYTHON, _NEWEST_1 = "2.6", (3, 8), "1.15.5"
#: The system that remedies are for where it is not known.
_SYSTEM = "linux"


def fitting_remedies(
    entry: CauseEntry, values: Mapping[str, str], observations: Observations, reader: Reader
) -> tuple[Remedy, ...]:
    """Return the remedies that fit the facts and the reader, in the order to try them; at least one.

    What solves most cases comes first, then the reader's own way. Remedies for other ways are left out, and
    if nothing is known of the reader, those for ways that people name. What interrupts other people comes
    last. A reader without root is told whom to ask. What the law of remedies rules out is left out.

    values: for the placeholders; `tensorflow`, `capability` and `system` also decide what fits.
    """
    find = chosen_finder(observations, {**assumed(observations), **values})
    # Remedies that don't fit the reader's case would mislead, so ask for the facts that decide.
    unfitting = RemedyEntry("any", **table("unfitting"))
    fitting = [remedy for remedy in entry.remedies if remedy.fits(find)] or [unfitting]
    fitting = [remedy for remedy in fitting if remedy.placeholders & _KNOWN <= values.keys()] or [unfitting]
    lawful, instead, at_last = _lawful(fitting, find)
    ranked = _ranked(_possible(lawful, entry.remedies, observations), reader)
    found = [Remedy("any", says) for says in instead]
    found += _remedies(ranked, values, reader)
    found = found or [Remedy("any", says) for says in at_last]
    if not found:
        # A remedy for others, or without its commands, is better than none.
        others = lawful or [replace(one, commands=()) for one in fitting]
        possible = sorted(
            _possible(others, (), observations), key=lambda one: _was_run(one[0], one[1], reader)
        )
        found += _remedies(possible, values, reader, anyway=True)
    return tuple(found)


def _lawful(
    remedies: Sequence[RemedyEntry], find: Find[Observation]
) -> tuple[list[RemedyEntry], list[str], list[str]]:
    """Return the remedies with the commands that the law leaves, and what to say in place of the others: in
    any case, and if nothing is left."""
    rules = [rule for rule in law() if rule.ruled_out_by.holds(find)]
    kept, instead, at_last = [], dict[str, None](), dict[str, None]()
    for remedy in remedies:
        commands, says = remedy.commands, _sentences(remedy.says, rules)
        if not says:
            continue
        for rule in rules:
            matching = [one for one in commands if rule.commands and re.search(rule.commands, one)]
            if remedy.way in rule.ways:
                at_last |= {rule.instead: None} if rule.instead else {}
                break
            if matching and not (rule.alone and len(matching) < len(commands)):
                commands = tuple(one for one in commands if rule.only and one not in matching)
                instead |= {rule.instead: None} if rule.instead else {}
                if not commands:
                    break
        else:
            kept.append(replace(remedy, says=says, commands=commands))
    return kept, [*instead], [*at_last]


def lawful_text(text: str, observations: Observations, values: Mapping[str, str]) -> str:
    """Return an explanation without the sentences that the law of remedies leaves out."""
    find = chosen_finder(observations, {**assumed(observations), **values})
    return _sentences(text, [rule for rule in law() if rule.says and rule.ruled_out_by.holds(find)]) or text


def _sentences(text: str, rules: Sequence[Rule]) -> str:
    """Return a text without the sentences that rules leave out. The first one holds the others together."""
    sentences = _SENTENCES.split(text)
    left = [one for one in sentences if not any(rule.says and re.search(rule.says, one) for rule in rules)]
    return " ".join(left) if left[:1] == sentences[:1] else ""


def _possible(
    fitting: Sequence[RemedyEntry], remedies: Sequence[RemedyEntry], observations: Observations
) -> list[tuple[RemedyEntry, Filling]]:
    """Return the remedies that some release of TensorFlow makes possible, each with what fills it in.

    If the release rules any of the fitting ones out, the reason why no release works comes after the others.
    """
    host, software = read_host(observations), read_software(observations)
    likely = () if software.tensorflow else likely_releases(observations)
    own = software.tensorflow or ""
    if own and why_not(host, software.python, own) and not why_not(Host(), None, own):
        # A release that can't work on this machine does not need its libraries.
        fitting = [entry for entry in fitting if not entry.placeholders & _LIBRARIES] or fitting
    possible = []
    for entry in fitting:
        names = entry.placeholders & PLACEHOLDERS
        known = host.names_gpu or entry.capability is None
        there = host if known else replace(host, capability=entry.capability)
        kept = replace(software, tensorflow=likely[-1].version) if likely and KEEP in names else software
        # Finding a release takes time.
        way = "docker" if entry.way in _INSTALLS and observations.has(_BUILDS) else entry.way
        filled = filling(way, names, entry.commands, there, kept) if names else Filling({})
        if filled is not None and KEEP in names and not software.tensorflow:
            filled = _of_unknown_release(filled, likely, observations)
        if filled is not None:
            possible.append((entry, filled))
    if len(possible) == len(fitting):
        return possible
    for entry in remedies:
        names = entry.placeholders & PLACEHOLDERS
        reason = nothing_works(entry.way, names, entry.commands, host, software)
        if reason:
            return [*possible, (RemedyEntry("any", reason, ()), Filling({}))]
    return possible


def _of_unknown_release(filled: Filling, likely: Sequence[Release], observations: Observations) -> Filling:
    """Return what fills in a remedy that keeps the reader's release, if the text does not name it.

    likely: the releases that print lines such as those of the text; empty if none are known.
    """
    series = list(dict.fromkeys(one.minor for one in likely))
    if len(series) == 1:
        note = f"TensorFlow {series[0]} prints these lines; in the command, write your exact version."
        return replace(filled, notes=(note, *filled.notes))
    package, extra, besides = "tensorflow", "[and-cuda]", ""
    if on_windows(observations) is not None:
        # NVIDIA's wheels, for which the extra asks, exist only for Linux.
        extra = ""
    elif any("tensorflow-gpu" in one.text for one in observations):
        package, extra = "tensorflow-gpu", ""
    elif likely and not has_extra(likely[-1]):
        extra = ""
    elif not likely or not has_extra(likely[0]):
        besides = (
            " The extra and-cuda came with 2.14: for an older release, install its CUDA and cuDNN instead."
        )
    shown = f", {series[0]} to {series[-1]} by these lines" if series else ""
    note = f"TENSORFLOW is your release{shown}; `python -m pip show {package}` names it.{besides}"
    return Filling({**filled.values, KEEP: f"{package}{extra}==TENSORFLOW"}, (note,))


def _ranked(
    possible: Sequence[tuple[RemedyEntry, Filling]], reader: Reader
) -> list[tuple[RemedyEntry, Filling]]:
    """Return the remedies for the reader, in the order to try them."""
    ways = frozenset(entry.way for entry, _ in possible)
    ranked = []
    for entry, filled in possible:
        rank = reader.precedence(entry.way, ways)
        first = entry.first and (reader.has_root or entry.way != "host")
        if rank is not None:
            late = bool(entry.interrupts) and not first
            last = _was_run(entry, filled, reader), _rewrites(entry, filled, reader)
            ranked.append((last, not first, late, rank, entry, filled))
    return [(entry, filled) for *_, entry, filled in sorted(ranked, key=lambda row: row[:4])]


def _was_run(entry: RemedyEntry, filled: Filling, reader: Reader) -> bool:
    """Return whether the text shows that the reader ran a command of a remedy that changes something."""
    commands = " && ".join(filled_in(command, filled.values) for command in entry.commands)
    return not reader.ran.isdisjoint(map(_plainly, commands.split(" && ")))


def _plainly(command: str) -> str:
    """Return a command without what people leave out or write in another way."""
    return re.sub(r"^!|[\"'`]|\bsudo |\bpython3? -m (?=pip)|(?<=pip)3(?= )| #.*| -y\b", "", command).strip()


def _rewrites(entry: RemedyEntry, filled: Filling, reader: Reader) -> bool:
    """Return whether a remedy installs TensorFlow 2 for a program of TensorFlow 1."""
    return (0,) < reader.release < (2,) and any(
        map(_TENSORFLOW_2.search, (*filled.values.values(), *entry.commands))
    )


def _remedies(
    ranked: Sequence[tuple[RemedyEntry, Filling]],
    values: Mapping[str, str],
    reader: Reader,
    *,
    anyway: bool = False,
) -> Iterator[Remedy]:
    """Yield the remedies that the reader can carry out, filled in; `anyway`: the others without commands.

    Only the first one that has a placeholder left explains it. A note on a release is given once.
    """
    explained: set[str] = set()
    for entry, filled in ranked:
        if not explained or _rewrites(entry, filled, reader):
            # Drop a leading "Or": the remedies before this one may not fit the reader.
            entry = replace(entry, says=_OR.sub(lambda match: match[1].upper(), entry.says))
        missing = entry.placeholders - {*values, *filled.values, "doctor"} - explained
        notes = tuple(note for note in filled.notes if note not in explained)
        remedy = _remedy(entry, values, replace(filled, notes=notes), reader, _hints(missing), anyway)
        if remedy is not None:
            explained |= {remedy.says, *missing, *notes}
            yield remedy


def _hints(missing: Collection[str]) -> str:
    """Return how to find out values that are missing; empty if none needs an explanation."""
    names: dict[str, list[str]] = {}
    for name, hint in table("find_out").items():
        if name in missing:
            names.setdefault(hint, []).append(name.upper())
    return "; ".join(
        f"{' and '.join(same)} {'are' if len(same) > 1 else 'is'} {hint}" for hint, same in names.items()
    )


def _remedy(
    entry: RemedyEntry, values: Mapping[str, str], filled: Filling, reader: Reader, hints: str, anyway: bool
) -> Remedy | None:
    """Return a remedy filled in, with those of its commands that the reader can run; None if there is none.

    anyway: return it even so.
    """
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
    if _rewrites(entry, filled, reader):
        sentences.insert(0, "If the program can be changed for TensorFlow 2 (`tf_upgrade_v2`):")
    if entry.way == "host" and not reader.has_root:
        sentences.insert(0, _ASK)
        # Show no command that interrupts other people, so that nobody runs it by mistake.
        commands = [] if entry.interrupts else commands
    if entry.interrupts:
        sentences.append(INTERRUPTS[entry.interrupts])
    set_there = {command: name for command in commands if (name := of_program(command, reader.sets))}
    for name in dict.fromkeys(name for command, name in set_there.items() if not command.startswith("env ")):
        sentences.append(f"Your program sets {name} itself: change its line `{reader.sets[name]}`.")
    fitting = (for_release(command, reader.release) for command in commands if command not in set_there)
    written = [_written(command, entry.way, reader) for command in fitting]
    image = reader.image or "IMAGE"
    runnable = tuple(_NO_IMAGE.sub(image, command) for command in written if command is not None)
    if commands and not runnable and not set_there and not anyway:
        return None
    return Remedy(entry.way, " ".join(sentences), runnable, entry.interrupts)


def _written(command: str, way: str, reader: Reader) -> str | None:
    """Return a command as the reader runs it, or None if nothing does the same there."""
    start, _, environment = reader.doctor.partition(" doctor ")
    if start.startswith(("!", "uvx.exe")):
        # Started in this way, `check` has no TensorFlow of its own.
        command = _OWN_COMMAND.sub(rf"{start} \g<name>", command).replace(" check ", f" check {environment} ")
    if way == "docker":
        own = next((engine for engine in ("podman", "compose", "kubernetes") if engine in reader.ways), way)
        own = way if "docker" in reader.ways else own
        return for_engine(command, "old_docker" if reader.old_docker and own == way else own)
    if reader.builds and "pip install" in command and not command.startswith("RUN "):
        return f"RUN {command}"
    if way in ("any", "host", "pip", "conda"):
        if "uv" in reader.ways and way == "pip":
            command = for_uv(command)
        if reader.windows:
            return for_powershell(command)
        if reader.ways & {"colab", "kaggle"}:
            return for_notebook(command)
    return command


def assumed(observations: Observations) -> Mapping[str, str]:
    """Return the facts to assume when remedies are chosen and these facts are not known.

    A Python that newer releases have no wheel for shows that the release is old, and so do the log's lines,
    a CUDA from before 11 and code for TensorFlow 1.
    """
    software = read_software(observations)
    python, cuda = leading_numbers(software.python or ""), leading_numbers(software.cuda or "")
    built = newest_with(software.cuda or "") if cuda and cuda < (11,) else None
    years = [match[1] for one in observations if (match := _DATED.search(one.text))]
    likely = likely_releases(observations)
    newest = likely[-1].version if likely else newest_of_year(max(years, default=""))
    known = [one for one in (newest, built.version if built else "") if one]
    if observations.has("tensorflow_1_code") and not observations.has("tensorflow_2_code"):
        known.append(_NEWEST_1)
    old = min(known, key=leading_numbers, default="")
    if not old and python and python < _OLD_PYTHON:
        old = _OLDEST
    return {"system": _SYSTEM, **({"tensorflow": old} if old else {})}


class _Placeholders(dict[str, str]):
    """Values by name. A name without a value becomes `NAME`: a shell would read `<name>` as a redirection."""

    def __missing__(self, name: str) -> str:
        return name.upper()


def filled_in(template: str, values: Mapping[str, str]) -> str:
    """Return a template with its values. A value that is not known stays a placeholder, `NAME`."""
    return template.format_map(_Placeholders(values))
