"""Mirrors `validator/diagnosis/`."""
