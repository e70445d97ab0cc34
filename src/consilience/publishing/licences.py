"""Which licences let a suite be published with the answers."""

from __future__ import annotations

import re

FREE = re.compile(
    r"0BSD|AFL-|AGPL-|Apache-2\.0|Artistic-2\.0|BSD-|BSL-1\.0|C-UDA-1\.0|CC0-1\.0|CC-PDDC|CDLA-|ECL-2\.0|EPL-|EUPL-"
    r"|CC-BY-(NC-)?(SA-)?\d|GFDL-|GPL-|ISC|LGPL-|MIT|MPL-2\.0|MS-PL|NCSA|ODbL-1\.0|ODC-By-1\.0|OFL-1\.1|OGL-"
    r"|PDDL-1\.0|Unlicense|WTFPL|Zlib"
)
"""How the SPDX ids begin of licences that let anybody share a copy in another file format.

Licences that forbid changes (``ND``) are not among them.
"""


def may_be_shared(licence: str) -> bool:
    """Whether an SPDX expression lets anybody share what it covers: every licence that it joins.

    A URL, ``LicenseRef-NAME`` and anything unknown do not.
    """
    ids = re.split(r"\s+(?:AND|OR|WITH\s+\S+)\s*|[()\s]+", licence.strip())
    known = [name for name in ids if name]
    return bool(known) and all(FREE.match(name) for name in known)
