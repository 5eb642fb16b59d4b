"""What runs inside: asks one environment what works in it, and answers with one JSON report.

Standard library only, Python 3.9 or newer, and nothing of this project from outside this package: it is
packed into one archive (`validator/engines/archive.py`) and run by whatever Python an image holds, beside a
TensorFlow that may crash the process.

    cli          options; writes the report to standard output and progress to standard error
    supervisor   starts the worker processes, holds them to their limits, turns their ends into outcomes
    worker       the process that runs checks of one stage and streams their outcomes
    check        what a check is
    registry     which checks there are, in the order they run
    facts/       collectors: they find out, they never judge
    cuda/        CUDA libraries as TensorFlow opens them, copies of them, device code, XLA's compilers
    tables       what is known, as JSON in data/
    variables    what is wrong with the value of a variable; flags: those of XLA
    stack        what does not fit among Python packages; requirements: the versions that metadata wants
    checks/      one module a check: they judge
"""

#: Raised by hand when the meaning of a check or of the report changes. The full version adds a digest of
#: the sources (see `version`).
__version__ = "1.0.0"
