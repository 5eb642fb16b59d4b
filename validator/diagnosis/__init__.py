"""Causes: from a probe's report or a pasted text to the cause, its evidence and its remedy.

`data/` holds the messages that software prints (`messages/`) and the causes they are signs of.
"""
