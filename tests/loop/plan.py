"""The plan of a run: its tests, with the tier, the scope and the expected time of each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from .tiers import TIERS, tier_of

#: Seconds that a test of each tier takes on average, for modules that never ran on this machine.
_USUAL_S = {"unit": 0.01, "slow": 0.8, "service": 0.4, "engine": 3.0}
#: The same of the modules that take longest, so that a fresh clone begins with them.
_LONG_S = {
    "tests/distribution/test_images.py": 8.0,
    "tests/docs/test_pages.py": 2.9,
    "tests/emulation/test_never_certified.py": 5.0,
    "tests/emulation/test_real_lines.py": 5.0,
    "tests/fleet/slurm/test_faults.py": 5.0,
    "tests/fleet/slurm/test_measuring.py": 4.0,
    "tests/integration/docker/test_main_job.py": 20.0,
    "tests/integration/page/test_answers.py": 2.5,
    "tests/probe/test_real_gate.py": 20.0,
    "tests/probe/test_real_measurements.py": 6.0,
    "tests/probe/test_real_own_checks.py": 16.0,
    "tests/probe/test_real_workers.py": 18.0,
    "tests/workflows/test_nightly.py": 12.0,
    "tests/workflows/test_scripts.py": 2.9,
}
#: Where the seconds of the last runs are kept, in pytest's cache directory.
_CACHE = "tests/seconds"


@dataclass(frozen=True)
class Test:
    """One test. scope: the tests that one worker runs together."""

    __test__ = False
    tier: str
    module: str
    scope: str
    expected_s: float


@dataclass(frozen=True)
class Plan:
    """The tests of a run by id, in their order."""

    tests: Mapping[str, Test]

    @classmethod
    def of(cls, items: Sequence[pytest.Item], cache: pytest.Cache | None) -> Plan:
        """Return the plan of these tests. cache: has what the last runs on this machine took."""
        known = cache.get(_CACHE, {}) if cache is not None else {}
        tests = {}
        for item in items:
            tier, module = tier_of(item), item.nodeid.partition("::")[0]
            group = item.get_closest_marker("xdist_group")
            expected_s = known.get(module, _LONG_S.get(module, _USUAL_S[tier]))
            tests[item.nodeid] = Test(tier, module, group.args[0] if group else module, expected_s)
        return cls(tests)

    @classmethod
    def read(cls, path: Path) -> Plan:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return cls({nodeid: Test(**row) for nodeid, row in rows.items()})

    def write(self, path: Path) -> None:
        rows = {nodeid: vars(test) for nodeid, test in self.tests.items()}
        path.write_text(json.dumps(rows), encoding="utf-8")

    def counts(self) -> dict[str, int]:
        """Return how many tests each tier has, in the order of the tiers."""
        found = Counter(test.tier for test in self.tests.values())
        return {tier: found[tier] for tier in TIERS if found[tier]}

    def scopes_s(self) -> dict[str, float]:
        """Return the expected seconds of each scope."""
        found: dict[str, float] = {}
        for test in self.tests.values():
            found[test.scope] = found.get(test.scope, 0.0) + test.expected_s
        return found

    def takes_s(self, workers: int) -> float:
        """Return about how long the run takes: never less than its longest scope."""
        scopes = self.scopes_s().values()
        return max(sum(scopes) / max(workers, 1), *scopes, 0.0)


def remember(cache: pytest.Cache, seconds: Mapping[str, Sequence[float]]) -> None:
    """Keep what tests took for the plans of later runs. seconds: of each test, by module."""
    found = {module: round(sum(each) / len(each), 4) for module, each in seconds.items()}
    cache.set(_CACHE, {**cache.get(_CACHE, {}), **found})
