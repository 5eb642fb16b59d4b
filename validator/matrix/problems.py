"""What is wrong with a matrix file, and where."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..errors import InputError

#: A message lists at most this many problems; a file of another kind altogether would fill the screen.
MAX_SHOWN = 100

#: Text from the file is cut at this many characters when a message repeats it.
MAX_QUOTED = 60

#: What to do next, where nothing more exact can be said.
HINT = "nothing was touched; docs/reference/matrix.md describes the file and has one to start from"


@dataclass(frozen=True, order=True)
class Problem:
    """One thing that is wrong.

    line, column: counted from 1, in characters; 0 where the problem is with the file as a whole.
    path: the way to the value (`images[2].cudnn`), empty for the document itself.
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
        lines = [self._line(problem) for problem in self.problems[:MAX_SHOWN]]
        if len(self.problems) > MAX_SHOWN:
            lines.append(f"{file}: and {len(self.problems) - MAX_SHOWN} more problems")
        super().__init__("\n".join(lines), hint=hint)

    def _line(self, problem: Problem) -> str:
        where = f"{self.file}:{problem.line}:{problem.column}" if problem.line else self.file
        return f"{where}: {problem}"


def quote(text: str) -> str:
    """The text in double quotes, cut when long, with nothing in it that a terminal would act on."""
    shown = text if len(text) <= MAX_QUOTED else text[:MAX_QUOTED] + "…"
    return '"' + "".join(char if char.isprintable() else _escape(char) for char in shown) + '"'


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def one_of(words: Sequence[str]) -> str:
    """`a`, `a and b`, or `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def not_known(text: str, known: Iterable[str], what: str = "") -> str:
    """`"9.99" is not known; the nearest are …`: the sentence for a word that is none of the known ones.

    what: put before the word, such as `profile`.
    """
    choices = list(known)
    near = difflib.get_close_matches(text, choices, n=3, cutoff=0.5)
    subject = f"{what} {quote(text)}" if what else quote(text)
    return f"{subject} is not known; {nearest(near) if near else 'known are ' + one_of(choices)}"


def nearest(words: Sequence[str]) -> str:
    """`the nearest is a`, or `the nearest are a and b`."""
    return f"the nearest {'is' if len(words) == 1 else 'are'} {one_of(words)}"
