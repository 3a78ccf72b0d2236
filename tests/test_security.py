"""What SECURITY.md says of the code, held against the code: no pickles, no foreign code, no shell, nothing unpacked."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "babelcap"
MODULES = sorted(SOURCE.rglob("*.py"))
# An error that a worker raised, sent through pickle and back at once to see that it can be sent; requests and results
# between a process and its forks, through pipes without a name. Nothing from outside.
OWN_PICKLE = {"jobs/shards.py", "models/generation/sharing.py"}
# Imported for the name of an error alone: its calls are looked at below.
NAMES_PICKLE = OWN_PICKLE | {"models/checkpoints/pickled.py"}

RUN_CODE = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml", "code", "pty"}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


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
        if called.startswith("subprocess."):
            # A string would be split by a shell, or by us; `getoutput` gives it to one.
            assert last in {"run", "Popen"}, where
            assert not isinstance(call.args[0], ast.Constant | ast.JoinedStr | ast.BinOp), where
        assert not called.startswith(("os.exec", "os.spawn", "os.posix_spawn")), where
        assert called not in {"eval", "exec", "os.system", "os.popen", "yaml.load", "joblib.load", "dill.load"}, where
        assert last not in {"extractall", "read_pickle", "Unpickler"}, where
        assert called not in {"pickle.load", "pickle.loads", "marshal.loads"} or name in OWN_PICKLE, where
        assert value(call, "allow_pickle") is not True, where
        assert called != "torch.load" or value(call, "weights_only") is True, where
        assert value(call, "trust_remote_code") is not True, where
        if last == "from_pretrained" and called.split(".")[-2].startswith("Auto"):
            # Where it is not given, transformers asks at the terminal whether a model's own code may run.
            assert value(call, "trust_remote_code") is False, where


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_module_that_runs_what_it_reads_is_imported(path: Path) -> None:
    found = set(imports(path))
    assert str(path.relative_to(SOURCE)) in NAMES_PICKLE or not RUN_CODE & {name.partition(".")[0] for name in found}
    # Under another name, the calls above would not be recognised.
    assert not {"torch.load", "os.system", "os.popen", "subprocess.run", "subprocess.Popen"} & found
