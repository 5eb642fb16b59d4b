"""Lint: read the files with which a project pins its software, and say which pins can't work together.

A reader for each kind of file (`requirements.py`, `dockerfile.py`, ...) makes environments of pins, each with
its place. `findings.py` asks `compat` about each environment and names the pin to blame. What a file leaves
open is never guessed: a finding holds for every version that the pins allow.
"""

from __future__ import annotations
