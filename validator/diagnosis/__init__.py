"""The diagnosis: from a probe's report or a pasted text to the cause, its evidence and its remedy.

Each family in `data/` holds the messages that software prints and the causes that they are signs of, and
`data/report.yaml` the fields of a report. `compile.py` makes `data/compiled.json` from them, which is all
that is read at run time.

The diagnosis of text needs nothing but Python's standard library.
"""

from .catalogue import CauseEntry, causes
from .diagnose import diagnose_ends, diagnose_file, diagnose_log, diagnose_report

__all__ = ["CauseEntry", "causes", "diagnose_ends", "diagnose_file", "diagnose_log", "diagnose_report"]
