"""Compile the facts that people edit, `data/*.yaml`, and `measurements/` to JSON that is read at run time.

    python -m validator.compat.compile           writes the compiled files
    python -m validator.compat.compile --check   fails if one of them is not current

The rules read `data/compiled.json`, which needs only the standard library. The probe can't import the rules
and reads `probe/data/kernels.json`: which GPUs the device code of each release runs on.

`records publish` writes the files in `measurements/`: reports of the probe from real GPUs. Each becomes one
row of the facts, which `predict` shows as *measured*. It is evidence for predictions and never a certificate:
nobody signed it, and it may come from an environment that is not one of this project's images.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import yaml

from ..model import codec
from ..model.codec import DocumentError, now_utc, parse_timestamp
from ..model.diagnosis import shortened
from ..model.prediction import CHECKS_OF_XLA, Limit, Outcome, Rank
from ..model.report import CheckOutcome, CheckResult, Finding, Report, ReportError, report_of, versions_of
from ..model.spec import Choice, ImageSpec, Variant, cell_identifier, host_identifier
from ..model.verdict import COMPUTES_AS_USERS_DO, IN_FULL_FLOAT32, outcomes
from ..versions import (
    ComputeCapability,
    CudaVersion,
    DriverRelease,
    is_numbers,
    leading_numbers,
    major_minor,
    minor_in,
    without_cuda_suffix,
)
from . import facts, hardware, policies
from .evidence import compared_packages
from .releases import build, release, releases

#: The format of the files. It changes when a reader of the older format would misread the newer one.
FORMAT = 1
#: Where the files are in a checkout.
DIRECTORY = Path(__file__).parent.parent.parent / facts.MEASUREMENTS
_FULL_PRECISION = "float32"
#: The characters that the name of a file can have, and the most characters of a GPU's name.
_FILE_NAME, _LONGEST_GPU = re.compile(r"[A-Za-z0-9.@_-]{1,200}"), 100
_PROBE_VERSION = re.compile(r"\d+\.\d+\.\d+(\+\w+)?")
#: The problems of XLA that full float32 alone can cause, and what they say then.
_OF_FULL_FLOAT32 = frozenset({"convolution_not_compiled", "tensorflow_raised"})
_NO_KERNEL = re.compile(r"Autotuner could not find any supported configs|No algorithm worked|NOT_SUPPORTED")
#: What TensorFlow logs when XLA has compiled something.
_COMPILED = "Compiled cluster using XLA"


class MeasurementError(ValueError):
    """A file is not a measurement, or a report can't become one. The message says why."""


class ByDefault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a program did in TensorFlow's defaults where a check of an older probe failed in full float32.

    check: the id of that check. program: what the program computes. output: what it printed.
    """

    check: str
    program: str
    output: str


class Measurement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file in `measurements/`.

    how: how the report was made, as a clause. imported: True if a person sent it. report: as the probe wrote
    it, without names of people and machines. by_default: only with a probe before 2.3.
    """

    format: int
    how: str
    imported: bool
    report: dict[str, Any]
    by_default: tuple[ByDefault, ...] = ()

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = codec.encode(self)
        return found


def read_measurement(data: bytes) -> Measurement:
    """Read a file and check that it shows something. Raises MeasurementError."""
    try:
        measurement = codec.convert(codec.parse(data), Measurement, "the measurement")
    except DocumentError as error:
        raise MeasurementError(str(error)) from None
    row_of(measurement)
    return measurement


def row_of(measurement: Measurement) -> facts.Row:
    """Return a measurement as a row of the facts. Raises MeasurementError where it shows nothing real."""
    if measurement.format != FORMAT:
        raise MeasurementError(f"it has format {measurement.format}; this version reads {FORMAT}")
    if not measurement.how.strip():
        raise MeasurementError("it does not say how it was made")
    try:
        report = report_of(measurement.report)
    except ReportError as error:
        raise MeasurementError(str(error)) from None
    _check_is_real(report)
    if not _PROBE_VERSION.fullmatch(report.probe.version):
        raise MeasurementError(f"its probe has no version: {shortened(repr(report.probe.version), 100)}")
    excused = {one.check: _excused(report, one) for one in measurement.by_default}
    eager, xla = outcomes(report, excused)
    if (eager, xla) == (Outcome.UNKNOWN, Outcome.UNKNOWN):
        raise MeasurementError(
            "the report shows nothing: a required check was skipped or is missing, or the GPU is not healthy"
        )
    image, gpu = _image(report), report.host.gpus[0]
    driver = DriverRelease.parse(report.host.driver or "")
    capability = ComputeCapability.parse(gpu.compute_capability or "")
    when = _finished(report)
    host = host_identifier(driver, hardware.model_of(gpu.name or ""), capability)
    name = f"{cell_identifier(image.identifier, host)}_{when.date().isoformat()}"
    if not _FILE_NAME.fullmatch(name):
        raise MeasurementError(
            f"its versions and its GPU make no name of a file: {shortened(repr(name), 200)}"
        )
    assert image.cuda is not None and image.cudnn is not None
    installed = {without_cuda_suffix(name): version for name, version in report.environment.packages.items()}
    # What failed in full float32 and works by default is a limit.
    limits = (
        Limit(f"{check.id}_{_FULL_PRECISION}", gpu.name or "", _error(check, check.problems[0]))
        for check in excused.values()
    )
    return {
        "id": name,
        "tensorflow": image.tensorflow,
        "python": image.python,
        "cuda": image.cuda.version,
        "cudnn": image.cudnn.version,
        "gpu": gpu.name,
        "capability": str(capability),
        "driver": str(driver),
        "date": when.date().isoformat(),
        "eager": eager.value,
        "xla": xla.value,
        "limits": [asdict(limit) for limit in (*report.limits, *limits)],
        "packages": {name: installed[name] for name in sorted(compared_packages() & installed.keys())},
        "imported": measurement.imported,
        "how": measurement.how.strip(),
        "probe": report.probe.version.partition("+")[0],
        "status": Rank.MEASURED.value,
        "sources": [f"{facts.MEASUREMENTS}/{name}.json"],
    }


def rows(directory: Path = DIRECTORY) -> list[facts.Row]:
    """Return every measurement as a row, by name. Raises MeasurementError for a wrong file or name."""
    found = []
    for path in sorted(directory.glob("*.json")):
        try:
            row = row_of(read_measurement(path.read_bytes()))
        except MeasurementError as error:
            raise MeasurementError(f"{path}: {error}") from None
        if row["id"] != path.stem:
            raise MeasurementError(f"{path}: the file of this measurement is named {row['id']}.json")
        found.append(row)
    return found


def _check_is_real(report: Report) -> None:
    """Raise MeasurementError unless a real GPU made the report."""
    host = report.host
    if report.fixture:
        raise MeasurementError("a test made the report up (fixture), so it proves nothing")
    if not host.gpus or host.driver is None:
        raise MeasurementError("the report is from a machine without an NVIDIA GPU or driver")
    # Libraries can claim any GPU. The kernel module and its device files are not theirs.
    nodes = any(node.device and node.registered and node.opens for node in host.device_nodes)
    loaded = host.kernel_driver is not None or bool(host.wsl)
    if not loaded or not (nodes or host.wsl):
        raise MeasurementError("the report is not from a real GPU: no loaded NVIDIA kernel module was seen")
    if len({(gpu.name, gpu.compute_capability) for gpu in host.gpus}) > 1:
        raise MeasurementError("the machine has GPUs of several models; measure with one")
    name = host.gpus[0].name or ""
    if not name.isprintable() or not name.strip() or len(name) > _LONGEST_GPU:
        raise MeasurementError(f"the GPU has no name that can be shown: {shortened(repr(name), 100)}")


def _finished(report: Report) -> datetime:
    """Return when the probe finished. Raises MeasurementError for a time that can't be."""
    started, finished = parse_timestamp(report.started), parse_timestamp(report.finished)
    if started is None or finished is None:
        raise MeasurementError("its start or its finish time is not a timestamp")
    if finished < started:
        raise MeasurementError(f"it finished before it started: {report.finished}")
    if finished > now_utc() + timedelta(days=1):
        raise MeasurementError(f"its finish time is in the future: {report.finished}")
    return finished


def _image(report: Report) -> ImageSpec:
    """Return the image spec that the environment is, from the versions that the probe found."""
    found = versions_of(report)
    for name in ("tensorflow", "python", "cuda", "cudnn"):
        if name not in found:
            raise MeasurementError(f"the report does not say which {name} there was")
    try:
        tensorflow = release(found["tensorflow"]).version
        cuda = str(CudaVersion.parse(found["cuda"]))
    except ValueError as error:
        raise MeasurementError(shortened(str(error), 200)) from None
    cudnn, python = major_minor(found["cudnn"]), minor_in(found["python"])
    if not is_numbers(cudnn) or python is None:
        raise MeasurementError("the report's cuDNN or Python is not a version")
    return ImageSpec(tensorflow, python, Variant.GPU, Choice(cuda, cuda), Choice(cudnn, cudnn))


def _excused(report: Report, seen: ByDefault) -> CheckResult:
    """Return the check that a program shows to work by default. Raises MeasurementError if it can't."""
    check, version = report.check(seen.check), report.probe.version
    if leading_numbers(version)[:2] >= COMPUTES_AS_USERS_DO:
        raise MeasurementError(
            f"probe {version} computes in TensorFlow's defaults, so what fails there is a fault"
        )
    computes = CHECKS_OF_XLA & IN_FULL_FLOAT32
    if check is None or check.outcome is not CheckOutcome.FAIL or check.id not in computes:
        raise MeasurementError(
            f"the check {seen.check} is not one that computes with XLA and that failed in the report"
        )
    if {entry.entry.get("type", _FULL_PRECISION) for entry in check.problems} - {_FULL_PRECISION}:
        raise MeasurementError(f"the check {seen.check} failed in other types than {_FULL_PRECISION} too")
    errors = [_error(check, entry) for entry in check.problems if entry.code in _OF_FULL_FLOAT32]
    if not errors or len(errors) < len(check.problems) or not all(map(_NO_KERNEL.search, errors)):
        raise MeasurementError(f"the check {seen.check} failed for another reason than a missing kernel")
    if not seen.program.strip() or _COMPILED not in seen.output or _NO_KERNEL.search(seen.output):
        raise MeasurementError(
            f"what works by default instead of {seen.check} needs a program and its output, in which"
            f' TensorFlow says "{_COMPILED}"'
        )
    return check


def _error(check: CheckResult, found: Finding) -> str:
    """Return what failed. A Python exception from a graph is only a heading; what was raised follows it."""
    error = found.entry.get("error")
    if error is not None:
        return str(error)
    below = [line for line in check.evidence.raw.get("traceback", ()) if line[:1].isalpha()]
    return f"{found.entry.get('exception')}: {below[-1] if below else found.entry.get('message')}"


PROBE_TABLE = Path(__file__).parent.parent / "probe" / "data" / "kernels.json"
_PROBE_TABLE_KEYS = (
    "Written by scripts/compile-data. tensorflow: of each measured release, translation units with the"
    " same device code, the targets that they have machine code for, and their PTX with its ISA version;"
    " library: whose code it is, if not TensorFlow's own. ptx: the driver branch and its CUDA version that"
    " first compiles an ISA version. families: compute capabilities that share the code of targets with the"
    " suffix f. cudnn: the oldest compute capability that releases of cuDNN have kernels for."
)


def compiled_facts(*, with_recommended: bool = True) -> str:
    """Return all facts, one row a line; and the recommended versions, which follow from `facts.COMPILED`."""
    documents = []
    for path in sorted(facts.DATA.glob("*.yaml")):
        sections = [
            f"{_json(name)}: {_lines(rows) if isinstance(rows, list) else _json(rows)}"
            for name, rows in read_yaml(path).items()
        ]
        documents.append(f"{_json(path.stem)}: {{\n" + ",\n".join(sections) + "\n}")
    measured = f"{_json(facts.MEASUREMENTS)}: {_lines(rows())}"
    documents.append(f"{_json(facts.MEASUREMENTS)}: {{\n{measured}\n}}")
    if with_recommended:
        recommended = {known.version: policies.recommendation(known) for known in releases()}
        documents.append(f'{_json(facts.RECOMMENDED)}: {{\n"releases": {_entries(recommended)}\n}}')
    return "{\n" + ",\n".join(documents) + "\n}\n"


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file. Raises OSError and yaml.YAMLError."""
    # With libyaml it takes a fifth of the time.
    return yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def probe_table() -> str:
    """Return the compiled facts that the probe needs as JSON, one row per line."""
    tensorflow = {}
    for row in facts.rows("builds", "builds"):
        measured = build(row["tensorflow"])
        tensorflow[row["tensorflow"]] = [
            {
                "units": group.count,
                "sass": [str(one) for one in sorted(group.sass)],
                "ptx": {str(one): ".".join(map(str, isa)) for one, isa in sorted(group.ptx.items()) if isa},
            }
            | ({"library": group.library} if group.library else {})
            for group in (measured.kernels if measured else ())
        ]
    # The wheels that were opened have no PTX of an older CUDA.
    oldest = CudaVersion.parse(releases()[0].cuda).major
    ptx = {
        row["isa"]: {"branch": row["branch"], "cuda": row["cuda"][0]}
        for row in facts.rows("drivers", "ptx")
        if CudaVersion.parse(row["cuda"][0]).major >= oldest
    }
    families = [row["compute_capabilities"] for row in facts.rows("drivers", "families")]
    cudnn = [{key: row[key] for key in ("from", "below", "minimum")} for row in facts.rows("cudnn", "cudnn")]
    parts = [
        f'"_": {_json(_PROBE_TABLE_KEYS)}',
        f'"tensorflow": {_entries(tensorflow)}',
        f'"ptx": {_entries(ptx)}',
        f'"families": {_lines(families)}',
        f'"cudnn": {_lines(cudnn)}',
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _entries(rows: Mapping[str, Any]) -> str:
    return "{\n" + ",\n".join(f"{_json(key)}: {_json(row)}" for key, row in rows.items()) + "\n}"


def _lines(rows: Iterable[Any]) -> str:
    return "[\n" + ",\n".join(map(_json, rows)) + "\n]"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


#: The compiled files, in the order in which they are made: each from the facts in the first.
FILES: Mapping[Path, Callable[[], str]] = {facts.COMPILED: compiled_facts, PROBE_TABLE: probe_table}
#: Asks a new process, which has not read the old facts, for what follows from the new ones.
_FOLLOWS = "--what-follows"


def stale() -> list[Path]:
    """Return the compiled files that are not current."""
    return [path for path, text in FILES.items() if path.read_text(encoding="utf-8") != text()]


def main(arguments: list[str]) -> int:
    """Write the compiled files, or check them. Return the exit code."""
    if _FOLLOWS in arguments:
        for path, text in FILES.items():
            path.write_text(text(), encoding="utf-8")
        return 0
    if "--check" not in arguments:
        facts.COMPILED.write_text(compiled_facts(with_recommended=False), encoding="utf-8")
        return subprocess.run(
            [sys.executable, "-m", "validator.compat.compile", _FOLLOWS], check=False
        ).returncode
    found = stale()
    for path in found:
        print(f"{path} is not current: run scripts/compile-data", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
