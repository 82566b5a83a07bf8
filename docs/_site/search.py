"""MkDocs hook: what the search of the site finds first, and names in small letters.

mkdocs.yml says where words end. A capital inside a name begins a word there, so a question in small
letters (float8linear) would find nothing: the index gets the last part of each name of the API in
small letters, too.
"""

import json
import re
from pathlib import Path

# The search gives a page four times the points of a passage, and an entry of the API is a passage.
# So the API comes before pages that speak of it, and pages for developers come last.
BOOSTS = {"api/products.md": 6, "api/": 4, "dev/": 1 / 4}
NAME = re.compile(r"#tcgemm\S*?\b(\w*[A-Z]\w*)$")


def on_page_markdown(markdown, page, **_):
    for start, boost in BOOSTS.items():
        if page.file.src_uri.startswith(start):
            page.meta["search"] = {"boost": boost}
            break


def on_post_build(config, **_):
    path = Path(config.site_dir, "search/search_index.json")
    index = json.loads(path.read_text())
    for entry in index["docs"]:
        if name := NAME.search(entry["location"]):
            entry["text"] += f" <p>{name[1].lower()}</p>"
    path.write_text(json.dumps(index, separators=(",", ":")))
