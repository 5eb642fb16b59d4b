"""Read compose files and Kubernetes manifests in a text: which containers are given a GPU.

They are read line by line, by their indentation: YAML's parser is not part of the standard library, and what
people paste is often a piece of a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .commands import Shown
from .lines import Line

_KEY = re.compile(r"(?P<indent>\s*(?:- )?)(?P<name>[\w./-]+|\"[^\"]+\"):(?:\s+(?P<value>.*\S))?\s*")
#: Lines of a service or a manifest that give it a GPU.
_GPU_OF_SERVICE = re.compile(
    r"^\s*(?:gpus:|runtime: *[\"']?nvidia|-? *driver: *[\"']?nvidia|- *[\"']?(?:/dev/nvidia|nvidia\.com/gpu))"
    r"|capabilities: *\[[^\]]*gpu|^\s*- *\[? *[\"']?gpu\b",
    re.MULTILINE,
)
_GPU_OF_POD = re.compile(r"^\s*-? *[\"']?nvidia\.com/(?:gpu|mig-)[\w.-]*[\"']? *: *[\"']?[1-9]", re.MULTILINE)
_WORKLOADS = frozenset(
    {
        "Pod",
        "Job",
        "CronJob",
        "Deployment",
        "StatefulSet",
        "DaemonSet",
        "ReplicaSet",
        "PyTorchJob",
        "TFJob",
        "MPIJob",
        "JobSet",
        "Notebook",
    }
)
#: Images of services that are meant to use the GPU.
_MEANT_FOR_GPU = re.compile(r"tensorflow|cuda|nvidia|nvcr|gpu", re.IGNORECASE)
#: Ends a file that was pasted among other words.
_END = re.compile(r"\s*(?:```|~~~|---\s*$|\$ |#{2,} )")

Placed = tuple[Shown, Line]


def read_manifests(lines: Sequence[Line]) -> Iterator[Placed]:
    """Yield what the files show, each with the line that it begins at."""
    done = 0
    for position, line in enumerate(lines):
        key = _KEY.fullmatch(line.text) if position >= done and ":" in line.text else None
        if key is None:
            continue
        if key["name"] == "services" and not key["value"]:
            done = _end_of_block(lines, position)
            yield from _compose(lines[position:done])
        elif (key["name"] == "kind" and key["value"] in _WORKLOADS) or (
            # A piece of a manifest, without its kind.
            key["name"] == "containers" and not key["value"]
        ):
            start, done = _manifest_around(lines, position, done)
            yield from _manifest(lines[start:done])


def _compose(block: Sequence[Line]) -> Iterator[Placed]:
    services = list(_services(block))
    given = [service for service in services if _GPU_OF_SERVICE.search(_joined(service))]
    for service in given:
        yield _shown("yes", "compose", _value(service, "image")), service[0]
    if given:
        return
    for service in services:
        image = _value(service, "image")
        if len(services) == 1 or _MEANT_FOR_GPU.search(image):
            yield _shown("no", "compose", image), service[0]


def _services(block: Sequence[Line]) -> Iterator[Sequence[Line]]:
    """Yield the lines of each service."""
    inner = [line for line in block[1:] if line.text.strip()]
    if not inner:
        return
    width = _indent(inner[0].text)
    starts = [position for position, line in enumerate(inner) if _indent(line.text) == width]
    for start, end in zip(starts, [*starts[1:], len(inner)], strict=True):
        if _KEY.fullmatch(inner[start].text):
            yield inner[start:end]


def _manifest(lines: Sequence[Line]) -> Iterator[Placed]:
    content = _joined(lines)
    if "containers:" not in content:
        return
    gpus = "yes" if _GPU_OF_POD.search(content) else "no"
    shown = _shown(gpus, "kubernetes", _value(lines, "image"))
    runtime_class = _value(lines, "runtimeClassName")
    values = {"runtime_class": runtime_class} if runtime_class else {}
    yield shown._replace(values={**shown.values, **values}), lines[0]
    yield Shown("container", {"kind": "kubernetes"}, True, ""), lines[0]


def _shown(gpus: str, engine: str, image: str) -> Shown:
    values = {"gpus": gpus, "engine": engine}
    return Shown("docker_run", {**values, "image": image} if image else values, True, "")


def _end_of_block(lines: Sequence[Line], start: int) -> int:
    """Return the end of the block below a line: the lines that are indented more than it."""
    width = _indent(lines[start].text)
    end = start + 1
    while end < len(lines):
        text = lines[end].text
        if _END.match(text) or (text.strip() and not text.strip().startswith("#") and _indent(text) <= width):
            break
        end += 1
    return end


def _manifest_around(lines: Sequence[Line], position: int, first: int) -> tuple[int, int]:
    """Return the start and the end of the manifest that contains a line of its outermost level. It does
    not start before the line `first`."""
    width = _indent(lines[position].text)

    def belongs(text: str) -> bool:
        if not text.strip():
            return True
        is_inner = _indent(text) > width or text.lstrip().startswith(("-", "#"))
        return (is_inner or _KEY.fullmatch(text) is not None) and not _END.match(text)

    start, end = position, position + 1
    while start > first and belongs(lines[start - 1].text):
        start -= 1
    while end < len(lines) and belongs(lines[end].text):
        end += 1
    return start, end


def _value(lines: Sequence[Line], name: str) -> str:
    """Return the first value of a key, or an empty text."""
    for line in lines:
        key = _KEY.fullmatch(line.text)
        if key is not None and key["name"] == name and key["value"]:
            value: str = key["value"]
            return value.partition(" #")[0].strip().strip("\"'")
    return ""


def _joined(lines: Sequence[Line]) -> str:
    return "\n".join(line.text for line in lines)


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())
