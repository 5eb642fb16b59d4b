"""The checks: one module each, holding one `CHECK`."""
