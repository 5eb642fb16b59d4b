"""What the host side needs of the machine: child processes, files, directories, sources of packages."""
