"""Property tests are not timed: a slow machine is no fault of the code.

And whatever a test records, it is not for the store that a person works with.
"""

import os

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

os.environ.pop("VALIDATOR_STORE", None)
