"""What SECURITY.md says of the code, held against the code: no pickles, no foreign code, no shell, nothing unpacked."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "babelcap"
MODULES = sorted(SOURCE.rglob("*.py"))
# An error that a worker raised, sent through pickle and back at once to see that it can be sent; nothing from outside.
OWN_PICKLE = {"jobs/shards.py"}


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """The calls of a module with what is called, as it is written: `torch.load`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def value(call: ast.Call, name: str) -> object:
    found = [keyword.value for keyword in call.keywords if keyword.arg == name]
    return found[0].value if found and isinstance(found[0], ast.Constant) else None


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_that_is_read_can_run_code(path: Path) -> None:
    name = str(path.relative_to(SOURCE))
    for called, call in calls(path):
        where = f"{name}:{call.lineno}: {called}"
        last = called.rpartition(".")[2]
        assert value(call, "shell") is not True, where
        assert called not in {"eval", "exec", "os.system", "os.popen", "yaml.load", "joblib.load", "dill.load"}, where
        assert last not in {"extractall", "read_pickle", "Unpickler"}, where
        assert called not in {"pickle.load", "pickle.loads", "marshal.loads"} or name in OWN_PICKLE, where
        assert value(call, "allow_pickle") is not True, where
        assert called != "torch.load" or value(call, "weights_only") is True, where
        assert value(call, "trust_remote_code") is not True, where
        if last == "from_pretrained" and called.split(".")[-2].startswith("Auto"):
            # Where it is not given, transformers asks at the terminal whether a model's own code may run.
            assert value(call, "trust_remote_code") is False, where
