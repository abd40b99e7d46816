"""Writes the set-up cell and the badges of every notebook, from this file and the address in _config.yml.

    python -m book._tools.template [URL]

With a URL (https://github.com/OWNER/REPO) the address is written into _config.yml first.
"""

import re
import sys
from pathlib import Path

import nbformat
import yaml

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = re.compile(r"https://github\.com/[A-Za-z0-9-]+/[A-Za-z0-9._-]+")
PROMPTS = {"code_prompt_hide": "Hide the set-up cell", "code_prompt_show": "Show the set-up cell"}
SET_UP_METADATA = {"mystnb": PROMPTS, "tags": ["hide-input", "set-up"]}
BADGES = '<span class="badges">'                    # starts the line of the title cell that is written here
DOWNLOAD = '<span class="download"></span>'         # these two are filled when the website is built
RUN_TIME = '<span class="run-time"></span>'

SET_UP = '''\
# Set-up: finds the book's helpers, or fetches them where the notebook is alone (Colab); prints versions.
import importlib.metadata, importlib.util, os, platform, subprocess, sys
from pathlib import Path

class SetUpError(Exception):
    def _render_traceback_(self): return [str(self)]          # Jupyter shows this line and no traceback

def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        reason = (done.stderr.strip() or "no message").splitlines()[-1]
        raise SetUpError(f"Set-up: {' '.join(command)} failed: {reason}")

address = os.environ.get("POLICY_GRADIENTS_ADDRESS") or "@ADDRESS@"
folders = [Path.cwd(), *Path.cwd().parents, Path.cwd() / "policy-gradients"]
root = next((folder for folder in folders if (folder / "utils/explore.js").is_file()), None)
if root is None and not address:
    raise SetUpError("Set-up: open this notebook in a copy of the book's repository, or put the repository's "
                     "address into the environment variable POLICY_GRADIENTS_ADDRESS; then run this cell.")
if root is None:
    run("git", "clone", "--quiet", "--depth=1", address, str(root := folders[-1]))
if importlib.util.find_spec("gymnasium") is None:
    run(sys.executable, "-m", "pip", "install", "--quiet", "gymnasium>=1.0")
sys.path.insert(0, str(root))
versions = [f"{name} {importlib.metadata.version(name)}" for name in ("numpy", "torch", "gymnasium")]
print(f"Python {platform.python_version()}", *versions, sep=", ")
'''


def settings(root=ROOT):
    """(address, branch) of the repository from _config.yml; the address is empty while it is unknown."""
    repository = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))["repository"]
    return repository["url"], repository["branch"]


def set_address(url, root=ROOT):
    """Write the repository's address into _config.yml."""
    url = url.strip().removesuffix("/").removesuffix(".git")
    if not ADDRESS.fullmatch(url):
        raise SystemExit(f"The address must look like https://github.com/OWNER/REPO, not {url!r}")
    path = root / "_config.yml"
    text, count = re.subn(r'(?m)^  url: ".*"$', f'  url: "{url}"', path.read_text(encoding="utf-8"))
    if count != 1:
        raise SystemExit(f'_config.yml must hold exactly one line `  url: "..."`, found {count}')
    path.write_text(text, encoding="utf-8")


def notebooks(root=ROOT):
    """The paths of all notebooks of the book."""
    return sorted((root / "book").glob("*.ipynb"))


def badges(name, address, branch):
    """The line under a chapter's title: Colab where the address is known, download, run time."""
    colab = address.replace("https://github.com/", "https://colab.research.google.com/github/")
    link = f"[Open in Colab]({colab}/blob/{branch}/book/{name})" if address else ""
    return f"{BADGES}{link}{DOWNLOAD}{RUN_TIME}</span>"


def render(notebook, name, address, branch):
    """The notebook with its set-up cell and its badges as they must be."""
    title, *rest = notebook.cells
    if title.cell_type != "markdown" or not title.source.startswith("# "):
        raise SystemExit(f"{name}: the first cell must be Markdown and start with the title, '# ...'")
    heading, *lines = [line for line in title.source.split("\n") if not line.startswith(BADGES)]
    while lines and not lines[0]:
        lines.pop(0)
    title.source = "\n".join([heading, "", badges(name, address, branch), "", *lines]).rstrip()
    if "set-up" not in rest[0].metadata.get("tags", []):
        rest.insert(0, nbformat.v4.new_code_cell(id="set-up"))
    rest[0].source = SET_UP.replace("@ADDRESS@", address).rstrip()
    rest[0].metadata = SET_UP_METADATA
    notebook.cells = [title, *rest]
    return notebook


def rendered(path, root=ROOT):
    """The text of a notebook's file with its set-up cell and badges as they must be."""
    notebook = render(nbformat.read(path, as_version=4), path.name, *settings(root))
    return nbformat.writes(notebook) + "\n"


def differing(root=ROOT):
    """The names of the notebooks whose set-up cell or badges are not as they must be."""
    return [path.name for path in notebooks(root) if path.read_text(encoding="utf-8") != rendered(path, root)]


def main():
    url, *more = sys.argv[1:] or [""]
    if more:
        raise SystemExit(__doc__)
    if url:
        set_address(url)
    for path in notebooks():
        path.write_text(rendered(path), encoding="utf-8")
    address, _ = settings()
    print(f"{len(notebooks())} notebooks written for {address or 'no address: _config.yml holds none'}")


if __name__ == "__main__":
    main()
