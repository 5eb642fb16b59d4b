"""The compiled facts are current, equal the YAML files, and are read with the standard library only."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from validator.compat import compile, facts

FILES = sorted(facts.DATA.glob("*.yaml"))


def test_the_compiled_files_are_current() -> None:
    assert compile.stale() == [], "run scripts/compile-data"


@pytest.mark.slow
def test_a_stale_file_is_detected_and_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "compiled.json"
    path.write_text("{}")
    monkeypatch.setattr(compile, "FILES", {path: compile.compiled_facts})
    assert compile.main(["--check"]) == 1
    assert f"{path} is not current: run scripts/compile-data" in capsys.readouterr().err
    assert compile.main(["--what-follows"]) == 0
    assert compile.main(["--check"]) == 0
    assert path.read_text(encoding="utf-8") == facts.COMPILED.read_text(encoding="utf-8")


@pytest.mark.slow
def test_what_is_recommended_follows_from_the_facts_as_they_are_now(tmp_path: Path) -> None:
    root = Path(compile.__file__).parents[2]
    for part in ("validator", "measurements"):
        shutil.copytree(root / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    data = tmp_path / "validator/compat/data"
    issues = data / "known_issues.yaml"
    added = (
        "issues:\n  - {id: KB-A, when: {all: [{tensorflow: '==2.21'}, {cudnn: '>=9.26'}]}, mode: xla,"
        " means: fails, text: it breaks, remedy: use an older one, status: verified, sources: [local-2.21]}\n"
    )
    issues.write_text(issues.read_text().replace("issues:\n", added, 1))

    def run(*options: str) -> int:
        command = [sys.executable, "-m", "validator.compat.compile", *options]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode

    assert (run("--check"), run(), run("--check")) == (1, 0, 0)
    found = json.loads((data / "compiled.json").read_bytes())["recommended"]["releases"]
    assert (found["2.21.0"]["cudnn"], found["2.20.0"]["cudnn"]) == ("9.25", "9.28")
    assert found["2.21.0"]["why"].endswith("XLA: it breaks (KB-A)")


@pytest.mark.slow
def test_a_matrix_with_recommended_images_judges_nothing_to_be_read() -> None:
    code = (
        "from validator.compat import judge, policies, releases\n"
        "judge.judge_both = policies.judge = None\n"
        "for known in releases.releases():\n"
        "    policies.choose(known, 'recommended', 'recommended')\n"
        "    policies.why_recommended(known)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_has_the_same_content_compiled_and_without_libyaml(path: Path) -> None:
    source = yaml.load(path.read_bytes(), Loader=yaml.SafeLoader)
    # As text, so that 1, 1.0 and true differ.
    assert repr(compile.read_yaml(path)) == repr(source)
    assert repr(json.loads(facts.COMPILED.read_bytes())[path.stem]) == repr(text_keys(source))


def text_keys(value: Any) -> Any:
    """The value with every key as text: JSON has no others."""
    if isinstance(value, dict):
        keys = [str(key) for key in value]
        assert len(set(keys)) == len(keys), f"two keys are written alike: {keys}"
        return {str(key): text_keys(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [text_keys(inner) for inner in value]
    assert value is None or isinstance(value, (str, int, float)), f"{value!r} is not a value of JSON"
    return value


def test_a_broken_file_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "data.yaml"
    path.write_text("a: [1\n")
    with pytest.raises(yaml.YAMLError):
        compile.read_yaml(path)


#: Predicts a cell while imports from outside the standard library and this package fail.
PREDICT = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top != "validator" and top not in sys.stdlib_module_names:
            raise ImportError(f"{name} is not part of the standard library")

sys.meta_path.insert(0, Refuse())
for name in ("yaml", "msgspec", "pydantic", "packaging", "re2", "click"):
    try:
        __import__(name)
    except ImportError:
        continue
    raise SystemExit(f"{name} was imported")

from validator.compat import hardware, policies, releases
from validator.compat.predict import predict
from validator.model.spec import Cell, HostClass, ImageSpec, Variant
from validator.versions import DriverRelease

release = releases.newest()
cuda, cudnn = policies.choose(release, "as-built", "as-built")
image = ImageSpec(release.version, release.pythons[0], Variant.GPU, cuda, cudnn)
gpu = hardware.gpu("H100")
host = HostClass("r550-h100", DriverRelease.parse("550"), gpu.compute_capability, gpu.slug)
prediction = predict(Cell(image, host))
print(prediction.outcome.value, prediction.reasons[0].fact)
"""


@pytest.mark.slow
def test_a_cell_is_predicted_with_only_the_standard_library() -> None:
    done = subprocess.run([sys.executable, "-c", PREDICT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["fails", "ptx-8.5"]
