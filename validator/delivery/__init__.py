"""Choose the right image for a host, pull it, and run it there."""
