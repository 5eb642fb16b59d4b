"""The files in `measurements/`: only real reports, named after what they are, and compiled to rows."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from validator import cli
from validator.compat import compile, facts
from validator.compat.compile import MeasurementError, read_measurement, row_of
from validator.errors import InputError
from validator.model import codec

[H200] = sorted(compile.DIRECTORY.glob("*h200_2026-11-27.json"))
NAME = H200.stem


def document() -> dict[str, Any]:
    """Return the measurement of the H200."""
    found: dict[str, Any] = json.loads(H200.read_bytes())
    return found


def checks_of(made: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {check["id"]: check for check in made["report"]["checks"]}


def row(made: dict[str, Any]) -> facts.Row:
    return row_of(codec.convert(made, compile.Measurement))


def test_every_file_is_in_the_compiled_facts() -> None:
    assert compile.rows() == facts.rows("measurements", "measurements")
    assert len(compile.rows()) == len(list(compile.DIRECTORY.iterdir())) > 0


def test_the_h200_works_with_its_limits() -> None:
    found = row(document())
    assert (found["eager"], found["xla"], found["imported"]) == ("works", "works", False)
    assert (found["gpu"], found["driver"], found["date"]) == ("NVIDIA H200", "580.159.04", "2026-11-27")
    assert [one["code"] for one in found["limits"]] == ["xla_convolution_float32", "keras_jit_float32"]
    assert all("Autotuner could not find any supported configs" in one["error"] for one in found["limits"])


def test_without_the_program_that_works_by_default_xla_is_unknown() -> None:
    found = row(document() | {"by_default": []})
    assert (found["eager"], found["xla"], found["limits"]) == ("works", "unknown", [])


def test_a_newer_probe_reports_its_limits_itself() -> None:
    made = document() | {"by_default": []}
    made["report"]["probe"]["version"] = "2.3.0+0123456789ab"
    limit = {
        "code": "xla_convolution_float32", "severity": "limit", "gpu": "NVIDIA H200", "error": "an error",
    }  # fmt: skip
    checks_of(made)["xla_convolution"].update(outcome="pass", problems=[limit])
    checks_of(made)["keras_jit"].update(outcome="pass", problems=[], evidence={"device_type": "GPU"})
    found = row(made)
    assert (found["eager"], found["xla"]) == ("works", "works")
    assert found["limits"] == [{"code": limit["code"], "gpu": limit["gpu"], "error": "an error"}]


def newer_probe(made: dict[str, Any]) -> None:
    made["report"]["probe"]["version"] = "2.3.0+0123456789ab"


def failed_in_half_precision(made: dict[str, Any]) -> None:
    checks_of(made)["xla_convolution"]["problems"][0]["type"] = "float16"


def excuses_what_passed(made: dict[str, Any]) -> None:
    made["by_default"][0]["check"] = "xla_train_step"


def excuses_eager(made: dict[str, Any]) -> None:
    made["by_default"][0]["check"] = "gpu_compute"
    checks_of(made)["gpu_compute"]["outcome"] = "fail"


def excuses_the_toolchain(made: dict[str, Any]) -> None:
    made["by_default"][0]["check"] = "xla_toolchain"
    checks_of(made)["xla_toolchain"]["outcome"] = "fail"


def failed_for_another_reason(made: dict[str, Any]) -> None:
    checks_of(made)["xla_convolution"]["problems"] = [{"code": "losses_differ", "severity": "fault"}]


def no_probe_version(made: dict[str, Any]) -> None:
    made["report"]["probe"]["version"] = "garbage"


def output_without_xla(made: dict[str, Any]) -> None:
    made["by_default"][0]["output"] = "loss: 2.5"


def outside_of_the_folder(made: dict[str, Any]) -> None:
    made["report"]["environment"]["tensorflow"] = "2.21.0/../../../../evil"


def unknown_release(made: dict[str, Any]) -> None:
    made["report"]["environment"]["tensorflow"] = "2.99.0"


def name_with_escapes(made: dict[str, Any]) -> None:
    made["report"]["host"]["gpus"][0]["name"] = "NVIDIA \x1b[31mH200"


def long_name(made: dict[str, Any]) -> None:
    made["report"]["host"]["gpus"][0]["name"] = "H" * 5000


def another_model(made: dict[str, Any]) -> None:
    gpus = made["report"]["host"]["gpus"]
    gpus.append(copy.deepcopy(gpus[0]) | {"name": "NVIDIA H100"})


def in_the_future(made: dict[str, Any]) -> None:
    made["report"]["finished"] = "2199-01-01T00:00:00Z"


def before_its_start(made: dict[str, Any]) -> None:
    made["report"]["finished"] = "2026-11-27T03:48:29Z"


def no_output(made: dict[str, Any]) -> None:
    made["by_default"][0]["output"] = " "


def fixture(made: dict[str, Any]) -> None:
    made["report"]["fixture"] = True


def no_gpu(made: dict[str, Any]) -> None:
    made["report"]["host"]["gpus"] = []


def emulated(made: dict[str, Any]) -> None:
    """Libraries that claim a GPU have no kernel module."""
    made["report"]["host"]["kernel_driver"] = None


def no_device_files(made: dict[str, Any]) -> None:
    for node in made["report"]["host"]["device_nodes"]:
        node["registered"] = False


def several_kinds(made: dict[str, Any]) -> None:
    gpus = made["report"]["host"]["gpus"]
    gpus.append(copy.deepcopy(gpus[0]) | {"compute_capability": "8.0"})


def nothing_ran(made: dict[str, Any]) -> None:
    checks_of(made)["gpu_compute"]["outcome"] = "skip"
    made["by_default"] = []
    for name in ("xla_convolution", "keras_jit"):
        checks_of(made)[name]["outcome"] = "skip"


def no_time(made: dict[str, Any]) -> None:
    made["report"]["finished"] = "yesterday"


def no_cudnn(made: dict[str, Any]) -> None:
    checks_of(made)["cudnn_load"]["evidence"] = {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (newer_probe, "what fails there is a fault"),
        (failed_in_half_precision, "failed in other types than float32"),
        (excuses_what_passed, "not one that computes with XLA"),
        (excuses_eager, "not one that computes with XLA"),
        (excuses_the_toolchain, "not one that computes with XLA"),
        (failed_for_another_reason, "another reason than a missing kernel"),
        (no_probe_version, "probe has no version"),
        (output_without_xla, "needs a program and its output"),
        (outside_of_the_folder, "not a TensorFlow release"),
        (unknown_release, "not known"),
        (name_with_escapes, "no name that can be shown"),
        (long_name, "no name that can be shown"),
        (another_model, "several models"),
        (in_the_future, "in the future"),
        (before_its_start, "before it started"),
        (no_output, "needs a program and its output"),
        (fixture, "a test made the report up"),
        (no_gpu, "without an NVIDIA GPU"),
        (emulated, "not from a real GPU"),
        (no_device_files, "not from a real GPU"),
        (several_kinds, "several models"),
        (nothing_ran, "shows nothing"),
        (no_time, "not a timestamp"),
        (no_cudnn, "which cudnn there was"),
        (lambda made: made.update(how=" "), "how it was made"),
        (lambda made: made.update(format=2), "has format 2"),
    ],
)
def test_what_is_not_a_real_measurement_is_refused(
    change: Callable[[dict[str, Any]], None], message: str
) -> None:
    made = document()
    change(made)
    with pytest.raises(MeasurementError, match=message):
        row(made)


def test_a_file_under_another_name_or_with_other_fields_is_refused(tmp_path: Path) -> None:
    (tmp_path / "another.json").write_bytes(H200.read_bytes())
    with pytest.raises(MeasurementError, match=f"is named {NAME}.json"):
        compile.rows(tmp_path)
    with pytest.raises(MeasurementError, match="verdict"):
        read_measurement(json.dumps(document() | {"verdict": "certified"}).encode())


# `records publish`


def publish(tmp_path: Path, made: dict[str, Any], *options: str) -> int:
    report = tmp_path / "report.json"
    report.write_text(json.dumps(made))
    where = ("--directory", str(tmp_path / "measured"))
    return cli.run(["records", "publish", str(report), "--how", "in a test", *where, *options])


@pytest.mark.slow
def test_one_command_writes_one_file_without_names(tmp_path: Path) -> None:
    made = document()["report"]
    made["logs"]["host_stderr"] = "/home/jsmith/run.py on 203.0.113.9\ngpubox is done"
    log = tmp_path / "plain.log"
    log.write_text("jsmith@gpubox:~$ python train.py\nCompiled cluster using XLA!\nloss: 2.5")
    programs = [
        option
        for check in ("xla_convolution", "keras_jit")
        for option in ("--by-default", check, "Keras trains", str(log))
    ]
    assert publish(tmp_path, made, "--imported", *programs) == 0
    [path] = (tmp_path / "measured").iterdir()
    assert path.stem == NAME
    text = path.read_text()
    assert [name for name in ("jsmith", "gpubox", "203.0.113.9", "GPU-0000") if name in text] == []
    [found] = compile.rows(tmp_path / "measured")
    assert (found["imported"], found["how"], found["xla"]) == (True, "in a test", "works")
    # The versions of packages stay, although four numbers look like an address.
    assert json.loads(text)["report"]["environment"]["packages"]["nvidia-cublas-cu12"] == "12.5.3.2"
    before = path.read_bytes()
    with pytest.raises(InputError, match="exists already"):
        publish(tmp_path, made, *programs)
    assert path.read_bytes() == before


def test_a_report_that_proves_nothing_is_not_written(tmp_path: Path) -> None:
    made = document()
    fixture(made)
    with pytest.raises(InputError, match="a test made the report up"):
        publish(tmp_path, made["report"])
    assert not (tmp_path / "measured").exists()
