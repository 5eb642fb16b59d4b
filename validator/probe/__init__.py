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
    cuda/        opens CUDA libraries as TensorFlow does, and asks their versions
    checks/      one module a check: they judge
"""

#: Raised by hand when the meaning of a check or of the report changes. The full version adds a digest of
#: the sources (see `version`).
__version__ = "1.0.0"
