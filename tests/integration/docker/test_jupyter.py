"""JupyterLab from an assembled image of the variant jupyter, and its first notebook in a real browser.

TensorFlow is the one without CUDA, which other tests of this directory put into images too.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from playwright.sync_api import Browser, Page, expect

from validator.engines.docker import DockerEngine
from validator.engines.endpoint import Endpoint
from validator.engines.protocol import Built
from validator.locks.resolve import resolve
from validator.matrix.images import JUPYTER_PACKAGES
from validator.model.spec import JUPYTER_PORT, Variant
from validator.system.package_sources import host_sources

from .conftest import GPU, REAL_CPU, begin_removal, quiet

SPEC = replace(GPU, tensorflow=REAL_CPU.tensorflow, variant=Variant.JUPYTER)
#: JupyterLab's first start, and the imports of TensorFlow, on a machine with much to do.
_START_S, _CELL_S = 120, 240
_NOTEBOOK = "check-the-gpu.ipynb"


@pytest.fixture(scope="module")
def image(docker_engine: DockerEngine, removals: list[subprocess.Popen[bytes]]) -> Iterator[Built]:
    """Yield an image with the newest JupyterLab, whose wheels stay in this machine's cache."""
    packages = (*JUPYTER_PACKAGES, f"tensorflow-cpu=={SPEC.tensorflow}")
    lock = resolve(SPEC, packages, host_sources())
    built = docker_engine.build(SPEC, lock, quiet)
    yield built
    removals.append(begin_removal(built.digest or built.reference))


@pytest.fixture(scope="module")
def lab(endpoint: Endpoint, image: Built) -> Iterator[str]:
    """Yield the address that JupyterLab prints, with the port of this machine."""
    port = f"{JUPYTER_PORT}/tcp"
    container = endpoint.client.containers.run(image.reference, detach=True, ports={port: ("127.0.0.1", 0)})
    try:
        container.reload()
        [published, *_] = container.ports[port] or []
        address = f"http://127.0.0.1:{published['HostPort']}"
        _wait_for(f"{address}/api", container)
        # The line to open it with, which has the token.
        found = re.search(
            rf"http://127\.0\.0\.1:{JUPYTER_PORT}(/lab/tree/{_NOTEBOOK}\?token=\w+)",
            container.logs().decode(),
        )
        assert found, container.logs().decode()
        yield address + found[1]
    finally:
        container.remove(force=True)


def _wait_for(address: str, container: Any) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            with urlopen(address, timeout=5) as answer:
                assert json.load(answer)["version"]
                return
        except (URLError, ConnectionError):
            container.reload()
            assert container.status == "running", container.logs().decode()
            assert time.monotonic() < deadline, container.logs().decode()
            time.sleep(0.5)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 2000})
    yield context.new_page()
    context.close()


def test_only_its_port_is_exposed(endpoint: Endpoint, image: Built) -> None:
    exposed = endpoint.client.images.get(image.reference).attrs["Config"]["ExposedPorts"]
    assert list(exposed) == [f"{JUPYTER_PORT}/tcp"]


def test_without_the_token_nothing_is_shown(lab: str, page: Page) -> None:
    page.goto(lab.partition("?")[0])
    expect(page).to_have_url(re.compile("/login"), timeout=_START_S * 1000)


def test_its_first_notebook_shows_the_gpu_and_why_not(lab: str, page: Page) -> None:
    page.goto(lab)
    run = page.get_by_role("menuitem", name="Run", exact=True)
    run.wait_for(timeout=_START_S * 1000)
    notebook = page.locator(".jp-Notebook")
    expect(notebook.get_by_role("heading", name="Check the GPU")).to_be_visible(timeout=_START_S * 1000)
    # Clicks are lost until the notebook has a kernel (JupyterLab issue 8490). The toolbar shows an idle one
    # from the start. The status bar shows it only after the kernel has reported that it is idle.
    expect(page.locator("#jp-main-statusbar")).to_contain_text("(ipykernel) | Idle", timeout=_START_S * 1000)
    run.click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    answer = notebook.locator("[data-validator=diagnosis]")
    answer.wait_for(timeout=_CELL_S * 1000)
    outputs = notebook.locator(".jp-OutputArea-output")
    printed = "\n".join(outputs.all_inner_texts())
    assert f"TensorFlow {SPEC.tensorflow}\nGPU: none" in printed
    assert re.search(r"XLA compiled the step for CPU:0\.\nThe loss fell from \d+\.\d+ to 0\.\d+\.", printed)
    # What TensorFlow's C++ code printed, after the extension read it.
    assert "oneDNN custom operations are on" in printed
    expect(answer.get_by_text("TensorFlow doesn't use a GPU.")).to_be_visible()
    expect(answer.get_by_text("cpu_only_build", exact=True)).to_be_visible()
    # A `$` in a command does not begin a formula.
    assert page.locator("[data-validator=diagnosis] mjx-container").count() == 0
