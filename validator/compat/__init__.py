"""Compatibility facts as data with their sources (`data/`), and pure rules over them: cell -> prediction."""
