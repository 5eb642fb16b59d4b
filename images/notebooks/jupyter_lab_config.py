"""JupyterLab's settings in images of this project: it opens with a notebook that checks the GPU.

The notebook is copied only into a directory with nothing but hidden files, such as the home directory of a
new container. Nothing is written next to other files of a directory that you have mounted.
"""

import os
import shutil
import sys

_NOTEBOOK = "check-the-gpu.ipynb"
_ORIGINAL = f"/opt/tensorflow-gpu-matrix/notebooks/{_NOTEBOOK}"


def _place() -> bool:
    """Return whether the notebook is in the directory that JupyterLab starts in."""
    if os.path.exists(_NOTEBOOK):
        return True
    try:
        if not all(name.startswith(".") for name in os.listdir()):
            return False
        shutil.copyfile(_ORIGINAL, _NOTEBOOK)
    except OSError:
        # The directory can't be written. JupyterLab starts nevertheless.
        return False
    return True


# With another root directory, the address would lead nowhere.
if not any("root_dir" in word or "notebook-dir" in word for word in sys.argv) and _place():
    c.LabApp.default_url = f"/lab/tree/{_NOTEBOOK}"  # noqa: F821 - traitlets gives this file `c`
