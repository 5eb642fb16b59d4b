"""Access to image registries with the `oras` program: names, tags, manifests and attached artifacts."""
