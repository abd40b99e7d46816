"""The set-up cell and the badges: the same in every notebook, from one address, and enough for Colab."""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import venv

import nbformat
import pytest

from book._tools import template
from book._tools.template import ROOT, notebooks

OWNER = "someone/a-book"
ADDRESS = "https://github.com/" + OWNER
# What Colab has instead of ipywidgets 8. Installed alone: the rest of what they name is not needed to run.
COLAB_WIDGETS = ["ipywidgets==7.7.1", "widgetsnbextension==3.6.10", "jupyterlab-widgets==1.1.11",
                 "ipython-genutils==0.2.0"]
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", "_build", "__pycache__", ".*_cache", ".hypothesis")
# Runs a notebook as a reader does and saves what came out, an error included.
RUNNER = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
try:
    NotebookClient(notebook, kernel_name="python3", timeout=300).execute()
except Exception as error:
    print(error)
nbformat.write(notebook, sys.argv[1])
"""


def copy_of_the_repository(path):
    shutil.copytree(ROOT, path, ignore=NOT_COPIED)
    return path


def make_address(root, *arguments):
    command = ["make", "address", f"VENV={sys.prefix}", *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, text=True)


def contents(root):
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts}


def test_every_notebook_has_the_set_up_cell_and_the_badges():
    assert template.differing() == [], "run `make address`"


def test_make_address(tmp_path):
    """The address goes into _config.yml, from there into every notebook, nowhere else; twice is as once."""
    root = copy_of_the_repository(tmp_path / "copy")
    before = contents(root)
    assert make_address(root, f"URL={ADDRESS}.git").returncode == 0
    after = contents(root)
    names = {path.relative_to(root).as_posix() for path in notebooks(root)}
    assert {name for name in after if after[name] != before.get(name)} == {"_config.yml", *names}
    for path in notebooks(root):
        title, set_up, *_ = nbformat.read(path, as_version=4).cells
        colab = f"https://colab.research.google.com/github/{OWNER}/blob/main/book/{path.name}"
        assert f"[Open in Colab]({colab})" in title.source
        assert f'or "{ADDRESS}"' in set_up.source
    assert make_address(root, f"URL={ADDRESS}").returncode == 0
    assert contents(root) == after
    assert template.differing(root) == []


@pytest.mark.parametrize("cell", [0, 1])
def test_a_changed_cell_is_found(tmp_path, cell):
    root = copy_of_the_repository(tmp_path / "copy")
    path = notebooks(root)[0]
    notebook = nbformat.read(path, as_version=4)
    changed = notebook.cells[cell].source.replace("badges", "badge").replace("--depth=1", "--depth=2")
    notebook.cells[cell].source = changed
    nbformat.write(notebook, path)
    assert template.differing(root) == [path.name]
    assert make_address(root).returncode == 0
    assert template.differing(root) == []


@pytest.mark.parametrize("url", [
    OWNER, f"http://github.com/{OWNER}", "https://github.com/someone", f"https://example.org/{OWNER}",
    f"{ADDRESS}/tree/main", f'{ADDRESS}"; true "'])
def test_other_addresses_are_refused(tmp_path, url):
    root = copy_of_the_repository(tmp_path / "copy")
    before = contents(root)
    command = [sys.executable, "-m", "book._tools.template", url]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 1 and "https://github.com/OWNER/REPO" in done.stderr
    assert contents(root) == before


def test_gymnasium_is_installed_only_when_missing_and_nothing_is_upgraded(monkeypatch):
    """The set-up cell runs one command where gymnasium is missing, and none where it is there."""
    commands, find_spec = [], importlib.util.find_spec
    monkeypatch.chdir(ROOT / "book")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(subprocess, "run", lambda command, **_: commands.append(command) or
                        subprocess.CompletedProcess(command, 0, "", ""))
    exec(template.SET_UP, {})
    assert commands == []
    monkeypatch.setattr(importlib.util, "find_spec",
                        lambda name: None if name == "gymnasium" else find_spec(name))
    exec(template.SET_UP, {})
    assert commands == [(sys.executable, "-m", "pip", "install", "--quiet", "gymnasium>=1.0")]
    assert sys.path[0] == str(ROOT)


@pytest.fixture(scope="module")
def colab(tmp_path_factory):
    """The Python of an environment like Colab's: our packages, but ipywidgets 7, and not this checkout."""
    folder = tmp_path_factory.mktemp("colab") / "env"
    venv.create(folder, with_pip=False)
    packages = next(folder.glob("lib/python*/site-packages"))
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", packages]
    done = subprocess.run([*install, *COLAB_WIDGETS], capture_output=True, text=True)
    if done.returncode:
        message = f"ipywidgets 7 could not be installed: {done.stderr}"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    ours = sysconfig.get_path("purelib")
    (packages / "pinned.pth").write_text(ours + "\n")
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def remote(tmp_path_factory):
    """A git remote that holds the present checkout."""
    root = copy_of_the_repository(tmp_path_factory.mktemp("remote") / "copy")
    author = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
    for command in (["init", "--quiet"], ["add", "--all"], [*author, "commit", "--quiet", "--message", "All"]):
        subprocess.run(["git", *command], cwd=root, check=True)
    return f"file://{root}"


def run_alone(notebook, python, folder, **variables):
    """Run a notebook in a folder that holds nothing else, with an empty home and without network."""
    (folder / "home").mkdir()
    (folder / "alone").mkdir()
    nbformat.write(notebook, folder / "alone" / "chapter.ipynb")
    closed = "http://127.0.0.1:9"
    environment = {"HOME": str(folder / "home"), "PATH": f"{python.parent}:{os.environ['PATH']}",
                   "http_proxy": closed, "https_proxy": closed, "ALL_PROXY": closed, "no_proxy": "127.0.0.1"}
    environment |= variables
    subprocess.run([python, "-c", RUNNER, "chapter.ipynb"], cwd=folder / "alone", env=environment, check=True)
    return nbformat.read(folder / "alone" / "chapter.ipynb", as_version=4)


def errors(notebook):
    return [output for cell in notebook.cells if cell.cell_type == "code"
            for output in cell.outputs if output.output_type == "error"]


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.name)
def test_colab(path, colab, remote, tmp_path):
    """A notebook alone gets `utils` from the remote; ipywidgets 7 stays. The first chapter runs whole."""
    notebook = nbformat.read(path, as_version=4)
    if path != notebooks()[0]:
        del notebook.cells[2:]
    notebook.cells.append(nbformat.v4.new_code_cell(
        "import ipywidgets, utils.explore\nprint(ipywidgets.__version__, utils.explore.__file__)"))
    done = run_alone(notebook, colab, tmp_path, POLICY_GRADIENTS_ADDRESS=remote)
    assert errors(done) == []
    helpers = tmp_path / "alone" / "policy-gradients" / "utils" / "explore.py"
    assert done.cells[-1].outputs[-1].text == f"7.7.1 {helpers}\n"


def test_without_an_address_one_line_says_what_to_do(colab, tmp_path):
    notebook = template.render(nbformat.read(notebooks()[0], as_version=4), "chapter.ipynb", "", "main")
    done = run_alone(notebook, colab, tmp_path)
    [error] = errors(done)
    assert len(error.traceback) == 1 and "\n" not in error.traceback[0]
    assert "POLICY_GRADIENTS_ADDRESS" in error.traceback[0]
    assert done.cells[1].outputs == [error], "nothing else is shown"


def test_a_wrong_address_gives_one_line(colab, tmp_path):
    notebook = nbformat.read(notebooks()[0], as_version=4)
    done = run_alone(notebook, colab, tmp_path, POLICY_GRADIENTS_ADDRESS=f"file://{tmp_path}/nothing")
    [error] = errors(done)
    assert len(error.traceback) == 1 and "git clone" in error.traceback[0] and "\n" not in error.traceback[0]
