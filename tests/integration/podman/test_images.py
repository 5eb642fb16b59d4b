"""Podman gets the same images as Docker, and a base that only Podman has."""

from __future__ import annotations

from ..docker.test_images import (  # noqa: F401
    test_a_base_with_another_python_is_named,
    test_an_image_is_found_again_only_by_its_lock,
    test_an_image_is_not_the_base_of_another,
    test_bytecode_is_used_by_a_user_who_cannot_write_it,
    test_labels_name_the_spec_the_lock_and_the_base,
    test_packages_and_scripts_are_found_by_python,
    test_the_loader_and_xla_find_nvidias_wheels,
    test_the_user_is_not_root,
)
