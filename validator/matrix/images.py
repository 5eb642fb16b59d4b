"""Image entries into image specs: the axes multiplied, each image once."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..compat import policies, releases
from ..model.spec import AS_BUILT, LATEST, Choice, ImageSpec, Variant
from .axes import Axes, resolve
from .findings import Findings
from .schema import ImageEntry

#: All image entries together may ask for this many images.
MAX_IMAGES = 20_000

#: Of two policies that give the same image, the one that comes first here names it; a pin stands between.
_PREFERENCE = {AS_BUILT: 0, LATEST: 2}


@dataclass(frozen=True)
class _Request:
    """One image as an entry asks for it: two entries that ask the same are a mistake, while two policies
    that give the same image are not."""

    tensorflow: str
    python: str
    variant: Variant
    cuda: str
    cudnn: str
    base: str | None

    def spec(self) -> ImageSpec:
        cuda, cudnn = (None, None)  # type: tuple[Choice | None, Choice | None]
        if self.variant is Variant.GPU:
            cuda, cudnn = _chosen(self.tensorflow, self.cuda, self.cudnn)
        return ImageSpec(self.tensorflow, self.python, self.variant, cuda, cudnn, self.base)

    def rank(self) -> tuple[int, int, str, str]:
        return _PREFERENCE.get(self.cuda, 1), _PREFERENCE.get(self.cudnn, 1), self.cuda, self.cudnn


@functools.cache
def _chosen(tensorflow: str, cuda: str, cudnn: str) -> tuple[Choice, Choice]:
    return policies.choose(releases.release(tensorflow), cuda, cudnn)


def resolve_images(entries: Mapping[int, ImageEntry], findings: Findings) -> list[ImageSpec]:
    """The images that the entries ask for, each identifier once.

    entries: by their place in the file. What is wrong goes into `findings`.
    """
    requests: dict[_Request, int] = {}
    for number, entry in entries.items():
        axes = resolve(entry, ("images", number), findings)
        if len(requests) + axes.count > MAX_IMAGES:
            message = f"with the entries before it, this asks for more than {MAX_IMAGES:,} images"
            findings.add(("images", number), message)
            continue
        repeated: dict[int, list[_Request]] = {}
        for request in _multiply(axes):
            first = requests.setdefault(request, number)
            if first != number:
                repeated.setdefault(first, []).append(request)
        for first, twice in repeated.items():
            others = f" and {len(twice) - 1} more" if len(twice) > 1 else ""
            findings.add(
                ("images", number),
                f"is a duplicate: images[{first}] (line {findings.line(('images', first))})"
                f" asks for {twice[0].spec().identifier}{others} already",
            )
    return _unique(requests, findings)


def _multiply(axes: Axes) -> Iterator[_Request]:
    for release in axes.releases:
        for variant in axes.variants:
            gpu = variant is Variant.GPU
            for cuda, cudnn in axes.pairs.get(release.version, []) if gpu else [("", "")]:
                for python in axes.pythons[release.version]:
                    for base in axes.bases:
                        yield _Request(release.version, python, variant, cuda, cudnn, base)


def _unique(requests: Mapping[_Request, int], findings: Findings) -> list[ImageSpec]:
    """One spec for each identifier; images that would share one and differ are a problem."""
    kept: dict[str, tuple[ImageSpec, int]] = {}
    clashes: dict[tuple[int, int], str] = {}
    for request, number in sorted(requests.items(), key=lambda item: item[0].rank()):
        spec = request.spec()
        first, first_number = kept.setdefault(spec.identifier, (spec, number))
        if first != spec and not _same_image(first, spec):
            later, earlier = max(number, first_number), min(number, first_number)
            clashes.setdefault((later, earlier), spec.identifier)
    for (later, earlier), identifier in clashes.items():
        whose = "another of its own" if later == earlier else f"one of images[{earlier}]"
        findings.add(
            ("images", later),
            f"gives an image the name of {whose}, {identifier};"
            " write pins as major.minor, and bases that differ in more than punctuation",
        )
    return [spec for spec, _ in kept.values()]


def _same_image(one: ImageSpec, other: ImageSpec) -> bool:
    return one.base == other.base and policies.requirements(one) == policies.requirements(other)
