"""Name the cause whose descriptions a person's prose resembles most, if no rule recognizes a cause.

Rules know phrases; people use many more. So this module keeps a direction for each cause, as in Rocchio's
classifier: the mean of the texts that describe it (the catalogue, the corpus, and posts that were written for
this purpose), less the mean over all causes. Texts are TF-IDF weights of words, pairs of words and parts of
words, and a text is compared with each direction. `scripts/compile-data` writes the file, which is all that
is read at run time.
"""

from __future__ import annotations

import base64
import functools
import json
import math
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .catalogue import DATA, causes

PATH = DATA / "likeness.txt"
#: Stands for the code of a cause in texts that describe no fault.
NONE = "none"
#: How many numbers features have. The number is a hash, so different features may share one.
_SIZE = 8192
#: The most characters of a text to read.
_LONGEST = 6000
#: The fewest words of prose to compare.
FEWEST_WORDS = 25
#: How far the score of the first cause has to be above that of the second one. Of the posts in
#: tests/corpus/posts.yaml that reach it without having been learned, nine of ten get the right cause.
MARGIN = 0.08
#: How numbers become bytes: the steps per unit of an IDF weight, and the largest value in a row.
_IDF_STEPS = 24
_LEVELS = 127
_WORD = re.compile(r"[a-z0-9][a-z0-9_+'.-]*[a-z0-9+]|[a-z0-9]|[^\W\d_a-z]+", re.IGNORECASE)
#: Chinese, Japanese and Korean characters begin here. Chinese and Japanese have no spaces between words.
_WITHOUT_SPACES = "\u2e80"
_LETTERS = re.compile(r"[^\W\d_]{2,}")
#: A line of prose has at least this many words, and they make up at least this share of its characters.
_LINE_WORDS, _LINE_SHARE = 4, 0.55
_COMMON_WORDS = (
    "the a an to of and in is it that i my on with for this but as at by be are was were have has had not"
    " no or from so if me you we they he she do does did can could would will just there here what which when"
    " then than up out all any"
)
_COMMON = frozenset(_COMMON_WORDS.split())


@dataclass(frozen=True)
class Likeness:
    """The cause that a text resembles most. margin: how much higher it scores than the next cause.

    words: those of the text that contribute most to the score.
    """

    code: str
    margin: float
    words: tuple[str, ...]


def words_of(text: str) -> list[str]:
    """Return the words that are compared, in lower case."""
    return _WORD.findall(text[:_LONGEST].lower())


def prose(lines: Iterable[str]) -> str:
    """Return the lines in a person's own words: no tables, logs, commands or fields of a form."""
    kept: list[str] = []
    length = 0
    for line in lines:
        if length >= _LONGEST:
            break
        line = line[:_LONGEST]
        words = _LETTERS.findall(line)
        enough = len(words) >= _LINE_WORDS or any(word[0] >= _WITHOUT_SPACES for word in words)
        if enough and "|" not in line and sum(map(len, words)) >= _LINE_SHARE * len(line):
            kept.append(line)
            length += len(line)
    return "\n".join(kept)


def _length(words: Iterable[str]) -> int:
    """Return the number of words. From `_WITHOUT_SPACES` on, two characters count as a word."""
    return sum(len(word) // 2 if word[0] >= _WITHOUT_SPACES else 1 for word in words)


def _parts(word: str) -> list[str]:
    """Return the parts of a word: four characters each, where `^` and `$` mark its ends.

    From `_WITHOUT_SPACES` on, parts have one or two characters.
    """
    if word[0] >= _WITHOUT_SPACES:
        return [word[i : i + size] for size in (1, 2) for i in range(len(word) - size + 1)]
    return [f"^{word}$"[i : i + 4] for i in range(len(word) - 1)]


def _features(words: Sequence[str]) -> tuple[Counter[int], Mapping[int, list[str]]]:
    """Return how often each feature occurs, and the words that each one comes from."""
    counts: Counter[int] = Counter()
    sources: defaultdict[int, list[str]] = defaultdict(list)
    before = ""
    for word in words:
        names = [f"part {part}" for part in _parts(word)]
        if word not in _COMMON:
            names.append(f"word {word}")
        if before:
            names.append(f"pair {before} {word}")
        before = word
        for name in names:
            number = zlib.crc32(name.encode("utf-8", "surrogatepass")) % _SIZE
            counts[number] += 1
            sources[number].append(word)
    return counts, sources


def _weighted(counts: Mapping[int, int], idf: Sequence[float]) -> dict[int, float]:
    """Return the weights of a text's features, as a vector of length 1."""
    weights = {number: (1 + math.log(count)) * idf[number] for number, count in counts.items()}
    length = math.sqrt(sum(weight * weight for weight in weights.values())) or 1.0
    return {number: weight / length for number, weight in weights.items()}


def train(texts: Iterable[tuple[str, str]]) -> bytes:
    """Return the file's content. texts: pairs of a cause's code, or NONE, and a text that describes it."""
    counted = [(code, _features(words_of(text))[0]) for code, text in texts]
    documents = Counter(number for _, counts in counted for number in counts)
    exact = [math.log((1 + len(counted)) / (1 + documents[number])) + 1 for number in range(_SIZE)]
    kept = bytes(min(255, round(value * _IDF_STEPS)) for value in exact)
    idf = [value / _IDF_STEPS for value in kept]
    codes = sorted({code for code, _ in counted})
    means = {code: [0.0] * _SIZE for code in codes}
    sizes = Counter(code for code, _ in counted)
    for code, counts in counted:
        for number, weight in _weighted(counts, idf).items():
            means[code][number] += weight / sizes[code]
    middle = [sum(column) / len(codes) for column in zip(*means.values(), strict=True)]
    rows = []
    for code in codes:
        # What all causes have in common does not distinguish them.
        direction = [value - common for value, common in zip(means[code], middle, strict=True)]
        length = math.sqrt(sum(value * value for value in direction)) or 1.0
        rows.append([value / length for value in direction])
    largest = [max(map(abs, row)) or 1.0 for row in rows]
    # The values of one feature for all causes are next to each other.
    matrix = bytes(
        round(row[number] / scale * _LEVELS) & 0xFF
        for number in range(_SIZE)
        for row, scale in zip(rows, largest, strict=True)
    )
    head = json.dumps({"codes": codes, "scales": [round(scale / _LEVELS, 9) for scale in largest]})
    # As text, because the page has the files that it reads in one JSON file.
    return base64.b85encode(zlib.compress(head.encode() + b"\n" + kept + matrix, 9)) + b"\n"


@dataclass(frozen=True)
class Table:
    """What was learned. scales: a factor for each cause. rows: a signed byte for each feature and cause."""

    codes: tuple[str, ...]
    scales: tuple[float, ...]
    idf: tuple[float, ...]
    rows: memoryview

    @classmethod
    def read(cls, data: bytes) -> Table:
        """Return the table of a file that `train` made."""
        head, _, rest = zlib.decompress(base64.b85decode(data.strip())).partition(b"\n")
        known = json.loads(head)
        idf = tuple(value / _IDF_STEPS for value in rest[:_SIZE])
        return cls(tuple(known["codes"]), tuple(known["scales"]), idf, memoryview(rest)[_SIZE:].cast("b"))

    def most_like(self, text: str) -> Likeness | None:
        """Return the cause that a text resembles most; None for a text with too little prose."""
        words = words_of(prose(text.splitlines()))
        if _length(words) < FEWEST_WORDS:
            return None
        counts, sources = _features(words)
        weights = _weighted(counts, self.idf)
        many = len(self.codes)
        scores = [0.0] * many
        for number, weight in weights.items():
            row = self.rows[number * many : (number + 1) * many]
            for position, value in enumerate(row):
                if value:
                    scores[position] += weight * value
        scores = [score * scale for score, scale in zip(scores, self.scales, strict=True)]
        first, second = sorted(range(many), key=scores.__getitem__)[-1:-3:-1]
        spoken: defaultdict[str, float] = defaultdict(float)
        for number, weight in weights.items():
            for word in dict.fromkeys(sources[number]):
                if word in _known_words() and word not in _COMMON:
                    spoken[word] += weight * self.rows[number * many + first]
        top = tuple(sorted(spoken, key=spoken.__getitem__, reverse=True)[:6])
        return Likeness(self.codes[first], scores[first] - scores[second], top)


@functools.cache
def content() -> bytes:
    """Return the file that comes with this tool. The page keeps it in memory, because it has no files."""
    return PATH.read_bytes()


@functools.cache
def table() -> Table:
    """Return the table that comes with this tool."""
    return Table.read(content())


@functools.cache
def _known_words() -> frozenset[str]:
    """Return the words of the catalogue. Others may be secrets or names, and are never shown."""
    texts = (
        text for cause in causes() for text in (cause.title, cause.means, *(r.says for r in cause.remedies))
    )
    return frozenset(word for text in texts for word in words_of(text))
