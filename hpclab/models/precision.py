"""In which precision networks multiply matrices. Parameters, gradients, losses and statistics are always float32."""

from __future__ import annotations

import torch
from torch import nn

from hpclab.models.mlp import MLP


def set_float32_products(precision: str, device: torch.device) -> None:
    """Set how this process multiplies float32 matrices on CUDA: in TF32 unless `precision` is "float32".

    The CPU computes in float32 whatever is asked for.
    """
    if device.type == "cuda":
        torch.set_float32_matmul_precision("highest" if precision == "float32" else "high")
        torch.backends.cudnn.allow_tf32 = precision != "float32"  # recurrent networks


def compute_in(precision: str, *networks: nn.Module) -> None:
    """Let the perceptrons in `networks` compute in bfloat16 where `precision` is "bf16"; otherwise nothing changes."""
    if precision == "bf16":
        for network in networks:
            for module in network.modules():
                if isinstance(module, MLP):
                    module.compute_dtype = torch.bfloat16
