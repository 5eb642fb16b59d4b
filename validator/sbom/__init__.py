"""The list of what is in an image (SBOM), in the format CycloneDX."""
