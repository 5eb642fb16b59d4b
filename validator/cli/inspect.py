"""`inspect`: show what is in a wheel of TensorFlow, and on which GPUs and drivers it should work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..errors import EXIT_FAILED, EXIT_OK
from .options import format_option, print_status
from .program import Command


@click.command("inspect", cls=Command)
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@format_option("text", "json", short=("json",))
def inspect_command(file: Path, format_: str) -> int:
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

        click.echo("\n".join(_lines(name_of(row), row, pythons, twin)))
        if support:
            click.echo()
            show(image_support_text(support))
            print_status("`predict --wheel FILE --gpu MODEL --driver RELEASE` answers for one machine.")
    return EXIT_OK if support and not support.fails else EXIT_FAILED


def _lines(name: str, row: dict[str, Any], pythons: tuple[str, ...], twin: str | None) -> list[str]:
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
