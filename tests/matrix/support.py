"""Small matrix files to break and to expand."""

from __future__ import annotations

from pathlib import Path

from validator.matrix.document import MatrixError
from validator.matrix.load import Matrix, parse_matrix

#: The matrix of this repository.
FILE = Path(__file__).parents[2] / "matrix.yaml"

GOOD = """\
images:
  - tensorflow: "2.21.0"
    python: ["3.12"]
hosts:
  - driver: "535"
    gpu: h100
profiles:
  quick:
    select: [tensorflow=newest]
"""


def problems(text: str | bytes) -> list[str]:
    """Return the problems that loading reports, one per line; empty for a good file."""
    content = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    try:
        parse_matrix(content, "m.yaml")
    except MatrixError as error:
        return str(error).splitlines()
    return []


def changed(old: str, new: str, text: str = GOOD) -> str:
    """Return GOOD with one piece replaced, which must be there."""
    assert old in text
    return text.replace(old, new)


def image(lines: str) -> str:
    """Return GOOD with other keys in its only image entry."""
    return changed('  - tensorflow: "2.21.0"\n    python: ["3.12"]\n', lines)


def host(lines: str) -> str:
    """Return GOOD with other keys in its only host entry."""
    return changed('  - driver: "535"\n    gpu: h100\n', lines)


def matrix(
    images: str, hosts: str = '  - {driver: ["535", "580"], gpu: [a100, h100]}', rest: str = ""
) -> Matrix:
    """Return a matrix of these image and host entries, with a machine without GPU and a profile `all`."""
    text = (
        f"images:\n{images}\nhosts:\n{hosts}\n  - gpu: none\nprofiles:\n  all: {{description: All.}}\n{rest}"
    )
    return parse_matrix(text.encode())
