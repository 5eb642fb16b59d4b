"""Bring this project up to date: its facts with the package index, and its dependencies, all pinned by hash:
Python packages, uv, base images and Debian packages. `python -m validator refresh` is the command.
"""
