"""Image registries, by the `oras` program: names, tags, manifests, and what is attached to an image."""
