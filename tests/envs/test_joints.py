"""The joints of a robot, where the model holds more than limited joints with a motor each."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import mujoco
import pytest
import torch

from hpclab.envs.buffers import Buffers
from hpclab.envs.joints import Joints
from hpclab.envs.sim.make import make_sim
from hpclab.envs.terms import events, rewards

CPU = torch.device("cpu")
ROBOT = """
<mujoco>
  <compiler angle="radian"/>
  <worldbody>
    <body name="base"><freejoint/><geom size=".1"/>
      <body name="leg"><joint name="hip" axis="0 1 0" range="0 2"/><geom size=".1"/>
        <body name="wheel"><joint name="axle" axis="0 1 0"/><geom size=".1"/></body>
      </body>
    </body>
    <body name="ball" pos="1 0 0"><freejoint/><geom size=".1"/></body>
  </worldbody>
  <actuator><motor name="axle_motor" joint="axle"/><motor name="hip_motor" joint="hip"/>{more}</actuator>
</mujoco>
"""


def robot(more: str = "") -> Any:
    """Two environments of a leg with a wheel, which turns without limits, and a ball beside the robot."""
    sim = make_sim(mujoco.MjSpec.from_string(ROBOT.format(more=more)), 2, device=CPU)
    return SimpleNamespace(sim=sim, joints=Joints(sim, Buffers(2, CPU)), device=CPU)


def test_soft_limits_are_about_the_centre_of_a_range_and_none_where_there_is_none() -> None:
    lower, upper = robot().joints.soft_limits(0.9)
    torch.testing.assert_close(lower, torch.tensor([0.1, -torch.inf]))
    torch.testing.assert_close(upper, torch.tensor([1.9, torch.inf]))


def test_a_joint_beyond_its_soft_limits_costs_and_one_without_limits_never_does() -> None:
    env = robot()
    cost = rewards.JointPosLimits(env, soft_factor=0.9)
    env.joints.pos.copy_(torch.tensor([[0.1, 50.0], [2.2, -50.0]]))
    torch.testing.assert_close(cost(), torch.tensor([0.0, 0.3]))


def test_joints_start_off_their_default_and_what_lies_behind_them_in_the_state_does_not() -> None:
    env = robot()
    qpos, qvel = torch.zeros(2, 16), torch.zeros(2, 14)
    events.ResetJointsUniform(env, position={"axle": (0.5, 0.5)}, velocity={"hip": (0.25, 0.25)})(qpos, qvel)
    assert qpos.nonzero().tolist() == [[0, 8], [1, 8]]
    assert qvel.nonzero().tolist() == [[0, 6], [1, 6]]


def test_a_joint_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match=r"no joints \['axel'\]"):
        events.ResetJointsUniform(robot(), position={"axel": (0.0, 1.0)}, velocity={})


def test_every_joint_has_its_actuator_and_there_is_no_other() -> None:
    env = robot()
    assert env.joints.actuators(env.sim.model) == [1, 0]
    glued = robot('<adhesion name="glue" body="base" ctrlrange="0 1"/>')  # the body's number is that of the hip
    with pytest.raises(ValueError, match="glue drives none of the robot's joints"):
        glued.joints.actuators(glued.sim.model)
    doubled = robot('<motor name="second" joint="hip"/>')
    with pytest.raises(ValueError, match="hip has 2 actuators"):
        doubled.joints.actuators(doubled.sim.model)
