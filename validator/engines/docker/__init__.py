"""The Docker engine."""

from .endpoint import Endpoint, connect
from .engine import DockerEngine

__all__ = ["DockerEngine", "Endpoint", "connect"]
