"""The actuated joints of a robot: their names, limits, live positions and velocities."""

from __future__ import annotations

import mujoco
import torch

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
    """

    def __init__(self, sim: Sim, buffers: Buffers) -> None:
        model = sim.model
        movable = {int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE)}
        ids = [j for j in range(model.njnt) if int(model.jnt_type[j]) in movable]
        self.names = tuple(str(model.joint(j).name) for j in ids)
        start_q, start_v = int(model.jnt_qposadr[ids[0]]), int(model.jnt_dofadr[ids[0]])
        end_q, end_v = start_q + len(ids), start_v + len(ids)
        assert int(model.jnt_qposadr[ids[-1]]) == end_q - 1, "joints of one robot lie side by side in qpos"
        self.pos = sim.qpos[:, start_q:end_q]
        self.vel = sim.qvel[:, start_v:end_v]

        def as_tensor(values: object) -> torch.Tensor:
            return torch.as_tensor(values, dtype=torch.float32, device=sim.device)

        self.default_pos = as_tensor(default_qpos(model)[start_q:end_q])
        self.encoder_bias = buffers.per_env("encoder_bias", len(ids))
        limits = as_tensor(model.jnt_range[ids])
        limited = torch.as_tensor(model.jnt_limited[ids].astype(bool), device=sim.device)
        self.lower = torch.where(limited, limits[:, 0], -torch.inf)
        self.upper = torch.where(limited, limits[:, 1], torch.inf)

    def actuators(self, model: mujoco.MjModel) -> list[int]:
        """Return the index into `ctrl` of each joint's actuator.

        Raises:
            ValueError: a joint has none, or several.
        """
        ids = []
        for name in self.names:
            joint = model.joint(name).id
            found = [a for a in range(model.nu) if model.actuator_trnid[a, 0] == joint]
            if len(found) != 1:
                raise ValueError(f"joint {name} has {len(found)} actuators; an action term needs exactly one")
            ids.append(found[0])
        return ids


def default_qpos(model: mujoco.MjModel) -> list[float]:
    """Return the configuration of the keyframe `default`, or the model's own where it has none."""
    key = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_KEY, "default")
    values = model.qpos0 if key < 0 else model.key_qpos[key]
    return [float(value) for value in values]
