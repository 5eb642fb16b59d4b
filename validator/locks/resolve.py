"""Resolve an image spec to the exact wheels of one Python on one platform, with uv.

uv writes a `pylock.toml` (PEP 751), which unlike requirements lists the files. For each package this
module keeps the one wheel that the target would install, without its address, so that a lock is the same on
every network.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from uv import find_uv_bin

from .._vendor.packaging.tags import Tag, compatible_tags, cpython_tags
from .._vendor.packaging.utils import canonicalize_name
from ..compat.offers import has_extra, requirement
from ..compat.policies import choose, requirement_of
from ..compat.predict import of_image
from ..compat.releases import Release, origin_of
from ..errors import BuildError, InputError, MissingError, ValidatorError
from ..model.prediction import Outcome
from ..model.spec import AS_BUILT, LATEST, Additions, ImageSpec, LocalWheel, Lock, Variant, Wheel
from ..system import processes
from ..system.files import parse_toml, says_full_disk
from ..system.package_sources import PackageSources
from ..system.pools import map_in_threads
from ..system.runs import temporary_directory
from ..versions import InvalidWheelName, leading_numbers, wheel_name
from .index import PackageIndex
from .lock_files import pylock_text

# Turn the output of a failed uv into an error that says what is wrong: the input, the network or the disk.
# The phrases are those of uv 0.8 to 0.13. For an unknown failure, the error has the last lines of the output.

_PIN = r"[`']?(?P<pin>[A-Za-z0-9._-]+==[A-Za-z0-9.!+_*-]+)"
_AGAIN = "resolve again with `validator lock --upgrade`"
#: What uv's output says, the kind of error, what is wrong, and what to do.
_FAILURES: tuple[tuple[str, type[ValidatorError], str, str], ...] = (
    (
        "(?i:invalid peer certificate|UnknownIssuer|self.signed certificate)",
        MissingError, "the index's certificate is not trusted here",
        "set SSL_CERT_FILE to the CA bundle of your network",
    ),
    (
        r"dns error|error sending request|[Cc]onnection refused|Connection reset|Could not connect"
        r"|client error \(Connect\)|operation timed out|tls handshake|Failed to fetch: "
        r"|Network is unreachable|Network connectivity is disabled"
        r"|HTTP status (?:server|client) error \((?:401|403|407|429|5\d\d)",
        MissingError, "the package index can't be reached",
        "check the index, proxy and CA settings of pip or uv on this machine",
    ),
    (
        rf"Hash mismatch for {_PIN}",
        InputError, "the index's file for {pin} has a different hash than the lock",
        f"{_AGAIN}, and find out why the file changed",
    ),
    *(
        (
            pattern, InputError, "the index does not have {pin}",
            f"{_AGAIN}, or use an index that has it",
        )
        for pattern in (
            rf"there is no version of {_PIN}",
            rf"was not found in the package registry and you require {_PIN}",
            r"Because (?P<pin>[A-Za-z0-9._-]+) was not found in the package registry",
        )
    ),
    (
        rf"{_PIN} has no (?:usable )?wheels\b",
        InputError, "the index has no wheel of {pin} for this Python and platform",
        "choose another Python or another release",
    ),
)  # fmt: skip
_UNSOLVABLE = re.compile(r"No solution found|requirements are unsatisfiable", re.IGNORECASE)

#: The conditions of a requirement, which uv writes into its name.
_CONDITION = re.compile(r"\{[^}]*\}")
#: What uv derives from what it said before.
_DERIVED = re.compile(r"we can conclude that .*?(?=\.\s|\.?$)")
_SPECIFIER = r"(?:\[[^\]]*\])?(?:[=<>!~]=?|===)[^\s;]+"
#: If the index has only one version of a package, uv says `all versions of torch depend on …`.
_SIDE = re.compile(
    r"(?:all versions of (?P<each>[A-Za-z0-9]\S*) depend|(?P<who>[A-Za-z0-9]\S*) depends) on"
    rf" (?P<name>[A-Za-z0-9._-]+)(?P<range>{_SPECIFIER})"
)
_REQUIRED = re.compile(
    rf"(?:you require|and) (?P<name>[A-Za-z0-9._-]+)(?P<range>{_SPECIFIER})(?! depends on)"
)


def explain(text: str, what: str, *, timed_out: bool = False, pinned: Collection[str] = ()) -> ValidatorError:
    """Return the error for what uv wrote to stderr. what: what was being done, to begin the sentence.

    pinned: the requirements of the image itself, as opposed to those that the user added.
    """
    last = " ".join(line.strip() for line in text.strip().splitlines()[-12:])
    # uv wraps its explanations; one line makes them searchable.
    flat = " ".join(text.split())
    if timed_out:
        return MissingError(f"{what}: uv did not finish in time", hint="try again; the index may be slow")
    if says_full_disk(text):
        return MissingError(f"{what}: no space left on the disk", hint="free some space and run it again")
    for pattern, kind, why, hint in _FAILURES:
        if match := re.search(pattern, flat):
            pin = match.groupdict().get("pin", "").rstrip(".,")
            return kind(f"{what}: {why.format(pin=pin)}", hint=hint)
    if pinned and (conflict := _conflict(flat, pinned)):
        return InputError(
            f"{what}: {conflict}",
            hint="change or remove one of the two, or choose another TensorFlow, CUDA or cuDNN",
        )
    if _UNSOLVABLE.search(flat):
        return InputError(f"{what}: {last}", hint="choose versions that work together")
    return BuildError(f"{what}: {last[-600:] or 'uv failed without a message'}", log=text)


def _conflict(flat: str, pinned: Collection[str]) -> str | None:
    """Return which two sides want different versions of a package, if the explanation says so."""
    stated = _DERIVED.sub("", _CONDITION.sub("", flat))
    ours = {line.partition(";")[0].strip() for line in pinned}
    # The name of a package -> the wanted versions with the name -> who wants them first.
    sides: dict[str, dict[str, str]] = {}
    for match in _SIDE.finditer(stated):
        wanted = match["name"] + match["range"].rstrip(",.")
        who = f"{match['who'] or match['each']} needs"
        sides.setdefault(match["name"].lower(), {}).setdefault(wanted, who)
    for match in _REQUIRED.finditer(stated):
        wanted = match["name"] + match["range"].rstrip(",.")
        who = "this image pins" if wanted in ours else "the matrix asks for"
        sides.setdefault(match["name"].lower(), {}).setdefault(wanted, who)
    for wants in sides.values():
        if len(wants) > 1:
            (first, one), (second, other) = list(wants.items())[:2]
            return f"{one} {first}, but {other} {second}"
    return None


#: glibc 2.28 is the oldest that all wheels of TensorFlow 2.21 and its dependencies run on. Debian 10, Ubuntu
#: 20.04 and RHEL 8 have it or a newer one.
GLIBC = (2, 28)
PLATFORM = f"x86_64-manylinux_{GLIBC[0]}_{GLIBC[1]}"

_TIMEOUT_S = 600.0
#: Sizes are optional, so this does not wait for an index that answers slowly.
_SIZE_TIMEOUT_S = 20.0
#: The size of each file in bytes by its address, None if the index's server does not say.
_known_sizes: dict[str, int | None] = {}


def resolve(
    spec: ImageSpec,
    requirements: Iterable[str],
    sources: PackageSources,
    on_line: Callable[[str], None] | None = None,
    *,
    keep: Lock | None = None,
    what: str = "",
    own: Path | None = None,
) -> Lock:
    """Resolve a spec with the package index. what: the name of what is resolved in errors, if not the spec.

    keep: a lock whose versions are kept where the requirements allow it. own: the file of its TensorFlow, if
    that is not from the index. Raises InputError if the requirements can't be met together, MissingError if
    the index can't be reached.
    """
    asked = tuple(requirements)
    added = spec.additions or Additions()
    origin = origin_of(spec.tensorflow)
    # The addresses of local wheels on this machine.
    addresses = {
        wheel.requirement: f"{wheel.name} @ {(added.directory / wheel.path).resolve().as_uri()}"
        for wheel in added.wheels
    }
    with temporary_directory("lock") as work:
        output, constraints = work / "pylock.toml", work / "constraints.txt"
        if keep is not None:
            # uv keeps the versions of an output file that exists.
            output.write_text(pylock_text(keep), encoding="utf-8")
        constraints.write_text("\n".join(added.constraints), encoding="utf-8")
        # Only wheels, because the result of building a source distribution depends on the machine.
        command: list[str | Path] = [
            find_uv_bin(), "pip", "compile", "-", "--format", "pylock.toml", "--only-binary", ":all:",
            "--python-version", spec.python, "--python-platform", PLATFORM, "--no-header", "--no-annotate",
            "--no-progress", "--no-python-downloads", "--quiet",
            # Otherwise uv would run the Python of a `.venv` in the current directory.
            "--python", sys.executable,
            "--constraints", constraints, "--output-file", output,
        ]  # fmt: skip
        if own is not None and origin is not None:
            # uv reads what a wheel is from the name of its file.
            named = work / origin.filename
            named.symlink_to(own.resolve())
            addresses |= {
                line: line.replace(origin.origin, named.as_uri()) for line in asked if origin.origin in line
            }
        given = "\n".join(addresses.get(line, line) for line in asked).encode()
        environment = {**os.environ, **sources.uv_environment()}
        result = processes.run(command, env=environment, input=given, on_line=on_line, timeout_s=_TIMEOUT_S)
        if not result.ok:
            said, pinned = sources.redact(result.stderr_tail), set(asked) - set(added.required)
            failed = f"{what or spec}: can't be resolved"
            raise explain(said, failed, timed_out=result.timed_out, pinned=pinned)
        document = parse_toml(output.read_text(encoding="utf-8"))
    tags = target_tags(spec.python)
    local = {wheel.name: _local(wheel, tags, spec) for wheel in added.wheels}
    if origin is not None and own is not None:
        local[origin.name] = replace(origin, size=own.stat().st_size)
    accepted = dict(added.requirements.hashes) if added.requirements else {}
    packages = [_accepted(package, accepted, spec) for package in document.get("packages", [])]
    chosen = [pick(package, tags, spec) for package in packages if package["name"] not in local]
    unknown = [url for _, url in chosen if url not in _known_sizes]
    index = PackageIndex(sources)
    asking = map_in_threads(lambda url: index.size_at(url, _SIZE_TIMEOUT_S), unknown, at_once=8)
    _known_sizes.update(zip(unknown, asking, strict=True))
    wheels = [
        *(replace(wheel, size=_known_sizes[url] or wheel.size) for wheel, url in chosen),
        *local.values(),
    ]
    if origin is not None and origin.sha256 not in (wheel.sha256 for wheel in wheels):
        raise InputError(
            f"{spec}: the package index has another {origin.filename} now than when it was inspected",
            hint="run the command again; if that does not help, write the wheel's path in the matrix",
        )
    wheels.sort(key=lambda wheel: wheel.name)
    today = datetime.now(timezone.utc).date()
    return Lock(spec.identifier, spec.python, PLATFORM, asked, tuple(wheels), added.notes, today)


def _accepted(
    package: dict[str, Any], accepted: Mapping[str, Iterable[str]], spec: ImageSpec
) -> dict[str, Any]:
    """Return a package with only the wheels whose hashes the user accepts. Raises InputError without one."""
    hashes = accepted.get(canonicalize_name(package["name"]))
    if hashes is None:
        return package
    wheels = [entry for entry in package.get("wheels", []) if entry.get("hashes", {}).get("sha256") in hashes]
    if not wheels:
        assert spec.additions is not None and spec.additions.requirements is not None
        raise InputError(
            f"{spec}: no wheel of {package['name']} {package['version']} on the index has a hash that"
            f" {spec.additions.requirements.origin} lists",
            hint="write that file again with the hashes of the wheels",
        )
    return {**package, "wheels": wheels}


def _local(wheel: LocalWheel, tags: Mapping[Tag, int], spec: ImageSpec) -> Wheel:
    """Return a wheel of this machine. Raises InputError if the target can't install it."""
    filename = wheel.path.rsplit("/", 1)[-1]
    if not any(tag in tags for tag in wheel_name(filename)[2]):
        raise InputError(
            f"{spec}: {wheel.path} is not for Python {spec.python} on {PLATFORM}",
            hint="build it for this Python and platform, with a glibc that is not newer",
        )
    return Wheel(wheel.name, wheel.version, wheel.sha256, filename, wheel.size, wheel.path)


def target_tags(python: str, glibc: tuple[int, int] = GLIBC) -> dict[Tag, int]:
    """Return the wheel tags that the target accepts, each with its rank (0 is the best)."""
    major, minor = leading_numbers(python)
    platforms = [f"manylinux_2_{release}_x86_64" for release in range(glibc[1], 4, -1)]
    for release, alias in ((17, "manylinux2014"), (12, "manylinux2010"), (5, "manylinux1")):
        platforms.insert(platforms.index(f"manylinux_2_{release}_x86_64") + 1, f"{alias}_x86_64")
    platforms.append("linux_x86_64")
    tags = [
        *cpython_tags((major, minor), platforms=platforms),
        *compatible_tags((major, minor), f"cp{major}{minor}", platforms),
    ]
    return {tag: rank for rank, tag in reversed(list(enumerate(tags)))}


def pick(package: dict[str, Any], tags: dict[Tag, int], spec: ImageSpec) -> tuple[Wheel, str]:
    """Return the wheel of a `pylock.toml` package that the target installs, and its address.

    Raises InputError if no wheel fits, MissingError if the index gives no hash.
    """
    ranked = []
    for entry in package.get("wheels", []):
        filename = entry.get("name") or entry["url"].rsplit("/", 1)[-1].split("#", 1)[0].split("?", 1)[0]
        try:
            fitting = [tags[tag] for tag in wheel_name(filename)[2] if tag in tags]
        except InvalidWheelName:
            continue
        if fitting:
            ranked.append((min(fitting), filename, entry))
    if not ranked:
        raise InputError(
            f"{spec}: {package['name']} {package['version']} has no wheel for Python {spec.python}"
            f" on {PLATFORM}",
            hint="choose another Python, or another release",
        )
    _, filename, entry = min(ranked, key=lambda candidate: candidate[:2])
    sha256 = entry.get("hashes", {}).get("sha256")
    if not sha256:
        raise MissingError(
            f"{spec}: the index has no sha256 for {filename}",
            hint="use an index that serves hashes (PEP 503 or PEP 691)",
        )
    wheel = Wheel(canonicalize_name(package["name"]), package["version"], sha256, filename, entry.get("size"))
    return wheel, entry["url"]


# Find one set of CUDA's libraries for TensorFlow and the other frameworks of an environment.

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
    alone = (requirement_of(release), *release.wheels)
    ways = [((requirement(release),), LATEST)] if has_extra(release) else []
    why: list[str] = []
    for ours, policy in (*ways, (alone, AS_BUILT)):
        spec = ImageSpec(release.version, python, Variant.GPU, *choose(release, policy, policy))
        install = tuple(dict.fromkeys((*ours, *others)))
        try:
            own = Path(release.origin.address) if release.origin and release.origin.address else None
            what = f"{release.package} {release.version} and {', '.join(others)}"
            lock = resolve(spec, install, sources, what=what, own=own)
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
