"""The Docker engine. `find` returns the one that the Docker command line would use."""

from .bases import BasePolicy
from .engine import DockerEngine, find

__all__ = ["BasePolicy", "DockerEngine", "find"]
