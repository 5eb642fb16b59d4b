"""The problems and statements of the probe's checks: a code with typed fields, and its sentence.

A report holds codes and values, no sentences. Whoever shows a report to people makes the sentences here, both
inside the probe (progress lines) and on the host side (terminal, JUnit, the reasons of a verdict).

A *problem* is something that a check found wrong: a `fault` fails the check; an `advisory` doesn't; a `limit`
is what fails only in full float32, outside TensorFlow's defaults, and doesn't fail the check either. A
*statement* is what a check says when it did not fail: what passed, why it was skipped, how it ended. Both are
JSON objects with a `code` and the fields that the catalogue lists; a problem also has its `severity`.

Standard library only, for Python 3.9 and newer: this module travels with the probe. The catalogue is
`problems.json` next to it.
"""

import json
import pkgutil
import re
import string
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

FAULT, ADVISORY, LIMIT = "fault", "advisory", "limit"
#: The check decides between the two: the same value breaks one machine and not another.
EITHER = "either"

#: Types of fields; a `?` at the end means that the field may be null. `quoted` is text that other software
#: printed or raised. `object` and `objects` hold values for the formats `spread`, `each` and `and`.
TYPES = ("text", "quoted", "integer", "number", "flag", "texts", "object", "objects")

#: The most sentences with the same code that a summary contains.
_SHOWN = 5
#: Characters of a value that a sentence quotes.
_QUOTED = 80

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    """A code's row in the catalogue.

    template: the sentence without a full stop, in the language of `_Formatter`; a part in [brackets] is left
    out when one of its fields is null or empty. None where a function of `_WRITTEN` makes the sentence.
    severity: FAULT, ADVISORY, LIMIT or EITHER; None for a statement. about: a template for the subject, put
    before the sentence with a colon. fields: type by name. group: the check that uses the code, or what
    several checks use it for.
    """

    template: Optional[str]
    severity: Optional[str]
    about: str
    fields: Mapping[str, str]
    group: str


def problem(code: str, severity: Optional[str] = None, **fields: Any) -> Dict[str, Any]:
    """Return a problem. Pass the severity only where the catalogue leaves it to the check."""
    return {"code": code, "severity": severity or CATALOGUE[code].severity, **fields}


def statement(code: str, **fields: Any) -> Dict[str, Any]:
    return {"code": code, **fields}


def sentence(entry: Entry) -> str:
    """Return the sentence without a full stop; a code or field of a newer probe gives a readable text too."""
    kind = CATALOGUE.get(str(entry.get("code")))
    about = _filled(kind.about, entry) if kind and kind.about else None
    return f"{about}: {clause(entry)}" if about else clause(entry)


def clause(entry: Entry) -> str:
    """Return the sentence without its subject (`NAME='value': `), for a caller that has just named it."""
    code = str(entry.get("code"))
    kind = CATALOGUE.get(code)
    if kind is None:
        return _fallback(entry)
    if kind.template is not None:
        return _filled(kind.template, entry) or _fallback(entry)
    try:
        return _WRITTEN[code](entry)
    except (KeyError, TypeError, ValueError):
        return _fallback(entry)


def summary(check: Mapping[str, Any]) -> str:
    """Return one line for a check of a report: its statement, its faults, then its advisories."""
    problems: List[Entry] = check.get("problems") or []
    stated = [sentence(check["statement"])] if check.get("statement") else []
    stated += _sentences([entry for entry in problems if entry.get("severity") != ADVISORY])
    advisories = _sentences([entry for entry in problems if entry.get("severity") == ADVISORY])
    parts = [*stated, *([f"note: {'; '.join(advisories)}"] if advisories else [])]
    return "; ".join(parts)


def _sentences(entries: Sequence[Entry]) -> List[str]:
    """Return each sentence once; of many sentences with the same code, only the first ones."""
    by_code: Dict[str, Dict[str, None]] = {}
    for entry in entries:
        by_code.setdefault(str(entry.get("code")), {})[sentence(entry)] = None
    lines: List[str] = []
    for found in by_code.values():
        lines += list(found)[:_SHOWN]
        if len(found) > _SHOWN:
            lines.append(f"and {len(found) - _SHOWN} more")
    return lines


def _fallback(entry: Entry) -> str:
    words = str(entry.get("code") or "unknown problem").replace("_", " ")
    fields = [f"{name}: {_cut(value)}" for name, value in entry.items() if name not in ("code", "severity")]
    return f"{words} ({', '.join(fields)})" if fields else words


def _cut(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _QUOTED else text[: _QUOTED - 3] + "..."


_OPTIONAL = re.compile(r"\[([^\[\]]*)\]")


def _filled(template: str, entry: Entry) -> Optional[str]:
    """Fill in the template; None when the entry doesn't have what it needs."""

    def part(match: "re.Match[str]") -> str:
        names = [name for _, name, _, _ in _FORMATTER.parse(match[1]) if name]
        return "" if any(entry.get(name) in (None, "", [], ()) for name in names) else match[1]

    try:
        return _FORMATTER.vformat(_OPTIONAL.sub(part, template), (), entry)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        return None


class _Formatter(string.Formatter):
    """`str.format` with the additional formats that sentences need; the usual formats for numbers still work.

    {names}, {names:and}        a list, joined by commas or by "and"
    {files:each $path ($why)}   a list of objects, each by that template, joined by commas; `and` instead of
                                `each` joins them by "and"
    {count:count GPU}           "1 GPU", "2 GPUs"; "1 library", "2 libraries"
    {value:q}                   in quotes, cut if it is long
    {bytes:MiB}                 bytes as MiB
    {ratio:spread}              an object with median, q1 and q3
    {phase:phase}               the words for the value in the vocabulary of that name
    """

    def format_field(self, value: Any, spec: str) -> str:
        word, _, rest = spec.partition(" ")
        if spec in VOCABULARIES:
            return VOCABULARIES[spec].get(str(value), str(value))
        if rest and word in ("each", "and"):
            items = [string.Template(rest).safe_substitute(item) for item in value]
            return (" and " if word == "and" else ", ").join(items)
        if rest and word == "count":
            plural = f"{rest[:-1]}ies" if rest.endswith("ry") else f"{rest}s"
            return f"{value} {rest if value == 1 else plural}"
        if spec == "q":
            return repr(_cut(str(value)))
        if spec == "MiB":
            return f"{value / (1 << 20):.0f} MiB"
        if spec == "spread":
            if value is None:
                return "unknown"
            return f"{value['median']:.2f} ({value['q1']:.2f} to {value['q3']:.2f})"
        if isinstance(value, (list, tuple)):
            return (" and " if spec == "and" else ", ").join(str(item) for item in value)
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return format(value, spec) if number else str(value)


_FORMATTER = _Formatter()


# The sentences that a template can't make.


def _kernels_run(entry: Entry) -> str:
    texts: Dict[str, None] = {}
    for gpu in entry["gpus"]:
        named = f"{gpu['name']} (compute capability {gpu['compute_capability']})"
        if gpu["kernels"] == "native":
            text = f"{named} runs machine code from the wheel"
        else:
            units = f"{gpu['compiled']} of {gpu['units']} units" if gpu["units"] else "the kernels"
            isa = f" (ISA {gpu['isa']})" if gpu["isa"] else ""
            text = f"for {named} the driver compiles {units} of the wheel from PTX{isa}"
            if not gpu["certain"]:
                text += "; it isn't known whether this driver can"
        if gpu["without"]:
            text += f"; {gpu['without']} of {gpu['units']} units have no code for it"
        texts[text] = None
    return "; ".join(texts)


def _step_ran_on_gpu(entry: Entry) -> str:
    ran = f"the step ran on the GPU and allocated {entry['allocated_bytes']} bytes there"
    if entry["kernels"] is not None:
        return f"{ran}; {entry['kernels']} kernels took {entry['gpu_time_ms']:.2f} ms"
    return f"{ran}; its GPU time is unknown: {sentence(entry['unknown'] or {})}"


def _clusters_made(entry: Entry) -> str:
    made = (
        f"set_jit(True) puts {entry['operations']} operations into {entry['clusters']} cluster(s) for the"
        f" {entry['device_type']}"
    )
    if entry["device_type"] == "GPU":
        return f"{made}; {entry['left']} operations remain in the graph"
    without = entry["clusters_without_flag"]
    return f"{made} with TF_XLA_FLAGS={entry['cpu_flag']}, and into {without} without that flag"


def _xla_coverage(entry: Entry) -> str:
    others = ("unavailable", "crashed", "hung")
    other = "".join(f", {entry[outcome]} {outcome}" for outcome in others if entry[outcome])
    return (
        f"XLA compiles {entry['compiled']} of {entry['total']} layers and operations for the"
        f" {entry['device_type']}, and rejects {entry['refused']}{other}"
    )


def _policies_train(entry: Entry) -> str:
    words = {True: " with tensor cores", False: " without tensor cores"}
    gains = [
        f"{gain['type']} {_FORMATTER.format_field(gain['speedup'], 'spread')}"
        f"{words.get(gain['tensor_cores'], '')}"
        for gain in entry["gains"]
    ]
    return f"trains like float32 on the {entry['device_type']}; speed relative to float32: {', '.join(gains)}"


_WRITTEN: Dict[str, Callable[[Entry], str]] = {
    "kernels_run": _kernels_run,
    "step_ran_on_gpu": _step_ran_on_gpu,
    "clusters_made": _clusters_made,
    "xla_coverage": _xla_coverage,
    "policies_train": _policies_train,
}


def _read() -> Dict[str, Any]:
    # Not `__package__`, which the zip importer of Python 3.9 leaves unset.
    content = pkgutil.get_data(__name__.rpartition(".")[0], "problems.json")
    assert content is not None
    document: Dict[str, Any] = json.loads(content)
    return document


_DOCUMENT = _read()
#: Words for fields that take one of a few values: vocabulary -> value -> words.
VOCABULARIES: Dict[str, Dict[str, str]] = _DOCUMENT["vocabularies"]
#: Every code, with its row.
CATALOGUE: Dict[str, Kind] = {
    code: Kind(row.get("template"), row.get("severity"), row.get("about", ""), row.get("fields", {}), group)
    for group, rows in _DOCUMENT["codes"].items()
    for code, row in rows.items()
}
