"""Say why a value of CUDA_VISIBLE_DEVICES hides every GPU, whatever the machine.

CUDA shows the devices that the variable lists, up to the first entry that is not valid.
"""

from __future__ import annotations

import re

from ..model.prediction import Reason
from . import facts

#: No machine has this many GPUs.
_MANY_GPUS = 64


def reason_hidden(value: str) -> Reason | None:
    """Return why a value hides every GPU; None if some machine shows one, or if the value has a variable."""
    why = why_hidden(value)
    if why is None:
        return None
    return facts.rule("platforms", "cuda-visible-devices").fails(
        f"CUDA_VISIBLE_DEVICES={value} hides every GPU from TensorFlow: {why}", "devices_hidden"
    )


def why_hidden(value: str) -> str | None:
    """Return why no machine shows a GPU with this value, as a clause, or None if some machine may."""
    first = value.split(",")[0].strip()
    if not first:
        return "an empty value shows no GPU"
    if re.fullmatch(r"-\d+", first):
        return "a negative index shows no GPU"
    if re.fullmatch(r"\d{1,9}", first):
        return f"no machine has a GPU {int(first)}" if int(first) >= _MANY_GPUS else None
    if re.match(r"(?i)all$", first):
        return '"all" is not an index: it shows no GPU'
    if re.match(r"(?i)(GPU|MIG)-|\$", first):
        return None
    return f'"{first}" is neither an index nor a UUID: it shows no GPU'
