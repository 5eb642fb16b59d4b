"""Locks of image specs: resolve them with uv; read, write and compare them."""
