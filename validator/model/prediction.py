"""The prediction of the compatibility rules for a cell before anything runs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Annotated, Literal, TypedDict

from .. import problems
from .diagnosis import shortened
from .spec import Cell, ImageSpec

# What is known about a machine and about the software on it, as far as predictions depend on it. Both
# values are read from options (`cli/combination`), from a text or a report (`diagnosis/combination`), from
# files that pin software (`lint/findings`), from cells (`compat/predict`) and from this machine
# (`engines/host_situation`). Any fact may be unknown, which is None.

# Values of `Host.system`.
LINUX, WSL2, WINDOWS, MACOS = "linux", "wsl2", "windows", "macos"
SYSTEMS = (LINUX, WSL2, WINDOWS, MACOS)
# Values of `Host.machine`.
X86_64, AARCH64, JETSON = "x86_64", "aarch64", "jetson"
MACHINES = (X86_64, AARCH64, JETSON)
# Values of `Host.kernel_modules`.
OPEN, PROPRIETARY = "open", "proprietary"
KERNEL_MODULES = (OPEN, PROPRIETARY)
# Values of `Software.wheel`.
PYPI, CONDA_FORGE, NGC, OWN = "pypi", "conda-forge", "ngc", "own"
WHEELS = (PYPI, CONDA_FORGE, NGC, OWN)
# The modes that a prediction can be about.
EAGER, XLA = "eager", "xla"
MODES = (EAGER, XLA)


@dataclass(frozen=True)
class Host:
    """A machine.

    driver: an NVIDIA driver release or branch; on Windows and in WSL2 that of Windows. driver_cuda: the CUDA
    version that nvidia-smi shows, which is the newest that the driver supports. gpu: a model's name, or
    `no-gpu` for a machine that has none. capability: `8.9`. system, machine, kernel_modules: one of the
    values above. compat: the CUDA version of a cuda-compat package on the loader's path.
    """

    driver: str | None = None
    driver_cuda: str | None = None
    gpu: str | None = None
    capability: str | None = None
    system: str | None = None
    machine: str | None = None
    kernel_modules: str | None = None
    compat: str | None = None

    @property
    def names_gpu(self) -> bool:
        return bool(self.gpu or self.capability)

    @property
    def names_driver(self) -> bool:
        return bool(self.driver or self.driver_cuda)

    @property
    def on_windows(self) -> bool:
        """True if the driver is that of Windows."""
        return self.system in (WINDOWS, WSL2)


@dataclass(frozen=True)
class Software:
    """TensorFlow and what is installed with it.

    tensorflow, python: versions. Two numbers (`2.16`) stand for the newest release of the series. cuda,
    cudnn: versions of the libraries that TensorFlow loads. wheel: where the TensorFlow package comes from,
    one of the values above. variant: `gpu` or `cpu` (`tensorflow-cpu`). extra: True if TensorFlow was
    installed with its extra `and-cuda`, False if without. library_path: True if the loader is told of the
    directories of NVIDIA's wheels, with LD_LIBRARY_PATH or as the images of this project do; False if it is
    not. packages: other installed packages: normalized names and versions, each name once.
    """

    tensorflow: str | None = None
    python: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    wheel: str | None = None
    variant: str | None = None
    extra: bool | None = None
    library_path: bool | None = None
    packages: tuple[tuple[str, str], ...] = ()

    @property
    def versions(self) -> dict[str, str]:
        return dict(self.packages)


#: The name of a package or program at the beginning of a text: `tensorflow-cpu`, `torch`.
_NAME = re.compile(r"[a-z]\w*-|(?:torch|ptxas)\b")
#: The codes of rules. They are stable: text may change, these don't.
Rule = Literal[
    "driver_too_old", "driver_older_than_gpu", "driver_dropped_gpu", "compat_package_unsupported",
    "no_kernels_for_gpu", "ptx_not_compiled_by_driver", "xla_without_gpu_target", "cudnn_without_gpu",
    "cudnn_older_than_built", "cudnn_of_another_major", "cudnn_without_cuda_build",
    "cuda_of_another_version", "python_without_wheel", "platform_without_cuda", "cpu_package",
    "cuda_libraries_not_installed", "library_path_not_set", "open_modules_needed",
    "open_modules_unsupported", "not_nvidia", "devices_hidden", "known_issue", "mixed_frameworks",
    "requirement_unmet", "package_removed", "release_missing", "invalid_version",
]  # fmt: skip

#: What it means that a rule fails.
RULES: Mapping[Rule, str] = {
    "driver_too_old": "the driver is older than the CUDA libraries need",
    "driver_older_than_gpu": "the driver is older than the GPU",
    "driver_dropped_gpu": "the driver no longer supports the GPU",
    "compat_package_unsupported": "the cuda-compat package does not work with the GPU or the toolkit",
    "no_kernels_for_gpu": "the wheel has no code that the GPU can run or compile",
    "ptx_not_compiled_by_driver": "the driver is too old for the wheel's PTX",
    "xla_without_gpu_target": "XLA's compiler has no target for the GPU",
    "cudnn_without_gpu": "cuDNN has no kernels for the GPU",
    "cudnn_older_than_built": "cuDNN is older than the one that TensorFlow was compiled with",
    "cudnn_of_another_major": (
        "cuDNN has a different major version from the one that TensorFlow was compiled with"
    ),
    "cudnn_without_cuda_build": "cuDNN has no build for this CUDA",
    "cuda_of_another_version": "TensorFlow loads the libraries of another CUDA",
    "python_without_wheel": "there is no wheel for this Python",
    "platform_without_cuda": "the package has no CUDA on this system or architecture",
    "cpu_package": "the installed package is TensorFlow without CUDA",
    "cuda_libraries_not_installed": "TensorFlow was installed without CUDA's libraries",
    "library_path_not_set": (
        "the wheel does not search the directories of all NVIDIA wheels, and the loader's search"
        " path does not name them"
    ),
    "open_modules_needed": "the GPU needs the open kernel modules",
    "open_modules_unsupported": "the GPU needs the proprietary kernel modules",
    "not_nvidia": "the GPU is not one of NVIDIA's",
    "devices_hidden": "CUDA_VISIBLE_DEVICES hides every GPU",
    "known_issue": "the combination is known to break; `fact` says which one",
    "mixed_frameworks": "another framework in the environment brings a cuDNN that TensorFlow rejects",
    "requirement_unmet": "the metadata of the release rejects the version of a package",
    "package_removed": "the package was replaced by another one and can't be installed",
    "release_missing": "this release of TensorFlow does not exist",
    "invalid_version": "a package is pinned to something that is not a version",
}


class Outcome(str, Enum):
    """`unknown` means that the facts do not decide, not that nobody checked."""

    WORKS = "works"
    FAILS = "fails"
    UNKNOWN = "unknown"


WORST_FIRST = (Outcome.FAILS, Outcome.UNKNOWN, Outcome.WORKS)


class Rank(str, Enum):
    """What an answer rests on, the best first.

    `certified`: all required checks passed on a real GPU, and the image's digest is signed. `measured`: a
    report of the probe from a real GPU (`measurements/`). `reported`: a person wrote in public what they saw.
    `derived`: rules over published facts.
    """

    CERTIFIED = "certified"
    MEASURED = "measured"
    REPORTED = "reported"
    DERIVED = "derived"


#: The checks of functions that XLA compiles. What fails in the others stands in the way of both modes,
#: because such functions use the same driver, libraries and kernels.
CHECKS_OF_XLA = frozenset({"xla_toolchain", "xla_train_step", "xla_convolution", "keras_jit"})
#: Those whose limits concern only functions that XLA compiles.
_COMPILED = (*sorted(CHECKS_OF_XLA), "auto_clustering")
#: The most characters of a limit's error that a sentence repeats and that a certificate publishes. The image
#: wrote it, and may have written anything.
LONGEST_ERROR = 200


@dataclass(frozen=True)
class Limit:
    """What failed only outside TensorFlow's defaults: in full float32, with TensorFloat-32 off."""

    code: Annotated[str, "The check and the mode, such as `xla_convolution_float32`."]
    gpu: Annotated[str, "The model, such as `NVIDIA H200`."]
    error: Annotated[str, "What failed, in the words of the software that refused it."]

    @property
    def mode(self) -> str | None:
        """`xla` if it concerns only functions that XLA compiles, else None."""
        return XLA if self.code.startswith(_COMPILED) else None

    @property
    def sentence(self) -> str:
        """The code and the sentence of the catalogue, on one line without a full stop."""
        code, gpu, error = (" ".join(text.split()) for text in (self.code, self.gpu, self.error))
        said = problems.sentence({"code": code, "gpu": gpu, "error": shortened(error, LONGEST_ERROR)})
        return f"{code}: {said}"

    @property
    def line(self) -> str:
        """The line that names the limit in a list of reasons."""
        return f"limit: {self.sentence}"


@dataclass(frozen=True)
class Attempt:
    """One time that somebody tried a combination, or one near it."""

    id: Annotated[str, "The [fact](facts.md): a measurement or a public report."]
    rank: Annotated[Rank, "`certified`, `measured` or `reported`."]
    eager: Annotated[Outcome | None, "What was seen for operations that run one by one; null for nothing."]
    xla: Annotated[Outcome | None, "What was seen for functions that XLA compiles; null for nothing."]
    text: Annotated[str, "What was tried, such as `NVIDIA H200 with driver 580.159.04 and Python 3.12`."]
    source: Annotated[str, "Where it can be read, on one line."]
    date: Annotated[str | None, "The day on which it was measured, or null if that is not known."] = None
    differs: Annotated[
        tuple[str, ...], "How it differs from what was asked; nothing if it is the same combination."
    ] = ()
    limits: Annotated[
        tuple[Limit, ...],
        "What failed only in full float32; its fields are below. `mode` in each is `xla` if it concerns only"
        " functions that XLA compiles, else null.",
    ] = ()
    explained: Annotated[str | None, "Why it is not as the rules say, if that is known, with the source."] = (
        None
    )
    imported: Annotated[bool, "True for a report that a person sent: it decides only where no rule does."] = (
        False
    )
    other_gpu: Annotated[bool, "True if it was another model with the same compute capability."] = False

    def outcome(self, mode: str) -> Outcome | None:
        """Return what was seen in a mode, `eager` or `xla`; None for nothing."""
        found = self.eager if mode == EAGER else self.xla
        return None if found is Outcome.UNKNOWN else found

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "limits": [{**asdict(one), "mode": one.mode} for one in self.limits]}


@dataclass(frozen=True)
class Reason:
    """One reason of a prediction, with the fact that it is based on and the fact's source."""

    outcome: Annotated[Outcome, "What this reason on its own would predict: `works`, `fails` or `unknown`."]
    text: Annotated[str, "One sentence."]
    fact: Annotated[str, "The [fact](facts.md) that it is based on."]
    source: Annotated[str, "Where the fact was read (title, address or issue), on one line."]
    status: Annotated[
        str,
        "How sure the fact is: `verified`, `verified-local`, `derived` or `unverified`; `measured` and"
        " `reported` for what was tried.",
    ] = "verified"
    advisory: Annotated[
        bool, "True for a remark, which does not change the outcome, whatever the status of the fact."
    ] = False
    rule: Annotated[
        Rule | None,
        "The [code](facts.md#codes-of-rules) of the rule that fails, or that can't be decided; null for a"
        " reason that supports `works`, and for a measurement.",
    ] = None
    mode: Annotated[
        str | None,
        "`eager` or `xla` if the reason concerns only operations that run this way, null if it concerns"
        " both.",
    ] = None

    @property
    def label(self) -> str:
        """The outcome as people see it: an advisory supports no outcome."""
        return "advisory" if self.advisory else self.outcome.value

    @property
    def sentence(self) -> str:
        """The text, with the mode in front of it where the reason speaks against only one."""
        if self.mode is None or self.label == Outcome.WORKS.value:
            return self.text
        return f"{'XLA' if self.mode == XLA else self.mode}: {self.text}"

    @property
    def title(self) -> str:
        """The text as the title of a cause: with a capital letter, unless it begins with a name such as
        tensorflow-cpu or ptxas."""
        if self.text.startswith("tensorflow "):
            return f"TensorFlow{self.text[len('tensorflow') :]}"
        if _NAME.match(self.text):
            return self.text
        return f"{self.text[0].upper()}{self.text[1:]}"


class PredictionDocument(TypedDict):
    """A prediction as JSON."""

    outcome: Annotated[Outcome, "`works`, `fails` or `unknown`: the worse of `eager` and `xla`."]
    eager: Annotated[
        Outcome | None, "The outcome for operations that run one by one; null if only XLA was asked about."
    ]
    xla: Annotated[
        Outcome | None,
        "The outcome for functions that XLA compiles; null if only eager operations were asked about.",
    ]
    rank: Annotated[
        Rank, "What the outcome rests on: `certified`, `measured`, or `derived` (rules over published facts)."
    ]
    missing: Annotated[list[str], "The facts that are not known and that `works` needs."]
    evidence: Annotated[
        list[dict[str, object]],
        "What was tried, the best first; a contradiction stays in it. Its fields are below.",
    ]
    reasons: Annotated[list[dict[str, object]], "Those that decide first; their fields are below."]


#: The word for the prediction that eager operations work and functions compiled by XLA fail.
EAGER_ONLY = "eager-only"
#: The words for predictions, as everything that lists or counts them shows them.
WORDS = (Outcome.WORKS.value, EAGER_ONLY, Outcome.FAILS.value, Outcome.UNKNOWN.value)


@dataclass(frozen=True)
class Prediction:
    """The outcome with its reasons, the deciding ones first.

    eager: the outcome for operations that run one by one, None if only XLA was asked about. xla: the outcome
    for functions that XLA compiles, None if only eager operations were asked about. outcome: the worse of the
    two. missing: the facts that are not known and that `works` needs, as names of fields of `Host` and
    `Software`. rank: what the outcome rests on. evidence: what was tried, the best first.
    """

    outcome: Outcome
    reasons: tuple[Reason, ...]
    eager: Outcome | None
    xla: Outcome | None
    missing: tuple[str, ...] = ()
    rank: Rank = Rank.DERIVED
    evidence: tuple[Attempt, ...] = ()

    @property
    def word(self) -> str:
        """The prediction in one word: `eager-only` if only XLA fails, else the outcome."""
        only_xla_fails = (self.eager, self.xla) == (Outcome.WORKS, Outcome.FAILS)
        return EAGER_ONLY if only_xla_fails else self.outcome.value

    @property
    def modes(self) -> str:
        """`eager works, XLA fails` where the outcomes differ or only one was asked about; else no text."""
        if self.eager == self.xla:
            return ""
        outcomes = {"eager": self.eager, "XLA": self.xla}
        return ", ".join(f"{name} {outcome.value}" for name, outcome in outcomes.items() if outcome)

    def ruled_out(self, reasons: Iterable[Reason]) -> Prediction:
        """Return the prediction as failed for these reasons, or unchanged if there are none."""
        found = tuple(reasons)
        if not found:
            return self
        eager, xla = (one and Outcome.FAILS for one in (self.eager, self.xla))
        reasons = (*found, *self.reasons)
        return Prediction(Outcome.FAILS, reasons, eager, xla, self.missing, evidence=self.evidence)

    def as_json(self) -> PredictionDocument:
        return {
            "outcome": self.outcome,
            "eager": self.eager,
            "xla": self.xla,
            "rank": self.rank,
            "missing": list(self.missing),
            "evidence": [one.as_json() for one in self.evidence],
            # Not with `asdict`, which takes ten times as long, and a plan has thousands of cells.
            "reasons": [dict(vars(reason)) for reason in self.reasons],
        }


def count_words(predictions: Iterable[Prediction]) -> dict[str, int]:
    """Return how many predictions each word has, in the order of `WORDS`."""
    found = Counter(prediction.word for prediction in predictions)
    return {word: found[word] for word in WORDS}


def decide(reasons: Iterable[Reason], missing: tuple[str, ...] = (), mode: str | None = None) -> Prediction:
    """Return `fails` if a reason fails, else `unknown` if one is unknown or a fact is missing, else `works`.

    mode: `eager` or `xla` to leave out the reasons that concern only the other one. The reasons that decide
    come first, remarks come last.
    """
    orders = {Outcome.FAILS: 0, Outcome.UNKNOWN: 1, Outcome.WORKS: 2}
    ordered = tuple(sorted(reasons, key=lambda one: (orders[one.outcome], one.advisory)))
    modes = {reason.mode for reason in ordered}
    if mode is not None and len(modes) > 1:
        ordered = tuple(reason for reason in ordered if reason.mode in (None, mode))
    outcome = _outcome(ordered, missing)
    if mode is None and len(modes) > 1:
        eager = _outcome([reason for reason in ordered if reason.mode in (None, EAGER)], missing)
        xla = _outcome([reason for reason in ordered if reason.mode in (None, XLA)], missing)
        return Prediction(outcome, ordered, eager, xla, missing)
    return Prediction(
        outcome, ordered, None if mode == XLA else outcome, None if mode == EAGER else outcome, missing
    )


def _outcome(ordered: Sequence[Reason], missing: tuple[str, ...]) -> Outcome:
    """Return the outcome for ordered reasons: the first one decides."""
    first = ordered[0].outcome if ordered else Outcome.UNKNOWN
    return Outcome.UNKNOWN if missing and first is Outcome.WORKS else first


class Named(TypedDict):
    """The beginning of a cell as JSON."""

    id: Annotated[str, "`<image>@<host>`."]


class ImageFields(TypedDict):
    """The fields of an image, for a cell and for a combination that is not a cell."""

    image: Annotated[str, "The identifier of the image spec."]
    tensorflow: Annotated[str, "The release."]
    python: Annotated[str, "The version."]
    variant: Annotated[str, "`gpu`, `cpu` or `jupyter`."]
    cuda: Annotated[str | None, "The major and minor version that the policy gives; null for `cpu`."]
    cuda_policy: Annotated[str | None, "`as-built`, `latest`, or the pin; null for `cpu`."]
    cudnn: Annotated[str | None, "As `cuda`."]
    cudnn_policy: Annotated[str | None, "As `cuda_policy`."]
    base: Annotated[str | None, "A base image, or null for the default."]


class HostFields(TypedDict):
    """The fields of a host class."""

    host: Annotated[str | None, "The host class; for `predict`, null if the driver or the GPU is not given."]
    driver: Annotated[str | None, "The release or branch; null for `no-gpu`."]
    gpu: Annotated[
        str | None, "The short name of the model (`rtx-4090`), or null if only the capability is known."
    ]
    compute_capability: Annotated[str | None, "Such as `9.0`."]
    runner: Annotated[list[str], "The labels for `runs-on`."]


class CellDocument(Named, ImageFields, HostFields):
    """A planned cell as JSON."""

    prediction: Annotated[PredictionDocument, "Its fields are below."]


def image_json(image: ImageSpec) -> ImageFields:
    return {
        "image": image.identifier,
        "tensorflow": image.tensorflow,
        "python": image.python,
        "variant": image.variant.value,
        "cuda": image.cuda.version if image.cuda else None,
        "cuda_policy": image.cuda.policy if image.cuda else None,
        "cudnn": image.cudnn.version if image.cudnn else None,
        "cudnn_policy": image.cudnn.policy if image.cudnn else None,
        "base": image.base,
    }


@dataclass(frozen=True)
class PlannedCell:
    """A cell with its prediction, as `plan` lists it."""

    cell: Cell
    prediction: Prediction

    def as_json(self) -> CellDocument:
        host = self.cell.host
        return {
            "id": self.cell.identifier,
            **image_json(self.cell.image),
            "host": host.identifier,
            "driver": str(host.driver) if host.has_gpu else None,
            "gpu": host.gpu,
            "compute_capability": str(host.compute_capability) if host.has_gpu else None,
            "runner": list(host.runner),
            "prediction": self.prediction.as_json(),
        }


# A finding of lint: one place in a file that can't work.


@dataclass(frozen=True, order=True)
class Place:
    """A position in a file, counted from 1, in characters."""

    file: str
    line: int
    column: int


class FindingDocument(TypedDict):
    """A finding of lint as JSON."""

    file: Annotated[str, "The file."]
    line: Annotated[int, "Where it is, counted from 1."]
    column: Annotated[int, "In characters, counted from 1."]
    code: Annotated[Rule, "The [code](lint.md) of the rule."]
    message: Annotated[str, "One sentence without a full stop."]
    fix: Annotated[str, "What to write instead, as sentences; empty if the message says it."]
    fact: Annotated[str, "The [fact](facts.md) that it is based on."]
    source: Annotated[str, "Where the fact was read."]


@dataclass(frozen=True, order=True)
class Finding:
    """One thing that can't work, at the pin or statement to change.

    code: that of the rule of `compat`. message: one sentence without a full stop. fix: what to write instead,
    as sentences; empty if the message says it. fact, source: as in `Reason`.
    """

    place: Place
    code: Rule
    message: str
    fix: str
    fact: str
    source: str

    def as_json(self) -> FindingDocument:
        return {
            "file": self.place.file,
            "line": self.place.line,
            "column": self.place.column,
            "code": self.code,
            "message": self.message,
            "fix": self.fix,
            "fact": self.fact,
            "source": self.source,
        }


@dataclass(frozen=True)
class OnHost:
    """The prediction for a pin (place) on a host. tensorflow: the release that pip would install today."""

    place: Place
    tensorflow: str
    host: str
    prediction: Prediction

    @property
    def reason(self) -> Reason | None:
        """The reason that decides, None if nothing speaks against it."""
        first = next(iter(self.prediction.reasons), None)
        return first if first is not None and first.outcome is not Outcome.WORKS else None
