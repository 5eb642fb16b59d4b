"""Name the cause whose descriptions a person's prose resembles most, where rules are silent or only guess.

Rules know phrases; people use many more. So this module has a linear model: a weight for each feature and
cause, learned by multinomial logistic regression from texts whose cause is known: the corpus, and posts that
were written for this purpose. Features are TF-IDF weights of words, pairs of words and parts of words.
`scripts/compile-data` learns the weights and writes the file, which is all that is read at run time.
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
SIZE = 8192
#: The most characters of a text to read.
_LONGEST = 6000
#: The fewest words of prose to compare.
FEWEST_WORDS = 25
#: How likely the first cause has to be. Of the posts in tests/corpus/posts.yaml that reach it without having
#: been learned, nine of ten get the right cause.
LIKELY = 0.25
#: The same if nothing is wrong: higher, because polite complaints look like that.
FINE = 0.4
#: How many steps an IDF weight has per unit, because the file has a byte for each.
IDF_STEPS = 24
_WORD = re.compile(r"[a-z0-9][a-z0-9_+'.-]*[a-z0-9+]|[a-z0-9]|[^\W\d_a-z]+", re.IGNORECASE)
#: Chinese, Japanese and Korean characters begin here. Chinese and Japanese have no spaces between words.
_WITHOUT_SPACES = "\u2e80"
_LETTERS = re.compile(r"[^\W\d_]{2,}")
#: A line of prose has at least this many words, and they make up at least this share of its characters.
_LINE_WORDS, _LINE_SHARE = 4, 0.55
#: What occurs only in lines that a program printed.
_PRINTED = re.compile(
    r"\.(?:cc|cpp|go|py):\d+\]|^\W*(?:\[?\d{4}-\d\d-\d\d[ T]\d\d:|[$>]{1,3} |File \"|In \[\d)"
    r"|^(?:Traceback|To enable the following instructions)|^\s+(?:return|raise|\w+ =) "
    r"|^[\w.]+(?:Error|Exception): "
)
_COMMON_WORDS = (
    "the a an to of and in is it that i my on with for this but as at by be are was were have has had not"
    " no or from so if me you we they he she do does did can could would will just there here what which when"
    " then than up out all any"
)
_COMMON = frozenset(_COMMON_WORDS.split())


@dataclass(frozen=True)
class Likeness:
    """The cause that a text resembles most. likelihood: from 0 to 1, as the model sees it.

    words: those of the text that contribute most to the score.
    """

    code: str
    likelihood: float
    words: tuple[str, ...]

    @property
    def is_clear(self) -> bool:
        """Return whether it is likely enough to be said."""
        return self.likelihood >= (FINE if self.code == NONE else LIKELY)


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
        if (
            enough
            and "|" not in line
            and not _PRINTED.search(line)
            and sum(map(len, words)) >= _LINE_SHARE * len(line)
        ):
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


def features(words: Sequence[str]) -> tuple[Counter[int], Mapping[int, list[str]]]:
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
            number = zlib.crc32(name.encode("utf-8", "surrogatepass")) % SIZE
            counts[number] += 1
            sources[number].append(word)
    return counts, sources


def weighted(counts: Mapping[int, int], idf: Sequence[float]) -> dict[int, float]:
    """Return the weights of a text's features, as a vector of length 1."""
    weights = {number: (1 + math.log(count)) * idf[number] for number, count in counts.items()}
    length = math.sqrt(sum(weight * weight for weight in weights.values())) or 1.0
    return {number: weight / length for number, weight in weights.items()}


@dataclass(frozen=True)
class Table:
    """What was learned.

    learned_from: the SHA-256 of the texts. scale: the value of one step of a weight. biases: the score of
    each cause without any feature. weights: a signed byte for each feature and cause.
    """

    learned_from: str
    codes: tuple[str, ...]
    scale: float
    biases: tuple[float, ...]
    idf: tuple[float, ...]
    weights: memoryview

    @classmethod
    def read(cls, data: bytes) -> Table:
        """Return the table of a file that `write` made."""
        head, _, rest = zlib.decompress(base64.b64decode(data)).partition(b"\n")
        known = json.loads(head)
        idf = tuple(value / IDF_STEPS for value in rest[:SIZE])
        weights = memoryview(rest)[SIZE:].cast("b")
        return cls(
            known["learned_from"], tuple(known["codes"]), known["scale"], tuple(known["biases"]), idf, weights
        )

    def write(self) -> bytes:
        """Return the file's content, as text, because the page embeds it in JSON."""
        head = {
            "learned_from": self.learned_from, "codes": self.codes, "scale": self.scale, "biases": self.biases
        }  # fmt: skip
        idf = bytes(round(value * IDF_STEPS) for value in self.idf)
        packed = zlib.compress(json.dumps(head).encode() + b"\n" + idf + self.weights.tobytes(), 9)
        return base64.b64encode(packed) + b"\n"

    def most_like(self, text: str) -> Likeness | None:
        """Return the cause that a text resembles most; None for a text with too little prose."""
        words = words_of(prose(text.splitlines()))
        if _length(words) < FEWEST_WORDS:
            return None
        counts, sources = features(words)
        present = weighted(counts, self.idf)
        many = len(self.codes)
        sums = [0.0] * many
        for number, weight in present.items():
            row = self.weights[number * many : (number + 1) * many]
            for position, value in enumerate(row):
                sums[position] += weight * value
        scores = [total * self.scale + bias for total, bias in zip(sums, self.biases, strict=True)]
        first = max(range(many), key=scores.__getitem__)
        likelihood = 1 / sum(math.exp(score - scores[first]) for score in scores)
        spoken: defaultdict[str, float] = defaultdict(float)
        for number, weight in present.items():
            for word in dict.fromkeys(sources[number]):
                if word in _known_words() and word not in _COMMON:
                    spoken[word] += weight * self.weights[number * many + first]
        top = sorted(spoken, key=spoken.__getitem__, reverse=True)[:6]
        return Likeness(self.codes[first], likelihood, tuple(top))


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
