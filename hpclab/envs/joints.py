"""The actuated joints of a robot: their names, limits, live positions and velocities."""

from __future__ import annotations

import mujoco
import torch
from torch import Tensor

from hpclab.envs.buffers import Buffers
from hpclab.envs.sim.sim import Sim


class Joints:
    """The hinge and slide joints of the model, in its order. Shapes: N environments, J joints.

    Attributes:
        names: J names.
        pos: (N, J) live view of their positions [rad or m].
        vel: (N, J) live view of their velocities [rad/s or m/s].
        default_pos: (J,) positions of the keyframe `default`.
        encoder_bias: (N, J) what the encoders add to the positions they report [rad or m].
        lower, upper: (J,) limits; infinite where a joint has none.
        in_qpos, in_qvel: the J columns of a state that are theirs.
    """

    def __init__(self, sim: Sim, buffers: Buffers) -> None:
        model = sim.model
        movable = {int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE)}
        ids = [j for j in range(model.njnt) if int(model.jnt_type[j]) in movable]
        self.names = tuple(str(model.joint(j).name) for j in ids)
        start_q, start_v = int(model.jnt_qposadr[ids[0]]), int(model.jnt_dofadr[ids[0]])
        self.in_qpos, self.in_qvel = slice(start_q, start_q + len(ids)), slice(start_v, start_v + len(ids))
        assert int(model.jnt_qposadr[ids[-1]]) == self.in_qpos.stop - 1, "joints of one robot lie side by side in qpos"
        self.pos = sim.qpos[:, self.in_qpos]
        self.vel = sim.qvel[:, self.in_qvel]

        def as_tensor(values: object) -> Tensor:
            return torch.as_tensor(values, dtype=torch.float32, device=sim.device)

        self.default_pos = as_tensor(default_qpos(model)[self.in_qpos])
        self.encoder_bias = buffers.per_env("encoder_bias", len(ids))
        limits = as_tensor(model.jnt_range[ids])
        limited = torch.as_tensor(model.jnt_limited[ids].astype(bool), device=sim.device)
        self.lower = torch.where(limited, limits[:, 0], -torch.inf)
        self.upper = torch.where(limited, limits[:, 1], torch.inf)

    def soft_limits(self, factor: float) -> tuple[Tensor, Tensor]:
        """Return (J,) lower and upper ends of the range times `factor`, about its centre; infinite without limits."""
        centre, half = (self.lower + self.upper) / 2, (self.upper - self.lower) / 2 * factor
        limited = half.isfinite()
        return torch.where(limited, centre - half, self.lower), torch.where(limited, centre + half, self.upper)

    def actuators(self, model: mujoco.MjModel) -> list[int]:
        """Return the index into `ctrl` of each joint's actuator.

        Raises:
            ValueError: a joint has none, or several, or an actuator drives something else.
        """
        joints = [int(model.joint(name).id) for name in self.names]
        driven = [_driven_joint(model, actuator) for actuator in range(model.nu)]
        for actuator, joint in enumerate(driven):
            if joint not in joints:
                other = model.actuator(actuator).name
                raise ValueError(
                    f"actuator {other} drives none of the robot's joints; an action term has no use for it"
                )
        for name, joint in zip(self.names, joints, strict=True):
            if driven.count(joint) != 1:
                raise ValueError(f"joint {name} has {driven.count(joint)} actuators; an action term needs exactly one")
        return [driven.index(joint) for joint in joints]


def _driven_joint(model: mujoco.MjModel, actuator: int) -> int | None:
    """Return the joint that an actuator drives; None where it drives a tendon, a site or a body."""
    kinds = (int(mujoco.mjtTrn.mjTRN_JOINT), int(mujoco.mjtTrn.mjTRN_JOINTINPARENT))
    return int(model.actuator_trnid[actuator, 0]) if int(model.actuator_trntype[actuator]) in kinds else None


def default_qpos(model: mujoco.MjModel) -> list[float]:
    """Return the configuration of the keyframe `default`, or the model's own where it has none."""
    key = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_KEY, "default")
    values = model.qpos0 if key < 0 else model.key_qpos[key]
    return [float(value) for value in values]
