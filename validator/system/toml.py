"""The TOML reader of the standard library, or its backport on Python 3.10."""

from __future__ import annotations

import re
import sys
from typing import Any

if sys.version_info >= (3, 11):
    from tomllib import TOMLDecodeError
    from tomllib import loads as _loads
else:
    from tomli import TOMLDecodeError
    from tomli import loads as _loads

__all__ = ["TOMLDecodeError", "loads"]


#: A key of many parts. The reader takes memory for each of its beginnings.
_LONG_KEY = re.compile(
    r"""(?:^|[\[{,])[ \t]*(?:(?:[\w-]{1,200}|"[^"\n]{0,200}"|'[^'\n]{0,200}')[ \t]*\.[ \t]*){100}""",
    re.MULTILINE,
)


class _WithoutEnd(TOMLDecodeError):
    def __init__(self, message: str) -> None:
        # Newer Pythons want the position too, which is not known.
        ValueError.__init__(self, message)


def loads(text: str) -> dict[str, Any]:
    """Return a document. Raises TOMLDecodeError, also for a number, a key or a nesting without an end."""
    if _LONG_KEY.search(text):
        raise _WithoutEnd("it has a key with too many parts")
    try:
        return _loads(text)
    except TOMLDecodeError:
        raise
    except RecursionError:
        raise _WithoutEnd("it nests too deep") from None
    except ValueError:
        raise _WithoutEnd("it has a number that is too long") from None
