"""The program that measures one unit of an array on a node of a Slurm cluster. The batch script starts it.

    python3 tools/DIGEST DIRECTORY ARRAY

DIRECTORY is the one that all nodes share; `slurm_directory.py` describes what is in it. This program reads
the driver outside the container, runs `inside.py` in the image with whatever this node has for that, and
writes one result: frames if the probe ended, or JSON with a fault. It writes a temporary file and renames it,
with the job's id and its restart count in the name, because a job that Slurm took for lost may run twice at
once.

A unit of several tasks runs this program once on each of its nodes, as one job step. Task 0 writes the
result. The others run the check that needs them, and write only their faults.

The container sees its own request and nothing else of this node. The program uses only the standard library
of Python 3.9, and nothing of this project outside of this package.
"""
