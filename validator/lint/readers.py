"""Find the reader of a file by its name, and lint files together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..compat.facts import UnknownRelease
from ..compat.judge import judge
from ..compat.policies import choose
from ..compat.predict import host_of, software_of
from ..compat.releases import release_of_any_age
from ..errors import InputError
from ..model.prediction import Finding, Outcome, Place, Prediction, Reason, Software
from ..model.spec import LATEST, HostClass, ImageSpec, Variant
from ..system.runs import temporary_directory
from . import dockerfile
from .blame import allowed_software, findings, unknown_release
from .dockerfile import Read, reader
from .pins import READ_WITHIN, Environment, Pin, Source

_DOCKERFILE = re.compile(r"(?is)(?:.+[._-])?(?:dockerfile|containerfile)(?:[._-].+)?")
_KNOWN = (
    "Dockerfiles, compose files, requirements files (*.txt, *.in, requirements.lock), pyproject.toml,"
    " environment.yml, Pipfile, pixi.toml, uv.lock, poetry.lock, pdm.lock, pylock.toml, Pipfile.lock,"
    " pixi.lock and conda-lock.yml"
)


@dataclass(frozen=True)
class Linted:
    """The findings in files, sorted by place.

    unknown: the pins of TensorFlow releases that the facts don't have, which were not judged.
    """

    findings: tuple[Finding, ...]
    unknown: tuple[tuple[Place, UnknownRelease], ...]


def lint(paths: Iterable[Path], ignored: frozenset[str] = frozenset(), *, for_gpu: bool = False) -> Linted:
    """Return what can't work in the files, without what their comments silence.

    ignored: codes that are left out everywhere. for_gpu: True if the project is meant for a GPU even where
    its files don't say so. Raises InputError for a file that can't be read, or of an unknown kind.
    """
    found: set[Finding] = set()
    unknown: dict[Place, UnknownRelease] = {}
    silenced: dict[tuple[str, int], frozenset[str]] = {}
    for path in paths:
        environments, sources = read(path)
        for source in sources:
            silenced.update({(source.name, line): codes for line, codes in source.ignored.items()})
        for environment in environments:
            found.update(findings(replace(environment, for_gpu=True) if for_gpu else environment))
            unknown.update(unknown_release(environment))
    shown = (
        finding
        for finding in found
        if finding.code not in ignored
        and finding.code not in silenced.get((finding.place.file, finding.place.line), ())
    )
    return Linted(tuple(sorted(shown)), tuple((place, unknown[place]) for place in sorted(unknown)))


def lint_texts(name: str, texts: Mapping[str, str], *, for_gpu: bool = False) -> Linted:
    """Return what can't work in the text of this name. It may include the others, but no file from here.

    texts: by file name, without a directory. Raises InputError as `lint` does.
    """
    for one in texts:
        if not re.fullmatch(r"[\w.+-]{1,100}", one) or set(one) == {"."}:
            raise InputError(f'"{one[:100]}" is not a plain file name', hint="write it as requirements.txt")
    with temporary_directory("lint") as directory:
        root = directory.resolve()
        for one, text in texts.items():
            (root / one).write_text(text, encoding="utf-8", errors="replace", newline="")
        limit = READ_WITHIN.set(root)
        try:
            linted = lint([root / name], for_gpu=for_gpu)
        except InputError as error:
            raise InputError(str(error).replace(f"{root}/", ""), hint=error.hint) from None
        finally:
            READ_WITHIN.reset(limit)

    def named(place: Place) -> Place:
        return replace(place, file=Path(place.file).name)

    return Linted(
        tuple(replace(one, place=named(one.place)) for one in linted.findings),
        tuple((named(place), error) for place, error in linted.unknown),
    )


def read(path: Path) -> tuple[Sequence[Environment], Sequence[Source]]:
    """Return what a file installs, and the files that were read.

    Raises InputError for a file that can't be read, or of an unknown kind.
    """
    read_file = _reader(path)
    if read_file is None:
        raise InputError(f"{path} is not a kind of file that lint knows", hint=f"it reads {_KNOWN}")
    return read_file(path)


def reads(path: Path) -> bool:
    """Return True for a file of a kind that lint knows."""
    return _reader(path) is not None


def _reader(path: Path) -> Read | None:
    return dockerfile.of_dockerfile if _DOCKERFILE.fullmatch(path.name) else reader(path.name)


# Predict whether the software that a project pins works on machines: a GPU and a driver each.


_WORST_FIRST = (Outcome.FAILS, Outcome.UNKNOWN, Outcome.WORKS)


@dataclass(frozen=True)
class OnHost:
    """The prediction for one pin of TensorFlow on one machine.

    place: where the pin is. tensorflow: the release that pip would install today, if the pin allows several.
    host: its identifier.
    """

    place: Place
    tensorflow: str
    host: str
    prediction: Prediction

    @property
    def reason(self) -> Reason | None:
        """The reason that decides, None if nothing speaks against it."""
        first = next(iter(self.prediction.reasons), None)
        return first if first is not None and first.outcome is not Outcome.WORKS else None


def on_hosts(paths: Iterable[Path], hosts: Sequence[HostClass]) -> list[OnHost]:
    """Return the predictions for each pin of TensorFlow in the files on each machine, sorted by place.

    A pin that is installed in several ways, such as with each extra of a project, has its worst prediction.
    If a pin allows several releases, the prediction is for the one that pip would install today. Raises
    InputError for a file that can't be read, or that pins no TensorFlow that the facts know.
    """
    found: dict[tuple[Place, str], OnHost] = {}
    for path in paths:
        asked = [
            (pin, allowed)
            for environment in read(path)[0]
            for pin, allowed in [allowed_software(replace(environment, for_gpu=True))]
            if pin is not None and allowed
        ]
        if not asked:
            raise InputError(
                f"{path} pins no TensorFlow that the facts know, so there is nothing to predict",
                hint="name a file that pins it, such as a lock or requirements.txt with tensorflow==2.21.0",
            )
        for pin, allowed in asked:
            for host in hosts:
                one = _on_host(pin, allowed, host)
                before = found.get((one.place, one.host))
                if before is None or _severity(one) < _severity(before):
                    found[one.place, one.host] = one
    return [found[key] for key in sorted(found)]


def _severity(one: OnHost) -> int:
    return _WORST_FIRST.index(one.prediction.outcome)


def _on_host(pin: Pin, allowed: Sequence[Software], host: HostClass) -> OnHost:
    predictions = [
        (software.tensorflow or "", judge(_completed(software), host_of(host))) for software in allowed
    ]
    # pip takes the newest release that has a wheel for the Python. Which Python that is may not be stated.
    installable = [one for one in predictions if not _without_wheel(one[1])] or predictions
    newest = [one for one in installable if one[0] == installable[-1][0]]
    release, prediction = ([one for one in newest if one[1].outcome is not Outcome.FAILS] or newest)[-1]
    return OnHost(pin.place, release, host.identifier, prediction)


def _without_wheel(prediction: Prediction) -> bool:
    return any(
        reason.rule == "python_without_wheel" and reason.outcome is Outcome.FAILS
        for reason in prediction.reasons
    )


def _completed(software: Software) -> Software:
    """Return the software with what pip would install today, where the file doesn't say it.

    Without the extra, the libraries are those that the wheel was built for and opens.
    """
    known = release_of_any_age(software.tensorflow or "")
    if known is None:
        return software
    python = software.python or known.pythons[-1]
    if software.cuda is None and software.extra is None:
        return replace(software, python=python, cuda=known.cuda)
    if software.extra and known.extra_style == "range":
        cuda, cudnn = choose(known, LATEST, LATEST)
        usual = software_of(ImageSpec(known.version, python, Variant.GPU, cuda, cudnn))
        given = software.versions
        return replace(
            software,
            python=python,
            cuda=software.cuda or usual.cuda,
            cudnn=software.cudnn or usual.cudnn,
            packages=tuple({**usual.versions, **given}.items()),
        )
    return replace(software, python=python)
