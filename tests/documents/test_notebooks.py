"""The notebooks run from top to bottom, and are kept without outputs."""

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from .markdown import REPOSITORY

NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert {path.stem for path in NOTEBOOKS} == {"method", "plan"}
    for cell in notebook.cells:
        assert cell.cell_type != "code" or (not cell.outputs and cell.execution_count is None)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # those of Jupyter itself are not ours
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BABELCAP_NUM_STEPS", "8")
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=900, resources={"metadata": {"path": str(path.parent)}})
    client.execute(env=dict(os.environ))
    pictures = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in pictures) >= (4 if path.stem == "method" else 1)
