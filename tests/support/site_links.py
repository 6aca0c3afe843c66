"""A hook of MkDocs (``hooks`` in mkdocs.yml): links that lead out of ``docs/``, as to examples, are plain text in the site.

In the repository they lead to the file. A link to a file that is not there stays, and fails the strict build.
"""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)#\s]+)(?:#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page's text without its links to files beside ``docs/``."""
    docs = Path(config.docs_dir).resolve()
    folder = (docs / page.file.src_uri).parent

    def shown(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        return link[0] if target.is_relative_to(docs) or not target.exists() else link[1]

    return _LINK.sub(shown, markdown)
