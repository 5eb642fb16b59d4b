"""The matrix file: its schema, loading with positions, selectors, and plans.

`load.load_matrix` reads the file and `plan.plan` turns a profile of it into cells with their predictions.
docs/reference/matrix.md describes the file for those who write one.
"""
