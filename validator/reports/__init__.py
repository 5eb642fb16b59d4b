"""Render values for people: on a terminal, as Markdown, JUnit XML and a web page. Nothing here decides."""
