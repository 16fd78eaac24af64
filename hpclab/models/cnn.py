"""Convolutional networks: from the image at the end of an observation to features."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from hpclab.config.models import ImageSection
from hpclab.models.mlp import ACTIVATIONS


class ImageEncoder(nn.Module):
    """Replaces the image in observations (..., D) by features; what stands before the image stays as it is."""

    def __init__(self, config: ImageSection) -> None:
        super().__init__()
        self.shape = config.shape
        self.num_pixels = math.prod(config.shape)
        channels, height, width = config.shape
        layers: list[nn.Module] = []
        for outputs, size, stride in zip(config.channels, config.kernel_sizes, config.strides, strict=True):
            layers.append(nn.Conv2d(channels, outputs, size, stride, padding=size // 2))
            layers += [*_normalization(config.norm, outputs), ACTIVATIONS[config.activation]()]
            channels, height, width = outputs, _length(height, size, stride), _length(width, size, stride)
        self.layers = nn.Sequential(*layers)
        self.num_features = channels * height * width

    def forward(self, observations: Tensor) -> Tensor:
        """Return (..., D - C * H * W + num_features)."""
        rest, pixels = observations.tensor_split([observations.shape[-1] - self.num_pixels], dim=-1)
        features = self.layers(pixels.reshape(-1, *self.shape)).flatten(1)
        return torch.cat([rest, features.view(*observations.shape[:-1], self.num_features)], dim=-1)


def _length(length: int, size: int, stride: int) -> int:
    return (length + 2 * (size // 2) - size) // stride + 1


def _normalization(norm: str, channels: int) -> list[nn.Module]:
    if norm == "group":
        return [nn.GroupNorm(math.gcd(8, channels), channels)]
    return [nn.BatchNorm2d(channels)] if norm == "batch" else []
