"""Image spec to lock: resolve with uv; read, write and compare locks."""
