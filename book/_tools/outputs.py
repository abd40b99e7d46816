"""Stores a notebook as it is committed: without outputs, but for the texts that the prose quotes.

    python -m book._tools.outputs

Cells tagged `nbval-check-output` keep their text, which `make test` compares with a new run. Every other
output, the other cells' execution counts and the traces that editors leave in the metadata are dropped.
"""

import nbformat
from jupyter_cache import get_cache

from .execute import cache_path, cached, execute, pages

CHECKED = "nbval-check-output"
METADATA = {"kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
            "language_info": {"name": "python"}}
KEPT_CELL_METADATA = {"tags", "mystnb", "jupyter"}            # "jupyter" folds solutions in JupyterLab


def text_of(output, where):
    """The stored form of one output, which must be text."""
    if output.output_type == "stream" and output.name == "stdout":
        return nbformat.v4.new_output("stream", name="stdout", text=output.text)
    if output.output_type == "execute_result" and set(output.data) == {"text/plain"}:
        return nbformat.v4.new_output("execute_result", {"text/plain": output.data["text/plain"]})
    raise SystemExit(f"{where} is tagged {CHECKED}, but shows something other than printed text")


def merged(outputs):
    """Outputs with neighbouring streams joined: how a kernel cuts a stream differs from run to run."""
    joined = []
    for output in outputs:
        if joined and output.output_type == joined[-1].output_type == "stream":
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def committed(notebook, name, executed=None):
    """The notebook as it is committed. Texts are taken from `executed`, or kept where there is none."""
    source = notebook if executed is None else executed
    count = 0
    for number, (cell, run) in enumerate(zip(notebook.cells, source.cells, strict=True), start=1):
        cell.metadata = {key: value for key, value in cell.metadata.items() if key in KEPT_CELL_METADATA}
        if cell.cell_type == "code":
            count += 1
            checked = CHECKED in cell.metadata.get("tags", [])
            where = f"{name}: cell {number}"
            cell.outputs = merged([text_of(output, where) for output in run.outputs]) if checked else []
            for output in cell.outputs:
                if output.output_type == "execute_result":
                    output.execution_count = count
            cell.execution_count = count if checked else None       # nbval takes no output of an unrun cell
    notebook.metadata = METADATA
    return notebook


def main():
    chapters = [path for path in pages() if path.suffix == ".ipynb"]
    for path in chapters:                       # before the run: the cache compares the kernel's name
        notebook = nbformat.read(path, as_version=4)
        notebook.metadata = METADATA
        nbformat.write(notebook, path)
    errors = execute()
    if errors:
        raise SystemExit("\n".join(errors))
    cache = get_cache(cache_path())
    for path in chapters:
        notebook = nbformat.read(path, as_version=4)
        executed, _ = cached(cache, notebook)
        nbformat.write(committed(notebook, path.name, executed), path)
        print(f"stored {path.name}")


if __name__ == "__main__":
    main()
