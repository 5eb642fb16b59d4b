"""Learn the words of each cause, for `validator.diagnosis.likeness`.

    python -m tests.corpus.words           writes validator/diagnosis/data/likeness.txt
    python -m tests.corpus.words --check   fails if that file was learned from other texts

The texts: posts.yaml, tests/diagnosis/ways_of_saying.yaml, and the corpus without the entries that the rules
miss.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import yaml

from validator.diagnosis import likeness
from validator.diagnosis.likeness import IDF_STEPS, SIZE, Table, features, prose, weighted, words_of

from . import reader

_WAYS = reader.HERE.parent / "diagnosis/ways_of_saying.yaml"
#: The most characters to learn from one text of the corpus.
_LONGEST = 4000
#: The inverse regularization strength, and the share of weights, the smallest, that become 0.
_C, _PRUNED = 100.0, 0.5
#: The largest weight in a byte.
_LEVELS = 127


def posts() -> Mapping[str, list[str]]:
    """Return posts in words that no rule knows, by cause; `none` has those without a fault."""
    found: Mapping[str, list[str]] = yaml.safe_load((reader.HERE / "posts.yaml").read_text(encoding="utf-8"))
    return found


def of_the_corpus() -> Iterator[tuple[str, str]]:
    """Yield people's texts whose cause is known, except those that the rules miss."""
    for entry in reader.entries("told", "pasted", "written"):
        if entry.cause and entry.miss is None and entry.cause != reader.UNKNOWN:
            code = likeness.NONE if entry.cause == reader.BENIGN else entry.cause
            yield code, entry.content().decode(errors="replace")[:_LONGEST]


def texts() -> list[tuple[str, str]]:
    """Return the prose of all texts with the codes of their causes, or `none`, in a constant order."""
    ways = yaml.safe_load(_WAYS.read_text(encoding="utf-8"))
    sources = posts(), ways["named"], {likeness.NONE: ways["ruled_out"]["every_cause"]}
    written = [(code, post) for source in sources for code, several in source.items() for post in several]
    return [(code, prose(text.splitlines()) or text) for code, text in (*of_the_corpus(), *written)]


def digest(pairs: Iterable[tuple[str, str]]) -> str:
    """Return the SHA-256 of what a table is learned from."""
    return hashlib.sha256(json.dumps([_C, _PRUNED, SIZE, *pairs]).encode()).hexdigest()


def train(pairs: list[tuple[str, str]]) -> Table:
    """Learn a table from texts and the codes of their causes, or `none`. It takes about half a minute."""
    import numpy as np
    from scipy.sparse import csr_matrix
    from sklearn.linear_model import LogisticRegression

    counted = [features(words_of(text))[0] for _, text in pairs]
    documents = Counter(number for counts in counted for number in counts)
    exact = [math.log((1 + len(counted)) / (1 + documents[number])) + 1 for number in range(SIZE)]
    idf = tuple(min(255, round(value * IDF_STEPS)) / IDF_STEPS for value in exact)
    rows = [weighted(counts, idf) for counts in counted]
    values = [value for row in rows for value in row.values()]
    numbers = [number for row in rows for number in row]
    starts = np.cumsum([0, *map(len, rows)])
    matrix = csr_matrix((values, numbers, starts), shape=(len(rows), SIZE))
    model = LogisticRegression(C=_C, class_weight="balanced", max_iter=300)
    model.fit(matrix, [code for code, _ in pairs])
    weights = model.coef_
    weights[np.abs(weights) < np.quantile(np.abs(weights), _PRUNED)] = 0
    scale = float(np.abs(weights).max()) / _LEVELS
    # The weights of one feature for all causes are next to each other.
    steps = np.ascontiguousarray(np.round(weights / scale).astype(np.int8).T)
    packed = memoryview(steps.tobytes()).cast("b")
    biases = tuple(round(float(bias), 4) for bias in model.intercept_)
    return Table(digest(pairs), tuple(map(str, model.classes_)), scale, biases, idf, packed)


def main() -> int:
    """Write the file. With `--check`, write nothing, and return 1 if it is not current."""
    pairs = texts()
    current = likeness.PATH.exists() and likeness.table().learned_from == digest(pairs)
    if "--check" in sys.argv[1:]:
        if not current:
            print(f"{likeness.PATH.name} is not current: run scripts/compile-data", file=sys.stderr)
        return 0 if current else 1
    if not current:
        likeness.PATH.write_bytes(train(pairs).write())
    return 0


if __name__ == "__main__":
    sys.exit(main())
