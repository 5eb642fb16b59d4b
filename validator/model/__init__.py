"""The plain values that pass between the rooms. Imports nothing else of this project."""
