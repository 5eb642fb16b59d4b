"""The form of TensorFlow's log lines in each release: their prefix, their source file, their date."""

from __future__ import annotations

import datetime
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# The release that a person of that month had, where they don't say (PyPI's upload dates).
RELEASES = (
    ("2016-02", (0, 8)),
    ("2017-02", (1, 0)),
    ("2017-06", (1, 2)),
    ("2017-08", (1, 3)),
    ("2018-03", (1, 6)),
    ("2019-02", (1, 13)),
    ("2019-06", (1, 14)),
    ("2019-10", (2, 0)),
    ("2020-01", (2, 1)),
    ("2020-05", (2, 2)),
    ("2020-07", (2, 3)),
    ("2020-12", (2, 4)),
    ("2021-05", (2, 5)),
    ("2021-08", (2, 6)),
    ("2021-11", (2, 7)),
    ("2022-02", (2, 8)),
    ("2022-05", (2, 9)),
    ("2022-09", (2, 10)),
    ("2022-11", (2, 11)),
    ("2023-03", (2, 12)),
    ("2023-07", (2, 13)),
    ("2023-09", (2, 14)),
    ("2023-11", (2, 15)),
    ("2024-03", (2, 16)),
    ("2024-07", (2, 17)),
    ("2024-10", (2, 18)),
    ("2025-03", (2, 19)),
    ("2025-08", (2, 20)),
    ("2026-03", (2, 21)),
)


@dataclass(frozen=True)
class Facts:
    """The facts that a person could see and report, without the cause or anything found out later."""

    source: str
    reported: str
    observed: tuple[Mapping[str, Any], ...]
    context: Mapping[str, str]

    @property
    def release(self) -> tuple[int, int]:
        """Return the TensorFlow release: as stated, by the image's tag, or the newest of that month."""
        told = [self.context.get("tensorflow", ""), self.context.get("image", "")]
        for text in told:
            found = re.search(r"(?:^|:)([12])\.(\d+)", text)
            if found and not text.startswith("nvcr.io"):
                return int(found[1]), int(found[2])
        return max(release for month, release in RELEASES if month <= self.reported)

    @property
    def windows(self) -> bool:
        words = " ".join(self.context.get(key, "") for key in ("os", "place"))
        return "Windows" in words and "WSL" not in words


@dataclass
class Console:
    """Lines in order, each a little later than the one before."""

    facts: Facts
    random: random.Random
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        year, month = self.facts.reported.split("-")
        day, hour = self.random.randint(1, 28), self.random.randint(7, 22)
        minute, second = self.random.randint(0, 59), self.random.randint(0, 59)
        self.now = datetime.datetime(
            int(year), int(month), day, hour, minute, second, tzinfo=datetime.timezone.utc
        )
        self.process = self.random.randint(300, 31000)

    def tick(self) -> datetime.datetime:
        self.now += datetime.timedelta(microseconds=self.random.randint(40, 900_000))
        return self.now

    def say(self, *lines: str) -> None:
        for line in lines:
            self.lines.extend(line.split("\n"))

    def log(self, level: str, place: str, message: str) -> None:
        """Print a log line of TensorFlow: without a date up to 1.1, as absl writes it for XLA since 2.18."""
        now, release = self.tick(), self.facts.release
        if self.facts.windows:
            place = place.replace("tensorflow/core/kernels", ".\\tensorflow/core/kernels")
        if release < (1, 2):
            self.say(f"{level} {place}] {message}")
        elif release >= (2, 18) and place.startswith("external/"):
            file = place.rsplit("/", 1)[-1]
            self.say(f"{level}0000 00:00:{now.timestamp():.6f} {self.process:7d} {file}] {message}")
        else:
            self.say(f"{now:%Y-%m-%d %H:%M:%S.%f}: {level} {place}] {message}")

    def executor(self, file_and_line: str) -> str:
        """Return StreamExecutor's directory: moved into XLA in 2.11, out of the tree in 2.15."""
        release = self.facts.release
        if release < (2, 11):
            return f"tensorflow/stream_executor/{file_and_line}"
        if release < (2, 15):
            return f"tensorflow/compiler/xla/stream_executor/{file_and_line}"
        return f"external/local_xla/xla/stream_executor/{file_and_line}"

    def xla(self, file_and_line: str) -> str:
        if self.facts.release < (2, 15):
            return f"tensorflow/compiler/xla/{file_and_line}"
        return f"external/local_xla/xla/{file_and_line}"

    def traceback(self, frames: Sequence[tuple[str, int, str, str]], error: str) -> None:
        self.say("Traceback (most recent call last):")
        for file, line, name, source in frames:
            self.say(f'  File "{file}", line {line}, in {name}', f"    {source}")
        self.say(error)

    @property
    def packages(self) -> str:
        """Return the directory of the packages, by system and Python."""
        version = re.match(r"\d\.\d+", self.facts.context.get("python", ""))
        python = version[0] if version else "3.10"
        if self.facts.windows:
            return "C:\\ProgramData\\Anaconda3\\envs\\tf\\lib\\site-packages\\"
        return f"/home/user/.local/lib/python{python}/site-packages/"

    def path(self, relative: str) -> str:
        return self.packages + (relative.replace("/", "\\") if self.facts.windows else relative)
