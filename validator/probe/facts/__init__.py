"""What can be found out without TensorFlow. Collectors find out and never judge; absence is None."""
