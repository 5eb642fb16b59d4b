"""Look up the current digests of the default bases in their registry."""

from __future__ import annotations

from pathlib import Path

from docker.errors import DockerException
from requests import RequestException

from ..assemble.base_finder import TAG, PinnedBase, text_of
from ..compat.compile import read_yaml
from ..engines.docker.endpoint import reach
from ..errors import MissingError
from ..versions import Version

FILE = "images/bases.yaml"
#: The probe needs Python 3.9 or newer.
_OLDEST = Version("3.9")


def pythons(root: Path) -> list[str]:
    """Return the Pythons that images may have: those with a wheel of some TensorFlow, oldest first.

    Read from the facts as they are edited, to which the same run may just have added a release.
    """
    rows = read_yaml(root / "validator/compat/data/tensorflow.yaml")["releases"]
    found = {python for row in rows for python in row["pythons"]}
    return sorted((python for python in found if Version(python) >= _OLDEST), key=Version)


def refreshed(root: Path) -> dict[str, str]:
    """Return the new content of images/bases.yaml. Asks the registry through the Docker Engine, as builds do.

    Raises MissingError if the engine or the registry can't be reached.
    """
    api = reach().quick.api
    bases: dict[str, PinnedBase] = {}
    for python in pythons(root):
        name = TAG.format(python)
        try:
            digest = str(api.inspect_distribution(name)["Descriptor"]["digest"])
        except (DockerException, RequestException) as error:
            raise MissingError(
                f"the digest of {name} can't be read from its registry: {' '.join(str(error).split())[:200]}",
                hint="check the engine's network and proxy settings",
            ) from error
        base = PinnedBase.parse(f"{name}@{digest}")
        if base is None:
            raise MissingError(f"the registry returned an invalid digest for {name}: {digest[:100]}")
        bases[python] = base
    return {FILE: text_of(bases)}


def versions(text: str) -> dict[str, str]:
    """Return the bases in the file with their digests, shortened to 12 digits."""
    lines = [line.partition(": ")[2] for line in text.splitlines() if not line.startswith("#")]
    found = [PinnedBase.parse(line) for line in lines]
    return {base.name: base.digest[:19] for base in found if base}
