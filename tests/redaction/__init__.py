"""Taking names of people and machines out of text."""
