"""AdamW for vectors and tables, Muon for the layers' matrices.

Both keep the learning rate in a tensor, so that a step captured into a CUDA graph follows a
schedule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from outrider.train.config import OptimConfig

#: Coefficients of the quintic Newton-Schulz iteration of Muon (K. Jordan, 2024).
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5


def orthogonalise(matrices: Tensor) -> Tensor:
    """Push the singular values of stacked matrices [n, a, b] to about 1."""
    a, b, c = NEWTON_SCHULZ
    dtype = torch.bfloat16 if matrices.is_cuda else torch.float32
    x = matrices.to(dtype)
    wide = x.shape[-2] <= x.shape[-1]
    x = x if wide else x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    back: Tensor = x if wide else x.mT
    return back.float()


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised (K. Jordan, 2024), scaled to the size of an AdamW update.

    The scale 0.2 sqrt(max(a, b)) (arXiv 2502.16982) makes the root mean square of an update that
    of AdamW, so both optimisers take the same rates.
    """

    def __init__(
        self, params: Iterable[nn.Parameter], lr: Tensor, momentum: float, weight_decay: float
    ) -> None:
        super().__init__(
            list(params), {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every matrix that has a gradient; equal shapes are updated together."""
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    shapes.setdefault(parameter.shape, []).append(parameter)
            for alike in shapes.values():
                self._step_alike(alike, group)

    def _step_alike(self, params: list[Tensor], group: dict[str, Any]) -> None:
        grads = [p.grad for p in params if p.grad is not None]
        for parameter in params:
            state = self.state[parameter]
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(parameter)
        momenta = [self.state[p]["momentum"] for p in params]
        torch._foreach_lerp_(momenta, grads, 1 - group["momentum"])
        nesterov = torch._foreach_lerp(grads, momenta, group["momentum"])
        update = orthogonalise(torch.stack(list(nesterov)))
        lr, scale = group["lr"], 0.2 * max(params[0].shape) ** 0.5
        for parameter, direction in zip(params, update.unbind(0), strict=True):
            parameter.mul_(1 - lr * group["weight_decay"])
            parameter.sub_(lr * scale * direction)


class Optimisers:
    """The optimisers of one network and their common schedule.

    Attributes:
        parameters: everything that is trained.
    """

    def __init__(self, network: nn.Module, config: OptimConfig, device: torch.device) -> None:
        """Sort the parameters: matrices of layers and of ``fc``, and the rest."""
        matrices: list[nn.Parameter] = []
        rest: list[nn.Parameter] = []
        for name, parameter in network.named_parameters():
            is_matrix = parameter.ndim == 2 and "markov" not in name and "confidence" not in name
            (matrices if is_matrix else rest).append(parameter)
        self.parameters = matrices + rest
        self._config = config
        self._rates = [
            (torch.zeros((), dtype=torch.float32, device=device), config.matrix_lr),
            (torch.zeros((), dtype=torch.float32, device=device), config.lr),
        ]
        cuda = device.type == "cuda"

        def adamw(params: list[nn.Parameter], rate: Tensor, decay: float) -> torch.optim.AdamW:
            return torch.optim.AdamW(
                params,
                lr=rate,
                betas=(config.beta1, config.beta2),
                weight_decay=decay,
                capturable=cuda,
                fused=cuda,
            )

        first: torch.optim.Optimizer
        if config.matrices == "muon":
            first = Muon(matrices, self._rates[0][0], config.beta1, config.weight_decay)
        else:
            first = adamw(matrices, self._rates[0][0], config.weight_decay)
        self._parts = [first, adamw(rest, self._rates[1][0], 0.0)]

    def set_rate(self, share: float) -> None:
        """Set the rates for a share of the schedule: a linear rise, then a cosine to the floor."""
        factor = schedule(share, self._config.warmup, self._config.floor)
        for rate, peak in self._rates:
            rate.fill_(peak * factor)

    def step(self) -> None:
        """Clip the gradients and update."""
        nn.utils.clip_grad_norm_(self.parameters, self._config.clip, foreach=True)
        for part in self._parts:
            part.step()

    def zero_grad(self) -> None:
        """Drop the gradients."""
        for part in self._parts:
            part.zero_grad(set_to_none=True)

    def state(self) -> list[dict[str, Any]]:
        """State of every optimiser, for ``load``."""
        return [part.state_dict() for part in self._parts]

    def load(self, states: list[dict[str, Any]]) -> None:
        """Restore what ``state`` returned; the rate tensors stay these ones."""
        for part, state, (rate, _) in zip(self._parts, states, self._rates, strict=True):
            part.load_state_dict(state)
            for group in part.param_groups:
                group["lr"] = rate


def schedule(share: float, warmup: float, floor: float) -> float:
    """Factor of the peak rate after a share of the schedule."""
    if share < warmup:
        return max(share / warmup, 1e-3)
    past = min((share - warmup) / max(1 - warmup, 1e-9), 1.0)
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * past))
