"""Runs OpenRLHF's own argument parser and checks. Not a test: started by test_flags_real.py.

    python openrlhf_check.py FILE...      each a JSON list of the words after the entry point

Executes the block under `if __name__ == "__main__"` of OpenRLHF's train_ppo_ray.py, all but the
call that starts training, so that parser and checks are OpenRLHF's own; neither Ray nor DeepSpeed
is imported. Prints one JSON object a file: the parsed flags, or the error that stops OpenRLHF.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import json
import sys
import types
from pathlib import Path
from typing import Any

spec = importlib.util.find_spec("openrlhf")
assert spec is not None
assert spec.submodule_search_locations is not None
PACKAGE = Path(next(iter(spec.submodule_search_locations)))
ENTRY = PACKAGE / "cli" / "train_ppo_ray.py"


def block() -> types.CodeType:
    tree = ast.parse(ENTRY.read_text())
    imports = [
        node
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        and (getattr(node, "module", None) or node.names[0].name) in ("argparse", "os", "datetime")
    ]
    main = next(
        node
        for node in tree.body
        if isinstance(node, ast.If)
        and getattr(getattr(node.test, "left", None), "id", "") == "__name__"
    )
    body = [
        node
        for node in main.body
        if not (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Call)
            and getattr(node.value.func, "id", "") == "train"
        )
    ]
    module = ast.Module(body=[*imports, *body], type_ignores=[])
    return compile(ast.fix_missing_locations(module), str(ENTRY), "exec")


def stub(name: str, path: Path) -> None:
    """A package without its __init__, which would import what only training needs."""
    module = types.ModuleType(name)
    module.__path__ = [str(path)]
    sys.modules[name] = module


def plain(value: Any) -> Any:
    if hasattr(value, "__dict__"):
        return {key: plain(inner) for key, inner in vars(value).items()}
    return value if isinstance(value, str | int | float | bool | list | None) else str(value)


def main() -> None:
    stub("openrlhf", PACKAGE)
    stub("openrlhf.utils", PACKAGE / "utils")
    code = block()
    for file in list(sys.argv[1:]):
        words = json.loads(Path(file).read_text())
        namespace: dict[str, Any] = {"__name__": "openrlhf_check"}
        errors = io.StringIO()
        sys.argv = [str(ENTRY), *words]
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
                exec(code, namespace)
            answer: dict[str, Any] = {"args": plain(namespace["args"])}
        except (SystemExit, AssertionError, ValueError) as error:
            answer = {"error": f"{error} {errors.getvalue()}"[-2000:]}
        print(json.dumps(answer))


main()
