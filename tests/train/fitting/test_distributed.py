"""Two processes that train one network."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

from outrider.train.fitting.distributed import ALONE, join_peers

TOYS = Path(__file__).parents[1]
WORKER = """
import sys
from pathlib import Path
import torch
from tiny_training import CONFIG, FAST, SHAPE, V, torch_target, written_rows
from dataclasses import replace
from outrider.train.fitting.trainer import Trainer
from outrider.train.networks.heads import trimmed_head
from outrider.train.fitting.distributed import join_peers
from outrider.train.networks.network import new_network

torch.set_num_threads(1)
peers = join_peers()
folder = Path(sys.argv[1])
mean = torch.tensor([1.0 + peers.rank, 4.0])
peers.average([mean[:1], mean[1:]])
target = torch_target()
torch.manual_seed(0)
network = new_network("dspark", CONFIG, SHAPE)
rows = written_rows(target, 40, 1, 1.0)
optim = replace(FAST, steps=6, rows=8)
head = trimmed_head(target, torch.arange(V))
trainer = Trainer(network, target, head, rows, optim, folder, peers)
seen = [next(iter(trainer._indices())).tolist()]
finished = trainer.run()
agreed = peers.agree(7.0 + peers.rank, target.device)
weights = dict(network.state_dict())
state = (mean, seen, finished, agreed, trainer.history.step, trainer.history.seconds, weights)
torch.save(state, folder / f"{peers.rank}.pt")
"""


def test_one_process_is_alone():
    assert join_peers() is ALONE
    values = [torch.tensor([3.0])]
    ALONE.average(values)
    ALONE.wait()
    assert values[0] == 3.0
    assert ALONE.agree(5.0, torch.device("cpu")) == 5.0
    assert ALONE.leads


def test_two_processes_train_one_network(tmp_path):
    worker = tmp_path / "worker.py"
    worker.write_text(WORKER)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    path = os.pathsep.join([str(TOYS), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launch, str(worker), str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    assert first[0].tolist() == second[0].tolist() == [1.5, 4.0]
    assert not set(first[1][0]) & set(second[1][0])
    assert first[2]
    assert second[2]
    assert first[3] == second[3] == 7.0
    assert first[4] == second[4] == 6
    assert first[5] == second[5]
    for name, weight in first[6].items():
        assert torch.equal(weight, second[6][name]), name
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 1
