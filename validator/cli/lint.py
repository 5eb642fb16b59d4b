"""`lint`: check the files with which a project pins its software; `inspect`: show what is in a wheel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .. import __version__
from ..errors import EXIT_FAILED, EXIT_OK
from ..resources import manual
from . import Command, options
from .options import argument, flag, option, print_status


@click.command("lint", cls=Command)
def lint_command(
    files: tuple[Path, ...] = argument("FILE...", nargs=-1, required=True, type=options.PATH),
    for_gpu: bool = flag(
        "--gpu  Also report what runs only on the CPU where no file says that the project uses a GPU."
    ),
    ignored: tuple[str, ...] = option("--ignore CODE...  Leave out the findings with this code; repeatable."),
    format_: str = options.formats("text", "json", "github", "sarif"),
) -> int:
    """Report what can't work with the TensorFlow that a project pins.

    Reads Dockerfiles, requirements files, pyproject.toml, environment.yml, Pipfile, pixi.toml and lock files.
    Each finding has its place, a code, and what to write instead. `lint` never guesses a version that a file
    leaves open: a finding holds for every version that the file allows. A comment
    `# validator: ignore[CODE]` on the line or above it silences a finding. The format github prints
    annotations for a workflow, sarif what code scanning reads. The exit code is 1 if something was found.
    """
    from ..lint.findings import CODES, lint
    from ..reports.findings import FINDINGS, findings_sarif, findings_summary

    unknown = [code for code in ignored if code not in CODES]
    if unknown:
        raise click.UsageError(f'--ignore: there is no code "{unknown[0]}"; the codes are {", ".join(CODES)}')
    linted = lint(files, frozenset(ignored), for_gpu=for_gpu)
    found = linted.findings
    if format_ == "sarif":
        shown = findings_sarif(found, CODES, __version__, manual("how-to/check-a-project.md"))
    else:
        shown = FINDINGS[format_](found)
    click.echo(shown, nl=False)
    for place, error in linted.unknown:
        print_status(f"{place.file}:{place.line}: not checked: {error}")
    if format_ == "text":
        print_status(findings_summary(found, len(files)))
    return EXIT_FAILED if found else EXIT_OK


@click.command("inspect", cls=Command)
def inspect_command(
    file: Path = argument("FILE", type=options.PATH),
    format_: str = options.formats("text", "json", short=("json",)),
) -> int:
    """Show what is in a wheel of TensorFlow, and on which GPUs and drivers it should work.

    The wheel may be a build of your own, a nightly, or a community's build. It is neither installed nor run.
    `predict --wheel FILE` answers for one machine. The exit code is 1 if the wheel was built without CUDA, or
    works on no GPU.
    """
    from ..compat.policies import choose
    from ..compat.predict import image_support
    from ..compat.releases import add_wheel, published_twin
    from ..model.spec import RECOMMENDED, ImageSpec, Variant
    from ..reports.printable import json_text
    from ..supply.release_facts import inspected, name_of, pythons_of, wheel_at

    wheel = wheel_at(file)
    row = inspected(wheel, print_status)
    twin, pythons = published_twin(row), pythons_of(file)
    support = None
    if row["build"]["cuda_build"]:
        release = add_wheel(row, name_of(row), pythons, wheel)
        chosen = choose(release, RECOMMENDED, RECOMMENDED)
        support = image_support(ImageSpec(release.version, pythons[-1], Variant.GPU, *chosen))
    if format_ == "json":
        document = {
            "name": name_of(row), "pythons": list(pythons), "same_as": twin, "contents": row,
            "support": support.as_json() if support else None,
        }  # fmt: skip
        click.echo(json_text(document))
    else:
        from ..reports.terminal import image_support_text, show

        click.echo("\n".join(_wheel_lines(name_of(row), row, pythons, twin)))
        if support:
            click.echo()
            show(image_support_text(support))
            print_status("`predict --wheel FILE --gpu MODEL --driver RELEASE` answers for one machine.")
    return EXIT_OK if support and not support.fails else EXIT_FAILED


def _wheel_lines(name: str, row: dict[str, Any], pythons: tuple[str, ...], twin: str | None) -> list[str]:
    built = row["build"]
    lines = [name, f"Python        {', '.join(pythons)}"]
    if not built["cuda_build"]:
        return [*lines, "It was built without CUDA, so it never uses a GPU."]
    lines += [
        f"built with    CUDA {built['cuda'] or 'unknown'}, cuDNN {built['cudnn_headers'] or built['cudnn']}",
        f"opens         {', '.join(row['opens'])}",
    ]
    for group in row["kernels"]:
        sass = ", ".join(map(str, group["sass"])) or "none"
        ptx = ", ".join(f"{target} (ISA {isa})" for target, isa in group["ptx"].items()) or "none"
        library = f" of {group['library'].upper()}" if "library" in group else ""
        lines.append(f"kernels       {group['fatbins']} units{library}: machine code {sass}; PTX {ptx}")
    lines.append(f"XLA's LLVM    writes PTX up to ISA {row.get('llvm_ptx', 'unknown')}")
    same = f"the same as tensorflow {twin} on PyPI" if twin else "not that of a release on PyPI"
    lines.append(f"device code   {same}")
    return lines
