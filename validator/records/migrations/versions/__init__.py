"""One module per migration. A released migration is never changed; a later one changes the tables."""
