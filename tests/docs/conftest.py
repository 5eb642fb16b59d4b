"""Make the directory in which the commands of a page are typed."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.transcripts import ROOT
from validator.certify.signatures import Signer, attach, candidates
from validator.certify.statement import PREDICATE
from validator.certify.trust import Trust, read_key
from validator.registry.client import Registry
from validator.registry.names import Repository
from validator.system.package_sources import PackageSources

from ..certify.fixtures import PASSWORD
from ..certify.sigstore import Sigstore
from ..commands import run
from ..locks.local_index import LocalIndex, running
from ..loop import tiers
from ..postgresql import Server
from ..registry.server import RunningRegistry
from .machine import emulated
from .situations import FLEETS, MATRIX, OF_FLEETS, PATH, TAG, VALUES, Place, write_files

#: Where a page names the repository whose images are certified.
_CERTIFIED = ("ghcr.io/team/tensorflow", "ghcr.io/you/tensorflow", "REGISTRY/NAME")
#: The repositories to which a page pushes first.
_EMPTY = (
    ("127.0.0.1:5000", "team/tensorflow"),
    ("127.0.0.1:5000", "team/tf"),
    ("127.0.0.1:5123", "gpu-matrix/images"),
)
#: Who signs on a page without a key.
IDENTITY = "https://github.com/OWNER/REPO/.github/workflows/nightly.yml@refs/heads/main"
ISSUER = "https://token.actions.githubusercontent.com"
#: The names that pages give to the public key of whoever certifies, besides those that they make.
_RELEASE = ("cosign", "team", "release")


def environment_of(directory: Path) -> dict[str, str]:
    return {
        "CHECKOUT": str(ROOT), "COSIGN_PASSWORD": PASSWORD, "EDITOR": "true", "HOME": str(directory / "home"),
        "PREPARED": str(directory / "prepared"), "VALIDATOR_CACHE": str(directory / "home/cache"),
        "XDG_STATE_HOME": str(directory / "home/state"),
    }  # fmt: skip


@pytest.fixture(scope="module")
def index() -> Iterator[LocalIndex]:
    """Yield a package index that has nothing new."""
    with running() as found:
        yield found


@pytest.fixture(scope="module")
def repository(server: RunningRegistry) -> Repository:
    return Repository(server.address, f"docs/{PATH}")


@pytest.fixture(scope="module")
@tiers.service
def template(
    repository: Repository,
    keys: tuple[Signer, Trust],
    index: LocalIndex,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Make a directory whose images were built, pushed, measured and certified."""
    directory = tmp_path_factory.mktemp("template")
    write_files(directory, MATRIX)
    environment = {**os.environ, **environment_of(directory)}
    with emulated({}, index.sources):
        for words in (
            ("check", "--save-probe", "probe.pyz"),
            ("lock", "--profile", "full"),
            ("runner", "init", "--name", "gpu-1", "--host-class", "*-h100", "--register"),
            ("build-matrix", "--profile", "full", "--push", repository),
            ("certify", "--registry", repository, "--signing-key", keys[0].key),
        ):
            done = run(*words, cwd=directory, environment=environment)
            assert done.returncode == 0, done.stderr
    for name in _RELEASE:
        shutil.copy(str(keys[1].key), directory / f"{name}.pub")
    shutil.copy(directory / "home/state/tensorflow-gpu-matrix/builder.pub", directory)
    return directory


@pytest.fixture
def place(
    page: str,
    template: Path,
    repository: Repository,
    index: LocalIndex,
    keys: tuple[Signer, Trust],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Iterator[Place]:
    """Make the directory of a page."""
    directory = Path(shutil.copytree(template, tmp_path / "here", symlinks=True))
    text = (ROOT / page).read_text(encoding="utf-8")
    for name in _RELEASE:
        if f"keygen --output-prefix {name}" in text:
            (directory / f"{name}.pub").unlink()
    if "trust export" in text:
        with (directory / "trust.yaml").open("a") as file:
            file.write(f"release: {{key: {read_key(Path(str(keys[1].key)))!r}}}\n".replace("'", '"'))
    if page in FLEETS:
        _start_again(directory, OF_FLEETS)
    values = {
        "--image NAME": "--image ours:1",
        **VALUES,
        **dict.fromkeys(_CERTIFIED, str(repository)),
        **{f"{host}/{path}": f"{repository.host}/{path}" for host, path in _EMPTY},
        "sha256:…": str(Registry(repository).digest_of(TAG)),
        "/home/me/job": str(directory),
    }
    if f"--certificate-identity {IDENTITY}" in text:
        root = _sign_as_identity(Registry(repository), directory)
        values["--certificate-identity"] = f"--trusted-root {root} --certificate-identity"
    environment = environment_of(directory)
    with contextlib.ExitStack() as stack:
        sql = None
        if "db.example" in text:
            database: Server = request.getfixturevalue("postgresql")
            sql = database.sql
            values["db.example"] = f"127.0.0.1:{database.port}"
            environment |= _administrator(database, directory)
            stack.callback(_drop, database)
        yield Place(page, directory, values, environment, index, sql)


def _start_again(directory: Path, matrix: str) -> None:
    """Give a directory another matrix, of which nothing was built yet."""
    (directory / "matrix.yaml").write_text(matrix)
    shutil.rmtree(directory / ".validator")
    with emulated({}, PackageSources()):
        done = run("lock", "--profile", "full", cwd=directory)
    assert done.returncode == 0, done.stderr


def _sign_as_identity(registry: Registry, directory: Path) -> Path:
    """Attach a certificate that a workflow signed, by a Sigstore of the tests. Return its trusted roots."""
    sigstore = Sigstore()
    digest = str(registry.digest_of(TAG))
    statement = next(iter(candidates(registry, digest, PREDICATE))).read().payload
    attach(registry, digest, sigstore.sign(statement, identity=IDENTITY, issuer=ISSUER), PREDICATE)
    return sigstore.trusted_root(directory)


def _administrator(database: Server, directory: Path) -> dict[str, str]:
    """Return the environment of somebody who administers a database server, and knows all passwords."""
    passwords = {database.user: database.password, **dict.fromkeys(("records_owner", "runner"), PASSWORD)}
    file = directory / "home/.pgpass"
    file.touch(mode=0o600)
    escaped = {user: password.replace(":", "\\:") for user, password in passwords.items()}
    rows = [f"127.0.0.1:{database.port}:*:{user}:{password}\n" for user, password in escaped.items()]
    file.write_text("".join(rows))
    return {
        "PASSWORD_OF_ROLES": PASSWORD, "PGHOST": "127.0.0.1", "PGPASSFILE": str(file),
        "PGPORT": str(database.port), "PGUSER": database.user,
    }  # fmt: skip


def _drop(database: Server) -> None:
    database.sql("DROP DATABASE IF EXISTS records WITH (FORCE)")
    for role in ("records_owner", "runner"):
        database.sql(f"DROP ROLE IF EXISTS {role}")
