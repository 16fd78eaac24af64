"""A cart on a rail with a pole on a hinge, driven by a horizontal force.

Source: dimensions of the classic task (Barto, Sutton and Anderson 1983) as in the DeepMind control suite: cart 1 kg,
pole 0.1 kg and 1 m, rail +-1.8 m, 10 N per unit of control unless said otherwise, 0.01 s a step.
"""

from __future__ import annotations

import mujoco

RAIL_LIMIT = 1.8
"""The cart stops at this distance from the middle [m]."""

_XML = f"""
<mujoco model="cartpole">
  <compiler angle="radian" autolimits="true"/>
  <option timestep="0.01" integrator="implicitfast" iterations="10" ls_iterations="20">
    <flag contact="disable"/>
  </option>
  <worldbody>
    <body name="cart" pos="0 0 1">
      <joint name="slider" type="slide" axis="1 0 0" range="{-RAIL_LIMIT} {RAIL_LIMIT}" damping="5e-4"/>
      <geom name="cart" type="box" size="0.2 0.15 0.1" mass="1"/>
      <body name="pole">
        <joint name="hinge" type="hinge" axis="0 1 0" damping="2e-6"/>
        <geom name="pole" type="capsule" fromto="0 0 0 0 0 1" size="0.045" mass="0.1"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <motor name="slide" joint="slider" gear="10" ctrlrange="-1 1"/>
  </actuator>
</mujoco>
"""


def cartpole(force_n: float = 10.0) -> mujoco.MjSpec:
    """Build the model.

    qpos: cart position [m], pole angle [rad], 0 upright, unlimited. ctrl: the motor's force / `force_n`, in +-1.
    """
    spec = mujoco.MjSpec.from_string(_XML)
    spec.actuator("slide").gear[0] = force_n
    return spec
