"""`predict --format constraints`: one set of CUDA's libraries for TensorFlow and another framework."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from validator import cli
from validator.cli import predict as command
from validator.compat import releases
from validator.compat.releases import release

from ..locks.local_index import LocalIndex
from ..supply import own_wheel_files as made

CUDNNS = ("9.1.0.70", "9.10.2.21", "9.28.0.42")

pytestmark = pytest.mark.engine


@pytest.fixture
def packages(index: LocalIndex, monkeypatch: pytest.MonkeyPatch) -> LocalIndex:
    """Return an index with TensorFlow 2.21.0, its libraries, and frameworks that pin some of them."""
    monkeypatch.setattr(command, "host_sources", lambda: index.sources)
    index.files.clear()
    wheels = dict(release("2.21.0").wheels)
    cudnn = wheels.pop("nvidia-cudnn-cu12")
    for name in wheels:
        lower = wheels[name].partition(">=")[2].partition(",")[0]
        for version in (lower, "1.0"):
            index.add_requiring(name, version)
    for version in CUDNNS:
        index.add_requiring("nvidia-cudnn-cu12", version)
    asked = [
        f"{name}{pin}; extra == 'and-cuda'" for name, pin in (*wheels.items(), ("nvidia-cudnn-cu12", cudnn))
    ]
    index.add_requiring("tensorflow", "2.21.0", *asked, extra="and-cuda")
    index.add_requiring("torch", "2.6.0", "nvidia-cudnn-cu12==9.1.0.70", "nvidia-cublas-cu12==1.0")
    index.add_requiring("torch", "2.8.0", "nvidia-cudnn-cu12==9.10.2.21")
    index.add_requiring("torch", "2.9.0", "nvidia-cudnn-cu12==9.10.2.21", "nvidia-nccl-cu12==1.0")
    index.add_requiring("torch", "2.12.0", "nvidia-cudnn-cu13==9.20.0.48")
    index.add_requiring("nvidia-cudnn-cu13", "9.20.0.48")
    return index


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.run(["predict", *words, "--format", "constraints"])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def pins(text: str) -> dict[str, str]:
    """Return the pins of a file, which nothing but comments precedes."""
    lines = [line for line in text.splitlines() if not line.startswith("# ")]
    return dict(line.split("==") for line in lines)


def test_the_extra_and_a_framework_share_the_cudnn_that_the_framework_pins(
    packages: LocalIndex, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "--tensorflow", "2.21.0", "--package", "torch==2.8.0")
    assert (code, "No known fault rules this set out" in err) == (0, True)
    assert "pip install -c constraints.txt 'tensorflow[and-cuda]==2.21.0' 'torch==2.8.0'\n" in out
    found = pins(out)
    assert found["nvidia-cudnn-cu12"] == "9.10.2.21"
    assert (found["tensorflow"], found["torch"]) == ("2.21.0", "2.8.0")
    assert release("2.21.0").wheels.keys() <= found.keys()


def test_the_wheel_of_a_file_is_the_one_that_is_resolved(
    packages: LocalIndex, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VALIDATOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(releases, "_OWN", {})
    path = made.wheel(tmp_path / "wheels")
    for name, version in made.NVIDIA.items():
        packages.add_requiring(f"nvidia-{name}-cu12", version)
    code, out, err = run(capsys, "--wheel", str(path), "--package", "torch==2.8.0")
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    assert (code, "No known fault rules this set out" in err) == (0, True)
    assert f"'tensorflow[and-cuda] @ {path.as_uri()}#sha256={sha256}' 'torch==2.8.0'\n" in out
    found = pins(out)
    # This wheel needs three of NVIDIA's wheels, and the release needs more.
    assert {name for name in found if name.startswith("nvidia")} == {
        f"nvidia-{name}-cu12" for name in made.NVIDIA
    }
    assert found["nvidia-cudnn-cu12"] == "9.10.2.21"


def test_if_only_the_extra_excludes_a_framework_there_is_a_set_without_it(
    packages: LocalIndex, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "--tensorflow", "2.21.0", "--package", "torch==2.9.0")
    assert code == 0
    assert "'tensorflow==2.21.0'" in out and "and-cuda" not in out
    found = pins(out)
    assert (found["nvidia-nccl-cu12"], found["nvidia-cudnn-cu12"]) == ("1.0", "9.10.2.21")
    assert release("2.21.0").wheels.keys() <= found.keys()


@pytest.mark.parametrize(
    ("torch", "reasons"),
    [
        (
            "2.6.0",
            [
                "=2.6.0 needs nvidia-cublas-cu12==1.0, but tensorflow[and-cuda]",
                " needs nvidia-cublas-cu12>=12.5.3.2,<13.0\n",
                "torch 2.6.0 requires cuDNN ==9.1.0.70, which tensorflow 2.21.0, compiled with cuDNN 9.3.0,"
                " does not accept; use an environment for each (cudnn-of-torch-2.4)",
            ],
        ),
        (
            "2.12.0",
            ["nvidia-cudnn-cu12 9.28.0.42 and nvidia-cudnn-cu13 9.20.0.48 overwrite each other's files"],
        ),
        ("3.99", ["the index does not have torch==3.99"]),
    ],
)
def test_the_reason_names_the_pins_that_exclude_each_other(
    packages: LocalIndex, capsys: pytest.CaptureFixture[str], torch: str, reasons: list[str]
) -> None:
    code, out, err = run(capsys, "--tensorflow", "2.21.0", "--package", f"torch=={torch}")
    assert (code, out) == (1, "")
    assert f"No one set of CUDA's libraries works for tensorflow 2.21.0 and torch=={torch}:" in err
    for reason in reasons:
        assert reason in err


def test_a_project_states_both(
    packages: LocalIndex, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(
        '[project]\nname = "x"\nrequires-python = "==3.12.*"\n'
        'dependencies = ["tensorflow==2.21.0", "private"]\n'
        '[project.optional-dependencies]\ndev = ["pytest"]\n'
        'torch = ["torch>=2.7,<2.9", "nvidia-cudnn-cu12<9.11"]\n'
    )
    code, out, err = run(capsys, "--requirements", str(path))
    assert code == 0, err
    assert out.startswith("# One set of CUDA's libraries, for Python 3.12 on ")
    assert pins(out)["torch"] == "2.8.0"
    (tmp_path / "requirements.txt").write_text("torch==2.6.0\n")
    code, out, err = run(
        capsys, "--requirements", str(tmp_path / "requirements.txt"), "--tensorflow", "2.21.0"
    )
    assert (code, out, "=2.6.0 needs" in err) == (1, "", True)


def test_what_is_missing_or_has_no_effect_is_said(
    index: LocalIndex, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = ("--package", "torch==2.8.0")
    assert "needs --tensorflow, or a file that pins it" in run(capsys, *torch)[2]
    assert "needs --package or a file" in run(capsys, "--tensorflow", "2.21.0")[2]
    asked = run(capsys, "--tensorflow", "2.21.0", *torch, "--gpu", "h100")
    assert (asked[0], "--gpu has no effect with --format constraints" in asked[2]) == (2, True)
    old = run(capsys, "--tensorflow", "2.10.1", *torch)
    assert (old[0], "needs CUDA 11.2, for which there are no wheels" in old[2]) == (1, True)
