"""How many threads a run uses: fewer while a neighbour takes a core, all of them otherwise."""

from __future__ import annotations

import pytest
import torch
from kernel_toys import randn, raw, same_bits

_native = pytest.importorskip("outrider.kernels._native")

MS = 1_000_000


class Machine:
    """Runs of 4 ms, on a clock of its own; ``waiting`` is the share of a run that others wait."""

    def __init__(self, threads):
        self.team, self.now, self.sizes = _native.Team(threads), 0, []

    def run(self, milliseconds, waiting):
        end = self.now + milliseconds * MS
        while self.now < end:
            size = self.team.size(self.now)
            self.sizes.append(size)
            waited = int(4 * MS * waiting(size) * (size - 1))
            self.now += 4 * MS
            self.team.note(self.now, 4 * MS, waited)
        return self.sizes[-milliseconds // 8 :]


def test_a_quiet_machine_keeps_all_threads():
    assert set(Machine(4).run(2000, lambda _: 0.1)) == {4}


def test_a_busy_core_shrinks_the_team_and_its_end_restores_it():
    machine = Machine(2)
    busy = machine.run(4000, lambda size: 0.6 if size == 2 else 0.0)
    assert sum(busy) / len(busy) < 1.1, "attempts to grow fade"
    assert machine.run(4000, lambda _: 0.0)[-1] == 2


def test_attempts_to_grow_never_stop():
    machine = Machine(2)
    machine.run(10_000, lambda size: 0.6 if size == 2 else 0.0)
    machine.sizes.clear()
    machine.run(3300, lambda size: 0.6 if size == 2 else 0.0)
    assert 2 in machine.sizes


def test_one_busy_core_of_many_costs_one_thread():
    sizes = Machine(8).run(8000, lambda size: 0.6 if size == 8 else 0.05)
    assert sum(sizes) / len(sizes) > 6.9


def test_one_thread_never_waits():
    assert set(Machine(1).run(1000, lambda _: 1.0)) == {1}


def test_bits_do_not_depend_on_the_team(native):
    """Many runs, some of which may use fewer threads: all give the same bits."""
    weight, x = native.prepare([raw("Q4_1", 640, 576)]), randn(9, 576)
    first = native.linear(x, weight)
    assert all(same_bits(native.linear(x, weight), first) for _ in range(200))
    best = native.argmax(x, weight)
    assert all(torch.equal(native.argmax(x, weight), best) for _ in range(200))
