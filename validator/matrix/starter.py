"""Write the files of a new project: a matrix with comments, the workflow that builds it, and who may sign.

The images are those of this tool's own matrix, so that its locks fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from ..compat.policies import is_recommended
from ..model.spec import AS_BUILT, RECOMMENDED, HostClass, ImageSpec
from ..resources import manual, source
from ..versions import DriverRelease

WORKFLOW = Path(".github") / "workflows" / "gpu-images.yml"
#: A builder has to be confirmed once a year.
_VALID = timedelta(days=365)
_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class GithubRepository:
    """A repository on GitHub. branch: the one that the workflow builds."""

    owner: str
    name: str
    branch: str

    @property
    def registry(self) -> str:
        """Return the registry for its images. Names of images are in lower case."""
        return f"ghcr.io/{self.owner}/{self.name}".lower()


@dataclass(frozen=True)
class GitlabRepository:
    """A repository on gitlab.com. path: its groups and its name, with `/`."""

    path: str

    @property
    def registry(self) -> str:
        """The registry for its images. Names of images are in lower case."""
        return f"registry.gitlab.com/{self.path}".lower()


def matrix_text(image: ImageSpec, hosts: Sequence[HostClass]) -> str:
    """Return a matrix with one image, also without CUDA, for these host classes, or for an example."""
    pins = [
        f'\n    {name}: "{choice.policy}"'
        for name, choice in (("cuda", image.cuda), ("cudnn", image.cudnn))
        if choice is not None and choice.policy != AS_BUILT
    ]
    if pins and is_recommended(image):
        pins = [f"\n    policy: {RECOMMENDED}"]
    lines = ["  # The machine where this was written."]
    for host in hosts:
        gpu = f"gpu: {host.gpu}" if host.gpu else f'compute_capability: "{host.compute_capability}"'
        lines += [f'  - driver: "{DriverRelease(host.driver.branch)}"', f"    {gpu}"]
    if not hosts:
        what = "No GPU was found on the machine where this was written: name the machines that you have."
        lines = [f"  # {what}", '  - driver: "580"', "    gpu: h100"]
    return _filled(
        "matrix.yaml",
        SCHEMA=source("validator/matrix/schema.json"),
        MANUAL=manual("reference/matrix.md"),
        TENSORFLOW=image.tensorflow,
        PYTHON=image.python,
        PINS="".join(pins),
        HOSTS="\n".join(lines),
    )


def _filled(template: str, **values: str) -> str:
    """Return a template in which the values stand for `@NAME@`."""
    text = (_TEMPLATES / template).read_text(encoding="utf-8")
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text


def workflow_text(repository: GithubRepository | None, tool: str) -> str:
    """Return the workflow; without a repository, to be filled in. tool: what pip installs to get this."""
    found = repository or GithubRepository("OWNER", "REPOSITORY", "main")
    registry = found.registry if repository else "ghcr.io/OWNER/REPOSITORY"
    return _filled("gpu-images.yml", BRANCH=found.branch, REGISTRY=registry, TOOL=tool)


def trust_text(repository: GithubRepository, today: date) -> str:
    """Return a trust file in which the workflow of this repository may sign what it builds."""
    workflow = f"https://github.com/{repository.owner}/{repository.name}/{WORKFLOW}"
    return _filled(
        "trust.yaml",
        MANUAL=manual("reference/trust-file.md"),
        IDENTITY=f"{workflow}@refs/heads/{repository.branch}",
        UNTIL=str(today + _VALID),
    )
