"""Collects what is wrong with a file, each with the position of its value."""

from __future__ import annotations

from dataclasses import dataclass, field

from .nodes import Node, Path, locate, show
from .problems import MatrixError, Problem

#: Reading ends when this many problems are found: more are not read by anyone, and each costs time.
MAX_PROBLEMS = 1000


@dataclass
class Findings:
    """The problems found so far in the document under `root`."""

    file: str
    root: Node
    problems: list[Problem] = field(default_factory=list)
    sealed: frozenset[str] = frozenset()

    def add(self, path: Path, message: str, *, at_key: bool = False) -> None:
        """Note a problem at the value of a path, or at its key.

        A single value in place of a list stands at its own place: `images[2].cudnn`, not `…cudnn[0]`.
        Raises MatrixError when there are too many.
        """
        node, known = locate(self.root, path, key=at_key)
        if show(known) in self.sealed:
            return
        self.problems.append(Problem(node.line, node.column, show(known), message))
        if len(self.problems) >= MAX_PROBLEMS:
            self.raise_if_any()

    def seal(self) -> None:
        """Take no second problem with a value that has one: a value of a wrong type has no meaning."""
        self.sealed = frozenset(problem.path for problem in self.problems)

    def line(self, path: Path) -> int:
        """The line where the value of a path begins."""
        return locate(self.root, path)[0].line

    def raise_if_any(self) -> None:
        """Raises MatrixError when there is a problem."""
        if self.problems:
            raise MatrixError(self.file, self.problems)
