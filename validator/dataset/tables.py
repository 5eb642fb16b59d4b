"""The tables of an export: a class for each, with a field for each column.

Everything else is made from these classes: the JSON Schemas, the types of the columns in Parquet, the Table
Schemas in `datapackage.json`, and the site's reference. A column is never removed and never gets
another meaning without a new `SCHEMA_VERSION`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

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


class Fact(Struct, frozen=True, forbid_unknown_fields=True):
    """What is known about releases, drivers, GPUs and libraries: one row of a data file each."""

    id: Annotated[str, Meta(description="The fact.", examples=["branch-535"])]
    file: Annotated[str, Meta(description="The data file that it is in.", examples=["drivers"])]
    section: Annotated[str, Meta(description="The part of that file.", examples=["branches"])]
    status: Annotated[Status, Meta(description="How sure it is.", examples=["verified"])]
    sources: Annotated[
        Strings, Meta(description="Where it was read: ids of `sources`.", examples=[["nv-drvapi-ver"]])
    ]
    content: Annotated[
        dict[str, Any],
        Meta(
            description="The fact itself. Its fields depend on `file` and `section`.",
            examples=[{"branch": 535, "cuda": "12.2"}],
        ),
    ]


class Source(Struct, frozen=True, forbid_unknown_fields=True):
    """Where facts were read."""

    id: Annotated[str, Meta(description="The source.", examples=["tensorflow/tensorflow#89272"])]
    text: Annotated[
        str,
        Meta(
            description="The source as a line that a person can follow.",
            examples=["https://github.com/tensorflow/tensorflow/issues/89272"],
        ),
    ]
    url: Annotated[
        str | None,
        Meta(
            description="Its address, if the source is nothing but an address.",
            examples=["https://github.com/tensorflow/tensorflow/issues/89272"],
        ),
    ]


class PredictionRow(Struct, frozen=True, forbid_unknown_fields=True):
    """The prediction of the rules for each cell of the matrix, before anything runs."""

    id: Annotated[
        str,
        Meta(
            description="The cell: image and host.",
            examples=["tf2.21.0-cuda12.9-cudnn9.28-py312@r580-h100"],
        ),
    ]
    image: Annotated[str, Meta(description="The image spec.", examples=["tf2.21.0-cuda12.9-cudnn9.28-py312"])]
    host: Annotated[str, Meta(description="The host class.", examples=["r580-h100"])]
    tensorflow: Annotated[str, Meta(description="The release of TensorFlow.", examples=["2.21.0"])]
    python: Annotated[str, Meta(description="The Python, major and minor version.", examples=["3.12"])]
    variant: Annotated[Variant, Meta(description="The variant of the image.", examples=["gpu"])]
    cuda: Annotated[
        str | None, Meta(description="CUDA, major and minor version; null for `cpu`.", examples=["12.5"])
    ]
    cuda_policy: Annotated[
        str | None,
        Meta(description="What was asked for: `as-built`, `latest`, or a version.", examples=["as-built"]),
    ]
    cudnn: Annotated[
        str | None, Meta(description="cuDNN, major and minor version; null for `cpu`.", examples=["9.3"])
    ]
    cudnn_policy: Annotated[
        str | None,
        Meta(description="What was asked for: `as-built`, `latest`, or a version.", examples=["as-built"]),
    ]
    base: Annotated[
        str | None,
        Meta(description="The base image; null for the default.", examples=["docker.io/library/debian"]),
    ]
    driver: Annotated[
        str | None,
        Meta(description="The driver, a branch or a release; null for `no-gpu`.", examples=["580"]),
    ]
    gpu: Annotated[
        str | None,
        Meta(
            description="The GPU's short name; null if only the capability is known, or for `no-gpu`.",
            examples=["h100"],
        ),
    ]
    compute_capability: Annotated[
        str | None, Meta(description="The GPU's compute capability; null for `no-gpu`.", examples=["9.0"])
    ]
    outcome: Annotated[
        Outcome, Meta(description="The prediction: the worse of `eager` and `xla`.", examples=["works"])
    ]
    eager: Annotated[
        Outcome | None, Meta(description="For operations that run one by one.", examples=["works"])
    ]
    xla: Annotated[Outcome | None, Meta(description="For functions that XLA compiles.", examples=["works"])]
    rank: Annotated[
        Rank,
        Meta(
            description="What the outcome rests on: `measured` if a report in `measurements/` decides it for"
            " all modes, else `derived`.",
            examples=["derived"],
        ),
    ]
    evidence: Annotated[
        Strings,
        Meta(
            description="What was tried with this combination or one near it: ids of `facts`, the best first."
            " A contradiction stays in it.",
            examples=[["tensorflow-62412-tf2.14.0-titan-v"]],
        ),
    ]
    missing: Annotated[
        Strings, Meta(description="Facts that are not known and that `works` needs.", examples=[["driver"]])
    ]
    reasons: Annotated[
        Strings,
        Meta(
            description="Ids of `reasons`. Those that decide come first.",
            examples=[["minor-version-12/1f3870be274f"]],
        ),
    ]


class ReasonRow(Struct, frozen=True, forbid_unknown_fields=True):
    """The reasons of the predictions. Many predictions share a reason."""

    id: Annotated[
        str,
        Meta(
            description="The fact, and a digest of the other columns.",
            examples=["minor-version-12/1f3870be274f"],
        ),
    ]
    outcome: Annotated[
        Outcome, Meta(description="What this reason on its own would predict.", examples=["fails"])
    ]
    text: Annotated[
        str,
        Meta(
            description="The reason in one sentence.",
            examples=["CUDA 12.5 needs driver 525.60.13 or newer; this is 470"],
        ),
    ]
    fact: Annotated[
        str,
        Meta(description="The fact that it is based on: an id of `facts`.", examples=["minor-version-12"]),
    ]
    source: Annotated[
        str,
        Meta(
            description="The sources of the facts that it follows from, on one line.",
            examples=["NVIDIA docs page 'Minor Version Compatibility'"],
        ),
    ]
    status: Annotated[
        Status,
        Meta(description="How sure it is. A conclusion is not surer than its facts.", examples=["verified"]),
    ]
    advisory: Annotated[
        bool, Meta(description="True for a remark, which does not change the outcome.", examples=[False])
    ]
    rule: Annotated[
        Rule | None,
        Meta(
            description="The rule that fails or can't be decided; null for a reason that supports `works`.",
            examples=["driver_too_old"],
        ),
    ]
    mode: Annotated[
        Mode | None,
        Meta(description="Set if the reason concerns only operations that run this way.", examples=["xla"]),
    ]


class RecordRow(Struct, frozen=True, forbid_unknown_fields=True):
    """What was measured: one row for each run of the probe, and for each image that did not build."""

    id: Annotated[
        str,
        Meta(
            description="32 hex digits of the SHA-256 of the whole record, before names were taken out.",
            examples=["2c48783260e37abbca61767398c2c7e7"],
        ),
    ]
    cell: Annotated[
        str,
        Meta(
            description="Image and host. An id of `predictions` if the matrix has this cell.",
            examples=["tf2.21.0-cuda12.9-cudnn9.28-py312@r580-h100"],
        ),
    ]
    image: Annotated[str, Meta(description="The image spec.", examples=["tf2.21.0-cuda12.9-cudnn9.28-py312"])]
    host: Annotated[str, Meta(description="The host class.", examples=["r580-h100"])]
    verdict: Annotated[
        Verdict,
        Meta(
            description="The verdict. Only `certified` means that a GPU was proven.", examples=["certified"]
        ),
    ]
    reason: Annotated[str, Meta(description="The verdict explained in one sentence.", examples=["no GPU"])]
    origin: Annotated[
        Origin,
        Meta(
            description="`here`: built and probed by the installation that keeps the record. `elsewhere`: an"
            " imported report, which is never `certified`. Rehearsals are not exported.",
            examples=["here"],
        ),
    ]
    fixture: Annotated[
        bool, Meta(description="True if a test made it up. It proves nothing.", examples=[False])
    ]
    signed: Annotated[
        bool,
        Meta(
            description="True if the record contains a statement that its runner signed. The export does not"
            " verify the signature.",
            examples=[True],
        ),
    ]
    engine: Annotated[
        str,
        Meta(
            description="What ran the image: `docker`, `venv`, `none` for an imported report, or such as"
            " `slurm/podman` for a fleet.",
            examples=["docker"],
        ),
    ]
    tensorflow: Annotated[
        str | None, Meta(description="TensorFlow, as the probe found it.", examples=["2.21.0"])
    ]
    python: Annotated[str | None, Meta(description="Python, as the probe found it.", examples=["3.12.7"])]
    cuda: Annotated[
        str | None, Meta(description="CUDA's runtime library, as the probe found it.", examples=["12.5.82"])
    ]
    cudnn: Annotated[str | None, Meta(description="cuDNN, as the probe found it.", examples=["9.3.0"])]
    driver: Annotated[
        str | None, Meta(description="The driver's release, as NVML says.", examples=["580.65.06"])
    ]
    driver_cuda: Annotated[
        str | None, Meta(description="The newest CUDA that the driver supports.", examples=["13.0"])
    ]
    gpus: Annotated[
        Strings,
        Meta(description="The model of each GPU that was seen.", examples=[["NVIDIA H100 80GB HBM3"]]),
    ]
    compute_capabilities: Annotated[
        Strings,
        Meta(description="The compute capability of each GPU, in the same order.", examples=[["9.0"]]),
    ]
    os: Annotated[
        str | None,
        Meta(description="The system in the image.", examples=["Debian GNU/Linux 12 (bookworm)"]),
    ]
    kernel: Annotated[str | None, Meta(description="The kernel's release.", examples=["6.1.0-17-amd64"])]
    container: Annotated[
        str | None, Meta(description="The kind of container; null for none.", examples=["docker"])
    ]
    started: Annotated[
        Annotated[datetime, Meta(tz=True)] | None,
        Meta(description="When it started; null if that is not known.", examples=["2026-11-20T01:00:00Z"]),
    ]
    finished: Annotated[
        Annotated[datetime, Meta(tz=True)] | None,
        Meta(
            description="When it ended, by the clock of that machine; null if that is not a time.",
            examples=["2026-11-20T01:02:00Z"],
        ),
    ]
    image_digest: Annotated[
        str | None,
        Meta(description="The image that was probed; null if there was none.", examples=["sha256:9f86d081…"]),
    ]
    lock_digest: Annotated[
        str | None,
        Meta(description="A digest of name, version and hash of every wheel.", examples=["sha256:60303ae2…"]),
    ]
    base: Annotated[
        str | None,
        Meta(
            description="Where the base came from.",
            examples=["bootstrap:bookworm@sha256:fd61a03a…"],
        ),
    ]
    probe_version: Annotated[
        str | None, Meta(description="The program that measured.", examples=["1.0.0+8d685f2ebe9e"])
    ]
    limits: Annotated[
        list[Any],
        Meta(
            description="What failed only in full float32, with TensorFloat-32 off: the `code`, the `gpu` and"
            " the `error` of each.",
            examples=[
                [
                    {
                        "code": "xla_convolution_float32",
                        "gpu": "NVIDIA H200",
                        "error": "No valid config found!",
                    }
                ]
            ],
        ),
    ]


class CheckRow(Struct, frozen=True, forbid_unknown_fields=True):
    """The questions of the probe in each run, with the answers."""

    id: Annotated[
        str,
        Meta(
            description="The record and the check. If a report repeats a check, its number follows.",
            examples=["2c48783260e37abbca61767398c2c7e7/gpu_compute"],
        ),
    ]
    record: Annotated[
        str,
        Meta(description="The record: an id of `records`.", examples=["2c48783260e37abbca61767398c2c7e7"]),
    ]
    check: Annotated[str, Meta(description="The check.", examples=["gpu_compute"])]
    outcome: Annotated[CheckOutcome, Meta(description="How the check ended.", examples=["pass"])]
    required: Annotated[
        bool, Meta(description="True if a verdict of `certified` needs it to pass.", examples=[True])
    ]
    seconds: Annotated[float, Meta(description="How long it took, in seconds.", examples=[1.25])]
    summary: Annotated[
        str, Meta(description="The answer in one sentence.", examples=["no NVIDIA driver here"])
    ]
    codes: Annotated[
        Strings, Meta(description="The codes of the problems that it found.", examples=[["driver_missing"]])
    ]
    evidence: Annotated[
        dict[str, Any],
        Meta(
            description="What the check saw and measured. Its fields depend on the check.",
            examples=[{"device_type": "GPU"}],
        ),
    ]


class MessageRow(Struct, frozen=True, forbid_unknown_fields=True):
    """Lines that software prints or people write, as patterns, with what they show."""

    id: Annotated[
        str,
        Meta(
            description="The kind, and a digest of the pattern. A changed pattern is another message.",
            examples=["cuda_error/8a3c1f0e5b7d"],
        ),
    ]
    kind: Annotated[str, Meta(description="What the line shows.", examples=["cuda_error"])]
    pattern: Annotated[
        str,
        Meta(
            description="A regular expression in the syntax of RE2 for one line without colours. Its named"
            " groups are values.",
            examples=[r"failed call to cuInit: (?P<name>CUDA_ERROR_\w+)"],
        ),
    ]
    values: Annotated[
        dict[str, str],
        Meta(description="Values that hold for every line of this message.", examples=[{"place": "cuinit"}]),
    ]
    harmless: Annotated[
        str | None,
        Meta(
            description="Why the line may be ignored; null if it may not.",
            examples=["oneDNN is used for operations on the CPU, and this says so."],
        ),
    ]
    describes: Annotated[
        bool,
        Meta(
            description="True if the line only describes the environment, such as a version.",
            examples=[False],
        ),
    ]
    certainty: Annotated[
        Certainty,
        Meta(
            description="`observed`: a program prints it. `stated`: a person writes it.",
            examples=["observed"],
        ),
    ]
    causes: Annotated[
        Strings,
        Meta(
            description="Ids of the `causes` with a sign that this message can be a part of. A sign may need"
            " more.",
            examples=[["driver_library_mismatch"]],
        ),
    ]


class CauseRow(Struct, frozen=True, forbid_unknown_fields=True):
    """Why a GPU is not used, or not used well."""

    id: Annotated[str, Meta(description="The code of the cause.", examples=["driver_library_mismatch"])]
    position: Annotated[
        int,
        Meta(
            description="Its place in the causal chain, from 1: an earlier cause has to be fixed first.",
            examples=[3],
        ),
    ]
    title: Annotated[
        str,
        Meta(
            description="The cause in one sentence.",
            examples=["The driver's libraries and its loaded kernel module are of different versions."],
        ),
    ]
    means: Annotated[
        str,
        Meta(
            description="What it means, and why it has this effect.",
            examples=[
                "An upgrade replaced the driver's libraries while the old kernel module stayed loaded."
            ],
        ),
    ]
    signs: Annotated[
        list[Any],
        Meta(
            description="Conditions over kinds and named conditions. Each of them shows the cause.",
            examples=[[{"when": {"said": {"of": "driver_library_mismatch"}}, "strength": "possible"}]],
        ),
    ]
    ruled_out_by: Annotated[
        list[Any],
        Meta(description="Conditions that rule the cause out.", examples=[["gpu_works"]]),
    ]
    kinds: Annotated[
        Strings,
        Meta(
            description="The kinds of messages and of report fields that the signs ask for.",
            examples=[["cuda_error", "nvml_error"]],
        ),
    ]
    explains: Annotated[
        Strings,
        Meta(
            description="Ids of causes that may be nothing but its consequences.",
            examples=[["driver_not_loaded"]],
        ),
    ]
    sources: Annotated[
        Strings,
        Meta(
            description="Where this was read, as lines that a person can follow.",
            examples=[["https://github.com/tensorflow/tensorflow/issues/4349"]],
        ),
    ]


class FixRow(Struct, frozen=True, forbid_unknown_fields=True):
    """How a cause is fixed, for each way of installing or starting TensorFlow."""

    id: Annotated[
        str,
        Meta(
            description="The cause, the way, and a digest of `says`, `commands` and `when`.",
            examples=["driver_library_mismatch/host/4d967a30111b"],
        ),
    ]
    cause: Annotated[
        str, Meta(description="The cause: an id of `causes`.", examples=["driver_library_mismatch"])
    ]
    position: Annotated[
        int, Meta(description="Its place among the fixes of the cause, from 1.", examples=[1])
    ]
    way: Annotated[
        str,
        Meta(
            description="`pip`, `docker` and so on; `any`: however TensorFlow is installed; `host`: on the"
            " machine, as its administrator.",
            examples=["host"],
        ),
    ]
    says: Annotated[
        str,
        Meta(
            description="What to do. `{name}` stands for a value that was observed.",
            examples=["Reboot to load the kernel module of the installed version."],
        ),
    ]
    commands: Annotated[
        Strings,
        Meta(description="Shell commands, to run in this order.", examples=[["sudo reboot"]]),
    ]
    when: Annotated[
        list[Any],
        Meta(
            description="The condition under which it fits, as a list of one; empty if it always fits.",
            examples=[["in_container"]],
        ),
    ]
    interrupts: Annotated[
        str | None,
        Meta(description="What it interrupts for other people; null for nothing.", examples=["reboot"]),
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
