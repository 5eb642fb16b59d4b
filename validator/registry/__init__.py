"""Access to image registries: names, tags, manifests, blobs and attached artifacts."""
