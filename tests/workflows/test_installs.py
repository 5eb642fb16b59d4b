"""The rules for everything that installs something: by hash, from a lock, and never next to a secret."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from validator.supply.release_facts import WRITTEN

from .support import ROOT, WORKFLOWS, workflow
from .test_rules import NAMES, SECRETS, WRITES

#: Installs packages of the distribution on the machine of CI.
TOOLS = ".ci/tools"
#: Asks npm for the newest version of a package and its hash.
PYODIDE = "scripts/pyodide"
_ASKS = re.compile(r"npm view |command -v npm ")
#: Tries the wheel as `pip install` does, in empty environments that it throws away.
RELEASE = "scripts/release"
#: Installs them in an image, where the user's matrix asks for them.
SYSTEM_PACKAGES = "images/system-packages/install-packages"
#: What installs, or downloads to install.
PYTHON = re.compile(r"(?:\bpip[\d.]*|\"\$\{pip\[@\]\}\")\s+(?:install|sync|download|wheel)\b")
DISTRIBUTION = re.compile(
    r"\b(?:apt|apt-get|aptitude|dnf|yum|apk|snap|brew|pacman)\s(?:[^#]*\s)?(?:install|add|upgrade|-S)\b"
    r"|\bdpkg\s+(?:-i|--install)\b"
)
#: `--answers npm` names where this tool gets Pyodide, whose hash it knows.
OTHER = re.compile(
    r"(?<!--answers )\b(?:uvx|pipx|easy_install|conda|mamba|npm|npx|yarn|pnpm|gem|curl|wget)\s"
    r"|\buv\s+(?:tool|run|add|sync)\b|\b(?:cargo|go)\s+(?:install|get|run)\b|\bensurepip\b.*--upgrade"
)
#: This package itself: nothing is downloaded, and what builds it is installed already.
OWN = {"--no-index", "--no-deps", "--no-build-isolation", "--editable"}
LOCKED = {"--require-hashes", "--only-binary"}


def files() -> Iterator[tuple[str, str]]:
    """Return the workflows and all scripts, with their names."""
    for directory in (
        ".github",
        "scripts",
        ".ci",
        "actions",
        "images/system-packages",
        "images/base",
        "images/entrypoint",
    ):
        for path in sorted((ROOT / directory).rglob("*")):
            if path.is_file():
                yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def commands(text: str) -> Iterator[str]:
    """Return the single commands of a script: continued lines are joined, comments and messages are left
    out.
    """
    for line in text.replace("\\\n", " ").splitlines():
        if line.lstrip().startswith("#"):
            continue
        # The words of a message are not commands.
        line = re.sub(r"(\b(?:echo|say|die|printf)\b)(?:\s+(?:\"[^\"]*\"|'[^']*'))+", r"\1", line)
        for command in re.split(r"&&|\|\||[;|]", line):
            yield command.strip()


def wrong(name: str, text: str) -> list[str]:
    """Return the commands that install something in a way that is not allowed."""
    found = []
    for command in commands(text):
        words = set(command.split())
        if PYTHON.search(command):
            allowed = words >= LOCKED or words >= OWN or name == RELEASE
        elif DISTRIBUTION.search(command):
            allowed = name in (TOOLS, SYSTEM_PACKAGES)
        else:
            allowed = not OTHER.search(command) or (name == PYODIDE and bool(_ASKS.match(command)))
        if not allowed:
            found.append(command)
    return found


def test_everything_is_installed_by_hash_or_by_the_scripts_for_the_distribution() -> None:
    found = {name: wrong(name, text) for name, text in files()}
    assert {name: commands for name, commands in found.items() if commands} == {}


def test_the_rules_see_the_installs_that_there_are() -> None:
    """If the expressions matched nothing, the test above would prove nothing."""
    seen = {
        name
        for name, text in files()
        for command in commands(text)
        if PYTHON.search(command) or DISTRIBUTION.search(command)
    }
    assert seen == {"actions/install", "scripts/environment", RELEASE, SYSTEM_PACKAGES, TOOLS}


@pytest.mark.parametrize(
    "command",
    [
        "pip install zizmor",
        "pip3.12 install zizmor",
        "run: python -m pip install --upgrade pip",
        "python -m pip install --requirement requirements/test.txt",
        "python -m pip install --require-hashes --requirement requirements/test.txt",
        "pip install --require-hashes --only-binary :all: -r x.txt && pip install y",
        "pip install --require-hashes --only-binary :all: -r x.txt; pip download y",
        "pip install \\\n    zizmor",
        '"${pip[@]}" install --editable ".[test]"',
        "uv pip install zizmor",
        "uv pip sync requirements.txt",
        "uv tool install zizmor",
        "uvx zizmor .github",
        "uv run zizmor",
        "pipx install pre-commit",
        "npm ci",
        "curl -LsSf https://astral.sh/uv/install.sh | sh",
        "wget https://example.org/tool",
        "go install example.org/tool@latest",
        "sudo apt-get update && sudo apt-get install --yes docker-registry",
        "apt-get -q -o Acquire::Retries=3 install jq",
        "dpkg -i package.deb",
        "snap install cosign",
        'echo "installing"; pip install zizmor',
        "npm pack --silent --ignore-scripts pyodide",
    ],
)
def test_every_other_form_is_found(command: str) -> None:
    assert wrong("scripts/anything", f"set -e\n{command}\n") != []


@pytest.mark.slow
def test_python_code_installs_only_by_hash() -> None:
    lists = []
    for path in sorted((ROOT / "validator").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "pip" in text and "install" in text else ():
            if isinstance(node, ast.List | ast.Tuple | ast.Call):
                parts = node.args if isinstance(node, ast.Call) else node.elts
                words = {part.value for part in parts if isinstance(part, ast.Constant)}
                if {"pip", "install"} <= words:
                    lists.append(f"{path.relative_to(ROOT)}:{node.lineno}")
                    assert "--require-hashes" in words, lists[-1]
    assert {name.partition(":")[0] for name in lists} == {
        "validator/engines/venv.py",
        "validator/fleet/slurm_job.py",
    }


# -- next to a secret ------------------------------------------------------------------------------------


def privileged() -> Iterator[tuple[str, str]]:
    """Return every job that sees a secret, has a protected environment, or may write something."""
    for name in NAMES:
        for job, content in workflow(name).jobs.items():
            if (name, job) in {**SECRETS, **WRITES} or "secrets." in str(content) or "environment" in content:
                yield name, job


def test_nothing_is_installed_from_the_distribution_next_to_a_secret() -> None:
    jobs = list(privileged())
    assert set(jobs) >= {("nightly.yml", "certify"), ("nightly.yml", "merge"), ("refresh.yml", "propose")}
    for name, job in jobs:
        for step in workflow(name).jobs[job]["steps"]:
            assert ".ci/" not in step.get("run", ""), f"{name}: {job}"


def test_only_ci_itself_runs_what_installs_packages_of_the_distribution() -> None:
    callers = {name for name, text in files() for line in commands(text) if re.search(r"\.ci/tools\b", line)}
    assert callers == {
        ".ci/run",
        ".github/workflows/kubernetes.yml",
        ".github/workflows/refresh.yml",
    }
    runs = {name for name, text in files() for line in commands(text) if re.search(r"\.ci/run\b", line)}
    assert runs == {".github/workflows/ci.yml", ".github/workflows/weekly.yml"}


def test_the_job_with_the_release_key_uses_few_actions() -> None:
    used = {
        step["uses"].partition("@")[0]
        for step in workflow("nightly.yml").jobs["certify"]["steps"]
        if "uses" in step
    }
    assert used <= {
        "actions/checkout", "actions/download-artifact", "sigstore/cosign-installer",
    }  # fmt: skip


def test_the_job_that_may_write_to_the_repository_installs_nothing() -> None:
    for step in workflow("refresh.yml").jobs["propose"]["steps"]:
        script = step.get("run")
        if script:
            text = (ROOT / script).read_text(encoding="utf-8")
            assert not [line for line in commands(text) if "scripts/" in line or "python" in line]


# -- images ----------------------------------------------------------------------------------------------


def test_no_image_has_a_base_that_can_move() -> None:
    [path] = (ROOT / "images").rglob("Dockerfile")
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"^FROM (.*)", text, re.MULTILINE) == ["${BASE}"]
    assert re.search(r"^ARG BASE$", text, re.MULTILINE), "it has a default, which is a tag"
    assert "from=" not in text


def test_a_pinned_base_has_a_digest() -> None:
    pinned = yaml.safe_load((ROOT / "images/bases.yaml").read_text(encoding="utf-8"))
    assert pinned
    for base in pinned.values():
        assert re.search(r"@sha256:[0-9a-f]{64}$", base), base


def test_a_base_in_the_matrix_has_a_digest() -> None:
    matrix = yaml.safe_load((ROOT / "matrix.yaml").read_text(encoding="utf-8"))
    for image in matrix["images"]:
        bases = image.get("base", [])
        for base in [bases] if isinstance(bases, str) else bases:
            assert re.search(r"@sha256:[0-9a-f]{64}$", base), base


# -- dependabot ------------------------------------------------------------------------------------------


def test_dependabot_and_the_refresh_workflow_do_not_update_the_same_files() -> None:
    content = yaml.safe_load((WORKFLOWS.parent / "dependabot.yml").read_text(encoding="utf-8"))
    assert [update["package-ecosystem"] for update in content["updates"]] == ["github-actions"]
    assert {"schedule", "workflow_dispatch"} == set(workflow("refresh.yml").triggers)


def test_what_the_refresh_may_change_is_what_it_writes() -> None:
    text = (ROOT / "scripts/weekly/propose").read_text(encoding="utf-8")
    patterns = dict(re.findall(r"^(pinned|locks|facts|pages)='([^']+)'$", text, re.MULTILINE))
    assert f"grep -vxE {chr(34)}{'|'.join(f'${name}' for name in patterns)}{chr(34)}" in text
    allowed = re.compile("|".join(patterns.values()))
    written = [*Path(ROOT / "requirements").rglob("*.txt"), *Path(ROOT / "images/debian").iterdir()]
    # CI makes the layers again whose rows are new.
    written += [ROOT / "images/bases.yaml", ROOT / "images/layers.json"]
    written += [path for pattern in WRITTEN for path in ROOT.glob(pattern)]
    for path in written:
        assert allowed.fullmatch(str(path.relative_to(ROOT))), path
    for other in (
        "images/system-packages/Dockerfile",
        "scripts/refresh",
        SYSTEM_PACKAGES,
        "images/locks/../system-packages/Dockerfile",
        "pyproject.toml",
        "docs/checks.py",
        "validator/compat/facts.py",
        "validator/diagnosis/data/messages.yaml",
        "CHANGELOG.md",
    ):
        assert not allowed.fullmatch(other)
