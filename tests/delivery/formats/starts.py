"""Make what the formats write, and hostile values for it."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from validator.delivery.start import Devices, Image, Start, User

from ..values import host

IMAGE = Image(
    "localhost:5000/team/tf@sha256:" + "0" * 64,
    "localhost:5000/team/tf:2.21.0-cuda12.5-cudnn9.3-py3.12",
    ("Certified for this host: measured on NVIDIA H100.",),
    certified=True,
)
ME = User(1000, 100)
HOSTILE = [
    "two words", "a 'quote'", 'a "double" one', "$HOME", "${HOME:-x}", "$(id)", "`id`", "$$", "a:b,c=d",
    "a\\b\\n",
    "line\nbreak\n", "tab\there", "--flag", "-", "", " ", "# no comment", "*/ // ]]>", "{{.}}", "%s%j", "!x",
    "~",
    "é😀",
    "key: value", "- item", "true", "1e3", "null", "@x", "*", "a;b&&c|d>e", "C:\\x", "'\"'\"'", "\\", "end\\",
]  # fmt: skip

#: Texts that a file can show.
texts = st.text(
    st.characters(exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp"], include_characters="\n\t"), max_size=30
) | st.sampled_from(HOSTILE)
commands = st.lists(texts, max_size=4).map(tuple)
directories = texts.filter(bool).map(lambda name: Path("/", name.replace("/", "_")))
variables = st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True), texts, max_size=4)


def start(*gpus: str, **changes: Any) -> Start:
    """Return a start on a host with these GPUs, by default one H100."""
    fields: dict[str, Any] = {
        "image": IMAGE,
        "host": host("580", *gpus),
        "devices": Devices.GPUS,
        "user": ME,
        **changes,
    }
    return Start(**fields)


def with_image(**changes: Any) -> Image:
    """Return the image with other properties."""
    return dataclasses.replace(IMAGE, **changes)


def shell_words(script: str) -> list[str]:
    """Return all words of a script, without its comments."""
    return shlex.split(script, comments=True)
