"""TPUs and plugins of other accelerators that change which devices are chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from validator import problems as problems_catalogue
from validator.probe import installed, table
from validator.probe.check import Context, Result
from validator.probe.checks import packages


@pytest.fixture
def site(gpu_facts: dict[str, Any], facts: dict[str, Any], tmp_path: Path) -> Path:
    """Return the site-packages of a TensorFlow on a machine with a GPU."""
    gpu_facts["tensorflow"] = {"directory": str(tmp_path / "tensorflow")}
    return tmp_path


def run(facts: dict[str, Any], **found: dict[str, str]) -> Result:
    facts["environment"].update({"variables": {}, "packages": {}, **found})
    return packages.tpu_interference.run(Context(facts))


def problems(result: Result) -> list[tuple[str, str, str]]:
    return [(entry["code"], entry["subject"], entry["severity"]) for entry in result.problems]


@pytest.mark.usefixtures("site")
def test_nothing_interferes(gpu_facts: dict[str, Any]) -> None:
    result = run(gpu_facts, variables={"PATH": "/usr/bin"}, packages={"tensorflow": "2.21.0", "jax": "0.5"})
    assert (result.outcome, problems(result)) == ("pass", [])


@pytest.mark.usefixtures("site")
def test_variables_are_reported(gpu_facts: dict[str, Any]) -> None:
    result = run(gpu_facts, variables={"TPU_NAME": "grpc://10.0.0.2:8470", "COLAB_TPU_ADDR": "10.0.0.2:8470"})
    assert result.outcome == "pass"
    assert problems(result) == [
        ("tpu_variable", "COLAB_TPU_ADDR", "advisory"),
        ("tpu_variable", "TPU_NAME", "advisory"),
    ]


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("package", "problem", "outcome"),
    [
        ("libtpu", "tpu_library", "pass"),
        ("cloud-tpu-client", "tpu_client", "pass"),
        ("tensorflow-tpu", "tpu_build", "fail"),
        ("tensorflow-directml-plugin", "device_plugin_replaces_gpu", "fail"),
        ("tensorflow-rocm", "other_build", "fail"),
    ],
)
def test_packages(package: str, problem: str, outcome: str, gpu_facts: dict[str, Any]) -> None:
    result = run(gpu_facts, packages={package: "1.0"})
    assert result.outcome == outcome
    assert problems(result) == [(problem, package, "fault" if outcome == "fail" else "advisory")]
    assert f"{package} 1.0 " in result.sentence


def test_without_a_gpu_there_is_no_fault(facts: dict[str, Any], tmp_path: Path) -> None:
    facts["tensorflow"] = {"directory": str(tmp_path / "tensorflow")}
    result = run(facts, packages={"tensorflow-tpu": "2.19.0"})
    assert (result.outcome, problems(result)) == ("pass", [("tpu_build", "tensorflow-tpu", "advisory")])


def test_plugins_that_tensorflow_loads(site: Path, gpu_facts: dict[str, Any]) -> None:
    plugins = site / "tensorflow-plugins"
    plugins.mkdir()
    (plugins / "__init__.py").touch()
    assert problems(run(gpu_facts)) == []
    (plugins / "libitex_gpu.so").touch()
    result = run(gpu_facts)
    assert (result.outcome, problems(result)) == (
        "pass",
        [("device_plugin_files", "libitex_gpu.so", "advisory")],
    )


def test_without_tensorflow_it_is_skipped(facts: dict[str, Any]) -> None:
    assert run(facts).outcome == "skip"


def test_every_variable_of_the_table_is_collected() -> None:
    known = table("accelerators")
    assert all(installed.VARIABLES.match(name) for name in known["variables"])
    names = [row["name"] for row in known["packages"]]
    assert names == sorted(set(names))


def test_the_catalogue_says_what_each_variable_and_package_does() -> None:
    known, words = table("accelerators"), problems_catalogue.VOCABULARIES
    assert set(words["tpu_variable"]) == set(known["variables"])
    for row in known["packages"]:
        kind = problems_catalogue.CATALOGUE[row["code"]]
        named = [name for name in ("build", "plugin") if f"subject:{name}" in str(kind.template)]
        assert all(row["name"] in words[name] for name in named), row
        assert kind.severity == "either" or row["severity"] == kind.severity, row
