"""Weigh what people measured and reported against the rules, and find it for a combination.

Evidence has ranks (`model.prediction.Rank`), of which the rules over published facts are the lowest. A
measurement with the same TensorFlow, Python, minor versions of CUDA and cuDNN, compute capability and driver
branch comes before them. One that differs in the Python, in the driver's release or in another package is
weaker: it decides only where the rules do not, and one that failed turns "works" into "not known". A
measurement on another GPU of the same compute capability does not overrule a rule that says "fails", because
the rule may be about the model. A report that a person sent decides only where the rules do not, and a public
statement never. A contradiction shows both sides.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..model.prediction import (
    EAGER,
    EAGER_ONLY,
    LINUX,
    MODES,
    PYPI,
    X86_64,
    XLA,
    Attempt,
    Host,
    Limit,
    Outcome,
    Prediction,
    Rank,
    Reason,
    Software,
    decide,
)
from ..versions import ComputeCapability, CudaVersion, DriverRelease, minor_in
from . import facts, hardware, known_issues
from .releases import Release, build

if TYPE_CHECKING:
    from .judge import Machine

_DECIDES = (Rank.MEASURED,)
_OVERRULED = {
    Outcome.FAILS: "the rules alone say that it fails: {}",
    Outcome.UNKNOWN: "the rules alone do not decide: {}",
}
_OTHERWISE = "; the rules say otherwise"


@dataclass(frozen=True)
class Tried:
    """Evidence for software, and the machine that it is about.

    capability and model (the GPU's short name): None for any. driver: as installed; None if not known.
    """

    evidence: Attempt
    capability: ComputeCapability | None
    driver: DriverRelease | None
    model: str | None = None


@dataclass(frozen=True)
class Versions:
    """The versions that TensorFlow runs with. cudnn_major: if only that is known. packages: without -cuNN."""

    release: Release | None
    python: str | None
    cuda: CudaVersion | None
    cudnn: str | None
    cudnn_major: str | None
    packages: Mapping[str, str]

    @property
    def from_wheels(self) -> bool:
        return any(name.startswith("nvidia-") for name in self.packages)


def on_software(
    tried_version: str, software: Software, versions: Versions, system: str | None, machine: str | None
) -> tuple[Tried, ...]:
    """Return what was tried on any machine, best first. tried_version: may differ from `versions.release`."""
    return tuple(
        found
        for rows, read in zip(_by_release(), (_measured, _reported), strict=True)
        for row in rows.get(tried_version, ())
        for found in read(row, software, versions, system, machine)
    )


def on_machine(tried: Iterable[Tried], host: Machine) -> tuple[Attempt, ...]:
    """Return what was tried on a kind of machine: its compute capability and its driver branch."""
    return tuple(
        sorted(
            (found for one in tried if (found := _on_machine(one, host)) is not None),
            key=lambda one: (one.rank not in _DECIDES, bool(one.differs)),
        )
    )


def measured_on(asked: Host, host: Machine) -> Iterator[str]:
    """Yield what was measured on Linux x86_64 with such a GPU and driver branch, the newest first."""
    if (asked.system or LINUX, asked.machine or host.of_gpu or X86_64) != (LINUX, X86_64):
        return
    for row in measurements():
        capability, driver = ComputeCapability.parse(row["capability"]), DriverRelease.parse(row["driver"])
        if capability != host.capability or (host.driver and driver.branch != host.driver.branch):
            continue
        only_eager = (row["eager"], row["xla"]) == (Outcome.WORKS.value, Outcome.FAILS.value)
        word = EAGER_ONLY if only_eager else row["xla"]
        codes = " and ".join(limit["code"] for limit in row["limits"])
        limits = f", with the limits {codes}" if codes else ""
        yield (
            f"Measured on {row['date']} on {row['gpu']} with driver {row['driver']}:"
            f" {row['id'].partition('@')[0]}, {word}{limits}."
        )


def weigh(
    reasons: Iterable[Reason], found: Sequence[Attempt], missing: tuple[str, ...], mode: str | None
) -> Prediction:
    """Return the prediction from the rules and from what `on_machine` found. The rest is as for `decide`."""
    rules = decide(reasons, missing, mode)
    asked = [name for name in MODES if mode in (None, name)]
    decided = ((name, _decision(found, name, rules)) for name in asked)
    by_evidence = {name: pair for name, pair in decided if pair is not None}
    outcomes = {name: outcome for name, (_, outcome) in by_evidence.items()}
    if len(asked) > 1 and len(by_evidence) == len(asked) and len(set(by_evidence.values())) == 1:
        # One reason for both modes.
        evidence, outcome = by_evidence[EAGER]
        told = [_reason(evidence, outcome, None, rules.outcome)]
    else:
        told = [
            _reason(evidence, outcome, name, rules.eager if name == EAGER else rules.xla)
            for name, (evidence, outcome) in by_evidence.items()
        ]
    for reason in rules.reasons:
        told += _after_evidence(reason, outcomes, asked)
    answer = decide(told, missing, mode)
    deciding = [evidence for evidence, _ in by_evidence.values()]
    remarks = []
    for one in found:
        if one not in deciding:
            remarks.append(_beside(one, answer, rules))
        remarks += [limit_reason(limit, one.id, one.source, one.rank) for limit in one.limits]
    # If evidence only makes an answer uncertain, the answer is not a measured one.
    decides = [evidence.outcome(name) is outcome for name, (evidence, outcome) in by_evidence.items()]
    is_measured = len(decides) == len(asked) and all(decides) and not missing
    rank = Rank.MEASURED if is_measured else Rank.DERIVED
    # Remarks come last, and among them those about what was tried come first.
    return replace(decide([*remarks, *answer.reasons], missing, mode), rank=rank, evidence=tuple(found))


def _decision(found: Sequence[Attempt], mode: str, rules: Prediction) -> tuple[Attempt, Outcome] | None:
    """Return the evidence that decides a mode, with the outcome; None if the rules do."""
    tried = [one for one in found if one.rank in _DECIDES and one.outcome(mode) is not None]
    if not tried:
        return None
    best = tried[0]
    seen, expected = best.outcome(mode), rules.eager if mode == EAGER else rules.xla
    assert seen is not None
    if expected is Outcome.UNKNOWN and not rules.missing:
        return best, seen
    if best.imported:
        return None
    if not best.differs and not (best.other_gpu and expected is Outcome.FAILS):
        return best, seen
    if expected is Outcome.WORKS and seen is Outcome.FAILS:
        return best, Outcome.UNKNOWN
    return None


def _reason(evidence: Attempt, outcome: Outcome, mode: str | None, expected: Outcome | None) -> Reason:
    """Return a measurement as a reason that decides. expected: what the rules alone say."""
    seen = evidence.outcome(mode or EAGER)
    assert seen is not None, "evidence decides only what it shows"
    against = expected is not seen and expected is not Outcome.UNKNOWN
    text = f"{_told(evidence, seen, mode)}{_OTHERWISE if against else ''}"
    return Reason(outcome, text, evidence.id, evidence.source, evidence.rank.value, mode=mode)


def _after_evidence(
    reason: Reason, outcomes: Mapping[str, Outcome], asked: Sequence[str]
) -> Iterator[Reason]:
    """Yield a reason of the rules; where a measurement showed otherwise, as a remark."""
    if reason.advisory or reason.outcome is Outcome.WORKS:
        yield reason
        return
    about = [mode for mode in asked if reason.mode in (None, mode)]
    # Evidence that only makes the answer unsure speaks against no reason.
    overruled = [mode for mode in about if outcomes.get(mode) not in (None, reason.outcome, Outcome.UNKNOWN)]
    kept = [mode for mode in about if mode not in overruled]
    if kept or not about:
        yield replace(reason, mode=kept[0] if overruled else reason.mode)
    if overruled:
        text = _OVERRULED[reason.outcome].format(reason.text)
        mode = reason.mode if not kept else overruled[0]
        yield replace(reason, outcome=Outcome.WORKS, text=text, advisory=True, rule=None, mode=mode)


def _contradicts(one: Attempt, prediction: Prediction) -> bool:
    return any(
        one.outcome(mode) not in (None, expected) and expected not in (None, Outcome.UNKNOWN)
        for mode, expected in ((EAGER, prediction.eager), (XLA, prediction.xla))
    )


def _beside(one: Attempt, answer: Prediction, rules: Prediction) -> Reason:
    """Return a remark about what was tried and does not decide, with a contradiction named."""
    against = _contradicts(one, answer)
    if one.rank is Rank.REPORTED:
        differs = f", {' and '.join(one.differs)}" if one.differs else ""
        contradiction = "; this contradicts the prediction" if against else ""
        explained = f" ({one.explained})" if one.explained and against else ""
        text = f"reported by a person{differs}: {one.text}{contradiction}{explained}"
    else:
        modes: Sequence[str | None] = (None,) if one.eager is one.xla else MODES
        said = [(mode, one.outcome(mode or EAGER)) for mode in modes]
        text = "; ".join(_told(one, seen, mode) for mode, seen in said if seen is not None)
        another = "; another measurement says otherwise" if against else ""
        text += _OTHERWISE if _contradicts(one, rules) else another
    return Reason(Outcome.WORKS, text, one.id, one.source, one.rank.value, True)


def limit_reason(limit: Limit, fact: str, source: str, rank: Rank) -> Reason:
    """Return a limit as a remark. fact, source, rank: of the evidence in which it was seen."""
    return Reason(Outcome.WORKS, limit.line, fact, source, rank.value, True, mode=limit.mode)


def _told(one: Attempt, seen: Outcome, mode: str | None) -> str:
    """Return a measurement as a sentence without a full stop. seen: `works` or `fails`."""
    subject = {None: "it", EAGER: "eager execution", XLA: "XLA"}[mode]
    differs = f" with {' and '.join(one.differs)}" if one.differs else ""
    weaker = "; this is weaker evidence" if one.differs else ""
    return f"{one.rank.value} on {one.date}{differs}: {subject} {seen.value} on {one.text}{weaker}"


def _on_machine(one: Tried, host: Machine) -> Attempt | None:
    """Return the evidence if it is about such a machine, with how the machine differs."""
    if one.capability is not None and one.capability != host.capability:
        return None
    evidence = one.evidence
    if evidence.rank in _DECIDES:
        if host.on_windows or host.user is None or host.user.lifted_to:
            return None
        if host.model is not None and host.model != one.model:
            text = f"{evidence.text}, a GPU of the same compute capability"
            evidence = replace(evidence, other_gpu=True, text=text)
    if one.driver is None:
        return evidence
    if host.driver is None or host.driver.branch != one.driver.branch:
        return None
    if host.driver.is_branch or one.driver.is_branch or host.driver == one.driver:
        return evidence
    other = f"driver {one.driver} instead of {host.driver}"
    return replace(evidence, differs=(*evidence.differs, other))


# The rows of `measurements/` and of `data/reported.yaml`.


@functools.cache
def measurements() -> tuple[facts.Row, ...]:
    """Return the measurements, the newest first."""
    rows = facts.rows(facts.MEASUREMENTS, facts.MEASUREMENTS)
    return tuple(sorted(rows, key=lambda row: row["date"], reverse=True))


@functools.cache
def _by_release() -> tuple[Mapping[str, list[facts.Row]], Mapping[str, list[facts.Row]]]:
    """Return the measurements, the newest first, and the public reports, both by release."""
    found: tuple[dict[str, list[facts.Row]], dict[str, list[facts.Row]]] = {}, {}
    for rows, by_release in zip((measurements(), facts.rows("reported", "reported")), found, strict=True):
        for row in rows:
            by_release.setdefault(row["tensorflow"], []).append(row)
    return found


def _measured(
    row: facts.Row, software: Software, versions: Versions, system: str | None, machine: str | None
) -> Iterator[Tried]:
    """Yield a measurement if it is about such software: PyPI's TensorFlow on Linux.

    The loader was told about NVIDIA's wheels; this matters only if TensorFlow does not find them itself.
    """
    known = build(row["tensorflow"])
    told = software.library_path or (known is not None and not known.not_found)
    where = (system, machine, software.wheel)
    same = (str(versions.cuda), minor_in(versions.cudnn)) == (row["cuda"], row["cudnn"])
    if where != (LINUX, X86_64, PYPI) or not same or (software.library_path is False and not told):
        return
    fact = facts.fact(row)
    gpu, driver = row["gpu"], row["driver"]
    path_set = () if told else ("NVIDIA's libraries on the loader's search path",)
    evidence = Attempt(
        id=fact.id,
        rank=Rank.MEASURED,
        eager=Outcome(row["eager"]),
        xla=Outcome(row["xla"]),
        text=f"{gpu} with driver {driver} and Python {row['python']}"
        + (", in a report that a person sent" if row["imported"] else ""),
        source=f"{fact.source}, probe {row['probe']}: {row['how']}",
        date=row["date"],
        differs=(*_other_software(row, versions), *path_set),
        limits=tuple(Limit(**limit) for limit in row["limits"]),
        imported=row["imported"],
    )
    capability = ComputeCapability.parse(row["capability"])
    yield Tried(evidence, capability, DriverRelease.parse(driver), hardware.model_of(gpu))


@functools.cache
def compared_packages() -> frozenset[str]:
    """Return the packages whose versions a prediction can depend on, by name without a CUDA suffix."""
    return known_issues.named_packages().union(
        known_issues.framework_packages(), ("numpy", "nvidia-cuda-nvcc")
    )


def _other_software(row: facts.Row, asked: Versions) -> Iterator[str]:
    """Yield what a measurement had instead of what was asked about."""
    if asked.python != row["python"]:
        yield f"Python {row['python']}" + (f" instead of {asked.python}" if asked.python else "")
    for name in sorted(compared_packages() & asked.packages.keys()):
        version, tried = asked.packages[name], row["packages"].get(name)
        if tried is None and not name.startswith("nvidia-"):
            yield f"no {name}"
        elif tried is not None and minor_in(tried) != minor_in(version):
            yield f"{name} {tried} instead of {version}"


def _reported(
    row: facts.Row, software: Software, versions: Versions, system: str | None, machine: str | None
) -> Iterator[Tried]:
    """Yield a public report if it is about such software."""
    where = (system or LINUX, machine or X86_64, software.wheel or PYPI)
    if where != (row.get("system", LINUX), row.get("machine", X86_64), row.get("wheel", PYPI)):
        return
    stated = {name: value for name, value in row.items() if name not in row.get("assumed", ())}
    asked = (("cuda", str(versions.cuda)), ("cudnn", minor_in(versions.cudnn)))
    if any(stated.get(name, known) != known for name, known in asked):
        return
    fact, python = facts.fact(row), stated.get("python")
    evidence = Attempt(
        id=fact.id,
        rank=Rank.REPORTED,
        eager=Outcome(row["eager"]) if "eager" in row else None,
        xla=Outcome(row["xla"]) if "xla" in row else None,
        text=row["seen"],
        source=fact.source,
        differs=(f"with Python {python}",) if python and python != versions.python else (),
        explained=row.get("explained"),
    )
    # Without a GPU's name or capability, the report is about every GPU.
    capability = ComputeCapability.or_none(stated.get("compute_capability"))
    if "gpu" in stated and "compute_capability" not in stated:
        capability = hardware.gpu(stated["gpu"]).compute_capability
    yield Tried(evidence, capability, DriverRelease.or_none(stated.get("driver")))
