"""Choose which GPUs of a machine are measured together: those of one model, for one record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from ..errors import MissingError
from ..model.facts import Gpu, Host
from ..model.measurement import GpuIdentity, Outside, Unread
from ..model.spec import HostClass, ImageSpec, cell_identifier
from .recording import host_class_of


@dataclass(frozen=True)
class Target:
    """One host class of the machine that runs the engine.

    outside: its driver and the GPUs that are offered to the probe, as the host sees them.
    host_class: None where the host can't be read; then the report names it.
    uuids: of the GPUs to offer; empty for all of the machine.
    """

    outside: Outside | Unread
    host_class: str | None = None
    uuids: tuple[str, ...] = ()

    def cell(self, spec: ImageSpec) -> str | None:
        """Return the identifier of the cell that is measured here, if it is known before the probe runs."""
        return cell_identifier(spec.identifier, self.host_class) if self.host_class else None

    def seen_in(self, outside: Outside | Unread) -> Outside | Unread:
        """Return the part of another reading of the same machine that is about these GPUs."""
        if isinstance(outside, Unread) or not self.uuids:
            return outside
        return _part(outside, tuple(gpu for gpu in outside.gpus if gpu.uuid in self.uuids))


def targets(outside: Outside | Unread, declared: Iterable[HostClass], *, by_model: bool) -> list[Target]:
    """Return what to measure on a machine, at least one target.

    declared: the matrix's host classes. by_model: each GPU model on its own; otherwise all GPUs together.
    """
    if isinstance(outside, Unread):
        return [Target(outside)]
    known = tuple(declared)
    models = list(dict.fromkeys(gpu.name for gpu in outside.gpus))
    if len(models) < 2 or not by_model:
        return [Target(outside, host_class_of(_host(outside), known))]
    found = []
    for model in models:
        gpus = tuple(gpu for gpu in outside.gpus if gpu.name == model)
        part = _part(outside, gpus)
        uuids = tuple(gpu.uuid for gpu in gpus)
        found.append(Target(part, host_class_of(_host(part), known), uuids))
    return found


def asked_for(
    found: Sequence[Target], spec: ImageSpec, challenges: Mapping[str, str]
) -> list[tuple[Target, str | None]]:
    """Return the targets that somebody asked to measure, each with its challenge.

    challenges: by cell, or by image spec for the only target of a machine. Raises MissingError if none of
    them is for this machine.
    """
    image = spec.identifier
    if len(found) == 1 and (found[0].host_class is None or image in challenges):
        # Without a reading of the host nothing is signed. The probe still gets a challenge to repeat.
        here = [text for cell, text in challenges.items() if cell.partition("@")[0] == image]
        return [(found[0], challenges.get(image) or (here[0] if here else None))]
    pairs = [(target, challenges.get(str(target.cell(spec)))) for target in found]
    pairs = [(target, challenge) for target, challenge in pairs if challenge is not None]
    if not pairs:
        classes = ", ".join(str(target.host_class) for target in found)
        raise MissingError(
            f"{image}: no challenge was made for this machine, whose host class is {classes}",
            hint="run it on a machine of a host class that the challenges name",
        )
    return pairs


def _part(outside: Outside, gpus: tuple[GpuIdentity, ...]) -> Outside:
    return msgspec.structs.replace(outside, gpus=gpus)


def _host(outside: Outside) -> Host:
    gpus = tuple(Gpu(gpu.name, gpu.uuid, gpu.compute_capability) for gpu in outside.gpus)
    return Host(outside.driver, gpus=gpus)
