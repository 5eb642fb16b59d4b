"""Match the packages of an image against known vulnerabilities, in a database in the format OSV."""
