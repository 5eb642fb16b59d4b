"""Third-party code that travels with this package and inside the probe's archive. See README.md."""
