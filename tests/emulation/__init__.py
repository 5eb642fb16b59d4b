"""Faults without silicon: a stub driver under the real TensorFlow, hidden libraries, wrong variables."""
