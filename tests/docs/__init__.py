"""The documentation as a site, and the commands in it."""
