"""From what the user typed to a running target: operators for the device, then the weights."""

from __future__ import annotations

from outrider.kernels.select import select
from outrider.models.target import Target, load_target
from outrider.types.progress import Progress, silent


def make_target(
    spec: str,
    *,
    device: str = "auto",
    threads: int | None = None,
    kernels: str | None = None,
    max_model_len: int | None = None,
    progress: Progress = silent,
) -> Target:
    """Load a model for the operators that run it here.

    Args:
        spec: "smollm2", a folder, a .gguf file, or a hub id.
        device: "auto" or "cpu".
        threads: CPU threads, None for one a core.
        kernels: pins an implementation of the operators, None takes the fastest.
        max_model_len: most tokens that sessions will have, refused at once if the model cannot;
            None asks for nothing.
        progress: told while weights are prepared.

    Raises:
        ModelError: there is no such device or implementation, or the model cannot be loaded.
        RequestError: the asked-for length exceeds the model's.
    """
    return load_target(spec, select(device, threads, kernels), max_model_len, progress)
