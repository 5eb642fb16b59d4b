"""The tables of an export: a class for each, with a field for each column.

Everything else is made from these classes: the JSON Schemas, the types of the columns in Parquet, the Table
Schemas in `datapackage.json`, and the site's reference. A column is never removed and never gets
another meaning without a new `SCHEMA_VERSION`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, inspect

from ..diagnosis.observations import Certainty
from ..model.prediction import Outcome, Rank, Rule
from ..model.record import Origin, Verdict
from ..model.report import CheckOutcome
from ..model.spec import Variant

#: The version of the tables. It changes when a program that reads the older one would misread the newer one.
SCHEMA_VERSION = 1

#: `compat.facts.STATUSES`, as a type.
Status = Literal["measured", "verified", "verified-local", "derived", "unverified", "reported"]
Mode = Literal["eager", "xla"]
Strings = tuple[str, ...]
Time = Annotated[datetime, Meta(tz=True)]


def about(description: str, example: Any) -> Meta:
    """Describe a column, with a value that it may have."""
    return Meta(description=description, examples=[example])


class Fact(Struct, frozen=True, forbid_unknown_fields=True):
    """What is known about releases, drivers, GPUs and libraries: one row of a data file each."""

    id: Annotated[str, about("The fact.", "branch-535")]
    file: Annotated[str, about("The data file that it is in.", "drivers")]
    section: Annotated[str, about("The part of that file.", "branches")]
    status: Annotated[Status, about("How sure it is.", "verified")]
    sources: Annotated[Strings, about("Where it was read: ids of `sources`.", ["nv-drvapi-ver"])]
    content: Annotated[
        dict[str, Any],
        about("The fact itself. Its fields depend on `file` and `section`.", {"branch": 535, "cuda": "12.2"}),
    ]


class Source(Struct, frozen=True, forbid_unknown_fields=True):
    """Where facts were read."""

    id: Annotated[str, about("The source.", "tensorflow/tensorflow#89272")]
    text: Annotated[
        str,
        about(
            "The source as a line that a person can follow.",
            "https://github.com/tensorflow/tensorflow/issues/89272",
        ),
    ]
    url: Annotated[
        str | None,
        about(
            "Its address, if the source consists only of an address.",
            "https://github.com/tensorflow/tensorflow/issues/89272",
        ),
    ]


class PredictionRow(Struct, frozen=True, forbid_unknown_fields=True):
    """The prediction of the rules for each cell of the matrix, before anything runs."""

    id: Annotated[str, about("The cell: image and host.", "tf2.21.0-cuda12.9-cudnn9.28-py312@r580-h100")]
    image: Annotated[str, about("The image spec.", "tf2.21.0-cuda12.9-cudnn9.28-py312")]
    host: Annotated[str, about("The host class.", "r580-h100")]
    tensorflow: Annotated[str, about("The release of TensorFlow.", "2.21.0")]
    python: Annotated[str, about("The Python, major and minor version.", "3.12")]
    variant: Annotated[Variant, about("The variant of the image.", "gpu")]
    cuda: Annotated[str | None, about("CUDA, major and minor version; null for `cpu`.", "12.5")]
    cuda_policy: Annotated[
        str | None, about("What was asked for: `as-built`, `latest`, or a version.", "as-built")
    ]
    cudnn: Annotated[str | None, about("cuDNN, major and minor version; null for `cpu`.", "9.3")]
    cudnn_policy: Annotated[
        str | None, about("What was asked for: `as-built`, `latest`, or a version.", "as-built")
    ]
    base: Annotated[str | None, about("The base image; null for the default.", "docker.io/library/debian")]
    driver: Annotated[str | None, about("The driver, a branch or a release; null for `no-gpu`.", "580")]
    gpu: Annotated[
        str | None,
        about("The GPU's short name; null if only the capability is known, or for `no-gpu`.", "h100"),
    ]
    compute_capability: Annotated[
        str | None, about("The GPU's compute capability; null for `no-gpu`.", "9.0")
    ]
    outcome: Annotated[Outcome, about("The prediction: the worse of `eager` and `xla`.", "works")]
    eager: Annotated[Outcome | None, about("For operations that run one by one.", "works")]
    xla: Annotated[Outcome | None, about("For functions that XLA compiles.", "works")]
    rank: Annotated[
        Rank,
        about(
            "What the outcome rests on: `measured` if a report in `measurements/` decides it for"
            " all modes, else `derived`.",
            "derived",
        ),
    ]
    evidence: Annotated[
        Strings,
        about(
            "What was tried with this combination or one near it: ids of `facts`, the best first."
            " A contradiction stays in it.",
            ["tensorflow-62412-tf2.14.0-titan-v"],
        ),
    ]
    missing: Annotated[Strings, about("Facts that are not known and that `works` needs.", ["driver"])]
    reasons: Annotated[
        Strings, about("Ids of `reasons`. Those that decide come first.", ["minor-version-12/1f3870be274f"])
    ]


class ReasonRow(Struct, frozen=True, forbid_unknown_fields=True):
    """The reasons of the predictions. Many predictions share a reason."""

    id: Annotated[str, about("The fact, and a digest of the other columns.", "minor-version-12/1f3870be274f")]
    outcome: Annotated[Outcome, about("What this reason on its own would predict.", "fails")]
    text: Annotated[
        str, about("The reason in one sentence.", "CUDA 12.5 needs driver 525.60.13 or newer; this is 470")
    ]
    fact: Annotated[str, about("The fact that it is based on: an id of `facts`.", "minor-version-12")]
    source: Annotated[
        str,
        about(
            "The sources of the facts that it follows from, on one line.",
            "NVIDIA docs page 'Minor Version Compatibility'",
        ),
    ]
    status: Annotated[Status, about("How sure it is. A conclusion is not surer than its facts.", "verified")]
    advisory: Annotated[bool, about("True for a remark, which does not change the outcome.", False)]
    rule: Annotated[
        Rule | None,
        about(
            "The rule that fails or can't be decided; null for a reason that supports `works`.",
            "driver_too_old",
        ),
    ]
    mode: Annotated[
        Mode | None, about("Set if the reason concerns only operations that run this way.", "xla")
    ]


class RecordRow(Struct, frozen=True, forbid_unknown_fields=True):
    """What was measured: one row for each run of the probe, and for each image that did not build."""

    id: Annotated[
        str,
        about(
            "32 hex digits of the SHA-256 of the whole record, before names were taken out.",
            "2c48783260e37abbca61767398c2c7e7",
        ),
    ]
    cell: Annotated[
        str,
        about(
            "Image and host. An id of `predictions` if the matrix has this cell.",
            "tf2.21.0-cuda12.9-cudnn9.28-py312@r580-h100",
        ),
    ]
    image: Annotated[str, about("The image spec.", "tf2.21.0-cuda12.9-cudnn9.28-py312")]
    host: Annotated[str, about("The host class.", "r580-h100")]
    verdict: Annotated[
        Verdict, about("The verdict. Only `certified` means that a GPU was proven.", "certified")
    ]
    reason: Annotated[str, about("The verdict explained in one sentence.", "no GPU")]
    origin: Annotated[
        Origin,
        about(
            "`here`: built and probed by the installation that keeps the record. `elsewhere`: an"
            " imported report, which is never `certified`. Rehearsals are not exported.",
            "here",
        ),
    ]
    fixture: Annotated[bool, about("True if a test made it up. It proves nothing.", False)]
    signed: Annotated[
        bool,
        about(
            "True if the record contains a statement that its runner signed. The export does not"
            " verify the signature.",
            True,
        ),
    ]
    engine: Annotated[
        str,
        about(
            "What ran the image: `docker`, `venv`, `none` for an imported report, or such as"
            " `slurm/podman` for a fleet.",
            "docker",
        ),
    ]
    tensorflow: Annotated[str | None, about("TensorFlow, as the probe found it.", "2.21.0")]
    python: Annotated[str | None, about("Python, as the probe found it.", "3.12.7")]
    cuda: Annotated[str | None, about("CUDA's runtime library, as the probe found it.", "12.5.82")]
    cudnn: Annotated[str | None, about("cuDNN, as the probe found it.", "9.3.0")]
    driver: Annotated[str | None, about("The driver's release, as NVML says.", "580.65.06")]
    driver_cuda: Annotated[str | None, about("The newest CUDA that the driver supports.", "13.0")]
    gpus: Annotated[Strings, about("The model of each GPU that was seen.", ["NVIDIA H100 80GB HBM3"])]
    compute_capabilities: Annotated[
        Strings, about("The compute capability of each GPU, in the same order.", ["9.0"])
    ]
    os: Annotated[str | None, about("The system in the image.", "Debian GNU/Linux 12 (bookworm)")]
    kernel: Annotated[str | None, about("The kernel's release.", "6.1.0-17-amd64")]
    container: Annotated[str | None, about("The kind of container; null for none.", "docker")]
    started: Annotated[
        Time | None, about("When it started; null if that is not known.", "2026-11-20T01:00:00Z")
    ]
    finished: Annotated[
        Time | None,
        about(
            "When it ended, by the clock of that machine; null if that is not a time.", "2026-11-20T01:02:00Z"
        ),
    ]
    image_digest: Annotated[
        str | None, about("The image that was probed; null if there was none.", "sha256:9f86d081…")
    ]
    lock_digest: Annotated[
        str | None, about("A digest of name, version and hash of every wheel.", "sha256:60303ae2…")
    ]
    base: Annotated[str | None, about("Where the base came from.", "bootstrap:bookworm@sha256:fd61a03a…")]
    probe_version: Annotated[str | None, about("The program that measured.", "1.0.0+8d685f2ebe9e")]
    limits: Annotated[
        list[Any],
        about(
            "What failed only in full float32, with TensorFloat-32 off: the `code`, the `gpu` and"
            " the `error` of each.",
            [
                {
                    "code": "xla_convolution_float32",
                    "gpu": "NVIDIA H200",
                    "error": "No valid config found!",
                }
            ],
        ),
    ]


class CheckRow(Struct, frozen=True, forbid_unknown_fields=True):
    """The questions of the probe in each run, with the answers."""

    id: Annotated[
        str,
        about(
            "The record and the check. If a report repeats a check, its number follows.",
            "2c48783260e37abbca61767398c2c7e7/gpu_compute",
        ),
    ]
    record: Annotated[str, about("The record: an id of `records`.", "2c48783260e37abbca61767398c2c7e7")]
    check: Annotated[str, about("The check.", "gpu_compute")]
    outcome: Annotated[CheckOutcome, about("How the check ended.", "pass")]
    required: Annotated[bool, about("True if a verdict of `certified` needs it to pass.", True)]
    seconds: Annotated[float, about("How long it took, in seconds.", 1.25)]
    summary: Annotated[str, about("The answer in one sentence.", "no NVIDIA driver here")]
    codes: Annotated[Strings, about("The codes of the problems that it found.", ["driver_missing"])]
    evidence: Annotated[
        dict[str, Any],
        about("What the check saw and measured. Its fields depend on the check.", {"device_type": "GPU"}),
    ]


class MessageRow(Struct, frozen=True, forbid_unknown_fields=True):
    """Lines that software prints or people write, as patterns, with what they show."""

    id: Annotated[
        str,
        about(
            "The kind, and a digest of the pattern. A changed pattern is another message.",
            "cuda_error/8a3c1f0e5b7d",
        ),
    ]
    kind: Annotated[str, about("What the line shows.", "cuda_error")]
    pattern: Annotated[
        str,
        about(
            "A regular expression in the syntax of RE2 for one line without colours. Its named"
            " groups are values.",
            r"failed call to cuInit: (?P<name>CUDA_ERROR_\w+)",
        ),
    ]
    values: Annotated[
        dict[str, str], about("Values that hold for every line of this message.", {"place": "cuinit"})
    ]
    harmless: Annotated[
        str | None,
        about(
            "Why the line may be ignored; null if it may not.",
            "oneDNN is used for operations on the CPU, and this says so.",
        ),
    ]
    describes: Annotated[
        bool, about("True if the line only describes the environment, such as a version.", False)
    ]
    certainty: Annotated[
        Certainty, about("`observed`: a program prints it. `stated`: a person writes it.", "observed")
    ]
    causes: Annotated[
        Strings,
        about(
            "Ids of the `causes` with a sign that this message can be a part of. A sign may need more.",
            ["driver_library_mismatch"],
        ),
    ]


class CauseRow(Struct, frozen=True, forbid_unknown_fields=True):
    """Why a GPU is not used, or not used well."""

    id: Annotated[str, about("The code of the cause.", "driver_library_mismatch")]
    position: Annotated[
        int, about("Its place in the causal chain, from 1: an earlier cause has to be fixed first.", 3)
    ]
    title: Annotated[
        str,
        about(
            "The cause in one sentence.",
            "The driver's libraries and its loaded kernel module are of different versions.",
        ),
    ]
    means: Annotated[
        str,
        about(
            "What it means, and why it has this effect.",
            "An upgrade replaced the driver's libraries while the old kernel module stayed loaded.",
        ),
    ]
    signs: Annotated[
        list[Any],
        about(
            "Conditions over kinds and named conditions. Each of them shows the cause.",
            [{"when": {"said": {"of": "driver_library_mismatch"}}, "strength": "possible"}],
        ),
    ]
    ruled_out_by: Annotated[list[Any], about("Conditions that rule the cause out.", ["gpu_works"])]
    kinds: Annotated[
        Strings,
        about(
            "The kinds of messages and of report fields that the signs ask for.", ["cuda_error", "nvml_error"]
        ),
    ]
    explains: Annotated[
        Strings, about("Ids of causes that may be nothing but its consequences.", ["driver_not_loaded"])
    ]
    sources: Annotated[
        Strings,
        about(
            "Where this was read, as lines that a person can follow.",
            ["https://github.com/tensorflow/tensorflow/issues/4349"],
        ),
    ]


class FixRow(Struct, frozen=True, forbid_unknown_fields=True):
    """How a cause is fixed, for each way of installing or starting TensorFlow."""

    id: Annotated[
        str,
        about(
            "The cause, the way, and a digest of `says`, `commands` and `when`.",
            "driver_library_mismatch/host/4d967a30111b",
        ),
    ]
    cause: Annotated[str, about("The cause: an id of `causes`.", "driver_library_mismatch")]
    position: Annotated[int, about("Its place among the fixes of the cause, from 1.", 1)]
    way: Annotated[
        str,
        about(
            "`pip`, `docker` and so on; `any`: however TensorFlow is installed; `host`: on the"
            " machine, as its administrator.",
            "host",
        ),
    ]
    says: Annotated[
        str,
        about(
            "What to do. `{name}` stands for a value that was observed.",
            "Reboot to load the kernel module of the installed version.",
        ),
    ]
    commands: Annotated[Strings, about("Shell commands, to run in this order.", ["sudo reboot"])]
    when: Annotated[
        list[Any],
        about(
            "The condition under which it fits, as a list of one; empty if it always fits.", ["in_container"]
        ),
    ]
    interrupts: Annotated[
        str | None, about("What it interrupts for other people; null for nothing.", "reboot")
    ]


@dataclass(frozen=True)
class Table:
    """A table. refers: by column, the table whose id the column holds."""

    name: str
    row: type[Struct]
    refers: dict[str, str]


#: All tables, in the order of the documentation.
TABLES = (
    Table("facts", Fact, {}),
    Table("sources", Source, {}),
    Table("predictions", PredictionRow, {}),
    Table("reasons", ReasonRow, {"fact": "facts"}),
    Table("records", RecordRow, {}),
    Table("checks", CheckRow, {"record": "records"}),
    Table("messages", MessageRow, {}),
    Table("causes", CauseRow, {}),
    Table("fixes", FixRow, {"cause": "causes"}),
)


# The columns of a table, read from the fields of its class.


class Kind(Enum):
    """The type of a column. LIST: of texts. JSON: an object or an array of any shape."""

    TEXT = "text"
    CHOICE = "choice"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    TIME = "time"
    LIST = "list"
    JSON = "json"


_KINDS: dict[type[inspect.Type], Kind] = {
    inspect.StrType: Kind.TEXT,
    inspect.EnumType: Kind.CHOICE,
    inspect.LiteralType: Kind.CHOICE,
    inspect.IntType: Kind.INTEGER,
    inspect.FloatType: Kind.NUMBER,
    inspect.BoolType: Kind.BOOLEAN,
    inspect.DateTimeType: Kind.TIME,
    inspect.VarTupleType: Kind.LIST,
    inspect.ListType: Kind.JSON,
    inspect.DictType: Kind.JSON,
}


@dataclass(frozen=True)
class Column:
    """A column.

    choices: the values of a choice, in the order in which the code lists them.
    is_array: for JSON, whether it is an array and not an object.
    """

    name: str
    kind: Kind
    nullable: bool
    description: str
    example: Any
    choices: tuple[str, ...] = ()
    is_array: bool = False


@functools.cache
def columns_of(row: type[Struct]) -> tuple[Column, ...]:
    """Return the columns of a class in `tables`."""
    described = inspect.type_info(row)
    assert isinstance(described, inspect.StructType)
    return tuple(_column(field) for field in described.fields)


def _column(field: inspect.Field) -> Column:
    assert isinstance(field.type, inspect.Metadata)
    about = field.type.extra_json_schema or {}
    found = field.type.type
    members: Sequence[inspect.Type] = found.types if isinstance(found, inspect.UnionType) else (found,)
    value = next(member for member in members if not isinstance(member, inspect.NoneType))
    choices: tuple[str, ...] = ()
    if isinstance(value, inspect.EnumType):
        choices = tuple(member.value for member in value.cls)
    elif isinstance(value, inspect.LiteralType):
        choices = tuple(map(str, value.values))
    return Column(
        name=field.name,
        kind=_KINDS[type(value)],
        nullable=len(members) > 1,
        description=about["description"],
        example=about["examples"][0],
        choices=choices,
        is_array=isinstance(value, inspect.ListType),
    )
