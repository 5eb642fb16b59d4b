from __future__ import annotations

from validator.engines.docker import digest


def test_the_name_depends_on_the_base_and_the_packages() -> None:
    assert digest("a", ["git", "tini"]) == digest("a", ["tini", "git"])
    assert len({digest("a", ["git"]), digest("b", ["git"]), digest("a", ["tini"])}) == 3
