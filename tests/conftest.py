"""Property tests are not timed: a slow machine is no fault of the code.

Whatever a test records, it is not for the store that a person works with. And Ctrl-C is what it is in a
terminal though the tests run in the background of a shell, which ignores it and hands that on to every child.
"""

import os
import signal

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

os.environ.pop("VALIDATOR_STORE", None)

signal.signal(signal.SIGINT, signal.default_int_handler)
