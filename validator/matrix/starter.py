"""Write the files of a new project: a matrix with comments, the workflow that builds it, and who may sign.

The images are those of this tool's own matrix, so that its locks fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
_TEMPLATE = Path(__file__).parent / "gpu-images.yml"


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
    """Return a matrix with one image, also without CUDA, for these host classes, with comments.

    hosts: the classes of this machine; without any, an example is written.
    """
    link = manual("reference/matrix.md")
    pins = [
        f'    {name}: "{choice.policy}"'
        for name, choice in (("cuda", image.cuda), ("cudnn", image.cudnn))
        if choice is not None and choice.policy != AS_BUILT
    ]
    if pins and is_recommended(image):
        pins = [f"    policy: {RECOMMENDED}"]
    return "\n".join(
        [
            f"# yaml-language-server: $schema={source('validator/matrix/schema.json')}",
            "#",
            f"# What is built, and where it is measured. Every key: {link}",
            "# A key takes one value or a list, and lists multiply. Put versions in quotes.",
            "",
            "images:",
            f'  - tensorflow: "{image.tensorflow}"',
            f'    python: "{image.python}"',
            *pins,
            "    # Your own packages are resolved together with TensorFlow, into one lock:",
            '    # packages: ["pandas>=2", "./wheels/ours-1.0-py3-none-any.whl"]',
            "    # requirements: requirements.txt",
            "    # environment: {TF_CPP_MIN_LOG_LEVEL: \"1\"}",
            "",
            "  # The same without CUDA, for machines without a GPU.",
            f'  - tensorflow: "{image.tensorflow}"',
            f'    python: "{image.python}"',
            "    variant: cpu",
            "",
            "hosts:",
            *_host_lines(hosts),
            "  # For the image without CUDA.",
            "  - gpu: none",
            "",
            "profiles:",
            "  quick:",
            "    description: The image for GPUs.",
            "    select: variant=gpu",
            "  cpu:",
            "    description: The image without CUDA.",
            "    select: variant=cpu",
            "  full:",
            "    description: Everything.",
            "",
        ]
    )  # fmt: skip


def _host_lines(hosts: Sequence[HostClass]) -> Iterable[str]:
    if not hosts:
        yield "  # No GPU was found on the machine where this was written: name the machines that you have."
        yield '  - driver: "580"'
        yield "    gpu: h100"
        return
    yield "  # The machine where this was written."
    for host in hosts:
        yield f'  - driver: "{DriverRelease(host.driver.branch)}"'
        if host.gpu is not None:
            yield f"    gpu: {host.gpu}"
        else:
            yield f'    compute_capability: "{host.compute_capability}"'


def workflow_text(repository: GithubRepository | None, tool: str) -> str:
    """Return the workflow; without a repository, to be filled in. tool: what pip installs to get this."""
    found = repository or GithubRepository("OWNER", "REPOSITORY", "main")
    registry = found.registry if repository else "ghcr.io/OWNER/REPOSITORY"
    text = _TEMPLATE.read_text(encoding="utf-8")
    for name, value in (("BRANCH", found.branch), ("REGISTRY", registry), ("TOOL", tool)):
        text = text.replace(f"@{name}@", value)
    return text


def trust_text(repository: GithubRepository, today: date) -> str:
    """Return a trust file in which the workflow of this repository may sign what it builds."""
    workflow = f"https://github.com/{repository.owner}/{repository.name}/{WORKFLOW}"
    return "\n".join(
        [
            f"# Who may sign: {manual('reference/trust-file.md')}",
            "#",
            "# `validator runner init --register` on a machine with a GPU adds it to `runners`.",
            "builders:",
            "  - name: gpu-images",
            f"    identity: {workflow}@refs/heads/{repository.branch}",
            "    issuer: https://token.actions.githubusercontent.com",
            f"    until: {today + _VALID}",
            "",
        ]
    )
