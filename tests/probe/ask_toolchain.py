"""Prints what the check `xla_toolchain` finds under several variables: `ask_toolchain.py ARCHIVE VARIABLES`.

Run by the Python of an environment with TensorFlow, which it imports only once. VARIABLES: a list of objects,
as JSON; so are the results.
"""

from __future__ import annotations

import json
import os
import sys

sys.path.insert(0, sys.argv[1])
import tensorflow as tf

from validator.probe.check import Context
from validator.probe.checks.libraries import xla_toolchain

found = []
for variables in json.loads(sys.argv[2]):
    os.environ.update(variables)
    result = xla_toolchain.run(Context({"host": {"gpus": []}}, None, tf))
    found.append({"outcome": result.outcome, "sentence": result.sentence, "evidence": result.evidence})
print(json.dumps(found))
