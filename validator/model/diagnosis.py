"""The answer of a diagnosis: causes in the order to fix them, harmless messages, lines not understood."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: How TensorFlow is installed or started, as remedies say it. `any`: however. `host`: on the machine itself,
#: as its administrator.
WAYS = {
    "any": "",
    "host": "on the machine",
    "pip": "with pip",
    "uv": "with uv",
    "conda": "with conda",
    "docker": "with Docker",
    "podman": "with Podman",
    "compose": "with Docker Compose",
    "kubernetes": "in Kubernetes",
    "slurm": "with Slurm",
    "apptainer": "with Apptainer",
    "colab": "in Colab",
    "kaggle": "on Kaggle",
    "wsl": "in WSL2",
}

#: Values of `Diagnosis.answer`.
CAUSE_FOUND, UNRECOGNIZED, NO_FAULT, NOT_SHOWN = "cause_found", "unrecognized", "no_fault", "not_shown"

_HEDGES = {"likely": "Likely: ", "possible": "Possibly: "}


@dataclass(frozen=True)
class Evidence:
    """Evidence for a finding.

    text: the line as it was pasted (without colours, quote marks and line ends), or the text of a report.
    where: `line 12` of a log, or a report's field such as `checks.driver`.
    count: how often it was seen.
    """

    text: str
    where: str
    count: int = 1


@dataclass(frozen=True)
class Remedy:
    """The fix for a cause, for one way of installing TensorFlow.

    way: a key of `WAYS`.
    says: what to do, and what it interrupts.
    commands: shell commands, one per line, to run in this order; empty if no command fixes it.
    interrupts: what it interrupts for other people (`reboot`, `display`, `gpu`, `docker`); empty if nothing.
    """

    way: str
    says: str
    commands: tuple[str, ...] = ()
    interrupts: str = ""


@dataclass(frozen=True)
class FailingReason:
    """A reason why facts that were read can't work together, as `predict` gives it.

    rule: its stable code. text: one sentence. fact: identifier of the fact it is based on. source: where the
    fact was read. mode: `eager` or `xla` if it concerns only operations that run this way.
    """

    rule: str
    text: str
    fact: str
    source: str
    mode: str | None = None


@dataclass(frozen=True)
class Cause:
    """A cause that was found.

    code: stable, snake_case.
    title: one sentence that names it, with the values that were seen.
    means: what it means, and why it has this effect.
    evidence: strongest first.
    remedies: never empty; the reader's own way of installing and starting TensorFlow first.
    sources: of the facts, one line each.
    explains: codes of other causes that show here too and are only consequences of this one.
    strength: `certain`; `likely`, if it fits better than anything else; or `possible`, a guess.
    reasons: why the facts that were read can't work together, if that shows this cause.
    """

    code: str
    title: str
    means: str
    evidence: tuple[Evidence, ...]
    remedies: tuple[Remedy, ...]
    sources: tuple[str, ...]
    explains: tuple[str, ...] = ()
    strength: str = "certain"
    reasons: tuple[FailingReason, ...] = ()

    @property
    def headline(self) -> str:
        """The title, preceded by how sure it is."""
        return _HEDGES.get(self.strength, "") + self.title


@dataclass(frozen=True)
class Harmless:
    """A message that looks alarming but shows no fault.

    code: stable, snake_case.
    says: one sentence: what the message is, and why it may be ignored.
    """

    code: str
    says: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True)
class Diagnosis:
    """The answer.

    answer: `cause_found`; `unrecognized`, if there is a fault that matches no known cause; `no_fault`, if the
        GPU was seen working, or the CPU is used on purpose; or `not_shown`, if there is no sign of a fault,
        and none that the GPU is used.
    causes: in the order to fix them; the first is the answer to "why".
    unknown: lines that show a fault and match no known message.
    facts: what was recognized of the environment, such as `tensorflow`: `2.18.0`, `driver`: `535.183.01`.
    read: what was read, in a sentence (`312 lines`; `the first and last 32 MB of 1.1 GB`).
    missing: the facts that are not known and that would tell more, as names of fields of `Situation`; only
        for `not_shown`.
    next_step: what to run or to check next, one sentence.
    next_command: the shell command for that, empty if there is none.
    """

    answer: str

    causes: tuple[Cause, ...]
    harmless: tuple[Harmless, ...]
    unknown: tuple[Evidence, ...]
    facts: Mapping[str, str] = field(default_factory=dict)
    read: str = ""
    missing: tuple[str, ...] = ()
    next_step: str = ""
    next_command: str = ""
