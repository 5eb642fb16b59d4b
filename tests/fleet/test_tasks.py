"""On how many nodes the units of a plan run."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.model.spec import HostClass, ImageSpec, Variant
from validator.pipeline.fleet import _Image
from validator.pipeline.publisher import PublishedImage

from .fake import FakeFleet
from .making import digest


@pytest.mark.parametrize(
    ("workers", "depth", "tasks"), [(2, "full", 2), (2, "quick", 1), (1, "full", 1), (1, "quick", 1)]
)
def test_units_run_on_as_many_nodes_as_the_fleet_says(
    workers: int, depth: str, tasks: int, tmp_path: Path
) -> None:
    host = HostClass.without_gpu()
    published = PublishedImage("tag", f"registry.test/ours@{digest(1)}", digest(1), sent=True)
    image = _Image(ImageSpec("2.21.0", "3.12", Variant.CPU), published, digest(2), b"", (), "2.2.0+0")
    unit = image.unit(host, depth, FakeFleet(tmp_path, (), workers=workers))
    assert (unit.tasks, unit.depth, unit.host_class) == (tasks, depth, host.identifier)
