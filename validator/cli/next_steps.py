"""Say before a build how much it takes, and after it what to do with the images."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..assemble.image_names import image_reference
from ..errors import MissingError
from ..model.spec import NO_GPU
from ..registry.names import image_tag
from ..reports.printable import counted
from .options import print_status

if TYPE_CHECKING:
    from ..model.spec import ImageSpec
    from ..pipeline.opened_engine import Estimate
    from ..pipeline.run import Result

#: At most this many images are listed with their digests.
_SHOWN = 10


def say_estimate(found: Estimate) -> None:
    """Print how much a run downloads and stores."""
    if found.images:
        here = found.wheels - found.download
        cached = f" ({_gb(here)} of wheels are in the cache)" if here else ""
        download = f"{_gb(found.download)} of wheels to download" if found.download else "nothing to download"
        print_status(
            f"{counted(found.images, 'image')}: {download}{cached};"
            f" the largest image takes about {_gb(found.largest)}."
        )
    if found.unlocked:
        print_status(f"{counted(found.unlocked, 'image')} still to lock, whose size is not known yet.")


def say_next_steps(
    results: Sequence[Result], repository: str | None, profile: str | None, layout: Path | None = None
) -> None:
    """Print the images of a run, how one of them is started here, and how they are measured on a GPU.

    layout: the OCI layout that the images were written to.
    """
    found = [(result, name) for result in results if (name := name_of(result, layout)) is not None]
    if not found:
        return
    print_status("Images:")
    for result, name in found[:_SHOWN]:
        print_status(f"  {name}{_digest_of(result)}")
    if len(found) > _SHOWN:
        print_status(f"  and {len(found) - _SHOWN} more")
    if layout is not None:
        print_status(f"Load {'it' if len(found) == 1 else 'them'} into a Docker Engine:")
        print_status(f"  tar -C {shlex.quote(str(layout))} -c . | docker load")
        return
    result, name = found[0]
    where, line = _run_line(name, result.spec)
    print_status(where)
    print_status(f"  {shlex.join(line)}")
    unmeasured = [each for each, _ in found if _wants_a_gpu(each)]
    if unmeasured:
        print_status("Measure it on a machine with a GPU:")
        print_status(f"  {shlex.join(_measuring(unmeasured, repository, profile))}")


def name_of(result: Result, layout: Path | None) -> str | None:
    """Return the name of an image, with the digest if it is in a registry; None if there is no image."""
    if result.published is not None:
        repository = result.published.reference.partition("@")[0]
        return f"{repository}:{result.published.tag}@{result.published.digest}"
    if _local_digest(result) is None:
        return None
    return f"{layout}:{image_tag(result.spec)}" if layout else image_reference(result.spec.identifier)


def _digest_of(result: Result) -> str:
    # Not every engine finds a local image by this digest, so it is not a part of the name.
    digest = _local_digest(result)
    return "" if result.published is not None or digest is None else f" ({digest})"


def digest_of(result: Result) -> str | None:
    """Return the digest of the image of a result, in the registry or here; None if there is no image."""
    return result.published.digest if result.published is not None else _local_digest(result)


def _local_digest(result: Result) -> str | None:
    return result.digest or (result.record.image_digest if result.record else None)


def _wants_a_gpu(result: Result) -> bool:
    return result.spec.variant.has_cuda and (result.record is None or result.record.host_class == NO_GPU)


def _run_line(name: str, spec: ImageSpec) -> tuple[str, list[str]]:
    """Return where an image can be started, and the command."""
    from ..delivery.choose import this_host
    from ..delivery.formats.commands import docker_command
    from ..delivery.pull import Engine
    from ..delivery.start import Image, Start, User, devices_of, user_of

    image = Image(name, name, (), certified=False, has_cuda=spec.variant.has_cuda, port=spec.port)
    user, host, devices, directory = User(os.getuid(), os.getgid()), None, None, None
    try:
        engine = Engine()
    except MissingError:
        start = Start(image, host, devices, user, terminal="-it")
        return "Start it on a machine with a Docker Engine:", docker_command(start)
    try:
        if engine.is_local:
            user, directory = user_of(engine.info, user.uid, user.gid), Path.cwd()
        with contextlib.suppress(MissingError):
            if image.has_cuda:
                host, devices = this_host(), devices_of(engine.info)
    finally:
        engine.close()
    where = ", with this directory as the working directory" if directory else ""
    start = Start(image, host, devices, user, directory, terminal="-it")
    return f"Start it here{where}:", docker_command(start)


def _measuring(results: Sequence[Result], repository: str | None, profile: str | None) -> list[str]:
    """Return the command for a machine with a GPU: pull the images that were pushed, or build them there."""
    words = ["python", "-m", "validator", "build-matrix"]
    if profile is not None:
        words += ["--profile", profile]
    if len(results) == 1:
        words += ["--select", f"image={results[0].spec.identifier}"]
    return [*words, "--pull-from", repository] if repository else words


def _gb(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"
