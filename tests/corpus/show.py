"""Print what `doctor` answers to entries of the corpus: `python -m tests.corpus.show written/hdf5-locked`."""

from __future__ import annotations

import io
import sys

from validator.diagnosis import diagnose_file
from validator.reports.diagnosis import text

from . import reader

if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(text(diagnose_file(io.BytesIO(reader.entry(name).content()), name)))
