"""Render the matrix as a static web page.

`measurements` gathers what was recorded, `layout` arranges it with the predictions, and `site` makes the
files. All text from records is untrusted.
"""
