"""The append-only store of measurements, and what became of cells."""
