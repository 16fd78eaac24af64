"""Pictures drawn from the state by arithmetic alone: no graphics library, the same on every device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hpclab.envs.spec import Tracker

if TYPE_CHECKING:
    from hpclab.envs.manager import ManagerEnv

_CART_HALF_M = (0.2, 0.1)
_POLE_LENGTH_M, _POLE_RADIUS_M = 1.0, 0.06


class CartPolePicture(Tracker):
    """Grey pictures of a cart and its pole from the side, the latest ones side by side so that motion can be seen.

    The picture spans 4.8 m across, centred on the rail, and as much up and down as its shape asks for. The background
    is 0, the cart 0.5, the pole up to 1; edges are a pixel wide.

    Attributes:
        pixels: (N, length, height, width) in 0..1, the newest last; at an episode's start all show its first state.
    """

    def __init__(self, env: ManagerEnv, *, name: str, width: int, height: int, length: int) -> None:
        """Choose the size in pixels, and how many pictures are kept."""
        self._joints = env.joints
        self._pixel_m = 4.8 / width
        across = (torch.arange(width, device=env.device) - (width - 1) / 2) * self._pixel_m
        up = ((height - 1) / 2 - torch.arange(height, device=env.device)) * self._pixel_m
        self._x, self._y = across[None, None, :], up[None, :, None]
        self.pixels = env.buffers.per_env(f"{name}/pixels", length, height, width)
        self._fresh = torch.zeros(env.num_envs, dtype=torch.bool, device=env.device)

    def reset(self, mask: Tensor) -> None:
        """Begin anew in environments of `mask` (N,), with the next picture."""
        self._fresh |= mask

    def before_observations(self) -> None:
        """Draw the current state."""
        newest = self.draw(self._joints.pos[:, 0], self._joints.pos[:, 1]).unsqueeze(1)
        shifted = torch.cat([self.pixels[:, 1:], newest], dim=1)
        torch.where(self._fresh[:, None, None, None], newest, shifted, out=self.pixels)
        self._fresh.zero_()

    def draw(self, position: Tensor, angle: Tensor) -> Tensor:
        """Return (N, height, width) pictures of carts at (N,) positions [m] with poles at (N,) angles [rad]."""
        x = self._x - position[:, None, None]
        cart_x, cart_y = _CART_HALF_M
        cart = self._cover(torch.maximum(x.abs() - cart_x, self._y.abs() - cart_y))
        sin, cos = angle.sin()[:, None, None], angle.cos()[:, None, None]
        along = (x * sin + self._y * cos).clamp(0.0, _POLE_LENGTH_M)
        distance = torch.hypot(x - along * sin, self._y - along * cos)
        pole = self._cover(distance - _POLE_RADIUS_M)
        return torch.maximum(0.5 * cart, pole)

    def _cover(self, distance: Tensor) -> Tensor:
        """Return how much of a pixel a shape covers whose edge is `distance` [m] nearer than the pixel's centre."""
        return (0.5 - distance / self._pixel_m).clamp(0.0, 1.0)


def picture(env: ManagerEnv, *, tracker: str) -> Tensor:
    """observation: the pixels of a `CartPolePicture`, (N, length * height * width)."""
    pixels: Tensor = env.trackers[tracker].pixels
    return pixels.flatten(1)
