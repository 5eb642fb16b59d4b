"""Facts, predictions, records and the message catalogue as tables that other programs can load."""
