"""Read the licence that a wheel declares, as an SPDX expression.

Only what says exactly one thing counts. "Apache 2.0" is no id of SPDX's list, and the classifier
"BSD License" stands for several licences, so a wheel with nothing better has no licence here.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Mapping
from email.parser import BytesHeaderParser
from pathlib import Path

from cyclonedx.spdx import fixup_id, is_expression, is_supported_id

from ..assemble.wheels import cached_wheel
from ..model.lock import Lock

#: METADATA is read up to this size. Some have a whole manual as their description.
_LARGEST = 4 << 20
_METADATA = re.compile(r"[^/]+\.dist-info/METADATA")
_CLASSIFIER = "License :: "
#: Trove classifiers that stand for one licence of SPDX's list, without the prefix.
#: Left out are those without a version, and those of a GPL that leave open whether later versions count
#: (https://peps.python.org/pep-0639/#mapping-license-classifiers-to-spdx-identifiers).
CLASSIFIERS: Mapping[str, str] = {
    "CC0 1.0 Universal (CC0 1.0) Public Domain Dedication": "CC0-1.0",
    "OSI Approved :: Blue Oak Model License (BlueOak-1.0.0)": "BlueOak-1.0.0",
    "OSI Approved :: Boost Software License 1.0 (BSL-1.0)": "BSL-1.0",
    "OSI Approved :: CMU License (MIT-CMU)": "MIT-CMU",
    "OSI Approved :: Common Development and Distribution License 1.0 (CDDL-1.0)": "CDDL-1.0",
    "OSI Approved :: Eclipse Public License 1.0 (EPL-1.0)": "EPL-1.0",
    "OSI Approved :: Eclipse Public License 2.0 (EPL-2.0)": "EPL-2.0",
    "OSI Approved :: European Union Public Licence 1.1 (EUPL 1.1)": "EUPL-1.1",
    "OSI Approved :: European Union Public Licence 1.2 (EUPL 1.2)": "EUPL-1.2",
    "OSI Approved :: GNU Affero General Public License v3 or later (AGPLv3+)": "AGPL-3.0-or-later",
    "OSI Approved :: GNU General Public License v2 or later (GPLv2+)": "GPL-2.0-or-later",
    "OSI Approved :: GNU General Public License v3 or later (GPLv3+)": "GPL-3.0-or-later",
    "OSI Approved :: GNU Lesser General Public License v3 or later (LGPLv3+)": "LGPL-3.0-or-later",
    "OSI Approved :: Historical Permission Notice and Disclaimer (HPND)": "HPND",
    "OSI Approved :: ISC License (ISCL)": "ISC",
    "OSI Approved :: MIT License": "MIT",
    "OSI Approved :: MIT No Attribution License (MIT-0)": "MIT-0",
    "OSI Approved :: Mozilla Public License 1.0 (MPL)": "MPL-1.0",
    "OSI Approved :: Mozilla Public License 1.1 (MPL 1.1)": "MPL-1.1",
    "OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "OSI Approved :: The Unlicense (Unlicense)": "Unlicense",
    "OSI Approved :: Universal Permissive License (UPL)": "UPL-1.0",
    "OSI Approved :: Zero-Clause BSD (0BSD)": "0BSD",
}


def declared_licenses(lock: Lock) -> dict[str, str]:
    """Return the SPDX expressions that the wheels of a lock declare, by SHA-256, for those in the cache."""
    found = {wheel.sha256: _of_file(cached_wheel(wheel)) for wheel in lock.wheels}
    return {sha256: license_ for sha256, license_ in found.items() if license_ is not None}


def _of_file(path: Path | None) -> str | None:
    metadata = _metadata(path) if path is not None else None
    return license_of(metadata) if metadata is not None else None


def _metadata(path: Path) -> bytes | None:
    """Return a wheel's METADATA; None for a file that is gone or damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            items = [item for item in archive.infolist() if _METADATA.fullmatch(item.filename)]
            return archive.read(items[0]) if len(items) == 1 and items[0].file_size <= _LARGEST else None
    except (OSError, zipfile.BadZipFile, zlib.error, NotImplementedError):
        return None


def license_of(metadata: bytes) -> str | None:
    """Return the SPDX expression that a wheel's METADATA declares; None if it says nothing unambiguous.

    That is `License-Expression`, else `License` if it is an id of SPDX's list, else the only licence among
    the classifiers.
    """
    headers = BytesHeaderParser().parsebytes(metadata)
    expression = str(headers["License-Expression"] or "").strip()
    if expression:
        return fixup_id(expression) or (expression if is_expression(expression) else None)
    named = fixup_id(str(headers["License"] or "").strip())
    if named is not None and is_supported_id(named):
        return named
    classifiers = [str(one) for one in headers.get_all("Classifier", ())]
    licenses = {one.removeprefix(_CLASSIFIER) for one in classifiers if one.startswith(_CLASSIFIER)}
    return CLASSIFIERS.get(licenses.pop()) if len(licenses) == 1 else None
