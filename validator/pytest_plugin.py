"""The plugin of pytest: `pytest --require-gpu` fails tests where TensorFlow doesn't use a GPU.

Every run of pytest loads this module where the tool is installed, so it imports nothing: neither pytest,
which this tool does not depend on, nor the rest of the tool. See `embedded/gpu_requirement.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

#: The name of the option, of the ini option and of what registers the hooks.
OPTION = "require_gpu"
_MARKER = "requires_gpu: fail this test, with the cause, if TensorFlow doesn't use a GPU"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option and its ini option, both of which are off by default."""
    parser.getgroup("validator", "TensorFlow and its GPU").addoption(
        "--require-gpu",
        action="store_true",
        default=False,
        dest=OPTION,
        help="fail every test, with the cause and the fix, if TensorFlow doesn't use a GPU",
    )
    parser.addini(OPTION, "always behave as with --require-gpu", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and the hooks that look for it."""
    from .embedded.gpu_requirement import GpuRequirement

    config.addinivalue_line("markers", _MARKER)
    every_test = config.getoption(OPTION) or config.getini(OPTION)
    config.pluginmanager.register(GpuRequirement(every_test=bool(every_test)), "validator-gpu-requirement")
