"""The typed values that pass between the rooms, and the one reader of their JSON."""
