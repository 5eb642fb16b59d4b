"""What a release needs by itself, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..compat.drivers import branches
from ..compat.needs import GpuNeed, Needs
from ..model.prediction import Outcome, Reason
from .terminal import reasons_table, word


def needs_text(found: Needs) -> RenderableType:
    """The versions, what each GPU needs, then the reasons that hold on any machine."""
    facts = Table.grid(padding=(0, 2))
    facts.add_row("CUDA", found.cuda)
    facts.add_row("cuDNN", found.cudnn)
    facts.add_row("Python", ", ".join(found.pythons))
    facts.add_row("driver", f"{found.driver} or newer" if found.driver else "not known")
    table = Table("capability", "driver", "GPUs", box=None, pad_edge=False)
    for need in found.gpus:
        table.add_row(str(need.capability), _driver(need), Text(", ".join(need.gpus)))
    return Group(facts, "", table, "", *_why_not(found.gpus), reasons_table(found.reasons))


def _why_not(gpus: Sequence[GpuNeed]) -> Iterator[RenderableType]:
    """What speaks against GPUs that nothing runs on, said once for all that it holds for."""
    grouped: dict[Reason, list[str]] = {}
    for need in gpus:
        if need.reason is not None:
            grouped.setdefault(need.reason, []).append(str(need.capability))
    table = Table.grid(padding=(0, 2))
    for reason, capabilities in grouped.items():
        table.add_row(", ".join(capabilities), Text(reason.text))
        table.add_row("", Text(f"{reason.fact} ({reason.status}): {reason.source}", style="dim"))
    if grouped:
        yield table
        yield ""


def _driver(need: GpuNeed) -> Text:
    if need.reason is None:
        return Text(span(need.branches))
    return word("unknown") if need.reason.outcome is Outcome.UNKNOWN else Text("none", style="red")


def span(numbers: Sequence[int]) -> str:
    """`R525 or newer`, `R525 to R580`, `R525`; of driver branches, where none between is left out."""
    known = [branch.number for branch in branches()]
    first, last = known.index(numbers[0]), known.index(numbers[-1])
    if list(numbers) != known[first : last + 1]:
        return ", ".join(f"R{number}" for number in numbers)
    if numbers[-1] == known[-1]:
        return f"R{numbers[0]} or newer"
    return f"R{numbers[0]} to R{numbers[-1]}" if len(numbers) > 1 else f"R{numbers[0]}"
