"""`predict` for facts that no cell of a matrix has, and its errors about releases and GPUs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from validator import cli
from validator.compat import policies
from validator.compat.facts import read_on
from validator.compat.policies import allowed_cudnn
from validator.compat.releases import release
from validator.engines import this_machine
from validator.errors import EXIT_FAILED, InputError, MissingError
from validator.model.record import GpuIdentity, Outside, Unread
from validator.model.spec import RECOMMENDED

pytestmark = pytest.mark.usefixtures("releases_up_to_2_22rc")
T4 = "--tensorflow 2.18.1 --driver 570.124.06 --gpu t4"


def predict(capsys: pytest.CaptureFixture[str], arguments: str) -> dict[str, Any]:
    """Return the answer as JSON, and check that the text has the same exit code and no error."""
    asked = ["predict", *arguments.split()]
    code = cli.run([*asked, "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert cli.run(asked) == code
    assert "error" not in capsys.readouterr().err
    return found


@pytest.mark.parametrize(
    ("arguments", "outcome", "rule"),
    [
        (T4, "works", None),
        (f"{T4} --system wsl2", "works", None),
        (f"{T4} --kernel-modules open", "works", None),
        (f"{T4} --extra", "works", None),
        # pip refuses this package, and the extra can't be installed with the newest Python.
        (f"{T4} --package keras==2.15.0", "fails", "requirement_unmet"),
        ("--tensorflow 2.14.1 --extra --driver 570 --gpu t4", "works", None),
        ("--tensorflow 2.14.1 --extra --python 3.11 --driver 570 --gpu t4", "fails", "known_issue"),
        (f"{T4} --package torch==2.9.1", "works", None),
        (f"{T4} --package torch==2.6.0", "fails", "mixed_frameworks"),
        (f"{T4} --package Tensorflow_CPU==2.18.1", "fails", "cpu_package"),
        (f"{T4} --package torch==2.6.0 --package nvidia-cudnn-cu12==9.3.0.75", "works", None),
        (f"{T4} --no-extra", "fails", "cuda_libraries_not_installed"),
        (f"{T4} --no-extra --cuda 12.5", "unknown", None),
        (f"{T4} --system windows", "fails", "platform_without_cuda"),
        (f"{T4} --system macos", "fails", "platform_without_cuda"),
        (f"{T4} --machine aarch64", "fails", "platform_without_cuda"),
        (f"{T4} --machine aarch64 --wheel ngc", "unknown", None),
        (f"{T4} --wheel conda-forge", "unknown", None),
        ("--tensorflow 2.18.1 --system macos", "fails", "platform_without_cuda"),
        (
            "--tensorflow 2.18.1 --driver 570 --gpu v100 --kernel-modules open",
            "fails",
            "open_modules_unsupported",
        ),
        ("--tensorflow 2.21.0 --driver 570 --gpu t4 --extra", "unknown", "library_path_not_set"),
        ("--tensorflow 2.10.1 --driver 516.94 --gpu t4 --system windows", "works", None),
        # No wheel of these was inspected.
        ("--tensorflow 2.5 --driver 470 --gpu t4", "unknown", None),
        ("--tensorflow 2.20.0rc0 --driver 580 --gpu l4 --extra", "unknown", None),
        ("--tensorflow 2.23.0.dev20261026 --driver 580 --gpu l4", "unknown", None),
        ("--image tensorflow/tensorflow:2.5.0-gpu --driver 470 --gpu t4", "unknown", None),
    ],
)
def test_facts_that_no_cell_has(
    capsys: pytest.CaptureFixture[str], arguments: str, outcome: str, rule: str | None
) -> None:
    prediction = predict(capsys, arguments)["prediction"]
    assert prediction["outcome"] == outcome, prediction["reasons"][0]
    if rule:
        assert prediction["reasons"][0]["rule"] == rule


NEWEST = allowed_cudnn(release("2.20.0"))[-1]
EXTRA = "--tensorflow 2.20.0 --driver 580 --extra --gpu"


@pytest.mark.parametrize(
    ("arguments", "cudnn"),
    [
        (f"{EXTRA} h100", NEWEST),
        ("--tensorflow 2.20.0 --driver 580 --gpu h100", NEWEST),
        (f"{EXTRA} h100 --policy as-built", "9.3.0.75"),
        (f"{EXTRA} h100 --cudnn 9.10", "9.10.2.21"),
        (f"{EXTRA} h100 --package nvidia-cudnn-cu12==9.8.0.87", "9.8.0.87"),
        (f"{EXTRA} h100 --package torch==2.8.0", "9.10.2.21"),
        # PyTorch's cuDNN is older than the extra allows, so pip can't install both.
        (f"{EXTRA} h100 --package torch==2.6.0", NEWEST),
        # The extra of this release allows only one cuDNN.
        ("--tensorflow 2.18.1 --driver 580 --gpu h100 --extra", "9.3.0.75"),
    ],
)
def test_the_extra_is_judged_with_the_cudnn_that_pip_chooses(
    capsys: pytest.CaptureFixture[str], arguments: str, cudnn: str
) -> None:
    reasons = predict(capsys, arguments)["prediction"]["reasons"]
    assert any(reason["text"].startswith(f"cuDNN {cudnn} supports") for reason in reasons)


def test_the_assumed_cudnn_is_named_with_the_command_that_installs_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def last_lines(arguments: str) -> tuple[int, str]:
        code = cli.run(["predict", *arguments.split()])
        return code, " ".join(capsys.readouterr().out.split()).partition("This is for ")[2]

    code, says = last_lines(f"{EXTRA} h100")
    assert code == 0 and says.startswith(
        "cuDNN 9.28.0.42, which pip chooses for tensorflow[and-cuda]==2.20.0"
    )
    assert f"known on {read_on()}. To get exactly that one:" in says
    assert says.endswith(f'python -m pip install "tensorflow[and-cuda]==2.20.0" nvidia-cudnn-cu12=={NEWEST}')
    # The newest cuDNN has no kernels for this GPU.
    code, says = last_lines(f"{EXTRA} v100")
    assert code == 1 and "It works with cuDNN 9.10.2.21:" in says
    assert says.endswith("nvidia-cudnn-cu12==9.10.2.21")
    assert last_lines(f"{EXTRA} v100 --cudnn 9.10.2.21") == (0, "")
    assert last_lines(f"{EXTRA} v100 --package nvidia-cudnn-cu12==9.10.2.21") == (0, "")


@pytest.mark.parametrize("arguments", ["--tensorflow 2.20.0", "", "--tensorflow 2.20.0 --compat 12.9"])
def test_a_driver_that_does_not_exist_gets_the_hint_on_nvidia_smi(arguments: str) -> None:
    with pytest.raises(InputError, match="there is no driver branch R5355") as raised:
        cli.run(["predict", *arguments.split(), "--driver", "5355", "--gpu", "t4"])
    assert "nvidia-smi" in (raised.value.hint or "")


def test_eager_and_xla_are_apart(capsys: pytest.CaptureFixture[str]) -> None:
    asked = "--tensorflow 2.21.0 --driver 580 --gpu rtx-5090"
    both = predict(capsys, asked)["prediction"]
    assert both["xla"] == "fails" and both["outcome"] == "fails"
    assert both["eager"] != "fails", "only XLA's own PTX has no target for it"
    eager, xla = (predict(capsys, f"{asked} --mode {mode}")["prediction"] for mode in ("eager", "xla"))
    assert (eager["outcome"], eager["xla"]) == (both["eager"], None)
    assert (xla["outcome"], xla["eager"]) == ("fails", None)
    cli.run(["predict", *asked.split()])
    assert f"eager {both['eager']}, XLA fails" in capsys.readouterr().out


def test_the_answer_repeats_what_was_asked(capsys: pytest.CaptureFixture[str]) -> None:
    found = predict(capsys, f"{T4} --system wsl2 --kernel-modules open --package torch==2.9.1")
    assert (found["system"], found["machine"], found["wheel"]) == ("wsl2", "x86_64", "pypi")
    assert found["kernel_modules"] == "open"
    assert found["packages"]["torch"] == "2.9.1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--tensorflow 2.18.5", r'"2\.18\.5" is not known; the nearest are 2\.18\.1'),
        ("--tensorflow 2.22.0", r"only its candidate 2\.22\.0rc0 was inspected"),
        ("--tensorflow 2.21.0 --gpu mi300", "--gpu: .*GPU from AMD"),
        ("--tensorflow 2.21.0 --driver 580 --gpu mi300", "--gpu: .*GPU from AMD"),
        (f"{T4} --package torch", "--package"),
        (f"{T4} --package ==2", "--package"),
        (f"{T4} --package torch==2.6.0 --package Torch==2.7.0", "has two versions"),
    ],
)
def test_wrong_values(arguments: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        cli.run(["predict", *arguments.split()])


@pytest.mark.parametrize(
    "arguments",
    [
        "--tensorflow 2.18.1 --variant cpu --system macos",
        "--tensorflow 2.18.1 --system wsl2",
        "--tensorflow 2.18.1 --mode eager --gpu t4",
    ],
)
def test_options_that_are_not_enough(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["predict", *arguments.split()]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "Error: --" in captured.err


def test_this_machine(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Outside("570.124.06", "570.124.06", (GpuIdentity("GPU-1", "NVIDIA A100-SXM4-80GB", "8.0"),))
    monkeypatch.setattr(this_machine, "read_host", lambda: seen)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    found = predict(capsys, "--tensorflow 2.18.1 --from-host")
    assert (found["driver"], found["gpu"], found["prediction"]["outcome"]) == ("570.124.06", "a100", "works")
    other = predict(capsys, "--tensorflow 2.18.1 --from-host --driver 470 --gpu t4")
    assert (other["driver"], other["gpu"]) == ("470", "t4"), "explicit options win"
    assert other["prediction"]["outcome"] == "fails"


def test_a_machine_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(this_machine, "read_host", lambda: Unread.NVML_SILENT)
    with pytest.raises(MissingError, match="shows no NVIDIA driver"):
        cli.run(["predict", "--tensorflow", "2.18.1", "--from-host"])


def test_the_default_image_is_the_recommended_one_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = policies.choose(release("2.21.0"), RECOMMENDED, RECOMMENDED)
    why = f"Recommended for TensorFlow 2.21.0: {policies.why_recommended(release('2.21.0'))}.\n"
    for asked in ("", "--driver 580 --gpu l4"):
        assert cli.run(["predict", "--tensorflow", "2.21.0", *asked.split()]) == 0
        printed = capsys.readouterr()
        assert printed.out.startswith(f"tf2.21.0-cuda{chosen[0].version}-cudnn{chosen[1].version}-py313")
        assert why in printed.err
        # On an L4, XLA fails with the cuDNN of the build.
        code = cli.run(["predict", "--tensorflow", "2.21.0", "--policy", "as-built", *asked.split()])
        assert code == bool(asked)
        printed = capsys.readouterr()
        assert printed.out.startswith("tf2.21.0-cuda12.5-cudnn9.3-py313")
        assert "Recommended" not in printed.err
    # CUDA, which is not given, is the version that the release was built with.
    assert predict(capsys, "--tensorflow 2.21.0 --cudnn 9.10 --driver 580 --gpu l4")["cuda"] == "12.5"
    assert cli.run(["plan"]) == 0
    assert why in capsys.readouterr().err


def test_a_given_package_of_cudnn_is_the_cudnn_of_the_software(capsys: pytest.CaptureFixture[str]) -> None:
    asked, package = "--tensorflow 2.21.0 --gpu l4 --driver 580", "--package nvidia-cudnn-cu12=="
    for installed in ("", " --no-extra", " --extra"):
        found = predict(capsys, f"{asked}{installed} {package}9.5.1.17")
        assert (found["cudnn"], found["cudnn_policy"]) == ("9.5", "9.5.1.17")
    # As with --cudnn, the CUDA is that of the build, unless pip chooses it.
    assert predict(capsys, f"{asked} {package}9.5.1.17")["id"].startswith("tf2.21.0-cuda12.5-cudnn9.5-")
    assert predict(capsys, f"{asked} --cudnn 9.5 {package}9.5.1.17")["cudnn"] == "9.5"
    assert cli.run(["predict", *f"{asked} --cudnn 9.3 {package}9.5.1.17".split()]) == 2
    assert "--cudnn 9.3 contradicts --package nvidia-cudnn-cu12==9.5.1.17" in capsys.readouterr().err
    with pytest.raises(InputError, match=r'"9\.99\.1" is not known; the nearest are'):
        cli.run(["predict", *f"{asked} {package}9.99.1".split()])


@pytest.mark.parametrize("gpu", ["v100", "p100"])
def test_without_versions_the_answer_is_about_those_that_run_on_the_gpu(
    gpu: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """cuDNN 9.11 and newer have no kernels for Volta and Pascal, so the recommended one fails there."""
    asked = ["predict", "--tensorflow", "2.21.0", "--gpu", gpu, "--driver", "580"]
    cli.run(asked)
    cell, word = capsys.readouterr().out.splitlines()[:2]
    assert "-cudnn9.10-" in cell
    assert word == "unknown"
    assert cli.run([*asked, "--policy", "recommended"]) == EXIT_FAILED
    assert "-cudnn9.28-" in capsys.readouterr().out


@pytest.mark.parametrize(
    "asked",
    [["--driver", "580.159.04"], ["--driver", "580.159.04", "--tensorflow", "2.21.0"], []],
    ids=["driver", "release", "GPU alone"],
)
def test_what_was_measured_on_such_a_machine_with_other_versions_is_named(
    asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    cli.run(["predict", *asked, "--gpu", "h200"])
    shown = " ".join(" ".join(capsys.readouterr()).split())
    assert (
        "Measured on 2026-11-27 on NVIDIA H200 with driver 580.159.04: tf2.21.0-cuda12.5-cudnn9.3-py312,"
        " works, with the limits xla_convolution_float32 and keras_jit_float32."
    ) in shown
    cli.run(["predict", *asked, "--gpu", "a100"])
    assert "Measured on" not in " ".join(capsys.readouterr())


def test_what_was_measured_with_another_driver_branch_is_not_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cli.run(["predict", "--gpu", "h200", "--driver", "570"])
    assert "Measured on" not in " ".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [
        ("--tensorflow 2.4.1 --gpu a100 --driver 580", "2.8.0"),
        ("--tensorflow 2.4 --gpu a100 --driver 580 --mode eager", "2.8.0"),
        ("--tensorflow 2.15.0rc0 --gpu a100 --driver 580", "2.15.0, whose prediction here is: works"),
        (
            "--tensorflow 2.20.0.dev20250314 --gpu rtx5090 --driver 580",
            "2.20.0, whose prediction here is: fails",
        ),
    ],
)
def test_a_release_that_was_not_inspected_is_unknown_and_names_the_nearest(
    capsys: pytest.CaptureFixture[str], arguments: str, nearest: str
) -> None:
    prediction = predict(capsys, arguments)["prediction"]
    assert prediction["outcome"] == "unknown"
    [reason] = [one for one in prediction["reasons"] if "was not inspected" in one["text"]]
    assert f"the nearest inspected release is {nearest}" in reason["text"]
    assert "works" not in (prediction["eager"], prediction["xla"])


def test_what_does_not_depend_on_the_release_still_fails(capsys: pytest.CaptureFixture[str]) -> None:
    found = predict(capsys, "--tensorflow 2.20.0.dev20250314 --gpu rtx5090 --driver 470")["prediction"]
    assert found["outcome"] == "fails"


def test_a_release_that_was_not_inspected_has_no_overview() -> None:
    with pytest.raises(InputError, match=r"no wheel of tensorflow 2\.5\.0 was inspected.* 2\.8\.0"):
        cli.run(["predict", "--tensorflow", "2.5.0"])


def test_two_numbers_mean_the_newest_patch(capsys: pytest.CaptureFixture[str]) -> None:
    found = predict(capsys, "--tensorflow 2.18 --gpu h100 --driver 580")
    assert (found["tensorflow"], found["id"].partition("-")[0]) == ("2.18.1", "tf2.18.1")


def test_the_table_of_a_release_agrees_with_the_prediction_for_a_machine(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On a V100, the recommended cuDNN does not work, so both answers take another one."""
    assert cli.run(["predict", "--tensorflow", "2.20.0", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["gpus"]
    [volta] = [row for row in rows if "V100" in row["gpus"]]
    assert 535 in volta["drivers"] and volta["instead"] == "CUDA 12.5 and cuDNN 9.3"
    assert all(row["instead"] is None for row in rows if "H100" in row["gpus"])
    assert cli.run(["predict", "--tensorflow", "2.20.0", "--gpu", "v100", "--driver", "535"]) == 0


def test_an_extra_that_a_release_does_not_have_brings_no_libraries(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for tensorflow in ("2.10.1", "2.12.0"):
        machine = ("--gpu", "t4", "--driver", "535", "--extra", "--json")
        cli.run(["predict", "--tensorflow", tensorflow, *machine])
        found = json.loads(capsys.readouterr().out)["prediction"]
        assert found["outcome"] == "unknown"
        assert "has no and-cuda extra" in found["reasons"][0]["text"]
