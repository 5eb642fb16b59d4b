"""Define where the commands of the pages are typed, and what replaces a page's examples there.

Every page gets a directory of its own: with a matrix and its locks, records of measurements, keys, and the
files that pages name. The machine is that of `machine.py`. A registry has images that this machine measured.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from docs.transcripts import ROOT
from validator.assemble.image import OciLayout
from validator.compat.compile import DIRECTORY
from validator.errors import EXIT_FAILED
from validator.fleet.protocol import Capacity, Fault
from validator.fleet.run_store import Runs
from validator.model.spec import LABEL_SPEC
from validator.records.store import Store
from validator.serve import PageServer

from ..assemble.synthetic import Image, Layer
from ..certify.fixtures import PASSWORD
from ..commands import Done, run
from ..corpus.reader import REPORTS
from ..locks.local_index import LocalIndex
from ..records.values import lines, record
from ..supply import own_wheel_files
from .console import Answer, Call, Console, console
from .machine import Cluster, emulated
from .shown import Block

TAG = "2.21.0-cuda12.9-cudnn9.28-py3.12"
IMAGE = "tf2.21.0-cuda12.9-cudnn9.28-py312"
CELL = f"{IMAGE}@r580-h100"
#: The repository of these tests in their registry.
PATH = "team/tensorflow"
#: What a run of a fleet is called.
RUN = re.compile(r"run-[0-9a-f]+")
#: A matrix that is quick to build. In place of a release candidate, which exists only at times, `candidate`
#: selects a release.
MATRIX = """\
images:
  - tensorflow: ["2.21.0", "2.20.0"]
    python: "3.12"
    policy: recommended
  - tensorflow: "2.20.0"
    python: "3.12"
    variant: cpu
  - tensorflow: "2.19.0"
    python: "3.12"
hosts:
  - driver: "580"
    gpu: [h100, a100]
  - gpu: none
profiles:
  quick: {select: [tensorflow=2.21.0, variant=gpu]}
  nightly: {select: ["tensorflow=2.21.0,2.20.0", variant=gpu]}
  candidate: {select: tensorflow=2.19.0}
  cpu: {select: variant=cpu}
  full: {}
"""
#: The pages about a fleet, on which a process and a node are lost, and the matrix that they measure.
FLEETS = ("docs/how-to/run-on-slurm.md", "docs/how-to/run-on-kubernetes.md")
OF_FLEETS = """\
images:
  - tensorflow: ["2.21.0", "2.20.0"]
    python: ["3.11", "3.13"]
    variant: cpu
hosts:
  - gpu: none
profiles:
  nightly: {}
  cpu: {select: [tensorflow=2.21.0, "python=3.11"]}
  full: {}
"""
#: Options that a call needs here, by its first word and the beginnings of others. The certificates here are
#: fixtures, which no command accepts otherwise; only throw-away keys sign them; nothing is downloaded.
ADDED: Mapping[str, tuple[str, ...]] = {
    "certify keygen": ("--throw-away",),
    "promote": ("--fixtures",),
    "records publish": ("--directory", "measurements"),
    "pull": ("--fixtures",),
    "recommend": ("--fixtures",),
    "report --html": ("--answers", "none"),
    "run": ("--fixtures",),
    "sbom tf": ("--base", "unlisted"),
    "trust export": ("--fixtures",),
    "serve": ("--port", "0", "--answers", "none"),
    "verify": ("--fixtures",),
}


@dataclass(frozen=True)
class StandIn:
    """A program that is run in place of another, and why the other one is not."""

    why: str
    script: str


#: Text of pages, and what is typed instead. The names of registries and databases are replaced as well.
VALUES: Mapping[str, str] = {
    "COSIGN_PASSWORD=…": f"COSIGN_PASSWORD={PASSWORD}",
    "PGPASSWORD=…": f"PGPASSWORD={PASSWORD}",
    # Releases that are not out yet.
    "2.23.0": "2.21.0",
    "2.22.0rc0": "2.21.0",
    # A check and a log that a contributor adds.
    "--only open_files": "--only environment",
    "written/hdf5-locked": "told/01-benign_only",
    # Without pip, this takes a tenth of the time.
    "python3 -m venv .venv": "python3 -m venv --without-pip .venv",
    # The registry here has no TLS.
    "cosign verify-attestation": "cosign verify-attestation --allow-http-registry",
    # Not in the past, whenever this runs.
    "2026-12-01T06:30": "2126-12-01T06:30",
    "1000:1000": f"{os.getuid()}:{os.getgid()}",
    # Measuring needs an engine or root, and a TensorFlow; tests/offline does it.
    "bundle/measure --output measured.jsonl": "bundle/measure --explain",
}
_NO_SCANNER = "it is not on this machine, and downloads its database"
#: A scanner gets a list of packages, as its last argument.
_SCAN = 'file="${@: -1}" && grep -q CycloneDX "${file#*[:=]}"'
#: Programs that can't be run here. Each line of a page that names one is typed, and this answers.
STAND_INS: Mapping[str, StandIn] = {
    "claude": StandIn(
        "it needs an account, and starts the command that it is given",
        'test "$1 $2 $4" = "mcp add --" && "${@:5}" --help | grep -q "Model Context Protocol"',
    ),
    "createuser": StandIn(
        "it asks at a terminal for a password",
        'for _ in 1 2; do echo "$PASSWORD_OF_ROLES"; done | PATH="${PATH#*:}" setsid --wait createuser "$@"',
    ),
    "docker": StandIn(
        "there is no GPU, and an image of TensorFlow has 3 GB",
        'case "$1 $*" in\n'
        "  login*) ;;\n"
        '  *list_physical_devices*) cat "$PREPARED/no-driver.log" ;;\n'
        '  *) echo "docker $*" ;;\n'
        "esac",
    ),
    "gh": StandIn(
        "it starts a workflow on GitHub",
        'test "$1 $2" = "workflow run" && test -e "$CHECKOUT/.github/workflows/$3"',
    ),
    "grype": StandIn(_NO_SCANNER, _SCAN),
    "kubectl": StandIn(
        "there is no Kubernetes cluster",
        'case "$*" in *" -f -") test -n "$(cat)" ;; *" -f "*) test -s "${@: -1}" ;; esac',
    ),
    "nfd": StandIn("it runs on a node of a cluster", "true"),
    "osv-scanner": StandIn(_NO_SCANNER, _SCAN),
    "pip": StandIn("it installs this tool from GitHub", "true"),
    "pytest": StandIn("the tests of the pytest plugin run it", "true"),
    "scontrol": StandIn("it asks inside a job of a cluster", 'printf "node1\\nnode2\\n"'),
    "scp": StandIn("there is one machine", 'cp "$1" "$HOME/${2##*:}"'),
    "srun": StandIn("it runs inside a job of a cluster", 'SLURM_PROCID=0 "$@"'),
    "ssh": StandIn("there is one machine", 'cd "$HOME" && bash -c "$2"'),
    "trivy": StandIn(_NO_SCANNER, _SCAN),
    "uvx": StandIn("it installs from GitHub", 'if [[ $1 = --from ]]; then shift 2; "$@"; fi'),
}
#: Scripts of the checkout that can't be run here; the same as above.
_TESTS = 'for path in "$@"; do [[ $path = -* || -e $CHECKOUT/$path ]]; done'
SCRIPTS: Mapping[str, StandIn] = {
    "compile-data": StandIn(
        "it writes into the checkout; tests/compat/test_compile.py checks the same", "true"
    ),
    "test": StandIn("it would run the tests inside of the tests", _TESTS),
    "update-docs": StandIn("it writes into the checkout; tests/test_docs.py checks the same", "true"),
}
#: Exit codes that are an answer and not a fault, by a part of the command.
CODES: Mapping[str, int] = {
    "doctor": EXIT_FAILED,
    "lint": EXIT_FAILED,
    "--tensorflow 2.21.0 --driver 535.183.01 --gpu h100": EXIT_FAILED,
    "as-built --driver 535.183.01 --gpu h100": EXIT_FAILED,
    "--only multi_worker": EXIT_FAILED,
    # The Python of the image here has no TensorFlow.
    "check --image tensorflow": EXIT_FAILED,
    "--package torch==2.6.0": EXIT_FAILED,
    "--requirements uv.lock": EXIT_FAILED,
    # `kill -9` ends them.
    "team/tf --on slurm": 128 + signal.SIGKILL,
    "images --on kubernetes": 128 + signal.SIGKILL,
}
#: The pages that have the reader write an image into the matrix, which their next commands need.
EDITS = ("docs/how-to/extend-an-image.md", "docs/tutorial/first-image.md")
#: What an administrator does before everything else on a page.
FIRST = ("createuser", "GRANT")


@dataclass
class Place:
    """One page's directory. values: text of pages, and what is there instead of it. calls: of this tool.

    index: the sources of `refresh`. sql: runs a statement in a database, if the page has one.
    """

    page: str
    directory: Path
    values: Mapping[str, str]
    environment: Mapping[str, str]
    index: LocalIndex
    sql: Callable[[str, str], object] | None = None
    calls: list[tuple[str, ...]] = field(default_factory=list)

    @contextmanager
    def console(self) -> Iterator[Console]:
        stand_ins = {name: each.script for name, each in STAND_INS.items()}
        with (
            emulated(clusters(self.directory, self.page), self.index.sources),
            console(self.directory, self.environment, self._answer, stand_ins) as opened,
        ):
            for name in (".venv/bin/python", ".venv/bin/validator", "scripts/here", "scripts/build-matrix"):
                path = self.directory / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.symlink_to(opened.place / "shim")
            for name, each in SCRIPTS.items():
                path = self.directory / "scripts" / name
                path.write_text(f"#!/bin/bash -e\n{each.script}\n")
                path.chmod(0o755)
            yield opened

    def in_order(self, page: list[Block]) -> list[Block]:
        """Return the blocks in the order in which a person needs them."""
        return sorted(page, key=lambda block: not any(word in block.text for word in FIRST))

    def edit(self, shown: str) -> None:
        """Write the image that a page shows in place of the first one of the matrix, with what it needs."""
        made = self.directory / "gpu-images/matrix.yaml"
        matrix = made if made.exists() else self.directory / "matrix.yaml"
        document = yaml.safe_load(matrix.read_text())
        (document["images"][0],) = yaml.safe_load(shown)["images"]
        matrix.write_text(yaml.safe_dump(document))
        (matrix.parent / "requirements.txt").write_text("einops\n")

    def here(self, text: str) -> str:
        """Return a text of a page as it is here."""
        for shown, value in self.values.items():
            text = text.replace(shown, value)
        return text

    def _answer(self, call: Call) -> Answer:
        self.calls.append(call.words)
        words = [_named(word, call) for word in call.words]
        at = words.index("--") if "--" in words else len(words)
        if words[:1] == ["run"]:
            at = 1
        words[at:at] = ADDED.get(row_of(words) or "", ())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("os.execvp", _replace)
            patch.setattr(PageServer, "serve_forever", _look_and_stop)
            try:
                return Answer(run(*words, cwd=call.cwd, environment=call.environment, stdin=call.stdin))
            except Replaced as error:
                return Answer(Done(words, 0, "", ""), error.line)


def clusters(directory: Path, page: str) -> dict[str, Cluster]:
    """Return the clusters that the pages about fleets show. On those pages, a process and a node are lost."""
    slurm = [Capacity("no-gpu", 4, 4, 4, "batch"), Capacity("r580-h100", 2, 2, 4, "r580&h100 gpu:h100:1")]
    slurm.append(
        Capacity("r535-t4", 1, 1, 4, "r535&t4 gpu:t4:1")
        if page in FLEETS
        else Capacity("r580-a100", 1, 1, 4, "r580&a100 gpu:a100:1")
    )
    nodes = (
        "no-gpu", "r535-sm75", "r535-t4", "r550-a100", "r550-sm80", "r570-a10", "r570-sm86", "r580-h100",
        "r580-l4", "r580-sm89", "r580-sm90",
    )  # fmt: skip
    kubernetes = [Capacity(name, 1, 1, 1) for name in nodes]
    lost = {("tf2.21.0-cpu-py311", "no-gpu", 1): Fault.NODE_LOST} if page in FLEETS else {}
    return {
        name: Cluster(directory / name, tuple(found), lost, name=name, lost=words, kills=page in FLEETS)
        for name, found, words in (
            ("slurm", slurm, ("node3", "NODE_FAIL NodeDown")),
            ("kubernetes", kubernetes, ("127.0.0.1", "Unknown")),
        )
    }


def row_of(words: Sequence[str]) -> str | None:
    """Return the row of ADDED for a call."""
    for row in ADDED:
        first, *others = row.split()
        if words[:1] == [first] and all(any(word.startswith(one) for word in words[1:]) for one in others):
            return row
    return None


def code_of(command: str) -> int:
    """Return the exit code that a command of a page has here."""
    return next((code for text, code in CODES.items() if text in command), 0)


class Replaced(BaseException):
    """The end of a process that became another program."""

    def __init__(self, line: tuple[str, ...]) -> None:
        super().__init__(line)
        self.line = line


def _replace(program: str, line: list[str]) -> None:
    raise Replaced(tuple(line))


def _look_and_stop(server: PageServer) -> None:
    """Serve the page to one reader, who then types Ctrl-C."""
    thread = threading.Thread(target=super(PageServer, server).serve_forever, args=(0.01,))
    thread.start()
    try:
        with urllib.request.urlopen(server.url) as answer:
            assert b"<html" in answer.read()
    finally:
        server.shutdown()
        thread.join()
    raise KeyboardInterrupt


def _named(word: str, call: Call) -> str:
    """Return the id of the newest record or run in place of a page's example."""
    if word == "ID":
        with Store(str(call.cwd / ".validator/records.db")) as store:
            return next(iter(store.latest().values())).id
    if RUN.fullmatch(word):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", call.environment["XDG_STATE_HOME"])
            with Runs() as runs:
                return runs.all()[0].id
    return word


def write_files(directory: Path, matrix: str) -> None:
    """Write what the pages name: a matrix, logs, reports, records, and the files of a project."""
    log = (ROOT / "tests/corpus/captured/2.18.1/visible_devices_99.log").read_bytes()
    report = (REPORTS / "no-gpu-tf2.21.0-cuda12.5-cudnn9.3-py311.json").read_bytes()
    made = [record(number, cell=CELL) for number in range(3)]
    [measured] = DIRECTORY.glob("*-h200_2026-11-27.json")
    on_gpu = json.dumps(json.loads(measured.read_bytes())["report"])
    contents = {
        "matrix.yaml": matrix.encode(),
        "trust.yaml": b"# Who may sign.\n",
        "train.log": log,
        "train.py": f"print({log.decode()!r})\n".encode(),
        "report.json": report,
        "from-a-gpu.json": on_gpu.encode(),
        "older.json": on_gpu.replace("-11-27T", "-11-26T").encode(),
        "plain.log": (ROOT / "tests/corpus/captured/h200-580.159.04/plain.log").read_bytes(),
        "good.jsonl": lines(*made),
        "last-release.jsonl": lines(*made),
        "more.jsonl.gz": gzip.compress(lines(*made)),
        "artifacts/records-a/records.jsonl": lines(*made),
        "Dockerfile": b"FROM nvidia/cuda:11.8.0-runtime-ubuntu22.04\n"
        b"COPY requirements.txt .\nRUN pip install -r requirements.txt\n",
        "requirements.txt": b"tensorflow==2.18.0\n",
        "uv.lock": b'version = 1\n[[package]]\nname = "tensorflow"\nversion = "2.18.0"\n',
        "checks/our_check.py": b'"""Is it so?"""\n\n\ndef check(context):\n'
        b'    return {"outcome": "pass", "summary": "it is so"}\n',
        "home/venv/bin/python": f"""#!/bin/bash -e
# Its TensorFlow is not here, so the report is one that was captured.
if [[ $1 != probe.pyz ]]; then exec {sys.executable} "$@"; fi
{sys.executable} probe.pyz --list > /dev/null
cat "$PREPARED/report.json"
""".encode(),
        "prepared/report.json": report,
        "prepared/no-driver.log": (ROOT / "tests/corpus/captured/2.21.0/no_driver.log").read_bytes(),
        "wheels/tensorflow-2.21.0-cp312-cp312-linux_x86_64.whl": own_wheel_files.content(),
    }
    for name, content in contents.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (directory / "home/venv/bin/python").chmod(0o755)
    made_here = Image((Layer(1, 100),), ((LABEL_SPEC, IMAGE),))
    made_here.send(OciLayout(directory / "layout", TAG))
    with Store(str(directory / "damaged.db")) as store:
        store.add_all(made)
