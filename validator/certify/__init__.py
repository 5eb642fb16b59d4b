"""Certificates: signed in-toto statements over image digests. The `cosign` program does the cryptography."""
