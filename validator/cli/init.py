"""`init`: write a matrix, its locks, a workflow and a trust file for a repository of one's own."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from datetime import date, datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import EXIT_OK, InputError, MissingError
from ..reports.printable import counted
from ..resources import manual, shipped_matrix
from ..system import processes
from ..system.files import write_atomically
from .options import OWN_MATRIX, print_status
from .program import program

if TYPE_CHECKING:
    from ..matrix.starter import GithubRepository, GitlabRepository
    from ..model.spec import HostClass, ImageSpec

#: GitLab groups can be nested.
_REMOTE = re.compile(
    r"(?:https://(?:[^/@]+@)?|ssh://git@|git@)(?P<host>github|gitlab)\.com(?::\d+)?[:/]"
    r"(?P<path>(?:[\w.-]+/)+[\w.-]+?)(?:\.git)?/?"
)
_BRANCH = re.compile(r"[\w./-]{1,200}")
_TIMEOUT_S = 20.0


@click.command("init")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("."),
    help="Where to write the files: the root of your repository.  [default: the current directory]",
)
@click.option("--force", is_flag=True, help="Replace files that exist.")
def command(directory: Path, force: bool) -> int:
    """Write matrix.yaml, its locks and a workflow for a repository of your own.

    The matrix has an image that is predicted to work on this machine, and this machine's driver and GPUs. If
    the repository's remote `origin` is on GitHub, the workflow pushes to its registry, and trust.yaml is
    written too: it says that this workflow may sign images. If it is on GitLab, there is no workflow, but the
    command that pushes to its registry is printed. Nothing is built, and nothing that exists is replaced
    without --force.
    """
    from ..locks import lock_files
    from ..locks.lock_files import LockDirectory
    from ..matrix.load import load_matrix, parse_matrix
    from ..matrix.machine import choose_image
    from ..matrix.starter import (
        WORKFLOW,
        GithubRepository,
        GitlabRepository,
        matrix_text,
        trust_text,
        workflow_text,
    )
    from ..pipeline.locking import stale

    hosts = _hosts()
    repository = _repository(directory)
    github = repository if isinstance(repository, GithubRepository) else None
    shipped = load_matrix(shipped_matrix())
    text = matrix_text(choose_image(shipped.images, hosts), hosts)
    images = parse_matrix(text.encode(), str(directory / OWN_MATRIX)).images
    locks = LockDirectory(shipped_matrix().parent / lock_files.DIRECTORY)
    ready = [image for image in images if not stale(locks, image)]
    contents: dict[Path, str] = {
        **{
            lock_files.path_of(lock_files.DIRECTORY, str(image)): _lock_text(locks.own, image)
            for image in ready
        },
        **({} if isinstance(repository, GitlabRepository) else {WORKFLOW: workflow_text(github)}),
        **({Path("trust.yaml"): trust_text(github, _today())} if github else {}),
        # Last, because the commands look for it.
        OWN_MATRIX: text,
    }
    _write(directory, contents, force)
    for path in contents:
        print_status(f"Wrote {directory / path}")
    if len(ready) < len(images):
        missing = counted(len(images) - len(ready), "lock")
        print_status(f"{missing} still to resolve: run `python -m validator lock --profile full`")
    _say_what_is_next(directory, hosts, repository)
    return EXIT_OK


def _hosts() -> tuple[HostClass, ...]:
    from ..delivery.host import this_host

    try:
        return this_host().classes
    except MissingError as error:
        print_status(f"No GPU was found: {error}. The matrix has an example instead.")
        return ()


def _repository(directory: Path) -> GithubRepository | GitlabRepository | None:
    """Return the repository on GitHub or GitLab that the directory belongs to, or None."""
    from ..matrix.starter import GithubRepository, GitlabRepository

    match = _REMOTE.fullmatch(_git(directory, "remote", "get-url", "origin") or "")
    if match is None:
        return None
    owner, _, name = match["path"].partition("/")
    if match["host"] == "gitlab":
        return GitlabRepository(match["path"])
    if "/" in name:
        return None
    head = _git(directory, "symbolic-ref", "--short", "refs/remotes/origin/HEAD") or ""
    branch = head.removeprefix("origin/") or _git(directory, "symbolic-ref", "--short", "HEAD") or "main"
    return GithubRepository(owner, name, branch if _BRANCH.fullmatch(branch) else "main")


def _git(directory: Path, *arguments: str) -> str | None:
    if shutil.which("git") is None or not directory.is_dir():
        return None
    done = processes.run(["git", "-C", str(directory), *arguments], timeout_s=_TIMEOUT_S)
    return done.stdout.decode("utf-8", "replace").strip() if done.ok else None


def _lock_text(directory: Path, image: ImageSpec) -> str:
    from ..locks import lock_files

    return lock_files.path_of(directory, image.identifier).read_text(encoding="utf-8")


def _write(directory: Path, contents: Mapping[Path, str], force: bool) -> None:
    """Write all files, or none if one of them can't be written. Raises InputError if one exists already."""
    existing = [str(directory / path) for path in contents if (directory / path).exists()]
    if existing and not force:
        raise InputError(
            f"nothing was written, because these files exist: {', '.join(existing)}",
            hint="pass --force to replace them, or --directory for another place",
        )
    before = {path: (directory / path).read_bytes() for path in contents if (directory / path).exists()}
    written: list[Path] = []
    try:
        for path, text in contents.items():
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            written.append(path)
            write_atomically(directory / path, text.encode())
    except BaseException:
        for path in written:
            if path in before:
                write_atomically(directory / path, before[path])
            else:
                (directory / path).unlink(missing_ok=True)
        raise


def _say_what_is_next(
    directory: Path, hosts: tuple[HostClass, ...], repository: GithubRepository | GitlabRepository | None
) -> None:
    from ..matrix.starter import GithubRepository

    profile = "" if hosts else " --profile cpu"
    change = "" if directory.resolve() == Path.cwd() else f"cd {directory} && "
    started = program(directory)
    build = f"{started} build-matrix{profile}"
    if repository is None:
        print_status(
            "This is not a repository on GitHub: in the workflow, write your registry in place of"
            " OWNER/REPOSITORY."
        )
        # A placeholder there would trust whoever has that name on GitHub.
        print_status(
            "No trust.yaml was written, because it has to name who signs your images:"
            f" {manual('reference/trust-file.md')}"
        )
    elif isinstance(repository, GithubRepository):
        print_status(f"The workflow pushes to {repository.registry}.")
    else:
        print_status("No workflow was written, because `init` has one only for GitHub.")
        build += f" --push {repository.registry}"
    print_status(f"Next: {change}{started} plan, then {build}")


def _today() -> date:
    return datetime.now(timezone.utc).date()
