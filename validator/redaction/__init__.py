"""Take out of text what names people and machines, so that it can be shared."""
