"""The Python packages around TensorFlow: their metadata, known problems beyond it, and what is imported."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from validator.probe import installed
from validator.probe.check import Context, Result
from validator.probe.checks import packages

REQUIRES = {
    "2.8.0": [
        "numpy>=1.20",
        "protobuf>=3.9.2",
        "keras<2.9,>=2.8.0rc0",
        "setuptools",
        "tensorboard<2.9,>=2.8",
    ],
    "2.15.1": [
        "numpy<2.0.0,>=1.23.5",
        "protobuf!=4.21.0,<5.0.0dev,>=3.20.3",
        "keras<2.16,>=2.15.0",
        'x; python_version < "3"',
        'nvidia-cudnn-cu12==8.9.4.25; extra == "and-cuda"',
    ],
    "2.20.0": ["numpy>=1.26.0", "protobuf>=5.28.0", "keras>=3.10.0", "setuptools", "tensorboard~=2.20.0"],
    "2.21.0": [
        "numpy>=1.26.0",
        "protobuf<8.0.0,>=6.31.1",
        "keras>=3.12.0",
        "h5py<3.15.0,>=3.11.0",
        "setuptools",
    ],
}
FITTING = {
    "2.8.0": {
        "numpy": "1.23.5",
        "protobuf": "3.19.6",
        "keras": "2.8.0",
        "setuptools": "81.0",
        "tensorboard": "2.8.0",
    },
    "2.15.1": {"numpy": "1.26.4", "protobuf": "4.25.8", "keras": "2.15.0"},
    "2.20.0": {
        "numpy": "2.3",
        "protobuf": "6.32.0",
        "keras": "3.12.0",
        "setuptools": "80.9",
        "tensorboard": "2.20.0",
    },
    "2.21.0": {
        "numpy": "2.1.3",
        "protobuf": "6.33.0",
        "keras": "3.12.0",
        "h5py": "3.14.0",
        "setuptools": "84.2.1",
    },
}


@pytest.fixture
def everything_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each package is where its metadata is."""
    monkeypatch.setattr(packages, "_origin", lambda package: f"/site/{package}")
    monkeypatch.setattr(packages, "_beside_metadata", lambda origin, names: True)


def run(
    facts: dict[str, Any], version: str, variables: dict[str, str] | None = None, **others: Any
) -> Result:
    """Run the check on a TensorFlow with packages that fit it, except these; None: not installed."""
    changed = {name.replace("_", "-"): version for name, version in others.items()}
    everything = {"tensorflow": version, **FITTING[version], **changed}
    facts["environment"]["packages"] = {name: found for name, found in everything.items() if found}
    facts["environment"]["variables"] = variables or {}
    facts["tensorflow"] = {
        "version": version,
        "distribution": "tensorflow",
        "directory": "/site/tensorflow",
        "requires": REQUIRES[version],
    }
    return packages.python_stack.run(Context(facts))


def problems(result: Result) -> list[tuple[str, str]]:
    assert (result.outcome == "fail") == any(one["severity"] == "fault" for one in result.problems)
    return [(one["code"], one["package"]) for one in result.problems]


@pytest.mark.usefixtures("everything_in_place")
@pytest.mark.parametrize("version", list(REQUIRES))
def test_packages_that_fit_pass(version: str, facts: dict[str, Any]) -> None:
    result = run(facts, version)
    assert result.outcome == "pass", result.sentence
    assert problems(result) == []
    assert {entry["fits"] for entry in result.evidence["requirements"]} == {True}
    assert f"numpy {FITTING[version]['numpy']}" in result.sentence


@pytest.mark.usefixtures("everything_in_place")
def test_only_requirements_that_apply_here_count(facts: dict[str, Any]) -> None:
    names = [entry["name"] for entry in run(facts, "2.15.1").evidence["requirements"]]
    assert names == ["numpy", "protobuf", "keras"]


@pytest.mark.usefixtures("everything_in_place")
@pytest.mark.parametrize(
    ("version", "packages", "expected", "said"),
    [
        (
            "2.15.1",
            {"keras": "3.0.0"},
            ("requirement_unmet", "keras"),
            "keras<2.16,>=2.15.0; 3.0.0 is installed",
        ),
        ("2.15.1", {"numpy": "2.2.6"}, ("requirement_unmet", "numpy"), "numpy<2.0.0,>=1.23.5; 2.2.6"),
        (
            "2.21.0",
            {"h5py": None},
            ("requirement_missing", "h5py"),
            "h5py<3.15.0,>=3.11.0, which is not installed",
        ),
        ("2.8.0", {"numpy": "2.2.6"}, ("numpy_2", "numpy"), "compiled for NumPy 1"),
        (
            "2.8.0",
            {"protobuf": "5.29.5"},
            ("protobuf_4", "protobuf"),
            "Descriptors cannot be created directly",
        ),
        (
            "2.21.0",
            {"tensorflow_cpu": "2.20.0"},
            ("several_distributions", "tensorflow"),
            "tensorflow-cpu 2.20.0",
        ),
        ("2.21.0", {"tf_nightly": "2.22.0.dev1"}, ("several_distributions", "tensorflow"), "tf-nightly"),
        ("2.21.0", {"numpy": "2.1.3, 1.26.4"}, ("several_versions", "numpy"), "2.1.3, 1.26.4"),
    ],
)
def test_packages_that_do_not_fit(
    version: str, packages: dict[str, Any], expected: tuple[str, str], said: str, facts: dict[str, Any]
) -> None:
    result = run(facts, version, **packages)
    assert result.outcome == "fail"
    assert problems(result) == [expected]
    assert said in result.sentence


@pytest.mark.usefixtures("everything_in_place")
@pytest.mark.parametrize(
    ("version", "packages", "expected"),
    [
        ("2.20.0", {"setuptools": "82.0.1"}, [("tensorboard_without_pkg_resources", "setuptools")]),
        ("2.21.0", {"setuptools": "82.0.1"}, []),
        ("2.21.0", {"tensorboard": "2.21.0", "setuptools": "82.0.1"}, []),
        (
            "2.21.0",
            {"tensorboard": "2.20.0", "setuptools": "82.0.1"},
            [("tensorboard_without_pkg_resources", "setuptools")],
        ),
    ],
)
def test_tensorboard_needs_an_old_setuptools(
    version: str, packages: dict[str, Any], expected: list[tuple[str, str]], facts: dict[str, Any]
) -> None:
    result = run(facts, version, **packages)
    assert result.outcome == "pass"
    assert problems(result) == expected


@pytest.mark.usefixtures("everything_in_place")
def test_legacy_keras(facts: dict[str, Any]) -> None:
    asked = {"TF_USE_LEGACY_KERAS": "1"}
    assert problems(run(facts, "2.21.0", asked)) == [("legacy_keras_missing", "tf-keras")]
    assert problems(run(facts, "2.21.0", asked, tf_keras="2.21.0")) == []
    other = run(facts, "2.21.0", asked, tf_keras="2.20.1")
    assert (other.outcome, problems(other)) == ("pass", [("legacy_keras_of_another_release", "tf-keras")])
    assert problems(run(facts, "2.21.0", {"TF_USE_LEGACY_KERAS": "yes"})) == []


def test_without_tensorflow_it_is_skipped(facts: dict[str, Any]) -> None:
    assert packages.python_stack.run(Context(facts)).outcome == "skip"


@pytest.mark.usefixtures("everything_in_place")
def test_without_metadata_nothing_is_claimed(facts: dict[str, Any]) -> None:
    run(facts, "2.21.0")
    facts["tensorflow"]["requires"] = None
    assert packages.python_stack.run(Context(facts)).outcome == "skip"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a directory on the path with an installed TensorFlow and none of its other requirements."""
    directory = tmp_path / "site"
    package(directory / "tensorflow")
    metadata = directory / "tensorflow-2.21.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: tensorflow\nVersion: 2.21.0\nRequires-Dist: six\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(directory))
    return directory


def package(directory: Path) -> None:
    directory.mkdir(parents=True)
    (directory / "__init__.py").write_text("raise AssertionError('imported')")


def collected(facts: dict[str, Any]) -> dict[str, Any]:
    importlib.invalidate_caches()
    facts["environment"]["packages"] = {"tensorflow": "2.21.0", "six": "1.17.0"}
    facts["tensorflow"] = installed.tensorflow({"tensorflow": ["2.21.0"]})
    return facts


@pytest.mark.usefixtures("site")
def test_the_installed_tensorflow_is_imported(facts: dict[str, Any]) -> None:
    result = packages.python_stack.run(Context(collected(facts)))
    assert result.outcome == "pass", result.sentence


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize("folder", [True, False])
def test_another_tensorflow_that_comes_first(
    folder: bool, facts: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tmp_path / "first"
    if folder:
        package(first / "tensorflow")
    else:
        first.mkdir()
        (first / "tensorflow.py").touch()
    monkeypatch.syspath_prepend(str(first))
    result = packages.python_stack.run(Context(collected(facts)))
    assert result.outcome == "fail"
    assert problems(result) == [("package_shadowed", "tensorflow")]
    assert (
        f"`import tensorflow` takes {first / ('tensorflow' if folder else 'tensorflow.py')}"
        in result.sentence
    )


def test_a_missing_package_directory(site: Path, facts: dict[str, Any]) -> None:
    (site / "tensorflow" / "__init__.py").unlink()
    (site / "tensorflow").rmdir()
    assert problems(packages.python_stack.run(Context(collected(facts)))) == [
        ("package_missing", "tensorflow")
    ]


@pytest.mark.usefixtures("site")
def test_a_file_in_the_current_directory_is_an_advisory(facts: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "tensorflow").mkdir()  # without __init__.py it shadows nothing
    assert problems(packages.python_stack.run(Context(collected(facts)))) == []
    (tmp_path / "tensorflow.py").touch()
    result = packages.python_stack.run(Context(collected(facts)))
    assert result.outcome == "pass"
    assert problems(result) == [("package_shadowed_in_current_directory", "tensorflow")]


@pytest.mark.usefixtures("site")
def test_packages_from_the_user_site(
    facts: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("site.ENABLE_USER_SITE", True)
    monkeypatch.setattr("site.getusersitepackages", lambda: str(tmp_path / "user"))
    (tmp_path / "user" / "six-1.16.0.dist-info").mkdir(parents=True)
    result = packages.python_stack.run(Context(collected(facts)))
    assert (result.outcome, problems(result)) == ("pass", [("packages_from_user_site", "six")])
