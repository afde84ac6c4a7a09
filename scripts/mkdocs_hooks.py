"""For `make docs`: a link out of docs/ works where the repository is read; on the web site, which has nothing
else, its place is named instead."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)#\s]+)\)")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    docs = Path(config["docs_dir"])
    here = Path(page.file.abs_src_path).parent

    def name_place(match: re.Match[str]) -> str:
        target = Path(os.path.normpath(here / match[2]))
        if target.is_relative_to(docs):
            return match[0]
        place = f"`{target.relative_to(docs.parent)}`"
        return place if match[1].startswith("`") else f"{match[1]} ({place})"

    return _LINK.sub(name_place, markdown)
