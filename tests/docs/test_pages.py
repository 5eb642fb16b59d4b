"""Every command of the pages is run, in the order of its page, and prints what the page shows.

`situations.py` says where, with which stand-ins for what can't be run here, and with which exit codes.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from ..diagnosis import shell
from .shown import Block, blocks, of_this_tool
from .situations import (
    ADDED,
    CODES,
    EDITS,
    FIRST,
    FLEETS,
    SCRIPTS,
    STAND_INS,
    VALUES,
    Place,
    code_of,
    row_of,
)

PAGES: dict[str, list[Block]] = {}
for _block in blocks():
    if _block.commands or _block.language == "sql" or (_block.language == "yaml" and _block.page in EDITS):
        PAGES.setdefault(_block.page, []).append(_block)
TYPED = [command for page in PAGES.values() for block in page for command in block.commands]
#: What differs between two runs, and what it becomes before outputs of other machines are compared.
VARIES: Mapping[str, str] = {
    r"^Engine: .*": "Engine",
    r"\[\d\d:\d\d\]": "[time]",
    r"sha256:[0-9a-f…]+": "digest",
    r"\brun-[0-9a-f]+": "run",
    r"\d{4}-\d\d-\d\dT[\d:.+]+\d": "then",
    r"^[0-9a-f]{12} ": "id ",
    r"\d+ (waiting|running|done)(, \d+ (waiting|running|done))*": "counts",
    r"(nothing|[\d.]+ GB of wheels) to download( \(.*?\))?": "download",
    r"takes about [\d.]+ GB": "size",
    r" +": " ",
}
#: Lines that the shell or a program with a stand-in prints.
NOT_OURS = re.compile(
    "Killed$|NAME +COMPLETIONS|tfm-|tensorflow-gpu-matrix: this image|CUDA 11.4|VALIDATOR_REQ"
)


def differences(block: Block, printed: str, place: Place) -> list[str]:
    """Return the lines of a block that were not printed, or all of them if its output must match exactly.

    A comment marks output from another machine: its digests and times differ, and `…` stands for anything.
    """
    shown = place.here(block.output)
    if block.origin is None:
        return [] if shown == printed.rstrip("\n") else shown.splitlines()
    found = [plain(line) for line in printed.splitlines()]
    return [
        line
        for line in shown.splitlines()
        if not NOT_OURS.match(line)
        and not any(re.fullmatch(re.escape(plain(line)).replace("…", ".*"), one) for one in found)
    ]


def plain(line: str) -> str:
    for pattern, text in VARIES.items():
        line = re.sub(pattern, text, line)
    return line.strip()


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_do_what_it_says(page: str, place: Place) -> None:
    wrong: list[str] = []
    with place.console() as console:
        for block in place.in_order(PAGES[page]):
            printed = ""
            if place.sql is not None and block.language == "sql" and not wrong:
                place.sql(block.text, "records")
            if block.language == "yaml":
                place.edit(block.text)
            for command in block.commands:
                place.calls.clear()
                done = console.type(place.here(command))
                said = done.stdout + done.stderr
                printed += said
                if done.returncode != code_of(command) or "Traceback" in said:
                    wrong.append(f"{block}: {command}\nended with {done.returncode}:\n{said}")
                asked = [call[:1] for call in of_this_tool(command)]
                if [list(call[:1]) for call in place.calls] != asked:
                    wrong.append(f"{block}: {command}\ncalled {place.calls}")
            if block.output and (missing := differences(block, printed, place)):
                wrong.append(f"{block}: did not print:\n" + "\n".join(missing) + f"\nbut:\n{printed}")
    assert not wrong, "\n\n".join(wrong)


def test_every_row_of_the_tables_is_in_the_documentation() -> None:
    """A row whose text has left the pages would hide a fault if that text came back."""
    programs = {
        next((word for word in words if "=" not in word), "").rpartition("/")[2]
        for command in TYPED
        for words in shell.programs(command)
    }
    assert (STAND_INS.keys() | SCRIPTS.keys()) - programs == set()
    calls = [call for command in TYPED for call in of_this_tool(command)]
    assert ADDED.keys() - {row for call in calls if (row := row_of(call))} == set()
    parts = {*CODES, *FIRST, *VALUES}
    texts = [block.text for page in PAGES.values() for block in page]
    assert {part for part in parts if not any(part in text for text in texts)} == set()
    assert set(FLEETS) <= PAGES.keys()


def test_what_was_not_printed_is_found() -> None:
    here = Place("a page", Path(), {"HOST": "here"}, {}, None)  # type: ignore[arg-type]
    block = Block("a page", 1, "console", "", (), "[00:07] 2 done on HOST\nthe …", None)
    assert differences(block, "[00:07] 2 done on here\nthe …\n", here) == []
    assert differences(block, "[00:08] 2 done on here\nthe …\n", here)
    elsewhere = dataclasses.replace(block, origin="another machine")
    assert differences(elsewhere, "more\nthe end\n[01:08] 3 waiting on here\n", here) == []
    assert differences(elsewhere, "the end\n", here) == ["[00:07] 2 done on here"]
