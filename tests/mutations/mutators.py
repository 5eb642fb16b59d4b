"""Change valid inputs: a document's structure, a file's lines, or any bytes."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import zstandard

#: Values that are JSON, or nearly, as they are written.
_ODD_JSON = (
    "null", "true", "0", "-1", "1e400", "-1e400", "NaN", "Infinity", "-Infinity", "1" + "0" * 400,
    "-1" + "0" * 400, "1" + "0" * 5000, "18446744073709551615", "18446744073709551616",
    "-9223372036854775809", "0.1", "1e-400", "-0", "1E5", "01", "[]", "{}", '""', '"x"', "[[]]",
    '[{"a":1}]', '{"":{}}', "[" * 70 + "]" * 70, "[" * 3000, '{"a":' * 66 + "1" + "}" * 66, '"\\ud800"',
    '"\\udc00\\ud800"', '"\\u0000"', '"\\u2028\\u0085"', '"::error::x"', '"\\n##[error]x"', '"\\u001b[31m"',
    '"' + "x" * 5000 + '"', '"é\u200b\u202e"', "\"'\"", "", ",", '"2999-01-01T00:00:00Z"', '"zzzz"',
    '"../../etc/passwd"', '"sha256:' + "0" * 64 + '"', '"$(id)`id`"', "undefined", '"²"', '"٣"', "9" * 4301,
    '"' + "9" * 4301 + '"', '"2026-11-22T00:00:00"', '"2026-11-22"', '"9999-12-31T23:59:59+23:59"', "1.5",
    '"0001-01-01T00:00:00Z"', '{"a":1,"a":2}', '["a","a"]', '"[["', '"1!2.0"', '"a b"', '"\\n"', '"-1"',
)  # fmt: skip
#: Pieces that mean something in YAML, in logs or in terminals.
_ODD_TEXT = (
    "&a", "*a", "<<: *a", "!!python/object/apply:os.system [id]", "!!binary x", "!!set {a}", "---\n",
    "...\n", "\t", "? ", "- - - -", "|\n", ">\n", "%YAML 9.9\n", "{" * 200, "[" * 200, "0x" + "f" * 300,
    "1" + "0" * 5000, "1_0:0", ".inf", "1e400", "2026-11-31", "~", "on", "=", "'", '"', "\\", "# ", ": ",
    "&#" + "1" * 5000 + ";", "&#x110000;", "&amp;" * 50, "\x1b[31m", "\x1b]0;x", "\x1b]8;;x\x1b\\", "\r",
    "\r\n", "\u2028", "\u0085", "\ufeff", "\x00", "\x0b", '{"log":"', '{"log":"a","b":' + "[" * 500, ">>> ",
    "> " * 50, "```", "::error::", "##[error]", "%s%n", "x" * 5000, "serial " * 400,
    "2026-11-22T00:00:00Z ", "2026-11-22T00:00:00", "2026-11-22", "0001-01-01", "²", "٣", "9" * 4301, "[[",
    "[]", "{}", "null", "true", "1.5", "-1", '""', "[[x]]", "{a: 1}", "{a = 1}", "[1, {a = 2}]", "[" * 3000,
    "1!2.0", "${a:-${b}}", "../..", "/dev/zero", ";", "|", "@", "\ud800", "\ufffd", "é", "\U0001f600",
    "9" * 400, "1.2.3.4.5.6.7.8.9.0",
)  # fmt: skip
_SCALAR = re.compile(r"[^\s:\[\]{},#'\"-][^\n:\[\]{},#]*|'[^'\n]*'|\"[^\"\n]*\"")

Mutator = Callable[[random.Random, bytes], bytes]


def mutate_json(chance: random.Random, data: bytes) -> bytes:
    """Change one to three places of a document; once in four times, its bytes instead."""
    if chance.random() < 0.25:
        return mutate_bytes(chance, data)
    document = json.loads(data)
    raw: dict[str, str] = {}
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        document = _change(chance, document, raw)
    text = json.dumps(document, ensure_ascii=chance.random() < 0.8)
    for mark, written in raw.items():
        text = text.replace(f'"{mark}"', written)
    return text.encode("utf-8", "surrogatepass")


def _change(chance: random.Random, document: Any, raw: dict[str, str]) -> Any:
    places = list(_places(document))
    if not places:
        return _odd(chance, raw)
    container, key = chance.choice(places)
    action = chance.random()
    if action < 0.4:
        container[key] = _odd(chance, raw)
    elif action < 0.5:
        del container[key]
    elif action < 0.6:
        other, from_key = chance.choice(places)
        container[key] = json.loads(json.dumps(other[from_key]))
    elif action < 0.7 and isinstance(container[key], str):
        text = container[key]
        position = chance.randint(0, len(text))
        container[key] = text[:position] + chance.choice(_ODD_TEXT) + text[position:]
    elif action < 0.8:
        container[key] = [container[key]] * chance.choice((1, 2, 50))
    elif isinstance(container, dict):
        # A surplus key, or one that stands twice.
        mark = f"@{len(raw)}@"
        raw[mark] = json.dumps(chance.choice((key, "surplus", "", "\ud800", "::error::", "id", "x" * 300)))
        container[mark] = chance.choice((_odd(chance, raw), container[key]))
    else:
        container.insert(key, _odd(chance, raw))
    return document


def _odd(chance: random.Random, raw: dict[str, str]) -> str:
    mark = f"@{len(raw)}@"
    raw[mark] = chance.choice(_ODD_JSON)
    return mark


def _places(document: Any) -> Any:
    if isinstance(document, dict | list):
        for key in list(document) if isinstance(document, dict) else range(len(document)):
            yield document, key
            yield from _places(document[key])


def mutate_text(chance: random.Random, data: bytes) -> bytes:
    """Change one to three places of a text: its lines, its words, what is between them."""
    if chance.random() < 0.2:
        return mutate_bytes(chance, data)
    text = data.decode("utf-8", "surrogateescape")
    for _ in range(chance.choice((1, 1, 2, 3))):
        text = chance.choice((_line, _word, _insertion))(chance, text)
    return text.encode("utf-8", "surrogatepass" if "\ud800" in text else "surrogateescape")


def _line(chance: random.Random, text: str) -> str:
    lines = text.split("\n")
    one, two = chance.randrange(len(lines)), chance.randrange(len(lines))
    action = chance.randrange(5)
    if action == 0:
        del lines[one]
    elif action == 1:
        lines.insert(two, lines[one])
    elif action == 2:
        lines[one], lines[two] = lines[two], lines[one]
    elif action == 3:
        lines[one] = " " * chance.randint(0, 6) + lines[one].lstrip()
    else:
        lines[one:one] = [lines[one]] * chance.choice((2, 30))
    return "\n".join(lines)


def _word(chance: random.Random, text: str) -> str:
    words = list(_SCALAR.finditer(text))
    if not words:
        return _insertion(chance, text)
    word = chance.choice(words)
    return text[: word.start()] + chance.choice(_ODD_TEXT) + text[word.end() :]


def _insertion(chance: random.Random, text: str) -> str:
    position = chance.randint(0, len(text))
    return text[:position] + chance.choice(_ODD_TEXT) + text[position:]


def mutate_bytes(chance: random.Random, data: bytes) -> bytes:
    """Flip, insert, remove, repeat or cut off bytes."""
    content = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8))):
        start = chance.randint(0, len(content))
        end = min(len(content), start + chance.choice((1, 1, 4, 100)))
        action = chance.randrange(5)
        if action == 0 and start < len(content):
            content[start] ^= 1 << chance.randrange(8)
        elif action == 1:
            content[start:start] = chance.randbytes(chance.choice((1, 4)))
        elif action == 2:
            del content[start:end]
        elif action == 3:
            content[start:start] = content[start:end] * chance.choice((1, 3))
        elif chance.random() < 0.3:
            del content[start:]
    return bytes(content)


def mutate_binary(chance: random.Random, data: bytes) -> bytes:
    """Write odd numbers over the fields of a binary format; once in four times, change any bytes instead."""
    if chance.random() < 0.25:
        return mutate_bytes(chance, data)
    content = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4))):
        width = chance.choice((1, 2, 4, 8))
        highest = (1 << 8 * width) - 1
        odd = chance.choice((0, 1, highest, highest >> 1, len(content), 1 << 20, chance.getrandbits(64)))
        start = chance.randrange(len(content) or 1)
        content[start : start + width] = (odd & highest).to_bytes(width, chance.choice(("little", "big")))
    return bytes(content)


def mutate_packed(chance: random.Random, data: bytes) -> bytes:
    """Mutate an archive, and mostly compress it; once in five times, then mutate that too."""
    changed = mutate_binary(chance, data)
    pack = chance.choice(
        (lambda raw: gzip.compress(raw, 1), zstandard.ZstdCompressor(level=1).compress, bytes)
    )
    packed = pack(changed)
    return mutate_bytes(chance, packed) if chance.random() < 0.2 else packed


def reduced(data: bytes, fails: Callable[[bytes], bool], most: int = 400) -> bytes:
    """Remove parts as long as the input still fails, with at most so many attempts."""
    size = max(1, len(data) // 2)
    while size >= 1 and most > 0:
        start = 0
        while start < len(data) and most > 0:
            shorter = data[:start] + data[start + size :]
            most -= 1
            if shorter != data and fails(shorter):
                data = shorter
            else:
                start += size
        size //= 2
    return data


def spliced(chance: random.Random, seeds: Sequence[bytes]) -> bytes:
    """Return the beginning of one seed with the end of another."""
    one, two = chance.choice(seeds), chance.choice(seeds)
    return one[: chance.randint(0, len(one))] + two[chance.randint(0, len(two)) :]
