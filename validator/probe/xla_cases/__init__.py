"""Common layers and operations, each as a function that XLA can be asked to compile by itself.

What XLA refuses differs between releases, and between the CPU and the GPU. So the set holds what models are
made of, and what people are known to stumble over (openxla.org/xla/tf2xla, "Known issues"): shapes that
depend on values, loops without a bound, strings, tables, calls back into Python, cuDNN's recurrent kernels.
"""

from typing import Dict, Tuple

from .case import Case
from .network import OF_NETWORKS
from .programs import OF_PROGRAMS

CASES: Tuple[Case, ...] = OF_NETWORKS + OF_PROGRAMS
BY_NAME: Dict[str, Case] = {case.name: case for case in CASES}
