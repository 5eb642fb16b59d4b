"""Fixtures for the attacks: a registry with an image, and keys that are thrown away."""

from ..certify.conftest import alone, image, registry, repository, trust

__all__ = ["alone", "image", "registry", "repository", "trust"]
