"""Podman gives a container the devices of CDI, and no stub is certified there either."""

from ..docker.test_emulated_driver import (  # noqa: F401
    probe,
    site,
    stubs,
    test_a_container_without_a_driver_is_unproven,
    test_device_files_without_a_driver,
    test_libraries_without_device_files,
    test_the_most_complete_stub_is_not_certified,
)
