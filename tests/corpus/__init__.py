"""Texts and reports with the answers that a diagnosis must give: `index.yaml`, read by `reader.py`.

The first part of an entry's name is its kind:

- `told`: a public case told as facts. `rendering/` makes the text that a person would paste from them.
- `pasted`: a public case with the text that was pasted.
- `written`: a text written after real ones to try the diagnosis, most of them by a reader who did not know
  its rules.
- `captured`: what a command really printed. `python -m tests.emulation --write` makes most of them.
- `reports`: a report that the probe wrote.

To add an entry, add a row to the index; `reader.Entry` describes the fields. A short text may stand in the
row as `text`. Otherwise the name of the entry is the path of its file in this directory. A told case has no
file.
"""
