"""Render a report as JUnit XML for CI systems, with one suite per stage and one test case per check.

The format follows the schema of Jenkins' xUnit plugin (junit-10.xsd), which other systems use too:
testsuites, testsuite and testcase; failure, error and skipped with a message.
"""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

from ..model.report import CheckOutcome, CheckResult, Report
from ..redaction.identifiers import without_gpu_uuids
from .overview import LIMITED
from .printable import COMMAND

#: Characters that XML 1.0 does not allow, not even escaped (section 2.2, Characters).
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
#: `error` means that the check itself is faulty. A crash or a timeout is a failure of what was checked.
_ELEMENTS = {
    CheckOutcome.FAIL: "failure",
    CheckOutcome.CRASH: "failure",
    CheckOutcome.TIMEOUT: "failure",
    CheckOutcome.ERROR: "error",
    CheckOutcome.SKIP: "skipped",
}
_STAGES = ("host", "tensorflow")


def junit(report: Report) -> str:
    """Return the report as an XML document, without the UUIDs of GPUs."""
    counts = _counts(report.checks)
    # The schema allows this attribute only for suites.
    del counts["skipped"]
    root = ElementTree.Element("testsuites", {"name": "validator", **counts})
    stages = {check.id: _xml(check.stage) for check in report.checks}
    for stage in dict.fromkeys((*_STAGES, *stages.values())):
        checks = tuple(check for check in report.checks if stages[check.id] == stage)
        if checks:
            root.append(_suite(report, stage, checks))
    ElementTree.indent(root)
    text = '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"
    text = without_gpu_uuids(text)
    return COMMAND.sub(lambda match: f"{match['blanks'] or ''}&#{ord(match[0][-1])};", text)


def _suite(report: Report, stage: str, checks: tuple[CheckResult, ...]) -> ElementTree.Element:
    when = _xml(report.started.removesuffix("Z")[:19])
    suite = ElementTree.Element("testsuite", {"name": stage, "timestamp": when, **_counts(checks)})
    properties = ElementTree.SubElement(suite, "properties")
    known = [
        ("probe", report.probe.version),
        ("tensorflow", report.environment.tensorflow),
        ("python", report.environment.python),
        ("driver", report.host.driver),
        ("gpus", ", ".join(report.host.gpu_names)),
        *((LIMITED, limit.sentence) for check in checks for limit in check.limits),
    ]
    for name, value in known:
        if value:
            ElementTree.SubElement(properties, "property", name=name, value=_xml(value))
    for check in checks:
        named = {"classname": f"validator.{stage}", "name": _xml(check.id)}
        case = ElementTree.SubElement(suite, "testcase", named, time=f"{check.duration_s:.3f}")
        if check.outcome in _ELEMENTS:
            attributes = {"message": _xml(check.sentence)}
            if check.outcome is not CheckOutcome.SKIP:
                attributes["type"] = check.outcome.value
            ElementTree.SubElement(case, _ELEMENTS[check.outcome], attributes)
        output = ElementTree.SubElement(case, "system-out")
        output.text = _xml(f"{check.sentence}\n{json.dumps(check.evidence.raw, indent=1)}")
    return suite


def _counts(checks: tuple[CheckResult, ...]) -> dict[str, str]:
    elements = [_ELEMENTS.get(check.outcome) for check in checks]
    return {
        "tests": str(len(checks)),
        "failures": str(elements.count("failure")),
        "errors": str(elements.count("error")),
        "skipped": str(elements.count("skipped")),
        "time": f"{sum(check.duration_s for check in checks):.3f}",
    }


def _xml(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
