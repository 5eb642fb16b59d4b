"""A page in a real Chromium."""

from __future__ import annotations

import functools
import http.server
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from validator.errors import MissingError
from validator.model.record import Layer, Verdict
from validator.reports.page.answers import Answers, make_answers, pinned
from validator.reports.page.site import ENTRY, FOLDERS, MARK, Sources, site
from validator.serve import Events, PageServer
from validator.system.output_directory import update_directory
from validator.system.package_sources import pyodide_package, run_by_node

from ...certify.fixtures import LIMIT, limited_check
from ...loop import tiers
from ...reports.page.test_site import HOSTILE, hostile
from ...reports.page.test_table import small_table
from ...reports.page.values import H100, IMAGES, T4, certificate, check, measured, sources, speedup

REGISTRY = "registry.example.org/team/tensorflow"
#: No machine has measured these; `certified` is written into a value only here.
RECORDS = [
    measured(IMAGES[0], H100, Verdict.CERTIFIED, 1, checks=[check("driver"), speedup(0.5)]),
    measured(
        IMAGES[1],
        H100,
        Verdict.CERTIFIED,
        2,
        layers=(Layer("sha256:1", 3_000_000_000), Layer("sha256:2", 1_000_000)),
    ),
    measured(IMAGES[1], H100, Verdict.FAILED, 3, lock_digest="sha256:02"),
    measured(
        IMAGES[2],
        H100,
        Verdict.CERTIFIED,
        4,
        checks=[check("driver"), speedup(0.8), limited_check(LIMIT)],
        layers=(Layer("sha256:1", 3_000_000_000), Layer("sha256:3", 2_000_000)),
        engine="slurm/podman",
    ),
    measured(
        IMAGES[2], T4, Verdict.UNPROVEN, 5, checks=[check("driver", "skip"), speedup(1.2, device="CPU")]
    ),
    measured(IMAGES[3], "no-gpu", Verdict.UNPROVEN, 6, host={"gpus": []}),
    measured(IMAGES[3], T4, Verdict.BROKEN, 7, image_digest=None, checks=[], reason="it did not build"),
]


def write(directory: Path, made: Sources) -> Path:
    update_directory(directory, site(made), entry=ENTRY, mark=MARK.encode(), folders=FOLDERS)
    return directory


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of RECORDS."""
    certified = RECORDS[0]
    limited = RECORDS[3]
    certificates = {
        certified.image_digest: [certificate(certified)],
        limited.image_digest: [certificate(limited, limits=(LIMIT,))],
    }
    made = sources(RECORDS, registry=REGISTRY, certificates=certificates)
    return write(tmp_path_factory.mktemp("page"), made)


@pytest.fixture(scope="session")
@tiers.engine
def package() -> Path:
    """Return the pinned Pyodide from npm."""
    try:
        return pyodide_package(pinned().version, pinned().integrity)
    except MissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def answers(package: Path) -> Answers:
    """Return the files of the answers."""
    return make_answers(package, MARK, json.dumps(small_table()), run_by_node)


@pytest.fixture(scope="session")
def hostile_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of a hostile record, whose every text tries to run as HTML."""
    return write(tmp_path_factory.mktemp("hostile"), sources([hostile()], diagnose=lambda _: None))


@pytest.fixture(scope="module")
def host(directory: Path) -> Iterator[str]:
    """Yield a host of the page that outlives the browsers: a closing browser may still send a request."""
    with serve(directory) as url:
        yield url


@pytest.fixture(params=["from disk", "from a host"])
def address(request: pytest.FixtureRequest, directory: Path, host: str) -> str:
    """Return the page's address, without the file's name."""
    return directory.as_uri() if request.param == "from disk" else host


class serve:
    """A static host on loopback."""

    def __init__(self, directory: Path) -> None:
        class Quiet(http.server.SimpleHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                pass

        handler = functools.partial(Quiet, directory=str(directory))
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))

    def __enter__(self) -> str:
        self.thread.start()
        return f"http://127.0.0.1:{self.server.server_port}"

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


WHEN = "2026-01-01T00:00:00+00:00"
#: A run of `build-matrix`. Everything in it that a file can choose tries to leave its place.
RUN: dict[str, Any] = {
    "profile": HOSTILE, "started": WHEN, "updated": WHEN, "total": 4, "finished": 1, "state": "running",
    "working": [
        {"image": IMAGES[1].identifier, "phase": "build", "detail": HOSTILE, "since": WHEN},
        {"image": HOSTILE, "phase": HOSTILE, "detail": HOSTILE, "since": WHEN},
    ],
    "done": [{"image": IMAGES[0].identifier, "result": "unproven", "detail": "no GPU"}],
}  # fmt: skip


@dataclass(frozen=True)
class Served:
    """A page that `serve` shows. events: what it is told."""

    server: PageServer
    events: Events

    @property
    def address(self) -> str:
        return self.server.url.rstrip("/")

    def show(self, made: Sources) -> None:
        self.server.show(dict(site(made)))


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """Yield version 1 of the page of RECORDS, while RUN goes on."""
    events = Events()
    events.tell("progress", [RUN])
    events.tell("page", "1")
    with PageServer(dict(site(sources(RECORDS, live="1"))), events, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield Served(server, events)
        server.shutdown()
        thread.join()


#: Opens an address in a new browser; settings are those of a Playwright context.
Open = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Any message on the console, and any request to another host, fails the test."""
    contexts: list[BrowserContext] = []
    faults: list[str] = []

    def open_one(
        address: str, fragment: str = "", *, file: str = ENTRY, allowed: Iterable[str] = (), **settings: Any
    ) -> Page:
        context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | settings))
        contexts.append(context)
        context.set_default_timeout(15_000)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("dialog", lambda dialog: faults.append(f"a dialog: {dialog.message}"))
        page.on(
            "console",
            lambda message: (
                None if any(words in message.text for words in allowed) else faults.append(message.text)
            ),
        )
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith((address, "data:", "blob:"))
                else faults.append(f"a request to {request.url}")
            ),
        )
        page.goto(f"{address}/{file}{fragment}")
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert faults == []
