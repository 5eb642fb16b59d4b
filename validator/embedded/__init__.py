"""Code that runs inside other programs: a plugin of pytest, an extension of IPython.

Nothing here is imported before it is asked for, and TensorFlow is only asked in a child process.
"""
