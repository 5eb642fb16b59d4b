"""What runs inside: asks one environment what works in it, and answers with one JSON report.

Standard library only, Python 3.9 or newer, and nothing of this project from outside this package: it is
packed into one archive (`validator/engines/probe_archive.py`) and run by whatever Python an image holds,
next to a TensorFlow that may crash the process.

    cli          options; writes the report to standard output and progress to standard error
    supervisor   starts the workers of each stage, enforces their limits, turns their ends into outcomes
    worker       the process that runs checks of one stage and streams their outcomes
    check        what a check is
    checks/      one module per check: they judge; the package lists them in the order they run
    collectors/  find things out and never judge: host, driver, CUDA libraries, device code, XLA's tools
    tables       known facts, as JSON in data/
    variables    the values of environment variables; flags: those of XLA
    stack        the Python packages around TensorFlow; requirements: the versions their metadata asks for
"""

#: Raised by hand when the meaning of a check or of the report changes. The full version adds a digest of
#: the sources (see `tables`).
__version__ = "2.0.0"
