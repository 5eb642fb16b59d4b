"""The append-only store of what was measured, and the rule that turns a report into a verdict."""
