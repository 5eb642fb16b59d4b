"""Tests of the fleet on a real control plane of Kubernetes, which `.ci/kubernetes` builds once into a
cache.
"""
