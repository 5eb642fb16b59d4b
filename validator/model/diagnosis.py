"""The answer of a diagnosis: causes in the order to fix them, harmless messages, lines not understood."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

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
CAUSE_FOUND, UNRECOGNIZED, GPU_USED = "cause_found", "unrecognized", "gpu_used"
NO_FAULT, NOT_SHOWN = "no_fault", "not_shown"
NO_GPU_LISTED = "no_gpu_listed"

_HEDGES = {"likely": "Likely: ", "possible": "Possibly: "}


def shortened(text: str, most: int) -> str:
    """Return a text, cut to at most this many characters. A text that was cut ends with `…`."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


@dataclass(frozen=True)
class Evidence:
    """Evidence for a finding."""

    text: Annotated[
        str,
        "The line as it was pasted (without colours, quote marks and line ends), or the words of a report.",
    ]
    where: Annotated[str, "`line 12` of a text, or a field of a report, such as `checks.driver`."]
    count: Annotated[int, "How often it was seen."] = 1


@dataclass(frozen=True)
class Remedy:
    """The fix for a cause, for one way of installing TensorFlow."""

    way: Annotated[
        str,
        "How TensorFlow is installed or started: `any`, `host`, `pip`, `uv`, `conda`, `docker`, `podman`,"
        " `compose`, `kubernetes`, `slurm`, `apptainer`, `colab`, `kaggle` or `wsl`.",
    ]
    says: Annotated[str, "What to do, and what it interrupts."]
    commands: Annotated[
        tuple[str, ...], "Shell commands, one a line, to run in this order; empty if no command fixes it."
    ] = ()
    interrupts: Annotated[
        str, "What it interrupts for other people (`reboot`, `display`, `gpu`, `docker`); empty if nothing."
    ] = ""


@dataclass(frozen=True)
class FailingReason:
    """A reason why facts that were read can't work together, as `predict` gives it."""

    rule: Annotated[str, "Its [code](facts.md#codes-of-rules)."]
    text: Annotated[str, "One sentence."]
    fact: Annotated[str, "The [fact](facts.md) that it is based on."]
    source: Annotated[str, "Where the fact was read."]
    mode: Annotated[
        str | None,
        "`eager` or `xla` if it concerns only operations that run this way, null if it concerns both.",
    ] = None
    rank: Annotated[str, "What it rests on, as in a prediction: always `derived`."] = "derived"


@dataclass(frozen=True)
class Cause:
    """A cause that was found."""

    code: Annotated[str, "A stable name; [All causes](../causes.md) lists them."]
    title: Annotated[str, "One sentence that names it, with the values that were seen."]
    means: Annotated[str, "What it is, and why it has the effect that was seen."]
    evidence: Annotated[tuple[Evidence, ...], "The strongest first; the fields of each are below."]
    remedies: Annotated[
        tuple[Remedy, ...],
        "The fix for each way of installing, never empty; the reader's own way first. The fields of each are"
        " below.",
    ]
    sources: Annotated[tuple[str, ...], "Where the facts come from, one line each."]
    explains: Annotated[
        tuple[str, ...], "Codes of other causes that show here and are only consequences of this one."
    ] = ()
    strength: Annotated[
        str,
        "How sure it is: `certain`, `likely` (it fits better than anything else) or `possible` (a guess,"
        ' named if there is nothing better); in the other formats the title then begins with "Likely" or'
        ' "Possibly".',
    ] = "certain"
    reasons: Annotated[
        tuple[FailingReason, ...],
        "Why the facts that were read can't work together, as `predict` says it; empty if only messages show"
        " the cause. The fields of each are below.",
    ] = ()

    @property
    def headline(self) -> str:
        """The title, preceded by how sure it is."""
        return _HEDGES.get(self.strength, "") + self.title


@dataclass(frozen=True)
class Harmless:
    """A message that looks alarming but shows no fault."""

    code: Annotated[str, "A stable name."]
    says: Annotated[str, "One sentence: what the message is, and why you can ignore it."]
    evidence: Annotated[tuple[Evidence, ...], "Where it is."]


@dataclass(frozen=True)
class Diagnosis:
    """The answer."""

    answer: Annotated[
        str,
        "`cause_found`; `unrecognized` (a fault that matches no known cause); `no_gpu_listed` (TensorFlow"
        " lists no GPU, and nothing else shows a fault); `gpu_used` (the GPU was seen working); `no_fault`"
        " (TensorFlow lists the GPU, or the CPU is used on purpose); or `not_shown` (no sign of a fault, and"
        " none that the GPU is used).",
    ]
    causes: Annotated[
        tuple[Cause, ...],
        'In the order to fix them: the first is the answer to "why". Empty if none was found. The fields of'
        " each are below.",
    ]
    harmless: Annotated[
        tuple[Harmless, ...],
        "Messages that look alarming but don't show a fault. The fields of each are below.",
    ]
    unknown: Annotated[tuple[Evidence, ...], "Evidence of a fault that matches no known cause."]
    facts: Annotated[
        Mapping[str, str],
        "What was recognized about the environment, by name: `tensorflow`, `python`, `keras`, `cuda`,"
        " `cudnn`, `driver`, `driver_cuda`, `gpu`, `os`, `image`; only those that were seen.",
    ] = field(default_factory=dict)
    read: Annotated[str, "What was read, in words (`312 lines`)."] = ""
    missing: Annotated[
        tuple[str, ...],
        "With `not_shown`: the unknown facts that would help, by the names that `predict` gives them.",
    ] = ()
    works: Annotated[
        str,
        "The answer to a question of the text, or which release should work on its GPU and driver, as"
        " sentences; empty if a cause was found.",
    ] = ""
    next_step: Annotated[str, "What to run or to look at next, in one sentence."] = ""
    next_command: Annotated[str, "The command that finds out the missing facts; empty if there is none."] = ""
