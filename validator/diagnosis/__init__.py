"""Causes: from a probe's report or a pasted text to the cause, its evidence and its remedy.

`data/messages/` holds the messages that software prints, `data/report.yaml` the fields of a report, and
`data/causes.yaml` what they are signs of.
"""

from .causes import CauseEntry, causes
from .diagnose import diagnose_file, diagnose_log, diagnose_report

__all__ = ["CauseEntry", "causes", "diagnose_file", "diagnose_log", "diagnose_report"]
