"""The engines that build and run environments: Docker, or virtual environments where there is no Docker."""
