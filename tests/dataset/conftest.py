"""One export for all tests that only read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.records.record_files import read_file

from ..loop import tiers
from .exports import write

#: Records of real runs without a GPU, and made-up ones of every other kind.
RECORDS = Path(__file__).parents[1] / "records" / "kept_records.jsonl.gz"


@pytest.fixture(scope="session")
@tiers.slow
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of an export with records in all formats."""
    directory = tmp_path_factory.mktemp("export") / "data"
    write(directory, list(read_file(RECORDS)))
    return directory
