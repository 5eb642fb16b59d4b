"""Choose the image of a matrix to build on a machine, and write the files of a new project.

Without a GPU, the image is the one for most machines. The files are a matrix with comments, the workflow that
builds it, and who may sign. Their images are those of this tool's own matrix, so that its locks fit.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path

from ..compat import hardware, policies
from ..compat.offers import first_usable, rank
from ..compat.policies import is_recommended
from ..compat.predict import predict
from ..compat.releases import release
from ..model.prediction import EAGER, EAGER_ONLY, XLA, Outcome, Prediction
from ..model.spec import AS_BUILT, RECOMMENDED, Cell, HostClass, ImageSpec, Variant, host_identifier
from ..resources import manual, source
from ..versions import ComputeCapability, DriverRelease, is_numbers, leading_numbers
from .document import join_words
from .load import DEFAULT_PROFILE, Matrix, Profile
from .plan import Available, expand, find_profile

#: The Pythons to prefer where a profile has no order of its own.
_PYTHONS = ("3.12", "3.11", "3.13", "3.10")


@dataclass(frozen=True)
class Chosen:
    """An image, and why it is built. profile: the first that has it, the default one before others."""

    image: ImageSpec
    profile: str | None
    why: str


def choose_image(images: Iterable[ImageSpec], hosts: Sequence[HostClass]) -> ImageSpec:
    """Return the first image that is predicted to work on all of these host classes.

    If there is none, return the first whose eager operations work, otherwise simply the first.

    images: the newest TensorFlow first, at least one with CUDA. For each release, the recommended CUDA
    and cuDNN come first, then the newest ones, then a common Python. Candidates and images whose CUDA changes
    from lock to lock are left out.
    """
    ordered = _in_order(images, _PYTHONS)
    return first_usable(ordered, lambda image: _on_all(image, hosts)) or ordered[0]


def for_machine(
    matrix: Matrix, hosts: Sequence[HostClass], machine: str, available: Available | None = None
) -> Chosen | None:
    """Return the image for a machine, like that of the default profile but of any release and policy.

    If the default profile's image is predicted to work there, or nothing works better, return it. Return None
    if that profile has not exactly one image with CUDA.

    hosts: the host class of each kind of GPU; without any, the image is for most data-center GPUs. machine:
    how a sentence names it (`driver 580.65.06 with Tesla T4 (7.5)`), or without a GPU, why none was found.
    available: as for `plan.expand`.
    """
    profile = find_profile(matrix, DEFAULT_PROFILE)
    images = dict.fromkeys(cell.image for cell in expand(matrix, DEFAULT_PROFILE, available=available).cells)
    if len(images) != 1 or not next(iter(images)).variant.has_cuda:
        return None
    [usual] = images
    # An engine may have to ask a registry for each Python.
    provides = functools.cache(available) if available is not None else None
    others = _like(matrix, profile, usual, provides)
    if not hosts:
        return Chosen(
            usual, DEFAULT_PROFILE,
            f"No GPU was found: {machine}. This builds {usual}{_for_most(usual, others, matrix)}.",
        )  # fmt: skip
    best = first_usable([usual, *others], lambda image: _on_all(image, hosts))
    why = f"This builds {best or usual} for this machine ({machine})"
    if best is None:
        why += f", although no image of {matrix.file} is expected to work there: {_against(usual, hosts)}"
    elif best != usual:
        eager = all(prediction.eager is Outcome.WORKS for prediction in _on_all(usual, hosts))
        works = f"is {EAGER_ONLY} there" if eager else "does not work there"
        why += f", because {usual}, the default, {works}: {_against(usual, hosts)}"
    chosen = best or usual
    if best is not None and (limits := list(_limits(chosen, hosts))):
        why += f"{', where' if chosen == usual else ';'} {'; '.join(limits)}"
    return Chosen(chosen, _profile_of(matrix, chosen), f"{why}.")


def _like(matrix: Matrix, profile: Profile, usual: ImageSpec, available: Available | None) -> list[ImageSpec]:
    """Return the images that differ from one only in release, CUDA, cuDNN and Python, in order."""
    whole = replace(profile, select=())
    cells = expand(replace(matrix, profiles={profile.name: whole}), profile.name, available=available).cells
    kind = (usual.variant, usual.base, usual.additions)
    images = dict.fromkeys(
        cell.image for cell in cells if (cell.image.variant, cell.image.base, cell.image.additions) == kind
    )
    return _in_order(images, profile.first_available or (usual.python, *_PYTHONS))


def _in_order(images: Iterable[ImageSpec], pythons: Sequence[str]) -> list[ImageSpec]:
    candidates = [
        image
        for image in images
        if image.variant is not Variant.CPU
        and is_numbers(image.tensorflow)
        and not any(choice.floats for choice in (image.cuda, image.cudnn) if choice)
    ]
    releases = list(dict.fromkeys(image.tensorflow for image in candidates))

    def order(image: ImageSpec) -> tuple[object, ...]:
        versions = [
            tuple(-number for number in leading_numbers(choice.version))
            for choice in (image.cuda, image.cudnn)
            if choice
        ]
        python = pythons.index(image.python) if image.python in pythons else len(pythons)
        recommended = policies.choose(release(image.tensorflow), RECOMMENDED, RECOMMENDED)
        return releases.index(image.tensorflow), (image.cuda, image.cudnn) != recommended, versions, python

    return sorted(candidates, key=order)


def _on_all(image: ImageSpec, hosts: Sequence[HostClass]) -> list[Prediction]:
    return [predict(Cell(image, host)) for host in hosts]


def _against(image: ImageSpec, hosts: Sequence[HostClass]) -> str:
    """Return the first reason against an image on the host where it works worst."""
    worst = max(_on_all(image, hosts), key=lambda prediction: (rank(prediction)[1], rank(prediction)))
    # What speaks only against XLA is not why eager operations don't work.
    modes = (None, EAGER) if worst.eager is not Outcome.WORKS else (None, XLA)
    against = (reason for reason in worst.reasons if reason.outcome is not Outcome.WORKS)
    return next(reason.sentence for reason in against if reason.mode in modes)


def _limits(image: ImageSpec, hosts: Sequence[HostClass]) -> Iterator[str]:
    """Yield clauses about the GPUs on which only eager operations are known to work, each with the reason."""
    for outcome, says in (
        (Outcome.FAILS, f"it is {EAGER_ONLY}"),
        (Outcome.UNKNOWN, f"it may be {EAGER_ONLY}"),
    ):
        limited = [host for host in hosts if predict(Cell(image, host)).xla is outcome]
        if limited:
            names = [host.gpu or f"compute capability {host.compute_capability}" for host in limited]
            where = f"on {join_words(names)} " if len(hosts) > 1 else ""
            yield f"{where}{says}: {_against(image, limited)}"


def _profile_of(matrix: Matrix, image: ImageSpec) -> str | None:
    names = (DEFAULT_PROFILE, *(name for name in matrix.profiles if name != DEFAULT_PROFILE))
    return next(
        (name for name in names if any(cell.image == image for cell in expand(matrix, name).cells)), None
    )


# The image for most machines, and those that it is not for.


def _for_most(image: ImageSpec, others: Sequence[ImageSpec], matrix: Matrix) -> str:
    """Return a clause about the data-center GPUs that an image is for, and which image the others need."""
    words: dict[str, list[ComputeCapability]] = {}
    for capability in _models():
        words.setdefault(_at_best(image, capability).word, []).append(capability)
    works, eager = words.pop(Outcome.WORKS.value, []), words.pop(EAGER_ONLY, [])
    text = f", for data-center GPUs from {_span(works)}" if works else ""
    text += f" ({EAGER_ONLY}: {_span(eager)})" if eager else ""
    elsewhere: dict[ImageSpec, list[ComputeCapability]] = {}
    for capability in sorted(itertools.chain(*words.values())):
        works_there = (other for other in others if _at_best(other, capability).outcome is Outcome.WORKS)
        if (other := next(works_there, None)) is not None:
            elsewhere.setdefault(other, []).append(capability)
    for other, capabilities in reversed(elsewhere.items()):
        name = _profile_of(matrix, other)
        profile = f"--profile {name} " if name not in (None, DEFAULT_PROFILE) else ""
        names = join_words([name for capability in capabilities for name in _models()[capability]])
        newer = others[: others.index(other)]
        for_eager = all(
            any(_at_best(one, capability).eager is Outcome.WORKS for one in newer)
            for capability in capabilities
        )
        needed = f"{_difference(other, image)}{' for XLA' if for_eager else ''}"
        text += f"; not for {names}, which need {needed}: {profile}--select image={other}"
    return text


def _difference(image: ImageSpec, usual: ImageSpec) -> str:
    """Return the versions of an image that are not those of another one: its release, or CUDA and cuDNN."""
    if image.tensorflow != usual.tensorflow:
        return f"TensorFlow {image.tensorflow}"
    pairs = (("CUDA", image.cuda, usual.cuda), ("cuDNN", image.cudnn, usual.cudnn))
    return join_words([f"{name} {own.version}" for name, own, other in pairs if own and own != other])


def _span(capabilities: Sequence[ComputeCapability]) -> str:
    """Return the first and the last model of ascending compute capabilities: `T4 to H200`."""
    return f"{_models()[capabilities[0]][0]} to {_models()[capabilities[-1]][-1]}"


@functools.cache
def _models() -> dict[ComputeCapability, list[str]]:
    """Return the names of the data-center GPUs by compute capability, in ascending order."""
    names: dict[ComputeCapability, list[str]] = {}
    for model in sorted(hardware.gpus(), key=lambda model: model.compute_capability):
        if model.data_center:
            names.setdefault(model.compute_capability, []).append(model.name)
    return names


@functools.lru_cache(maxsize=1024)
def _at_best(image: ImageSpec, capability: ComputeCapability) -> Prediction:
    """Return the best prediction for an image on a GPU with any driver, with the fewest reasons to fail."""

    def order(prediction: Prediction) -> tuple[object, ...]:
        return rank(prediction), sum(reason.outcome is Outcome.FAILS for reason in prediction.reasons)

    releases = [DriverRelease(branch.number) for branch in hardware.branches()]
    hosts = [HostClass(host_identifier(driver, None, capability), driver, capability) for driver in releases]
    return min((predict(Cell(image, host)) for host in hosts), key=order)


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
