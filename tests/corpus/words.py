"""Learn the words of each cause, for `validator.diagnosis.likeness`.

    python -m tests.corpus.words           writes validator/diagnosis/data/likeness.txt
    python -m tests.corpus.words --check   fails if that file is not current

The texts are those of the catalogue, the corpus without the entries that the rules miss, and posts.yaml.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping

import yaml

from validator.conditions import Comparison
from validator.diagnosis import compile, likeness
from validator.diagnosis.catalogue import SAID, causes
from validator.diagnosis.likeness import Table

from . import reader

#: A message in the signs of more causes than this describes none of them.
_SHARED_BY = 3
#: The most characters to learn from one text of the corpus.
_LONGEST = 4000


def posts() -> Mapping[str, list[str]]:
    """Return posts in words that no rule knows, by cause; `none` has those without a fault."""
    found: Mapping[str, list[str]] = yaml.safe_load((reader.HERE / "posts.yaml").read_text(encoding="utf-8"))
    return found


def of_the_catalogue() -> Iterator[tuple[str, str]]:
    """Yield what the catalogue says of each cause: its meaning, signs, remedies and examples."""
    shown_by: defaultdict[str, set[str]] = defaultdict(set)
    for cause in causes():
        yield cause.code, f"{cause.title} {cause.means}"
        for sign in cause.signs:
            if sign.title:
                yield cause.code, sign.title
            for one in sign.when.comparisons():
                if isinstance(one, Comparison):
                    shown_by[one.kind].add(cause.code)
        yield cause.code, " ".join(remedy.says for remedy in cause.remedies)
    for _, row in compile.messages():
        said = (row.get("values") or {}).get("of")
        codes = {said} if row["kind"] == SAID and said else shown_by[row["kind"]]
        if len(codes) <= _SHARED_BY:
            for code in sorted(codes):
                yield code, " ".join(row["examples"])


def of_the_corpus() -> Iterator[tuple[str, str]]:
    """Yield people's texts whose cause is known, except those that the rules miss."""
    for entry in reader.entries("told", "pasted", "written"):
        if entry.cause and entry.miss is None and entry.cause != reader.UNKNOWN:
            code = likeness.NONE if entry.cause == reader.BENIGN else entry.cause
            yield code, entry.content().decode(errors="replace")[:_LONGEST]


def content() -> bytes:
    """Return the content of the file."""
    written = [(code, post) for code, texts in posts().items() for post in texts]
    return likeness.train([*of_the_catalogue(), *of_the_corpus(), *written])


def main() -> int:
    """Write the file. With `--check`, write nothing, and return 1 if it is not current."""
    made = content()
    if "--check" in sys.argv[1:]:
        # Compare the content, because versions of zlib compress it to different bytes.
        if not likeness.PATH.exists() or Table.read(likeness.PATH.read_bytes()) != Table.read(made):
            print(f"{likeness.PATH.name} is not current: run scripts/compile-data", file=sys.stderr)
            return 1
        return 0
    likeness.PATH.write_bytes(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
