"""Policies that let a cluster run only images with a good certificate."""
