"""What builds and runs an environment: Docker, or a virtual environment where no engine answers."""
