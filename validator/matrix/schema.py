"""The types of a matrix file, its JSON Schema for editors, and the files of a new project.

`python -m validator.matrix.schema` writes the JSON Schema. It is in the form that the catalogue of
https://www.schemastore.org asks for: draft 07, which most editors know, with a title and a description of
each property, and with links to the manual.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import Meta

from ..model.spec import AS_BUILT, RECOMMENDED, HostClass, ImageSpec
from ..resources import manual, newest_manual, newest_source, source
from ..versions import DriverRelease

#: Longest text allowed for one value, in characters.
MAX_TEXT = 500
#: Longest list allowed for one axis.
MAX_AXIS = 200

Text = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]
#: At least one value. A file may give a single value in place of the list.
Axis = Annotated[list[Text], Meta(min_length=1, max_length=MAX_AXIS)]


class ProjectEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A uv project whose dependencies an image has. The project itself is not installed."""

    project: Annotated[Text, "The directory of its `pyproject.toml` and its `uv.lock`, such as `.`."]
    group: Annotated[Text, "A dependency group that the image has as well."] = ""


class CheckEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A check of your own."""

    path: Annotated[Text, "Its file, relative to this one."]
    required: Annotated[bool, "Whether the verdict depends on it."] = True
    timeout: Annotated[int, Meta(ge=1, le=3600, description="Seconds for the whole check.")] = 120


#: Checks as paths or with their settings; a single one needs no list.
CheckList = Annotated[list[Text | CheckEntry], Meta(min_length=1, max_length=MAX_AXIS)]


class ImageEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Images to build. Every key takes one value or a list; the lists multiply."""

    tensorflow: Annotated[
        Axis,
        'A release (`"2.21.0"`), every patch of a minor version (`"2.21"`), a range over the'
        ' known releases (`">=2.14,<2.20"`, never a prerelease), `newest`, or `candidate`: the newest'
        " candidate of each release that is not out yet, and nothing if there is none. Or another wheel:"
        ' a path, an address with `#sha256=…`, `nightly`, or its version (`"2.23.0.dev20261127"`).',
    ]
    index: Annotated[
        Text,
        "The address of a package index for `tensorflow`, which then takes exact versions"
        ' (`"2.21.0+ours"`) or `nightly`.',
    ] = ""
    python: Annotated[Axis, 'Versions (`"3.12"`), or `all`: every Python that the release has wheels for.']
    policy: Annotated[
        Axis,
        "CUDA and cuDNN together: `as-built` (what the wheel was built with; the default),"
        " `recommended` (the newest versions that its metadata allows and that no known fault rules out),"
        " or `latest` (the newest versions that its metadata allows when the lock is written).",
    ] = []
    cuda: Annotated[
        Axis,
        "Only CUDA: `as-built` (the default), `recommended`, `latest`, or a version to pin"
        ' (`"12.8"`). Not together with `policy`.',
    ] = []
    cudnn: Annotated[
        Axis,
        "Only cuDNN: `as-built` (the default), `recommended`, `latest`, or a version to pin"
        ' (`"9.10"`). Not together with `policy`.',
    ] = []
    variant: Annotated[
        Axis,
        "`gpu` (the default); `cpu`: tensorflow-cpu, which has no CUDA; or `jupyter`: `gpu`"
        " with JupyterLab, which it starts on port 8888.",
    ] = []
    base: Annotated[
        Axis, "A base image, or `default`: the official image of the Python version (the default)."
    ] = []
    name: Annotated[
        Text,
        "What the names of images with additions (the keys below) end in: up to 32 lower-case"
        " letters, digits, dots and dashes.",
    ] = ""
    packages: Annotated[
        Axis,
        'More packages: requirements (`"pandas>=2"`), and paths of wheels, relative to this'
        " file (`./wheels/ours-1.0-py3-none-any.whl`). They are resolved together with TensorFlow.",
    ] = []
    requirements: Annotated[
        Text | ProjectEntry, "More packages: a `requirements.txt`, a `pylock.toml`, or a uv project."
    ] = ""
    system_packages: Annotated[
        Axis, "Packages of the base's distribution, Debian or Ubuntu (`libgl1`, `git`)."
    ] = []
    environment: Annotated[dict[str, Text], "Environment variables of the image, each with its value."] = {}
    checks: Annotated[
        CheckList, "Files with checks of your own, which run with the others (`checks/our_check.py`)."
    ] = []
    max_size: Annotated[Text, "The most that the compressed image may have: `3.5GB`, `800MiB`."] = ""


class HostEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Host classes. Lists multiply: every driver with every GPU."""

    driver: Annotated[
        Axis,
        'Driver branches (`"535"`: the newest release of that branch) or releases'
        ' (`"535.183.01"`). Required with a GPU.',
    ] = []
    gpu: Annotated[
        Axis,
        "GPU models by any common name (`h100`, `rtx-4090`, `Tesla T4`), or `none`: a machine"
        " without a GPU, for cpu images. Either this or `compute_capability` is required.",
    ] = []
    compute_capability: Annotated[
        Axis, 'Compute capabilities (`"9.0"`), for a GPU that is not known by name.'
    ] = []
    compat: Annotated[
        Axis, 'CUDA versions of a cuda-compat package on the loader path (`"12.9"`), or `none` (the default).'
    ] = []
    runner: Annotated[
        Axis,
        "Labels of the CI runner. `{host}`, `{driver}` and `{gpu}` are replaced with those of"
        " the host class.",
    ] = []


class ProfileEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the matrix under a name."""

    description: Annotated[Text, "One sentence for people."] = ""
    select: Annotated[
        Axis,
        'Selectors that must all match: `tensorflow=newest`, `"tensorflow>=2.14"`,'
        " `python=3.12`, `host=r535-*`. Without this key, the profile has everything.",
    ] = []
    first_available_python: Annotated[
        Axis,
        "Pythons in order of preference. If images differ only in their Python, the first one"
        " that the engine can provide is taken. Without this key, all are.",
    ] = []


class ExcludeEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Cells that are left out, and why."""

    select: Annotated[Axis, "Selectors. A cell is left out if all of them match."]
    reason: Annotated[Text, "One sentence that says why these cells are not built or validated."]
    link: Annotated[Text, "Where the reason was found or is discussed."] = ""


class MatrixFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The images to build, the host classes to validate them on, and the cells to leave out."""

    images: Annotated[list[ImageEntry], Meta(min_length=1, description="What to build.")]
    hosts: Annotated[list[HostEntry], Meta(min_length=1, description="Where to validate.")]
    profiles: Annotated[
        dict[str, ProfileEntry],
        Meta(min_length=1, description="Named parts of the matrix. Commands without --profile use quick."),
    ]
    exclude: Annotated[list[ExcludeEntry], "What is left out, with the reason."] = []


#: The copy that is checked in.
PATH = Path(__file__).with_name("schema.json")


def schema_text() -> str:
    """Return the JSON Schema of a matrix file, as the checked-in copy has it."""
    return editor_schema(
        MatrixFile, "TensorFlow GPU matrix", "validator/matrix/schema.json", "reference/matrix.md"
    )


def editor_schema(kind: type[msgspec.Struct], title: str, path: str, page: str) -> str:
    """Return the JSON Schema of a file whose content has the type `kind`, with its structs in one module.

    Text in `Annotated` describes a field, as the description of a `Meta` does. path: of the schema in this
    repository. page: of the manual, with a section for each key of the file.
    """
    (_,), definitions = msgspec.json.schema_components([kind], ref_template="#/definitions/{name}")
    for struct, definition in definitions.items():
        hints = get_type_hints(getattr(sys.modules[kind.__module__], struct), include_extras=True)
        del definition["title"]
        for name, value in definition["properties"].items():
            texts = [one for one in getattr(hints[name], "__metadata__", ()) if isinstance(one, str)]
            definition["properties"][name] = _property(name, {"description": "".join(texts), **value})
    whole = definitions.pop(kind.__name__)
    link = newest_manual(page)
    for name, value in whole["properties"].items():
        value["description"] += f"\n{link}#{name}"
    document = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": newest_source(path),
        "title": title,
        **whole,
        "description": f"{whole['description']}\n{link}",
        "definitions": definitions,
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _property(name: str, value: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a property. An empty default only says that the key may be absent: drop it."""
    rules = _rules({key: inner for key, inner in value.items() if key not in ("default", "description")})
    about = {"title": name.replace("_", " "), "description": value["description"]}
    return {**about, **({"default": value["default"]} if value.get("default") else {}), **rules}


def _rules(value: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in value:
        # In draft 07, everything next to a reference is ignored.
        return {"allOf": [value]}
    if isinstance(inner := value.get("additionalProperties"), dict):
        return {**value, "additionalProperties": inner if "$ref" in inner else _rules(inner)}
    items = value.get("items", {})
    if items.get("type") != "string" and "anyOf" not in items:
        return value
    return {"anyOf": [items, {**value, "uniqueItems": True}]}


# Write the files of a new project: a matrix with comments, the workflow that builds it, and who may sign.

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
    """Return a matrix with one image, with or without CUDA, for these host classes, or for an example."""
    from ..compat.policies import is_recommended

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
    """Return a template with each `@NAME@` replaced by its value."""
    text = (_TEMPLATES / template).read_text(encoding="utf-8")
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text


def workflow_text(repository: GithubRepository | None, tool: str) -> str:
    """Return the workflow, with placeholders if repository is None. tool: what pip installs to get this."""
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


if __name__ == "__main__":
    PATH.write_text(schema_text(), encoding="utf-8")
