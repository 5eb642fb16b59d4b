"""Show the page on this machine, with what runs at the moment.

`server` answers requests for the page's files and for events, and notices new records and progress. Nothing
here writes anything that a request asks for.
"""
