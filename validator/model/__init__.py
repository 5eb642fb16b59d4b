"""The typed values that the packages exchange, and the only code that reads their JSON."""
