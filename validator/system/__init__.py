"""Access to the local machine: child processes, files, output directories, package sources."""
