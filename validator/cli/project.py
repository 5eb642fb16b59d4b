"""`init`: write a matrix of one's own; `lock`: pin its wheels; `refresh`: update the facts and all pins."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..assemble.layer_table import FILE, LayerTable, read_rows
from ..errors import EXIT_INPUT, EXIT_OK, InputError, MissingError
from ..model.codec import now_utc
from ..model.prediction import Outcome
from ..model.spec import HostClass, ImageSpec, Lock
from ..reports.printable import counted
from ..resources import manual, requirement, shipped_matrix
from ..system.files import read_file, write_atomically
from ..system.package_sources import host_sources
from ..system.pools import map_in_threads
from ..system.processes import git
from . import Command, options, program
from .options import Project, argument, flag, option, print_status

if TYPE_CHECKING:
    from ..locks.lock_files import LockDirectory
    from ..matrix import schema
    from ..model.spec import HostClass

#: GitLab groups can be nested.
_REMOTE = re.compile(
    r"(?:https://(?:[^/@]+@)?|ssh://git@|git@)(?P<host>github|gitlab)\.com(?::\d+)?[:/]"
    r"(?P<path>(?:[\w.-]+/)+[\w.-]+?)(?:\.git)?/?"
)
_BRANCH = re.compile(r"[\w./-]{1,200}")


@click.command("init", cls=Command)
def init_command(
    directory: Path = option(
        "--directory  Where to write the files: the root of your repository.  [default: the current"
        " directory]",
        type=options.DIRECTORY,
        default=Path(),
        show_default=False,
    ),
    force: bool = flag("--force  Replace files that exist."),
) -> None:
    """Write matrix.yaml, its locks and a workflow for a repository of your own.

    The matrix has an image that is predicted to work on this machine, and this machine's driver and GPUs. If
    the repository's remote `origin` is on GitHub, the workflow pushes to its registry, and trust.yaml is
    written too: it says that this workflow may sign images. If it is on GitLab, there is no workflow, but the
    command that pushes to its registry is printed. Nothing is built, and nothing that exists is replaced
    without --force.
    """
    from ..assemble.wheels import stale
    from ..certify.provenance import source_commit
    from ..delivery.choose import this_host
    from ..locks import lock_files
    from ..matrix import schema
    from ..matrix.load import load_matrix, parse_matrix
    from ..matrix.plan import choose_image

    hosts: tuple[HostClass, ...] = ()
    try:
        hosts = this_host().classes
    except MissingError as error:
        print_status(f"No GPU was found: {error}. The matrix has an example instead.")
    repository = _repository(directory)
    github = repository if isinstance(repository, schema.GithubRepository) else None
    # Nobody else can install a commit that no branch of the checkout's remotes has.
    commit = source_commit()
    if commit and not git(shipped_matrix().parent, "branch", "--remotes", "--contains", commit):
        commit = None
    tool = requirement(commit)
    workflow = (
        {}
        if isinstance(repository, schema.GitlabRepository)
        else {schema.WORKFLOW: schema.workflow_text(github, tool)}
    )
    shipped = load_matrix(shipped_matrix())
    text = schema.matrix_text(choose_image(shipped.images, hosts), hosts)
    images = parse_matrix(text.encode(), str(directory / options.OWN_MATRIX)).images
    locks = lock_files.LockDirectory(shipped_matrix().parent / lock_files.DIRECTORY)
    ready = [image for image in images if not stale(locks, image)]
    contents: dict[Path, str] = {}
    for image in ready:
        lock = lock_files.path_of(locks.own, str(image)).read_text(encoding="utf-8")
        contents[lock_files.path_of(lock_files.DIRECTORY, str(image))] = lock
    contents |= workflow
    if github:
        contents[Path("trust.yaml")] = schema.trust_text(github, now_utc().date())
    # Last, because the commands look for it.
    contents[options.OWN_MATRIX] = text
    _write(directory, contents, force)
    for path in contents:
        print_status(f"Wrote {directory / path}")
    if len(ready) < len(images):
        missing = counted(len(images) - len(ready), "lock")
        print_status(f"{missing} still to resolve: run `validator lock --profile full`")
    if workflow and tool.startswith("git+"):
        print_status(f"The workflow installs {tool}, because this version of the tool is not released.")
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
    elif isinstance(repository, schema.GithubRepository):
        print_status(f"The workflow pushes to {repository.registry}.")
    else:
        print_status("No workflow was written, because `init` has one only for GitHub.")
        build += f" --push {repository.registry}"
    print_status(f"Next: {change}{started} plan, then {build}")


def _repository(directory: Path) -> schema.GithubRepository | schema.GitlabRepository | None:
    """Return the repository on GitHub or GitLab that the directory belongs to, or None."""
    from ..matrix import schema

    match = _REMOTE.fullmatch(git(directory, "remote", "get-url", "origin") or "")
    if match is None:
        return None
    owner, _, name = match["path"].partition("/")
    if match["host"] == "gitlab":
        return schema.GitlabRepository(match["path"])
    if "/" in name:
        return None
    head = git(directory, "symbolic-ref", "--short", "refs/remotes/origin/HEAD") or ""
    branch = head.removeprefix("origin/") or git(directory, "symbolic-ref", "--short", "HEAD") or "main"
    return schema.GithubRepository(owner, name, branch if _BRANCH.fullmatch(branch) else "main")


def _write(directory: Path, contents: Mapping[Path, str], force: bool) -> None:
    """Write all files, or none if one of them can't be written. Raises InputError if one exists already."""
    existing = [str(directory / path) for path in contents if (directory / path).exists()]
    if existing and not force:
        raise InputError(
            f"nothing was written, because these files exist: {', '.join(existing)}",
            hint="pass --force to replace them, or --directory for another place",
        )
    before = {path: read_file(directory / path) for path in contents if (directory / path).exists()}
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


@click.command("lock", cls=Command)
def lock_command(
    project: Project = options.project("cells"),
    check: bool = flag("--check  Write nothing; fail if a lock is missing or does not satisfy its spec."),
    upgrade: bool = flag("--upgrade  Resolve again, even what is already locked."),
    layers: bool = flag(
        "--layers  Also write images/layers.json: the digests of the images' layers. A machine that has these"
        " rows does not make a layer that the registry has. Downloads the wheels of layers that have no row"
        " and that this machine has not made yet."
    ),
    format_: str | None = option(
        "--format pylock|requirements  Write the lock of one image for pip and uv instead, without resolving"
        " anything: pylock.toml (PEP 751), or requirements with hashes."
    ),
    output: Path | None = option(
        "--output FILE  With --format: write to a file.  [default: stdout]", type=options.OUTPUT
    ),
) -> int:
    """Write images/locks/<image spec>.txt: the exact wheels of each image, with their hashes.

    With --format, install the environment of an image without the image: `uv pip sync pylock.toml`, or
    `pip install --require-hashes -r requirements.txt`.
    """
    for name, given in (("--upgrade", upgrade), ("--layers", layers)):
        if check and given:
            raise click.UsageError(f"--check and {name} can't be combined: --check writes nothing")
    if format_:
        options.reject(("check", "upgrade", "layers"), "has no effect with --format")
    else:
        options.reject(("output",), "has no effect without --format")
    from .planning import load_plan, locks_of

    specs = load_plan(*project.cells).images
    locks = locks_of(project.matrix_path)
    if format_:
        return _export(locks, specs, project.matrix_path.parent, format_, output)
    if check:
        return _check(locks, specs)
    written = _lock_write(locks, specs, upgrade)
    if layers:
        _share(project.matrix_path, written)
    return EXIT_OK


def _export(
    locks: LockDirectory, specs: tuple[ImageSpec, ...], directory: Path, format_: str, output: Path | None
) -> int:
    """Write the lock of the only image for pip and uv. directory: of the matrix."""
    from ..assemble.wheels import stale
    from ..locks import lock_files
    from ..locks.index import PackageIndex

    if len(specs) != 1:
        raise InputError(
            f"--format writes the lock of one image, and {len(specs)} are selected",
            hint=f"choose one of them, such as with --select image={specs[0]}",
        )
    reasons, lock = stale(locks, specs[0]), locks.read(specs[0].identifier)
    if reasons or lock is None:
        hint = "run `validator lock` with the same --select first"
        raise InputError(f"{specs[0]}: {'; '.join(reasons)}", hint=hint)
    if format_ == "requirements":
        text = lock_files.requirements_text(lock, directory)
    else:
        # A lock has no addresses, because these differ from network to network.
        index = PackageIndex(host_sources())
        remote = [wheel for wheel in lock.wheels if not wheel.is_local]
        places = {file.filename: file.url for file in map_in_threads(index.locked, remote, at_once=8)}
        start = output.parent if output else Path()
        for wheel in lock.wheels:
            if wheel.is_local:
                places[wheel.filename] = os.path.relpath(directory / (wheel.path or ""), start)
        text = lock_files.pylock_text(lock, places)
    options.write_or_print(text, output)
    return EXIT_OK


def _check(locks: LockDirectory, specs: tuple[ImageSpec, ...]) -> int:
    from ..assemble.wheels import stale

    wrong = 0
    for spec in specs:
        try:
            reasons = stale(locks, spec)
        except InputError as error:
            reasons = [str(error)]
        wrong += bool(reasons)
        for reason in reasons:
            print_status(f"{spec}: {reason}")
    print_status(f"{len(specs) - wrong} of {counted(len(specs), 'lock')} up to date")
    if wrong:
        print_status("  hint: run `validator lock` with the same options to update them")
    return EXIT_INPUT if wrong else EXIT_OK


def _lock_write(
    locks: LockDirectory, specs: tuple[ImageSpec, ...], upgrade: bool
) -> list[tuple[ImageSpec, Lock]]:
    from ..assemble.wheels import ensure_lock
    from ..compat.predict import of_image

    sources = host_sources()
    written = 0
    found = []
    for number, spec in enumerate(specs, start=1):
        locked = ensure_lock(locks, spec, sources, lambda _: None, upgrade=upgrade)
        written += locked.written
        found.append((spec, locked.lock))
        size = f"{counted(len(locked.lock.wheels), 'wheel')}, {locked.lock.size / 1e6:,.0f} MB"
        print_status(f"[{number}/{len(specs)}] {spec}: {locked.why} ({size})")
        if spec.additions is not None and spec.variant.has_cuda:
            versions = {wheel.name: wheel.version for wheel in locked.lock.wheels}
            # Packages that are known to break the GPU on every machine.
            for reason in of_image(spec, versions):
                if reason.outcome is Outcome.FAILS:
                    print_status(f"  Warning: {reason.text}")
    print_status(f"{counted(written, 'lock')} written, {len(specs) - written} unchanged")
    return found


def _share(matrix_path: Path, locked: Iterable[tuple[ImageSpec, Lock]]) -> None:
    """Write the rows of the images' layers into the shared layer table."""
    from ..assemble.wheels import Wheelhouse
    from ..pipeline.sharing_layers import Image, LayerMaker, locked_images, share, without_row
    from .planning import images_of, locks_of

    locks = locks_of(matrix_path)
    path, images = locks.own.parent / FILE, locked_images(images_of(matrix_path).values(), locks)
    house = Wheelhouse(host_sources(), local=matrix_path.parent)
    maker = LayerMaker(house, LayerTable(), print_status if sys.stderr.isatty() else lambda _: None)
    # First the rows that no image can use any more.
    added, removed = share(path, (), images)
    for spec, lock in locked:
        image, shared = Image(spec, lock), read_rows(path)
        if not without_row(image, shared):
            print_status(f"{spec}: all layers have a row")
            continue
        rows = maker.rows(image, shared)
        # After each image, so that a command that is interrupted keeps what it has done.
        new, _ = share(path, rows, images)
        added += new
        house.close()
        print_status(f"{spec}: {counted(len(rows), 'layer')}, {new} new")
    print_status(f"{path}: {counted(added, 'row')} added, {removed} removed")


ALL = "all"
#: The parts that validator.supply.parts knows, written here because that module takes long to load.
PARTS = ("facts", "python", "bases", "debian", "layers")


@click.command("refresh", cls=Command)
def refresh_command(
    parts: tuple[str, ...] = argument("[PART]...", nargs=-1, type=click.Choice((*PARTS, ALL))),
    check: bool = flag("--check  Only say what is new; the exit code is 1 if something is."),
    dry_run: bool = flag("--dry-run  Do everything except writing the files."),
    candidates: bool = flag("--pre  facts: also ask for release candidates."),
    nightlies: bool = flag("--nightly  facts: also ask for the newest nightly build."),
    keep: bool = flag("--keep  python: keep the locked versions that pyproject.toml still allows."),
    if_gone: bool = flag(
        "--if-gone  debian: change a lock only if its packages can no longer be downloaded."
    ),
) -> int:
    """Ask for what is new, write it into the files of this checkout, and show the difference.

    PART is facts (the default), python, bases, debian, layers or all.

    facts: new TensorFlow releases, Pythons, CUDA and cuDNN wheels. Each new TensorFlow wheel is downloaded,
    inspected and deleted again. Writes the facts, the locks and the documentation, and says which predictions
    change and why. With --check it only asks the package index, and remembers the answer: other commands
    then say if the facts don't know a release.

    python: requirements/. bases: images/bases.yaml. debian: images/debian/. layers: images/layers.json, for
    which the wheels of new locks are downloaded.
    """
    if check and dry_run:
        raise click.UsageError("--check and --dry-run can't be combined: --check does less")
    named = PARTS if ALL in parts else tuple(dict.fromkeys(parts)) or PARTS[:1]
    owners = {"--pre": ("facts", candidates), "--nightly": ("facts", nightlies)}
    owners |= {"--keep": ("python", keep), "--if-gone": ("debian", if_gone)}
    for name, (part, given) in owners.items():
        if given and part not in named:
            raise click.UsageError(f"{name} has an effect only with the part {part}")
    from ..supply.news import Asked
    from ..supply.parts import PARTS as KNOWN
    from ..supply.parts import ROOT, Options, refresh

    chosen = Options(
        check=check,
        today=date.today(),
        say=print_status if sys.stderr.isatty() else lambda _: None,
        asked=Asked(candidates, nightlies),
        keep=keep,
        if_gone=if_gone,
    )
    selected = {name: KNOWN[name] for name in named}
    return refresh(
        selected, chosen, root=ROOT, write=not check and not dry_run, show=click.echo, complain=print_status
    )
