"""Measure on machines that a scheduler owns: Slurm and Kubernetes, behind one protocol."""
