"""Lists of what is in an image (SBOMs), in the formats CycloneDX and SPDX."""
