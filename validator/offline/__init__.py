"""The part of a bundle that runs on the other machine: only the standard library, of Python 3.9 or newer."""
