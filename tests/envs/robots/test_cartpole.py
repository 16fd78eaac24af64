"""The cart-pole against numbers worked by hand."""

from __future__ import annotations

import mujoco
import pytest

from hpclab.envs.robots.cartpole import cartpole


def test_masses_and_inertia() -> None:
    model = cartpole().compile()
    assert model.opt.timestep == 0.01
    assert model.body("cart").mass[0] == pytest.approx(1.0)
    assert model.body("pole").mass[0] == pytest.approx(0.1)
    assert model.body("pole").ipos[2] == pytest.approx(0.5)


@pytest.mark.parametrize(("settings", "newtons"), [({}, 10.0), ({"force_n": 3.0}, 3.0)])
def test_full_control_pushes_the_cart_with_its_force(settings: dict[str, float], newtons: float) -> None:
    model = cartpole(**settings).compile()
    data = mujoco.MjData(model)
    data.ctrl[0] = 3.0  # clipped to 1
    mujoco.mj_forward(model, data)
    # about the upright pole: (M + m) x'' + m l w' = F and (I + m l^2) w' + m l x'' = 0, angles along +x
    inertia = model.body("pole").inertia[0] + 0.1 * 0.5**2
    coupling = 0.1 * 0.5
    expected = newtons / (1.1 - coupling**2 / inertia)
    assert data.qacc[0] == pytest.approx(expected, rel=1e-6)


def test_the_pole_falls_from_upright() -> None:
    model = cartpole().compile()
    data = mujoco.MjData(model)
    data.qpos[1] = 0.01
    for _ in range(100):
        mujoco.mj_step(model, data)
    assert data.qpos[1] > 0.1
