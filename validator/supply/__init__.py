"""Bring this project up to date: its facts, from the package index, and the dependencies that are pinned by
hash (Python packages, uv, base images and Debian packages). The command is `validator refresh`.
"""
