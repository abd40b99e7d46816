"""The repository as a reader meets it: what it holds, what it promises, and that its parts agree."""

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from book._tools.template import ROOT, settings

TOP_LEVEL = {"README.md", "CONTRIBUTING.md", "LICENSE", "LICENSE-TEXT", "Makefile", "requirements.txt",
             "constraints.txt", "_config.yml", "_toc.yml", ".gitignore", ".ci", ".github",
             "book", "utils", "tests"}
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MACHINE_PATH = re.compile(r"(?<![\w.:/])/(?:home|Users|root|work|opt|mnt|srv|tmp)/[\w.-]")


def files():
    """Everything that is committed or would be."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                            capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def commands():
    """The commands that the Makefile has."""
    return set(re.findall(r"(?m)^([a-z]+):", read("Makefile")))


def requirements(name):
    lines = [line.split("#")[0].strip() for line in read(name).splitlines()]
    return [Requirement(line) for line in lines if line]


def pinned():
    """{name: version} of constraints.txt."""
    found = {}
    for requirement in requirements("constraints.txt"):
        [pin] = requirement.specifier
        assert pin.operator == "==", f"{requirement} is not exact"
        found[requirement.name.lower().replace("_", "-")] = pin.version
    return found


def test_top_level():
    assert {path.relative_to(ROOT).parts[0] for path in files()} == TOP_LEVEL


def test_no_paths_of_one_machine():
    found = [f"{path.relative_to(ROOT)}: {match.group()}" for path in files()
             for match in MACHINE_PATH.finditer(path.read_text(encoding="utf-8", errors="replace"))]
    assert found == []


def test_the_address_stands_in_one_place():
    """_config.yml holds it; notebooks repeat it in generated lines, which test_setup_cell.py compares."""
    address, _ = settings()
    wanted = address.removeprefix("https://github.com/") or "colab.research.google.com"
    holders = [path for path in files() if wanted in path.read_text(encoding="utf-8", errors="replace")]
    if address:
        assert [path.name for path in holders if path.suffix != ".ipynb"] == ["_config.yml"]
    else:
        assert [path for path in holders if path.suffix == ".ipynb"] == [], "a Colab link that leads nowhere"


def test_licences():
    assert read("LICENSE").startswith("MIT License")
    text = read("LICENSE-TEXT")
    assert "Creative Commons Attribution 4.0 International Public License" in text
    for number in range(1, 9):
        assert f"Section {number} -- " in text
    for name in ("LICENSE", "LICENSE-TEXT"):
        assert f"({name})" in read("README.md")


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_commands_of_the_documentation_exist(name):
    code = re.findall(r"(?m)`[^`\n]+`|^    .*$", read(name))
    named = set(re.findall(r"\bmake ([a-z]+)", "\n".join(code)))
    assert named and named <= commands()


def test_help_lists_every_command():
    done = subprocess.run(["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True)
    assert {line.split()[0] for line in done.stdout.splitlines()} == commands()


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_links_of_the_documentation_lead_somewhere(name):
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", read(name))
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


@pytest.mark.parametrize("name", ["requirements.txt", "tests/requirements.txt"])
def test_the_pins_are_within_the_ranges(name):
    pins = pinned()
    for requirement in requirements(name):
        assert requirement.specifier.contains(pins[requirement.name.lower().replace("_", "-")]), requirement


def test_the_pins_are_complete():
    """Everything that the pinned packages need, in this environment, is pinned as well."""
    pins, seen = pinned(), set()
    if any(importlib.metadata.version(name).split("+")[0] != version for name, version in pins.items()):
        pytest.skip("this environment holds other versions than the pinned ones")
    todo = [*requirements("requirements.txt"), *requirements("tests/requirements.txt")]
    while todo:
        requirement = todo.pop()
        key = (requirement.name, frozenset(requirement.extras))
        extras = requirement.extras or {""}
        if key in seen or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add(key)
        name = re.sub(r"[-_.]+", "-", requirement.name.lower())
        assert name in {re.sub(r"[-_.]+", "-", pin) for pin in pins}, f"{requirement.name} is not pinned"
        for line in importlib.metadata.requires(requirement.name) or []:
            needed = Requirement(line)
            if not needed.marker or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                needed.marker = None
                todo.append(needed)


def test_pins_that_the_book_relies_on():
    pins = pinned()
    assert pins["torch"] == "2.13.0"
    assert pins["jupyter-book"].split(".")[0] == "1", "2 knows neither _config.yml nor Sphinx"


def test_ranges_leave_alone_what_colab_brings():
    """numpy and torch have a low lower bound and no upper one; ipywidgets may be 7."""
    ranges = {requirement.name: requirement.specifier for requirement in requirements("requirements.txt")}
    for name, version in (("numpy", "1.26.4"), ("numpy", "9.0"), ("torch", "2.2.0"), ("torch", "9.0"),
                          ("ipywidgets", "7.7.1"), ("gymnasium", "1.0.0")):
        assert ranges[name].contains(version), (name, version)


def test_there_are_workflows():
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "publish.yml", "weekly.yml"]


def test_workflows_are_valid():
    program = Path(sys.executable).with_name("check-jsonschema")
    subprocess.run([program, "--builtin-schema", "vendor.github-workflows", *WORKFLOWS], check=True)


def test_workflows_use_the_commands_of_the_readme():
    commands = {"ci.yml": ["make book", ".ci/run"], "publish.yml": ["make book"], "weekly.yml": [".ci/run"]}
    for path in WORKFLOWS:
        for command in commands[path.name]:
            assert f"run: {command}\n" in path.read_text(encoding="utf-8")
    assert "make test" in read(".ci/run") and ".ci/run" in read("README.md")


def test_shell_steps_stop_at_the_first_error():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "set -euo pipefail" in read(".ci/run").splitlines()
    assert ".SHELLFLAGS := -euo pipefail -c" in read("Makefile").splitlines()
    subprocess.run(["bash", "-n", script], check=True)
