"""The right image for a host: which ones fit, taking the best by its digest, and the command that runs it."""
