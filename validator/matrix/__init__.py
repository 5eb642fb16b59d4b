"""The matrix file: its schema, loading with positions, expansion into cells, selection.

The way through: `load.load_matrix` reads the file, `plan.plan` turns a profile of it into cells with their
predictions, `github.github_matrix` into what a workflow takes. The file is described for its writers in
docs/reference/matrix.md.
"""
