"""MkDocs hook: links from a page to files of the checkout that the site does not have.

A page of docs/ is read in two places. On GitHub, a relative link such as ../benchmarks/targets.py
works as it is. The site has the pages of docs/ alone, so here the same link becomes an address in
the repository, and a picture is copied into the site. GitHub shows notebooks too. A link to a file
that does not exist is a warning, which a strict build refuses.
"""

import logging
import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

LINK = re.compile(r"(!?\[[^]]*\]\()((?!\w+:)[^)\s#]+)")
log = logging.getLogger("mkdocs.hooks.links")


def on_page_markdown(markdown, page, config, files):
    docs = Path(config.docs_dir)
    folder = posixpath.dirname(page.file.src_uri)

    def replaced(match):
        path = posixpath.normpath(posixpath.join("docs", folder, match[2]))
        if path.startswith("docs/") and not path.endswith(".ipynb"):
            return match[0]
        source = docs.parent / path
        if not source.exists():
            log.warning("%s links to %s, which does not exist", page.file.src_uri, path)
        elif match[1].startswith("!"):
            copied = File.generated(config, f"assets/{path}", abs_src_path=str(source))
            if copied.src_uri not in files.src_uris:
                files.append(copied)
            return match[1] + posixpath.relpath(copied.src_uri, folder or ".")
        return f"{match[1]}{config.repo_url.rstrip('/')}/blob/main/{path}"

    return LINK.sub(replaced, markdown)
