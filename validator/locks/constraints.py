"""Find one set of CUDA's libraries for TensorFlow and the other frameworks of an environment."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..compat.offers import has_extra, requirement
from ..compat.policies import choose
from ..compat.predict import of_image
from ..compat.releases import Release
from ..errors import InputError
from ..model.prediction import Outcome
from ..model.spec import AS_BUILT, LATEST, ImageSpec, Variant
from ..system.package_sources import PackageSources
from .resolve import PLATFORM, resolve

#: The packages that a set pins: what loads CUDA's libraries, and the wheels of these.
SHARED = re.compile(r"tensorflow|torch|torchvision|torchaudio|jax|jaxlib|jax-cuda.*|nvidia-.*")


@dataclass(frozen=True)
class OneSet:
    """Versions that work for all frameworks. install: the requirements to give to pip with them."""

    python: str
    install: tuple[str, ...]
    pins: tuple[str, ...]

    @property
    def text(self) -> str:
        """The file for `pip install --constraint`."""
        line = " ".join(f"'{one}'" for one in self.install)
        head = (
            f"# One set of CUDA's libraries, for Python {self.python} on {PLATFORM}.\n"
            f"# pip install -c constraints.txt {line}\n"
        )
        return head + "".join(f"{pin}\n" for pin in self.pins)


def one_set(
    release: Release, python: str, others: Sequence[str], sources: PackageSources
) -> OneSet | tuple[str, ...]:
    """Return one set for a release and other requirements, or the reasons why there is none.

    The extra and-cuda asks for newer libraries than the release needs. So if it excludes a framework, look
    for a set without it: the framework's own libraries, and the wheels that only TensorFlow needs. Raises
    MissingError if the index can't be reached.
    """
    if not release.wheels:
        return (f"tensorflow {release.version} needs CUDA {release.cuda}, for which there are no wheels",)
    # Without the extra, known faults decide which versions TensorFlow accepts.
    alone = (f"{release.package}=={release.version}", *release.wheels)
    ways = [((requirement(release),), LATEST)] if has_extra(release) else []
    why: list[str] = []
    for ours, policy in (*ways, (alone, AS_BUILT)):
        spec = ImageSpec(release.version, python, Variant.GPU, *choose(release, policy, policy))
        install = tuple(dict.fromkeys((*ours, *others)))
        try:
            lock = resolve(spec, install, sources, what=f"{ours[0]} and {', '.join(others)}")
        except InputError as error:
            why.append(str(error))
            continue
        wheels = {wheel.name: wheel.version for wheel in lock.wheels}
        failing = [one for one in of_image(spec, wheels) if one.outcome is Outcome.FAILS]
        if not failing:
            pins = (f"{name}=={version}" for name, version in wheels.items() if SHARED.fullmatch(name))
            return OneSet(python, install, tuple(pins))
        why += [f"{one.sentence} ({one.fact})" for one in failing]
    return tuple(dict.fromkeys(why))
