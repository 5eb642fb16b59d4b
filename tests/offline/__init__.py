"""Tests of what runs on the machine without a network."""
