"""Pictures of the cart-pole."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from hpclab.envs.terms.pictures import CartPolePicture, picture
from tests.envs.terms.bare_env import bare_env

EVERYONE = torch.tensor([True, True])


def camera_on(positions: torch.Tensor) -> CartPolePicture:
    env = bare_env(len(positions), joints=SimpleNamespace(pos=positions))
    return CartPolePicture(env, name="camera", width=48, height=32, length=3)


def centre_of(image: torch.Tensor) -> tuple[float, float]:
    """Mean position of an image's brightness [m], x to the right and y up."""
    x = (torch.arange(48) - 23.5) * 0.1
    y = (15.5 - torch.arange(32)) * 0.1
    mass = image.sum()
    return float((image.sum(0) * x).sum() / mass), float((image.sum(1) * y).sum() / mass)


@pytest.mark.parametrize("angle", [0.0, 0.4, math.pi / 2, math.pi, -1.0])
def test_cart_and_pole_are_where_the_state_says(angle: float) -> None:
    camera = camera_on(torch.zeros(1, 2))
    image = camera.draw(torch.tensor([0.7]), torch.tensor([angle]))[0]
    assert image.min() == 0
    assert 0.55 < image.max() <= 1
    pole = (image > 0.5) * image
    x, y = centre_of(pole)
    assert x == pytest.approx(0.7 + 0.5 * math.sin(angle), abs=0.05)
    assert y == pytest.approx(0.5 * math.cos(angle), abs=0.05)
    without = camera.draw(torch.tensor([-0.7]), torch.tensor([angle]))[0]
    assert centre_of(without)[0] == pytest.approx(centre_of(image)[0] - 1.4, abs=0.02)


def test_a_small_motion_changes_the_picture() -> None:
    camera = camera_on(torch.zeros(1, 2))
    still, moved = camera.draw(torch.tensor([0.0, 0.01]), torch.zeros(2))
    assert (still - moved).abs().max() > 0.04


def test_the_latest_pictures_start_equal_and_move_on() -> None:
    state = torch.zeros(2, 2)
    camera = camera_on(state)
    camera.reset(EVERYONE)
    camera.before_observations()
    assert torch.equal(camera.pixels[:, 0], camera.pixels[:, 2])
    state[:, 1] = 0.5
    camera.before_observations()
    assert torch.equal(camera.pixels[:, 0], camera.pixels[:, 1])
    assert not torch.equal(camera.pixels[:, 1], camera.pixels[:, 2])
    camera.reset(torch.tensor([True, False]))
    camera.before_observations()
    assert torch.equal(camera.pixels[0, 0], camera.pixels[0, 2])
    assert not torch.equal(camera.pixels[1, 0], camera.pixels[1, 2])
    env = SimpleNamespace(trackers={"camera": camera})
    assert torch.equal(picture(env, tracker="camera").view(2, 3, 32, 48), camera.pixels)
