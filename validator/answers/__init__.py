"""Answer the questions of the page: what works on a machine, and why a GPU is not used.

This package runs in the reader's browser, so it imports only the standard library, and parts of this project
that do the same. `predict` gives the first answer too. Answers are plain values for JSON. The page's script
inserts them as text and decides nothing.
"""
