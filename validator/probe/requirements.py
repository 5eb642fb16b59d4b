"""Whether an installed version meets what a distribution's metadata requires.

The part of PEP 440 (versions and specifiers) and PEP 508 (requirements and markers) that metadata uses;
`packaging` is not part of Python, and nothing says that the environment has it. A pre-release meets a
specifier here as any other version does: it is installed already.
"""

import os
import platform
import re
import sys
from dataclasses import dataclass, replace
from typing import Any, Dict, List, Optional, Tuple

_VERSION = re.compile(
    r"v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[-_.]?(?P<pre>alpha|a|beta|b|preview|pre|c|rc)[-_.]?(?P<pre_number>\d*))?"
    r"(?:-(?P<post_bare>\d+)|[-_.]?(?P<post>post|rev|r)[-_.]?(?P<post_number>\d*))?"
    r"(?:[-_.]?(?P<dev>dev)[-_.]?(?P<dev_number>\d*))?"
    r"(?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?",
    re.IGNORECASE,
)
_PRE = {"alpha": "a", "a": "a", "beta": "b", "b": "b", "preview": "rc", "pre": "rc", "c": "rc", "rc": "rc"}
_SPECIFIER = re.compile(r"\s*(===|==|~=|!=|<=|>=|<|>)\s*([^\s,]+)\s*")
_NAME = re.compile(r"\s*([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:\[([^\]]*)\])?\s*")
_MARKER_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'[^']*'|"[^"]*")|(?P<op>===|==|~=|!=|<=|>=|<|>|not\s+in\b|in\b)"""
    r"""|(?P<word>and\b|or\b|[()])|(?P<name>[a-z_.]+))""",
    re.IGNORECASE,
)


class RequirementError(ValueError):
    """The text is no version, specifier or requirement."""


@dataclass(frozen=True)
class Version:
    """A version as PEP 440 orders them. pre: letter and number; local: compared last."""

    epoch: int
    release: Tuple[int, ...]
    pre: Optional[Tuple[str, int]]
    post: Optional[int]
    dev: Optional[int]
    local: Tuple[Tuple[int, Any], ...]

    @classmethod
    def parse(cls, text: str) -> "Version":
        """Raises RequirementError for what is no version."""
        match = _VERSION.fullmatch(text.strip())
        if match is None:
            raise RequirementError(f"{text!r} is no version")
        post = match["post_bare"] or (match["post_number"] or "0" if match["post"] else None)
        return cls(
            epoch=int(match["epoch"] or 0),
            release=tuple(int(part) for part in match["release"].split(".")),
            pre=(_PRE[match["pre"].lower()], int(match["pre_number"] or 0)) if match["pre"] else None,
            post=int(post) if post is not None else None,
            dev=int(match["dev_number"] or 0) if match["dev"] else None,
            local=tuple(_local(part) for part in re.split(r"[-_.]", (match["local"] or "").lower()) if part),
        )

    @property
    def key(self) -> Tuple[Any, ...]:
        """Ordered as the versions are: a development release first, then pre-releases, then the release."""
        before_all = self.pre is None and self.post is None and self.dev is not None
        pre = (-1, "", 0) if before_all else (0, *self.pre) if self.pre else (1, "", 0)
        dev = (0, self.dev) if self.dev is not None else (1, 0)
        post = -1 if self.post is None else self.post
        return (self.epoch, self.trimmed, pre, post, dev, self.local)

    @property
    def public(self) -> Tuple[Any, ...]:
        """The key without the local part."""
        return self.key[:-1]

    @property
    def trimmed(self) -> Tuple[int, ...]:
        """The release without the zeros at its end, which don't count."""
        release = self.release
        while len(release) > 1 and release[-1] == 0:
            release = release[:-1]
        return release

    @property
    def prerelease(self) -> bool:
        """Whether it comes before its own release."""
        return self.pre is not None or self.dev is not None

    def within(self, prefix: Tuple[int, ...], epoch: int) -> bool:
        """Whether the release begins with these numbers."""
        padded = self.release + (0,) * (len(prefix) - len(self.release))
        return self.epoch == epoch and padded[: len(prefix)] == prefix


def _local(part: str) -> Tuple[int, Any]:
    """Numbers come after words."""
    return (1, int(part)) if part.isdigit() else (0, part)


def fits(version: str, specifiers: str) -> bool:
    """Whether a version meets every specifier of a list such as `<2.0,>=1.26`; an empty list takes all.

    Raises RequirementError.
    """
    return all(_fits(version, *_specifier(one)) for one in specifiers.split(",") if one.strip())


def _specifier(text: str) -> Tuple[str, str]:
    match = _SPECIFIER.fullmatch(text)
    if match is None:
        raise RequirementError(f"{text!r} is no version specifier")
    return match[1], match[2]


def _fits(text: str, operator: str, wanted: str) -> bool:
    if operator == "===":
        return text.strip().lower() == wanted.lower()
    version = Version.parse(text)
    if operator in ("==", "!=") and wanted.endswith(".*"):
        prefix = Version.parse(wanted[:-2])
        return version.within(prefix.release, prefix.epoch) == (operator == "==")
    bound = Version.parse(wanted)
    if operator == "~=":
        return version.public >= bound.public and version.within(bound.release[:-1], bound.epoch)
    if operator in ("==", "!="):
        equal = version.key == bound.key if bound.local else version.public == bound.public
        return equal == (operator == "==")
    if operator in ("<=", ">="):
        return version.public <= bound.public if operator == "<=" else version.public >= bound.public
    if operator == "<":
        # A pre-release of the bound is not meant by "older than the bound".
        return version.public < (bound if bound.prerelease else replace(bound, dev=0)).public
    # Nor a post-release or a local build of the bound by "newer than the bound".
    if bound.dev is not None:
        return version.public >= replace(bound, dev=bound.dev + 1).public
    if bound.post is not None:
        return version.public >= replace(bound, post=bound.post + 1, dev=0).public
    family = (bound.epoch, bound.trimmed, bound.pre)
    return version.key > bound.key and (version.epoch, version.trimmed, version.pre) != family


@dataclass(frozen=True)
class Requirement:
    """One line of metadata. specifiers: `<2.0,>=1.26`, empty for any version. marker: empty without one."""

    name: str
    specifiers: str
    marker: str

    @classmethod
    def parse(cls, text: str) -> "Requirement":
        """Raises RequirementError."""
        head, _, marker = text.partition(";")
        match = _NAME.match(head)
        if match is None:
            raise RequirementError(f"{text!r} is no requirement")
        rest = head[match.end() :].strip()
        if rest.startswith("@"):
            rest = ""
        if rest.startswith("(") and rest.endswith(")"):
            rest = rest[1:-1]
        specifiers = [_specifier(one) for one in rest.split(",") if one.strip()]
        return cls(
            match[1], ",".join(f"{operator}{version}" for operator, version in specifiers), marker.strip()
        )

    def applies(self, environment: Dict[str, str]) -> bool:
        """Whether its marker is true; see `markers`. Raises RequirementError."""
        return not self.marker or _Marker(self.marker, environment).value()


def markers() -> Dict[str, str]:
    """The marker variables of this interpreter, without any extra."""
    return {
        "extra": "",
        "implementation_name": sys.implementation.name,
        "implementation_version": platform.python_version(),
        "os_name": os.name,
        "platform_machine": platform.machine(),
        "platform_python_implementation": platform.python_implementation(),
        "platform_release": platform.release(),
        "platform_system": platform.system(),
        "platform_version": platform.version(),
        "python_full_version": platform.python_version(),
        "python_version": ".".join(platform.python_version_tuple()[:2]),
        "sys_platform": sys.platform,
    }


class _Marker:
    """Evaluates a marker from left to right; `and` binds closer than `or`."""

    def __init__(self, text: str, environment: Dict[str, str]) -> None:
        self._text, self._environment = text, environment
        self._tokens: List[Tuple[str, str]] = []
        position = 0
        while text[position:].strip():
            match = _MARKER_TOKEN.match(text, position)
            if match is None:
                raise RequirementError(f"{text!r} is no marker")
            self._tokens.append((str(match.lastgroup), match[0].strip()))
            position = match.end()

    def value(self) -> bool:
        found = self._either()
        if self._tokens:
            raise RequirementError(f"{self._text!r} is no marker")
        return found

    def _either(self) -> bool:
        found = self._both()
        while self._taken("or"):
            found = self._both() or found
        return found

    def _both(self) -> bool:
        found = self._one()
        while self._taken("and"):
            found = self._one() and found
        return found

    def _one(self) -> bool:
        if self._taken("("):
            found = self._either()
            if not self._taken(")"):
                raise RequirementError(f"{self._text!r} is no marker")
            return found
        left, operator, right = self._operand(), self._next("op"), self._operand()
        return _compare(left, re.sub(r"\s+", " ", operator.lower()), right)

    def _taken(self, word: str) -> bool:
        if self._tokens and self._tokens[0][0] == "word" and self._tokens[0][1].lower() == word:
            self._tokens.pop(0)
            return True
        return False

    def _next(self, *kinds: str) -> str:
        if not self._tokens or self._tokens[0][0] not in kinds:
            raise RequirementError(f"{self._text!r} is no marker")
        return self._tokens.pop(0)[1]

    def _operand(self) -> str:
        text = self._next("text", "name")
        if text[0] in "'\"":
            return text[1:-1]
        if text not in self._environment:
            raise RequirementError(f"{text!r} is no marker variable")
        return self._environment[text]


def _compare(left: str, operator: str, right: str) -> bool:
    if operator in ("in", "not in"):
        return (left in right) == (operator == "in")
    try:
        return _fits(left, operator, right)
    except RequirementError:
        pass
    if operator in ("==", "!="):
        return (left == right) == (operator == "==")
    comparisons = {"<": left < right, ">": left > right, "<=": left <= right, ">=": left >= right}
    if operator not in comparisons:
        raise RequirementError(f"{left!r} and {right!r} can't be compared by {operator}")
    return comparisons[operator]
