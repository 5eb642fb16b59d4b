"""The append-only store of measurements, and comparisons of its records."""
