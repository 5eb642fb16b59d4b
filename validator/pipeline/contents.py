"""Find out what is in the image of a lock without making it, and attach the list to a published image."""

from __future__ import annotations

from dataclasses import replace

from ..assemble import bootstrap
from ..assemble.base_contents import BaseContents, contents, contents_of_suite
from ..assemble.base_finder import BasePolicy, Bases
from ..assemble.layer_table import LayerTable
from ..assemble.progress import Progress
from ..certify.provenance import Refusal, provenance_of
from ..certify.sboms import attach_sbom, sbom_of
from ..certify.signing import Signer
from ..certify.trust_file import TrustFile
from ..engines.docker import connect
from ..engines.docker.base_container import EngineImages
from ..errors import MissingError, ValidatorError
from ..model.base_origin import BaseOrigin
from ..model.lock import Lock
from ..model.spec import ImageSpec
from ..registry.client import Registry
from ..sbom.document import document_of_lock

UNLISTED = "use --base unlisted to list only the wheels"


def list_published(
    registry: Registry,
    digest: str,
    spec: ImageSpec,
    lock: Lock,
    trust: TrustFile,
    signer: Signer,
    progress: Progress,
    *,
    with_base: bool = True,
) -> bool:
    """Sign the list of what is in an image and attach it, if the image was pushed without it.

    with_base: also list the packages of its base. Returns False if it has its list already. Raises
    ValidatorError if no builder of the trust file says that the image was made from this lock, and
    MissingError if its base can't be read here, or the registry or cosign fails.
    """
    made = provenance_of(registry, digest, trust, image=spec.identifier, lock_digest=lock.digest)
    if isinstance(made, Refusal):
        raise ValidatorError(
            f"{registry.repository.at(digest)}: {made.why}",
            hint="run the command in the commit that the image was built from, with the trust file that lists"
            " its builder",
        )
    if not isinstance(sbom_of(registry, digest, trust), Refusal):
        return False
    origin = str(made.inputs.base)
    base = contents_of_origin(spec, origin, progress) if with_base else BaseContents(origin)
    attach_sbom(registry, digest, document_of_lock(lock, base), signer)
    return True


def contents_of_origin(spec: ImageSpec, origin: str, progress: Progress) -> BaseContents:
    """Return what the base of an image has. origin: as in `Base.origin`.

    Raises MissingError if the packages of that very base can't be listed here.
    """
    for suite in bootstrap.SUITES.values():
        if origin == bootstrap.origin(suite):
            return contents_of_suite(suite)
    named = BaseOrigin.parse(origin)
    if named and named.kind == BasePolicy.REGISTRY.value and named.digest and not named.asked:
        bases = Bases(BasePolicy.REGISTRY, LayerTable())
        found = contents(bases.base(replace(spec, base=named.plain, additions=None), progress))
        if found.origin == origin:
            return found
    raise MissingError(f"the packages of the base {origin} can't be listed here", hint=UNLISTED)


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
