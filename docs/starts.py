"""Write the example of docs/how-to/start-an-image.md and the site's examples of what `run` writes.

An example is a fenced block below a comment that names its format: `<!-- start: compose -->`. The image, the
host and the directory are made up. `scripts/update-docs` runs this file. If the example is out of date,
`tests/test_docs.py` fails.
"""

from __future__ import annotations

import re
from pathlib import Path

from validator.delivery.choose import Host, parse_driver, parse_gpus
from validator.delivery.formats import FORMATS
from validator.delivery.start import Devices, Image, Start, User

PAGE = Path(__file__).parent / "how-to" / "start-an-image.md"
EXAMPLE = re.compile(r"(?P<head><!-- start: (?P<format>\w+) -->\n```\w+\n).*?(?P<foot>```\n)", re.DOTALL)
#: The languages of the files that are not shell scripts.
_LANGUAGES = {"compose": "yaml", "devcontainer": "jsonc", "kubernetes": "yaml"}
_HEAD = """\
# Files that `run --format` writes

[Start an image](../how-to/start-an-image.md) says how to get such a file for your own image. These are for
a made-up image, a machine with two H100, and the command `python train.py --epochs 3`.

This page is generated when the site is built.
"""
_IMAGE = Image(
    f"ghcr.io/team/tensorflow@sha256:{'0123456789abcdef' * 4}",
    "ghcr.io/team/tensorflow:2.21.0-cuda12.9-cudnn9.28-py3.12",
    (
        "Certified for this host: measured on NVIDIA H100 80GB HBM3 (9.0) with driver 580.65.06 on"
        " 2026-11-20, signed by https://github.com/team/tensorflow. The certificate covers hosts with driver"
        " branch 580 and GPUs of compute capability 9.0, until 2026-12-04.",
    ),
    certified=True,
    tensorflow="2.21.0",
    digest=f"sha256:{'0123456789abcdef' * 4}",
)


def example(format_: str) -> str:
    """Return what is written in a format for a machine with two GPUs."""
    command = () if format_ == "devcontainer" else ("python", "train.py", "--epochs", "3")
    return FORMATS[format_].write(
        Start(
            _IMAGE,
            Host(parse_driver("580"), parse_gpus(("h100", "h100"))),
            Devices.GPUS if FORMATS[format_].uses_docker else None,
            User(1000, 1000),
            Path("/home/me/job"),
            {"TF_CPP_MIN_LOG_LEVEL": "1"},
            command,
        )
    )


def page() -> str:
    """Return the site's page with an example of each format."""
    parts = [_HEAD]
    for format_ in FORMATS:
        parts.append(f"\n## {format_}\n\n```{_LANGUAGES.get(format_, 'sh')}\n{example(format_)}```\n")
    return "".join(parts)


def refreshed(text: str) -> str:
    """Return the text of the page with current examples."""
    return EXAMPLE.sub(lambda match: match["head"] + example(match["format"]) + match["foot"], text)


def main() -> int:
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
