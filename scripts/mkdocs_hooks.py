"""For `make docs`: what reads well in the repository is made to read well on the web site, too.

A link out of docs/ names its place instead, since the site has nothing else; a picture that has a dark twin
shows the one that fits; a name in code is broken at underscores or not at all; and a page with a wide table
does without its contents list.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)#\s]+)\)")
_LIGHT_PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)-light\.png\)")
_NAME = re.compile(r"<code>([^<\s]{1,26})</code>")
_NO_DEFAULT = re.compile(r"<td>(?:<code>Sentinel\.UNSET</code>|``)</td>")
"""How mkdocs-click writes that an option has no default, or an empty one."""
_EXAMPLES = re.compile(r"<p>(headway [^<]*(?:\n +headway [^<]*)+)</p>")
"""Of a command's help, which mkdocs-click runs together."""
_WITH_WIDE_TABLES = {"explanation/comparison.md"}


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    docs = Path(config["docs_dir"])
    here = Path(page.file.abs_src_path).parent
    if page.file.src_uri in _WITH_WIDE_TABLES:
        page.meta["hide"] = ["toc"]

    def name_place(match: re.Match[str]) -> str:
        target = Path(os.path.normpath(here / match[2]))
        if target.is_relative_to(docs):
            return match[0]
        place = f"`{target.relative_to(docs.parent)}`"
        if match[1].startswith("`"):
            return place
        is_in_brackets = markdown[: match.start()].endswith("(")
        return f"{match[1]}, {place}" if is_in_brackets else f"{match[1]} ({place})"

    def add_dark_twin(match: re.Match[str]) -> str:
        words, path = match.groups()
        if not (here / f"{path}-dark.png").exists():
            return match[0]
        return f"![{words}]({path}-light.png#only-light)![{words}]({path}-dark.png#only-dark)"

    return _LIGHT_PICTURE.sub(add_dark_twin, _LINK.sub(name_place, markdown))


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    html = _NO_DEFAULT.sub("<td></td>", html)
    html = _EXAMPLES.sub(_one_a_line, html)
    return _NAME.sub(lambda match: f'<code class="name">{match[1].replace("_", "_<wbr>")}</code>', html)


def _one_a_line(match: re.Match[str]) -> str:
    lines = (line.strip() for line in match[1].splitlines())
    return "<pre><code>" + "\n".join(lines) + "</code></pre>"
