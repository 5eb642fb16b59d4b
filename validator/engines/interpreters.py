"""Find the Python of an image."""

from __future__ import annotations

#: A script for `/bin/sh -c`, whose further arguments are a Python script and its arguments. In any image, it
#: uses the first interpreter that has TensorFlow, or else the first one, which will report that TensorFlow is
#: missing. Names without a slash are looked up on PATH.
START = """\
set -u
first=
for python in python3 python /opt/venv/bin/python /opt/conda/bin/python /usr/local/bin/python3 \\
    /usr/bin/python3
do
    command -v "$python" >/dev/null 2>&1 || continue
    first=${first:-$python}
    if "$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("tensorflow") is None)' \\
        >/dev/null 2>&1
    then
        exec "$python" "$0" "$@"
    fi
done
if [ -z "$first" ]; then exit 127; fi
exec "$first" "$0" "$@"
"""
#: The exit status of an image that has no Python.
NO_PYTHON = 127
