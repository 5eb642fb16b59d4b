"""The program that runs inside an environment, finds out what works there, and writes one JSON report.

It needs Python 3.9 or newer and nothing else: it is packed into one archive
(`validator/engines/probe_archive.py`), together with `validator/problems.py` and the vendored `packaging`,
and run by whatever Python an image holds, next to a TensorFlow that may crash the process.

    cli          options; writes the report to standard output and progress to standard error
    stages       run the checks of each stage in workers, within their limits; their ends become outcomes
    child        the one runner of child processes: forked, fresh interpreters with TensorFlow, and workers
    check        the type of a check, of its result and of what it gets
    checks/      one module per check: they judge; the package lists them in the order they run
    own/         the user's own checks, packed into the archive
    watch        watches the GPUs from before the first check until after the last
    collectors/  find facts and never judge: host, driver, CUDA libraries, device code, XLA's tools
    tables       known facts, as JSON in data/
    training     the small model that checks train
    speed        a larger model, to measure speed, and figures with their spread
    tensorflow_devices  TensorFlow's devices and log; the kernels that a GPU ran; the programs that XLA made
    comparison   results compared with a reference, the tolerances, and what fails only in full float32
    workers      the other workers of a check on several machines, and their networks
    joint_training  the steps that these workers train together
    xla_cases    layers and operations to compile, each by itself
"""

#: Raised by hand when the meaning of a check or of the report changes. The full version also has a digest of
#: the sources (see `tables`).
__version__ = "2.3.0"
