"""One module a migration. What was released is never changed; a later module changes the tables."""
