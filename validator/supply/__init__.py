"""Refresh the dependencies of this project: its Python packages, uv, base images and Debian packages, all
pinned by hash. A developer's tool, run by `scripts/refresh`.
"""
