"""The gradients of one optimiser as one flat buffer: reduced over ranks in one call, clipped by network."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from hpclab.distributed.collectives import Collectives


class FlatGradients:
    """Gradients of several networks, as views of one persistent tensor.

    Backward accumulates straight into `buffer`, so the reduction copies nothing. The tail holds `num_extra` scalars
    that travel with the gradients. `zero` replaces the optimiser's `zero_grad`, which would drop the views.
    """

    def __init__(
        self, networks: Sequence[nn.Module], num_extra: int = 0, *, unclipped: Sequence[nn.Module] = ()
    ) -> None:
        """Give every parameter of `networks` and of `unclipped`, which `clip` leaves alone, its place."""
        parameters = [[p for p in network.parameters() if p.requires_grad] for network in (*networks, *unclipped)]
        sizes = [sum(p.numel() for p in group) for group in parameters]
        first = parameters[0][0]
        self.buffer = torch.zeros(sum(sizes) + num_extra, dtype=first.dtype, device=first.device)
        *flats, self.extra = torch.split(self.buffer, [*sizes, num_extra])
        self.networks = flats[: len(networks)]
        for flat, group in zip(flats, parameters, strict=True):
            for p, view in zip(group, torch.split(flat, [p.numel() for p in group]), strict=True):
                p.grad = view.view_as(p)

    def zero(self) -> None:
        """Set every gradient and extra scalar to zero."""
        self.buffer.zero_()

    def reduce(self, collectives: Collectives, weight: float | None = None) -> None:
        """Average over the ranks in one all_reduce(SUM); nothing happens with one rank.

        Args:
            collectives: the ranks.
            weight: this rank's share of all samples, where ranks hold different numbers of them; the weights of all
                ranks sum to one. None: every rank counts 1 / world_size.
        """
        if collectives.world_size == 1:
            return
        if weight is not None:
            collectives.all_reduce_sum(self.buffer.mul_(weight))
        else:
            collectives.all_reduce_sum(self.buffer).div_(collectives.world_size)

    def clip(self, max_norm: float) -> list[Tensor]:
        """Scale the gradient of each network down to norm `max_norm` where it is longer.

        Returns:
            The norm of each network's gradient before clipping, 0-dimensional.
        """
        norms = [torch.linalg.vector_norm(flat) for flat in self.networks]
        for flat, norm in zip(self.networks, norms, strict=True):
            flat.mul_((max_norm / (norm + 1e-6)).clamp_(max=1.0))
        return norms


def broadcast_parameters(networks: Sequence[nn.Module], collectives: Collectives) -> None:
    """Overwrite parameters and buffers of every rank with rank 0's: one broadcast for each data type."""
    if collectives.world_size == 1:
        return
    tensors = [tensor for network in networks for tensor in network.state_dict().values()]
    for dtype in sorted({tensor.dtype for tensor in tensors}, key=str):
        group = [tensor for tensor in tensors if tensor.dtype == dtype]
        flat = collectives.broadcast(torch.cat([tensor.reshape(-1) for tensor in group]))
        for tensor, part in zip(group, torch.split(flat, [tensor.numel() for tensor in group]), strict=True):
            tensor.copy_(part.view_as(tensor))
