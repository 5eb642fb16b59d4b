"""Remove the names of people and machines from text, so that it can be shared."""
