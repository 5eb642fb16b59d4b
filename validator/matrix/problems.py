"""The problems of a matrix file, each with its position, and the wording that messages share."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..errors import InputError
from ..resources import manual

#: A message lists at most this many problems, because a file of another kind would fill the screen.
MAX_SHOWN = 100

#: Text from the file is cut at this many characters when a message repeats it.
MAX_QUOTED = 60

#: What to do next, where nothing more exact can be said.
HINT = f"nothing was changed; {manual('reference/matrix.md')} describes the file and has an example"


@dataclass(frozen=True, order=True)
class Problem:
    """One thing that is wrong.

    line, column: counted from 1, in characters; 0 if the problem concerns the file as a whole.
    path: the path of the value (`images[2].cudnn`), empty for the document itself.
    """

    line: int
    column: int
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class MatrixError(InputError):
    """A matrix file that can't be used, with every problem found in it, in the order of the file."""

    def __init__(self, file: str, problems: Iterable[Problem], *, hint: str = HINT) -> None:
        self.file = file
        self.problems: tuple[Problem, ...] = tuple(sorted(set(problems)))
        lines = []
        for problem in self.problems[:MAX_SHOWN]:
            where = f"{file}:{problem.line}:{problem.column}" if problem.line else file
            lines.append(f"{where}: {problem}")
        if len(self.problems) > MAX_SHOWN:
            lines.append(f"{file}: and {len(self.problems) - MAX_SHOWN} more problems")
        super().__init__("\n".join(lines), hint=hint)


def quote(text: str) -> str:
    """Return the text in double quotes, cut when long, without characters that control a terminal."""
    shown = text if len(text) <= MAX_QUOTED else text[:MAX_QUOTED] + "…"
    chars = (char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in shown)
    return f'"{"".join(chars)}"'


#: What a line of a requirements file or of a lock may begin with: an option, a path, an address, or a name
#: and what follows a name.
_OF_REQUIREMENTS = re.compile(
    r"--?[a-z][a-z-]*|[./~][\w./+~-]*\Z|(?:(?:git|hg|svn|bzr)\+)?(?:[a-z]+://|file:)[^\s]*\Z"
    r"|[A-Za-z0-9][\w.+-]* ?(?:\[[^]]*\] ?)?(?:\Z|[=<>!~]=|[<>;@(])"
)


def quote_line(text: str) -> str:
    """Return a line of a requirements file or of a lock in double quotes, if it looks like one.

    The file may be one with secrets that a matrix names by mistake or on purpose. So of an option, only its
    name is shown, and of an address, not the part before `@`.
    """
    found = _OF_REQUIREMENTS.match(text)
    if found is None:
        return "the line"
    return quote(found[0] if text.startswith("-") else without_user(text))


def without_user(text: str) -> str:
    """Return a text without the user and the password of an address in it."""
    return re.sub(r"(//)[^/@\s]*@", r"\1", text)


def join_words(words: Sequence[str]) -> str:
    """Return `a`, `a and b`, or `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def unknown_name(name: str, known: Iterable[str], what: str = "") -> str:
    """Return the sentence for an unknown name, with the nearest. what: such as `the profile`, before it."""
    choices = list(known)
    subject = f"{what} {quote(name)}" if what else quote(name)
    near = difflib.get_close_matches(name, choices, n=3, cutoff=0.5)
    if not near:
        return f"{subject} is not known; choose from {join_words(choices)}"
    return f"{subject} is not known; the nearest {'is' if len(near) == 1 else 'are'} {join_words(near)}"
