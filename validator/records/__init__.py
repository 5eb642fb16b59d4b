"""The append-only store of measurements, and the history of cells."""
