"""Make an image from a base and wheels, without running anything: layers, configuration, manifest."""
