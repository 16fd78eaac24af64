"""The running statistics of batch normalisation: when they are learned, and what ranks share of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from hpclab.distributed.collectives import Collectives


class BatchStatistics:
    """Rollouts use running statistics; in an update each mini-batch uses its own and the running ones follow.

    As `sync.normalizer` says, a rank keeps its own, or all ranks take their mean after each update.
    """

    def __init__(self, networks: Sequence[nn.Module], collectives: Collectives, weight: float | None, *, local: bool):
        """Take the layers of `networks`.

        Args:
            networks: what is trained.
            collectives: the ranks.
            weight: this rank's share of all samples; None: all ranks have as many.
            local: whether each rank keeps its own statistics.
        """
        modules = [module for network in networks for module in network.modules()]
        self._layers = [module for module in modules if isinstance(module, nn.BatchNorm2d)]
        self._collectives = collectives
        self._weight = 1.0 / collectives.world_size if weight is None else weight
        self._shared = not local and collectives.world_size > 1 and bool(self._layers)
        self._learn(False)

    @contextmanager
    def learning(self) -> Iterator[None]:
        """Enter for an update. Collective where statistics are shared: one all_reduce at the end."""
        self._learn(True)
        yield
        self._learn(False)
        if self._shared:
            self._average()

    def _learn(self, learns: bool) -> None:
        for layer in self._layers:
            layer.train(learns)

    @torch.no_grad()
    def _average(self) -> None:
        buffers = [buffer for layer in self._layers for buffer in (layer.running_mean, layer.running_var)]
        tensors = [buffer for buffer in buffers if buffer is not None]
        mean = self._collectives.all_reduce_sum(torch.cat(tensors).mul_(self._weight))
        for tensor, value in zip(tensors, torch.split(mean, [tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(value)


def is_rank_local(name: str) -> bool:
    """Return whether an entry of a network's state dict is each rank's own under `sync.normalizer: local`."""
    return "normalizer." in name or name.endswith((".running_mean", ".running_var"))
