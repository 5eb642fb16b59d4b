"""Make the text that a person would paste from the facts of a public case."""
