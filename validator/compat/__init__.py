"""Compatibility facts with their sources (`data/`), and the rules that predict a cell from them.

Apart from `compile` and `inspect`, this needs only the standard library.
"""
