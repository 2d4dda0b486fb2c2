"""The sentences of the contract, read from the suites that ship with the package.

A clause that was not collected stands on the certificate too, so its sentence cannot come from the collected tests:
it is read from the source of the suites, which are the one place where it is written.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path

SUITES = Path(__file__).parent.parent / "suites"


@functools.cache
def sentences() -> dict[str, str]:
    """Clause id -> its sentence."""
    found: dict[str, str] = {}
    for path in sorted(SUITES.glob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                for clause in _clauses(node):
                    found[clause] = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
    return found


@functools.cache
def titles() -> dict[str, str]:
    """Suite id ("gpu_health") -> its title, the words of the module docstring before the colon."""
    return {
        path.stem.removeprefix("test_"): (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or path.stem)
        .split(":")[0]
        .strip()
        for path in sorted(SUITES.glob("test_*.py"))
    }


def _clauses(function: ast.FunctionDef) -> list[str]:
    """Ids in `@pytest.mark.clause("...")` of a test."""
    return [
        str(decorator.args[0].value)
        for decorator in function.decorator_list
        if isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Attribute)
        and decorator.func.attr == "clause"
        and decorator.args
        and isinstance(decorator.args[0], ast.Constant)
    ]
