"""Find out what is in the image of a lock, without making the image."""

from __future__ import annotations

from ..assemble import bootstrap
from ..assemble.base_contents import BaseContents, contents, contents_of_suite
from ..assemble.bases import BasePolicy, Bases
from ..assemble.progress import Progress
from ..assemble.table import LayerTable
from ..engines.docker import connect
from ..engines.docker.base_container import EngineImages
from ..errors import MissingError
from ..model.spec import ImageSpec


def base_contents(spec: ImageSpec, policy: BasePolicy, progress: Progress) -> BaseContents:
    """Return what the base of an image spec has, as `build-matrix --base` would choose it here.

    Raises MissingError if the base can't be read here.
    """
    suite = bootstrap.SUITES.get(spec.python)
    plain = spec.base is None and not (spec.additions and spec.additions.system_packages)
    if plain and suite is not None and policy is BasePolicy.BOOTSTRAP:
        return contents_of_suite(suite)
    try:
        local = EngineImages(connect())
    except MissingError:
        local = None
    # Its packages are those of a lock, so a bootstrapped base need not be made to list them.
    first = BasePolicy.REGISTRY if plain and suite is not None else policy
    try:
        return contents(Bases(first, LayerTable(), local).base(spec, progress))
    except MissingError as error:
        if first is policy or suite is None:
            raise
        progress(f"{error}; listing the packages of Debian {suite} instead")
        return contents_of_suite(suite)
