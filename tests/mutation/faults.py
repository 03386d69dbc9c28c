"""The faults that can be planted in a source file: one small change each."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

COMPARISONS: Final[dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
OPPOSITES: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
#: Calls whose positional arguments are not swapped: the order does not matter, or it is a type.
UNORDERED: Final = {"min", "max", "isinstance", "issubclass", "cast", "TypeVar"}
LOGGERS: Final = {"_log", "_LOG"}
#: Tests that a change of their comparison negates already.
_NEGATED: Final = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Fault:
    """One change to one module.

    Attributes:
        module: its dotted name.
        path: its file.
        function: qualified name of the function or class, empty at the level of the module.
        line: where.
        change: what it was and what it becomes, as Python writes them.
        number: which of the equal changes of the function this is, from 1.
        source: the whole file with the fault.
    """

    module: str
    path: Path
    function: str
    line: int
    change: str
    number: int
    source: str

    @property
    def key(self) -> tuple[str, str, str, int]:
        """Names the fault; it stays when lines move."""
        return self.module.removeprefix("outrider."), self.function, self.change, self.number


def faults_of(module: str, path: Path) -> list[Fault]:
    """Every fault of a file, in the order of its lines."""
    text = path.read_text()
    found = _Planter(module, path, text).faults()
    seen: Counter[tuple[str, str]] = Counter()
    numbered = []
    for fault in sorted(found, key=lambda fault: fault.line):
        seen[fault.function, fault.change] += 1
        numbered.append(replace(fault, number=seen[fault.function, fault.change]))
    return numbered


class _Planter:
    """Walks one file and makes its faults."""

    def __init__(self, module: str, path: Path, text: str) -> None:
        self._module = module
        self._path = path
        self._text = text.encode()
        self._tree = ast.parse(text)
        self._starts = [0]
        for line in self._text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def faults(self) -> list[Fault]:
        return [fault for node in self._tree.body for fault in self._under(node, self._tree, ())]

    def _under(self, node: ast.AST, parent: ast.AST, scope: tuple[ast.AST, ...]) -> Iterator[Fault]:
        """Faults at a node and below it."""
        if _left_alone(node, parent):
            return
        function = next((one for one in reversed(scope) if isinstance(one, Function)), None)
        for new in (*_expressions(node, parent), *_statements(node, parent, function)):
            yield self._fault(node, new, parent, scope)
        inner = (*scope, node) if isinstance(node, Function | ast.ClassDef) else scope
        for child in ast.iter_child_nodes(node):
            yield from self._under(child, node, inner)

    def _fault(
        self, node: ast.AST, new: ast.AST, parent: ast.AST, scope: tuple[ast.AST, ...]
    ) -> Fault:
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        shown = ast.unparse(new)
        code = shown if isinstance(node, ast.stmt) else f"({shown})"
        begin = self._starts[node.lineno - 1] + node.col_offset
        end = self._starts[node.end_lineno - 1] + node.end_col_offset
        source = self._text[:begin] + code.encode() + self._text[end:]
        names = [one.name for one in scope if isinstance(one, Function | ast.ClassDef)]
        change = f"{_shown(node, node, parent)} -> {_shown(new, node, parent)}"
        return Fault(
            self._module, self._path, ".".join(names), node.lineno, change, 0, source.decode()
        )


def _shown(new: ast.AST, node: ast.AST, parent: ast.AST) -> str:
    """A node in its place, on one line. A constant alone says little: its parent is shown."""
    whole = new
    if isinstance(node, ast.Constant):
        twin = copy.copy(parent)
        for name, value in ast.iter_fields(parent):
            if value is node:
                setattr(twin, name, new)
            elif isinstance(value, list) and any(one is node for one in value):
                setattr(twin, name, [new if one is node else one for one in value])
        whole = twin
    return ast.unparse(whole).strip().splitlines()[0]


def _left_alone(node: ast.AST, parent: ast.AST) -> bool:
    """What is not behaviour: messages, types, logs, imports."""
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom):
        # A ``raise`` is dropped by its parent; what it says is a message.
        return not isinstance(node, ast.Raise) or isinstance(parent, ast.Raise)
    if isinstance(parent, ast.Raise):
        return True
    for holder, names in (
        (ast.arg, ("annotation",)),
        (ast.AnnAssign, ("annotation",)),
        (ast.FunctionDef, ("returns", "decorator_list")),
        (ast.ClassDef, ("bases", "decorator_list")),
    ):
        if isinstance(parent, holder):
            for name in names:
                value = getattr(parent, name)
                if value is node or (isinstance(value, list) and any(v is node for v in value)):
                    return True
    return isinstance(node, ast.Expr) and _is_log(node.value)


def _is_log(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in LOGGERS
    )


def _expressions(node: ast.AST, parent: ast.AST) -> Iterator[ast.AST]:
    """What could stand in place of an expression by mistake."""
    if isinstance(node, ast.Compare):
        yield from _comparisons(node)
    elif isinstance(node, ast.Constant):
        yield from _constants(node)
    elif isinstance(node, ast.Call):
        yield from _calls(node)
    elif isinstance(node, ast.BinOp | ast.UnaryOp | ast.BoolOp):
        yield from _operators(node)
    elif isinstance(node, ast.IfExp) and _negatable(node.test):
        yield ast.IfExp(_negated(node.test), node.body, node.orelse)
    if isinstance(parent, ast.If | ast.While) and parent.test is node and _negatable(parent.test):
        yield _negated(parent.test)


def _comparisons(node: ast.Compare) -> Iterator[ast.AST]:
    for index, operator in enumerate(node.ops):
        for other in COMPARISONS[type(operator)]:
            twin = copy.copy(node)
            twin.ops = [*node.ops[:index], other(), *node.ops[index + 1 :]]
            yield twin


def _operators(node: ast.BinOp | ast.UnaryOp | ast.BoolOp) -> Iterator[ast.AST]:
    if isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp):
        if isinstance(node.op, ast.Not | ast.USub):
            yield node.operand
    elif type(node.op) in ARITHMETIC and not _is_message(node.left, node.right):
        yield ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)


def _is_message(*parts: ast.expr) -> bool:
    return any(isinstance(part, ast.JoinedStr) for part in parts)


def _negatable(test: ast.expr) -> bool:
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return not isinstance(test.ops[0], _NEGATED)
    return not isinstance(test, ast.UnaryOp)


def _negated(test: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), test)


def _constants(node: ast.Constant) -> Iterator[ast.AST]:
    if isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node.value, int):
        yield ast.Constant(node.value + 1)
        yield ast.Constant(node.value - 1)
    elif isinstance(node.value, float):
        yield ast.Constant(2.0 * node.value or 1.0)


def _calls(node: ast.Call) -> Iterator[ast.AST]:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name in OPPOSITES:
        yield ast.Call(ast.Name(OPPOSITES[name]), node.args, node.keywords)
    if name in UNORDERED:
        return
    for index in range(len(node.args) - 1):
        left, right = node.args[index : index + 2]
        if isinstance(left, ast.Starred) or isinstance(right, ast.Starred):
            continue
        if ast.dump(left) != ast.dump(right):
            swapped = [*node.args[:index], right, left, *node.args[index + 2 :]]
            yield ast.Call(node.func, swapped, node.keywords)


def _statements(node: ast.AST, parent: ast.AST, function: ast.AST | None) -> Iterator[ast.AST]:
    """A statement forgotten, or one that counts the wrong way."""
    if function is None:
        return
    if isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC:
        yield ast.AugAssign(node.target, ARITHMETIC[type(node.op)](), node.value)
    dropped = isinstance(
        node, ast.AugAssign | ast.Continue | ast.Break | ast.Delete | ast.Raise
    ) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
    if isinstance(node, ast.Return):
        # The last statement of a function is what it is for; one inside a branch may be forgotten.
        dropped = node.value is None or not isinstance(parent, Function)
    elif isinstance(node, ast.Assign) and getattr(parent, "name", "") != "__init__":
        dropped = all(_bound_before(target, node, function) for target in node.targets)
    if dropped:
        yield ast.Pass()


def _bound_before(target: ast.expr, node: ast.stmt, function: ast.AST) -> bool:
    """Whether what is assigned to has a value without the assignment."""
    if isinstance(target, ast.Tuple):
        return all(_bound_before(one, node, function) for one in target.elts)
    if not isinstance(target, ast.Name):
        return True
    return any(
        (isinstance(one, ast.arg) and one.arg == target.id)
        or (
            isinstance(one, ast.Name)
            and one.id == target.id
            and isinstance(one.ctx, ast.Store)
            and one.lineno < node.lineno
        )
        for one in ast.walk(function)
    )
