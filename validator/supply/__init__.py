"""Refresh what this project is made from: its Python packages, uv, base images and Debian packages, each
pinned by hash. A developer's tool, run by `scripts/refresh`.
"""
