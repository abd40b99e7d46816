"""Sphinx extension for what the website needs beyond _config.yml.

- the execution cache that `book._tools.execute` has filled (and static sliders, should Sphinx run a page);
- MathJax, the sliders' script and style, and the book's own style, served from the site itself;
- no script twice on a page;
- buttons to the repository only when its address is known;
- a chapter's badges: where to download the notebook, and how long it took to run;
- of the theme's two thousand icons only those that the site shows.
"""

import importlib.util
import os
import re
import shutil
from pathlib import Path

from myst_nb.sphinx_ import NbMetadataCollector
from sphinx.errors import ExtensionError

from .execute import ROOT, cache_path
from .template import DOWNLOAD, RUN_TIME

MATHJAX = ["tex-chtml-full.js", "output/chtml/fonts"]       # one script and its fonts

ICONS = "scripts/fontawesome.js"
# One icon in that script: its name, width, height, other names, code point and path.
ICON = re.compile(r'"?([a-z0-9-]+)"?:\[\d+,\d+,(\[[^]]*\]),"[0-9a-f]+",(?:"[^"]*"|\[[^]]*\])\],?')


def configure(app, config):
    """Settings that depend on the checkout."""
    config.nb_execution_cache_path = str(cache_path())
    config.mathjax_path = "mathjax/tex-chtml-full.js"
    if config.html_theme_options.get("repository_url"):
        config.html_theme_options |= {"use_repository_button": True, "use_issues_button": True}


def package(name):
    """The folder of an installed package."""
    [folder] = importlib.util.find_spec(name).submodule_search_locations
    return Path(folder)


def copy_files(app):
    """Copy into the site: MathJax from the PyPI package that ships it, the book's style, the sliders."""
    static = Path(app.outdir) / "_static"
    sources = {f"mathjax/{name}": package("mathjax") / "static/mathjax/es5" / name for name in MATHJAX}
    sources |= {path.name: path for path in (ROOT / "book/_static").iterdir()}
    sources |= {name: ROOT / "utils" / name for name in ("explore.js", "explore.css")}
    for name, source in sources.items():
        target = static / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copyfile(source, target)


def finish_page(app, pagename, templatename, context, doctree):
    """Drop repeated scripts (the toggle button adds its own twice) and fill the badges."""
    scripts = context["script_files"]
    scripts[:] = {(str(js.filename), js.attributes.get("body")): js for js in scripts}.values()
    if doctree is None:
        return
    run = NbMetadataCollector.get_exec_data(app.env, pagename)
    source = f'{context["pathto"]("_sources", 1)}/{context["sourcename"]}'
    fill(context, DOWNLOAD, f'<a href="{source}" download>Download this notebook</a>')
    if run and run["runtime"] is not None:
        fill(context, RUN_TIME, f'Ran in {run["runtime"]:.0f} s when this page was built')


def fill(context, span, content):
    """Put the content into an empty span of the page."""
    context["body"] = context["body"].replace(span, span.replace("><", f">{content}<"))


def remove_old_pages(app, exception):
    """Delete pages of an earlier build whose source is gone."""
    for path in (Path(app.outdir) / "book").glob("*.html"):
        if f"book/{path.stem}" not in app.env.found_docs:
            path.unlink()


def keep_used_icons(app, exception):
    """Leave in the icons' script those that a page or another script names: 500 KB become a few, compressed."""
    static = Path(app.outdir) / "_static"
    script = (package("pydata_sphinx_theme") / "theme/pydata_sphinx_theme/static" / ICONS).read_text("utf-8")
    files = [*Path(app.outdir).glob("**/*.html"), static / "scripts/pydata-sphinx-theme.js",
             static / "scripts/sphinx-book-theme.js"]
    used = {name for path in files for name in re.findall(r"\bfa-([a-z0-9-]+)", path.read_text("utf-8"))}

    def kept(icon):
        return icon[0] if used & {icon[1], *re.findall("[a-z0-9-]+", icon[2])} else ""

    short, found = ICON.subn(kept, script)
    if not found > 1_000 or not ICON.search(short):
        raise ExtensionError(f"{ICONS}: expected more than 1,000 icons in the form of FontAwesome 6, some of them used")
    (static / ICONS).write_text(short, "utf-8")


def setup(app):
    os.environ["EXPLORE"] = "static"
    app.connect("config-inited", configure, priority=1)
    app.connect("builder-inited", copy_files)
    app.connect("html-page-context", finish_page, priority=999)
    app.connect("build-finished", remove_old_pages)
    app.connect("build-finished", keep_used_icons)
    for name in ("book.css", "explore.css"):
        app.add_css_file(name)
    app.add_js_file("explore.js", loading_method="defer")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
