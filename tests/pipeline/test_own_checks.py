"""The user's own checks in a run: packed into the probe, required by the matrix, signed, part of the key."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from validator._vendor.packaging.requirements import Requirement
from validator.compat.policies import requirements
from validator.engines.protocol import Built, ProbeRequest
from validator.errors import MissingError
from validator.locks import lock_files
from validator.model.record import Record, Verdict, measurement_of
from validator.model.spec import Additions, CheckFile, Choice, ImageSpec, Lock, Variant, Wheel
from validator.pipeline.build_matrix import build_matrix
from validator.pipeline.run import Options, Result, Run, Runner, Status
from validator.records.store import Store
from validator.system.package_sources import PackageSources

from .fakes import H100, FakeEngine, outside_of, report

LIBRARIES = Choice("as-built", "12.5"), Choice("as-built", "9.3")


@dataclasses.dataclass
class Bench:
    """A machine with a GPU and a key, and one check of the user's own."""

    directory: Path
    store: Store
    signed: list[bytes] = dataclasses.field(default_factory=list)
    requests: list[ProbeRequest] = dataclasses.field(default_factory=list)

    def spec(self, required: bool = True) -> ImageSpec:
        content = (self.directory / "checks/our_check.py").read_bytes()
        check = CheckFile("checks/our_check.py", hashlib.sha256(content).hexdigest(), required)
        added = Additions("ours", checks=(check,), directory=self.directory)
        return ImageSpec("2.21.0", "3.11", Variant.GPU, *LIBRARIES, additions=added)

    def run(self, outcomes: dict[str, str], spec: ImageSpec | None = None) -> Result:
        """outcomes: of the checks besides those of every image, none of which the report calls required."""
        spec = spec or self.spec()
        assert spec.additions is not None
        asked = requirements(spec)
        pins = (Requirement(line) for line in asked)
        wheels = tuple(
            Wheel(pin.name, str(pin.specifier).removeprefix("==") or "26.3", "0" * 64, "a-1-py3-none-any.whl")
            for pin in sorted(pins, key=lambda pin: pin.name)
        )
        lock = Lock(spec.identifier, spec.python, "x", asked, wheels, spec.additions.notes)
        lock_files.write(self.directory / "locks", lock)
        document = json.loads(report(H100))
        document["checks"] += [
            {**document["checks"][0], "id": name, "outcome": outcome, "required": False}
            for name, outcome in outcomes.items()
        ]

        class Engine(FakeEngine):
            def probe(self, built: Built, request: ProbeRequest, progress: object) -> bytes:
                words = list(request.arguments)
                challenge = words[words.index("--challenge") + 1]
                return json.dumps({**document, "challenge": challenge}).encode()

        engine = Engine(digest=f"sha256:{'ab' * 32}", seen=outside_of(H100), requests=self.requests)
        run = Run(
            engine, self.store, PackageSources(), lock_files.LockDirectory(self.directory / "locks"), (),
            Options(), lambda event: None, runner=Runner(self._sign, lambda cell: "0" * 64),
        )  # fmt: skip
        [result] = build_matrix([spec], run)
        return result

    def record(self, outcomes: dict[str, str], spec: ImageSpec | None = None) -> Record:
        found = self.run(outcomes, spec).record
        assert found is not None
        return found

    def _sign(self, statement: bytes) -> str:
        self.signed.append(statement)
        return "bundle"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks/our_check.py").write_text("def check(context): ...")
    with Store(str(tmp_path / "records.db")) as store:
        yield Bench(tmp_path, store)


PASSED = {"packages": "pass", "ours/our_check": "pass"}


def test_an_image_passes_with_its_packages_and_its_own_check(bench: Bench) -> None:
    record = bench.record(PASSED)
    assert record.verdict is Verdict.CERTIFIED
    [check] = measurement_of(bench.signed[-1]).checks
    assert (check.id, check.required) == ("ours/our_check", True)
    assert check.sha256 == bench.spec().additions.checks[0].sha256  # type: ignore[union-attr]


@pytest.mark.parametrize("name", list(PASSED))
def test_neither_can_be_left_out_or_fail(bench: Bench, name: str) -> None:
    without = bench.record({check: outcome for check, outcome in PASSED.items() if check != name})
    assert (without.verdict, without.reason) == (Verdict.UNPROVEN, f"not run: {name}")
    failed = bench.record({**PASSED, name: "fail"}, dataclasses.replace(bench.spec(), tensorflow="2.20.0"))
    assert failed.verdict is Verdict.FAILED
    assert failed.reason.startswith(f"{name}: ")


def test_a_check_that_the_matrix_does_not_require_may_fail(bench: Bench) -> None:
    assert bench.record({**PASSED, "ours/our_check": "fail"}, bench.spec(False)).verdict is Verdict.CERTIFIED
    assert not measurement_of(bench.signed[-1]).checks[0].required


def test_the_probe_holds_the_check_and_another_file_is_another_measurement(bench: Bench) -> None:
    first = bench.run(PASSED)
    assert first.status is Status.MEASURED
    assert bench.run(PASSED).status is Status.UNCHANGED
    (bench.directory / "checks/our_check.py").write_text("def check(context): ...  # stricter")
    again = bench.run(PASSED)
    assert again.status is Status.MEASURED
    assert first.record is not None and again.record is not None
    assert first.record.key != again.record.key
    assert first.record.probe_version != again.record.probe_version


def test_a_check_that_changes_under_the_run_stops_it(bench: Bench) -> None:
    spec = bench.spec()
    (bench.directory / "checks/our_check.py").write_text("def check(context): ...  # other")
    result = bench.run(PASSED, spec)
    assert isinstance(result.error, MissingError)
    assert "has changed while it was used" in str(result.error)
    assert not list(bench.store.all())
