"""No tensor is made of torch's defaults, which belong to the whole process."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import outrider

SOURCE = Path(outrider.__file__).parent
FACTORIES = {
    *("arange", "as_tensor", "empty", "empty_strided", "eye", "from_file", "full", "linspace"),
    *("logspace", "ones", "rand", "randint", "randn", "randperm", "scalar_tensor", "tensor"),
    *("zeros", "Linear", "Embedding"),
}
#: Legacy constructors, which take no dtype.
FORBIDDEN = {"Tensor", "FloatTensor", "DoubleTensor", "HalfTensor", "BFloat16Tensor"}


def bare(code: str, with_device: bool) -> Iterator[str]:
    """Calls of torch's factories that leave the dtype, or the device, to its defaults."""
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner = ast.unparse(node.func.value)
        if owner not in ("torch", "nn", "torch.nn"):
            continue
        given = {keyword.arg for keyword in node.keywords}
        needed = {"dtype", "device"} if with_device else {"dtype"}
        name = node.func.attr
        if name in FORBIDDEN or (name in FACTORIES and not needed <= given):
            yield f"{node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("path", SOURCE.rglob("*.py"), ids=lambda p: str(p.relative_to(SOURCE)))
def test_every_tensor_names_its_dtype_and_device(path: Path) -> None:
    # Networks in training are made where torch makes them, and moved.
    with_device = SOURCE / "train" not in path.parents
    assert list(bare(path.read_text(), with_device)) == []


def test_the_gate_sees_what_it_should() -> None:
    code = "torch.zeros(3)\ntorch.tensor([1.0], dtype=d)\nnn.Linear(1, 2)\ntorch.Tensor(2)"
    assert [line.split(":")[0] for line in bare(code, True)] == ["1", "2", "3", "4"]
    assert list(bare("torch.zeros(3, dtype=d, device=e)\nnp.zeros(3)", True)) == []
