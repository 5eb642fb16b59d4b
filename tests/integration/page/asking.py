"""Ask the page's own worker many questions at once, instead of one by one through its forms."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from typing import Any

from playwright.sync_api import Page

#: Remembers the page's worker. To be run before the page's scripts.
REMEMBER = """
window.workers = [];
const Original = Worker;
window.Worker = class extends Original {
    constructor(...given) { super(...given); window.workers.push(this); }
};
"""
_ASK = """async (questions) => {
    const worker = window.workers.at(-1);
    const answers = [];
    for (const [question, text] of questions) {
        const first = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
        const start = performance.now();
        const reply = await new Promise((resolve) => {
            worker.onmessage = (event) => resolve(event.data);
            worker.postMessage({ question, first, last: new Uint8Array(), total: first.length });
        });
        answers.push([JSON.stringify(reply.answer ?? reply), performance.now() - start]);
    }
    return answers;
}"""
#: Questions that are sent to the browser together.
_BATCH = 100


def works(**given: Any) -> dict[str, Any]:
    """Return a question about a machine."""
    return {
        "kind": "works", "gpu": "", "driver": "", "python": "", "system": "linux", "machine": "x86_64",
        "registry": None, "images": {}, "verdicts": {},
    } | given  # fmt: skip


def why(name: str) -> dict[str, Any]:
    """Return a question about a text."""
    return {"kind": "why", "name": name}


def start(page: Page) -> None:
    """Ask something that the table does not answer through the form, which starts Python."""
    page.locator("#works [name=gpu]").fill("A100")
    page.locator("#works [name=driver]").fill("driver 535.54")
    page.get_by_role("button", name="Show what works").click()
    page.locator("#works-answer .modes").wait_for(timeout=120_000)


def ask(page: Page, questions: Sequence[tuple[dict[str, Any], bytes]]) -> Iterator[tuple[Any, float]]:
    """Yield the answer to each question, and its milliseconds. `start` must have been called."""
    encoded = [(question, base64.b64encode(text).decode()) for question, text in questions]
    for place in range(0, len(encoded), _BATCH):
        for answer, taken in page.evaluate(_ASK, encoded[place : place + _BATCH]):
            yield json.loads(answer), taken
