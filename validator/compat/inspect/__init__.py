"""Read facts from the files of a wheel: its build, the libraries that it opens, the GPUs it has code for.

Published tables of TensorFlow builds are incomplete and sometimes wrong, but the wheel can't be. Nothing in
the wheel is executed. `elf` and `fatbin` read the two binary formats, `runtime` reads what TensorFlow's CUDA
loader was compiled to open, `wheel` takes wheels apart, `build` puts the facts of a TensorFlow wheel
together, and `rows` keeps them in `data/builds.yaml`. `python -m validator.compat.inspect` is the command.
"""
