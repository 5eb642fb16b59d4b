"""The append-only store of what was measured, and comparisons of what is in it."""
