"""Startup events that give every environment its own model: friction, masses, gains, gravity and the like.

Each draws once, before the first reset, and writes entries of per-environment model fields (`Sim.model_field`); values
stay for the whole training and are part of a checkpoint. `operation` says what a draw does to the model's own value:
set, add or scale. Only `EncoderBias` changes no model field, and may draw at every reset instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import mujoco
import torch
from torch import Tensor

if TYPE_CHECKING:
    from hpclab.envs.manager import ManagerEnv

Range = tuple[float, float]
Operation = Literal["set", "add", "scale"]
Distribution = Literal["uniform", "log_uniform"]

_FRICTIONS = ("slide", "spin", "roll")


def draw(shape: Sequence[int], limits: Range, distribution: Distribution, device: torch.device) -> Tensor:
    """Draw a tensor of `shape`; log_uniform is uniform in the logarithm, so its limits are positive."""
    values = torch.empty(tuple(shape), device=device)
    if distribution == "uniform":
        return values.uniform_(*limits)
    return values.uniform_(math.log(limits[0]), math.log(limits[1])).exp_()


def apply(values: Tensor, drawn: Tensor, operation: Operation) -> Tensor:
    """Return `values` set to, shifted by or scaled by `drawn`, which broadcasts."""
    if operation == "set":
        return drawn.expand_as(values)
    return values + drawn if operation == "add" else values * drawn


class Friction:
    """Friction of a set of geoms, one draw per environment that they share."""

    def __init__(
        self,
        env: ManagerEnv,
        *,
        geoms: Sequence[str],
        range: Range,  # noqa: A002
        kind: Literal["slide", "spin", "roll"] = "slide",
        operation: Operation = "set",
        distribution: Distribution = "uniform",
    ) -> None:
        """Choose one of a geom's frictions: against sliding, or against spinning or rolling (which need its condim)."""
        self._friction = env.sim.model_field("geom_friction")
        self._geoms = [int(env.sim.model.geom(name).id) for name in geoms]
        self._column = _FRICTIONS.index(kind)
        self._draw = (range, distribution, env.device)
        self._operation: Operation = operation

    def __call__(self) -> None:
        """Draw and write."""
        drawn = draw((self._friction.shape[0], 1), *self._draw)
        now = self._friction[:, self._geoms, self._column]
        self._friction[:, self._geoms, self._column] = apply(now, drawn, self._operation)


class Mass:
    """Mass of bodies [kg], one draw for each; a body's inertia changes in proportion, as if it grew denser."""

    def __init__(
        self,
        env: ManagerEnv,
        *,
        bodies: Sequence[str],
        range: Range,  # noqa: A002
        operation: Operation = "scale",
        distribution: Distribution = "uniform",
    ) -> None:
        self._mass, self._inertia = env.sim.model_field("body_mass"), env.sim.model_field("body_inertia")
        self._bodies = _bodies(env, bodies)
        self._draw = (range, distribution, env.device)
        self._operation: Operation = operation

    def __call__(self) -> None:
        """Draw and write."""
        now = self._mass[:, self._bodies]
        new = apply(now, draw(now.shape, *self._draw), self._operation)
        self._mass[:, self._bodies] = new
        self._inertia[:, self._bodies] = self._inertia[:, self._bodies] * (new / now)[:, :, None]


class Inertia:
    """Scale of the rotational inertia of bodies about their centres of mass; masses stay."""

    def __init__(self, env: ManagerEnv, *, bodies: Sequence[str], range: Range) -> None:  # noqa: A002
        self._inertia = env.sim.model_field("body_inertia")
        self._bodies = _bodies(env, bodies)
        self._draw: tuple[Range, Distribution, torch.device] = (range, "uniform", env.device)

    def __call__(self) -> None:
        """Draw and write; one factor for a body's three axes keeps it a possible inertia."""
        now = self._inertia[:, self._bodies]
        self._inertia[:, self._bodies] = now * draw((*now.shape[:2], 1), *self._draw)


class CenterOfMass:
    """Shift of a body's centre of mass within x, y, z [m] of where the model has it."""

    def __init__(self, env: ManagerEnv, *, body: str, x: Range, y: Range, z: Range) -> None:
        self._position = env.sim.model_field("body_ipos")[:, env.sim.model.body(body).id]
        self._lower = torch.tensor([x[0], y[0], z[0]], device=env.device)
        self._width = torch.tensor([x[1], y[1], z[1]], device=env.device) - self._lower

    def __call__(self) -> None:
        """Draw and write."""
        self._position.add_(torch.addcmul(self._lower, torch.rand_like(self._position), self._width))


class Gains:
    """Scale of the stiffness and damping of position actuators, one draw of each for every joint."""

    def __init__(self, env: ManagerEnv, *, stiffness: Range, damping: Range) -> None:
        self._gain, self._bias = env.sim.model_field("actuator_gainprm"), env.sim.model_field("actuator_biasprm")
        self._stiffness: tuple[Range, Distribution, torch.device] = (stiffness, "uniform", env.device)
        self._damping: tuple[Range, Distribution, torch.device] = (damping, "uniform", env.device)

    def __call__(self) -> None:
        """Draw and write."""
        shape = self._gain.shape[:2]
        stiffness = draw(shape, *self._stiffness)
        self._gain[:, :, 0].mul_(stiffness)
        self._bias[:, :, 1].mul_(stiffness)
        self._bias[:, :, 2].mul_(draw(shape, *self._damping))


class JointProperty:
    """Rotor inertia (armature), dry friction or viscous damping of joints, one draw for each."""

    def __init__(
        self,
        env: ManagerEnv,
        *,
        property: Literal["armature", "friction", "damping"],  # noqa: A002
        range: Range,  # noqa: A002
        joints: Sequence[str] | None = None,
        operation: Operation = "scale",
        distribution: Distribution = "uniform",
    ) -> None:
        """Name the joints, all of the robot's when not given; [kg m^2], [N m] and [N m s] for a hinge."""
        field = {"armature": "dof_armature", "friction": "dof_frictionloss", "damping": "dof_damping"}[property]
        model = env.sim.model
        self._values = env.sim.model_field(field)
        self._dofs = [int(model.jnt_dofadr[model.joint(name).id]) for name in joints or env.joints.names]
        self._draw = (range, distribution, env.device)
        self._operation: Operation = operation

    def __call__(self) -> None:
        """Draw and write."""
        now = self._values[:, self._dofs]
        self._values[:, self._dofs] = apply(now, draw(now.shape, *self._draw), self._operation)


class Gravity:
    """Shift of gravity within x, y, z [m/s^2] of the model's own."""

    def __init__(self, env: ManagerEnv, *, x: Range, y: Range, z: Range) -> None:
        self._gravity = env.sim.model_field("opt.gravity")
        self._lower = torch.tensor([x[0], y[0], z[0]], device=env.device)
        self._width = torch.tensor([x[1], y[1], z[1]], device=env.device) - self._lower

    def __call__(self) -> None:
        """Draw and write."""
        self._gravity.add_(torch.addcmul(self._lower, torch.rand_like(self._gravity), self._width))


class EncoderBias:
    """startup or reset: what each joint's encoder adds to the position it reports [rad or m].

    At resets the ended environments alone draw anew.
    """

    def __init__(self, env: ManagerEnv, *, range: Range) -> None:  # noqa: A002
        self._env = env
        self._bias = env.joints.encoder_bias
        self._range = range

    def __call__(self, qpos: Tensor | None = None, qvel: Tensor | None = None) -> None:
        """Draw and write."""
        if qpos is None:
            self._bias.uniform_(*self._range)
            return
        drawn = torch.empty_like(self._bias).uniform_(*self._range)
        torch.where(self._env.resetting[:, None], drawn, self._bias, out=self._bias)


def _bodies(env: ManagerEnv, names: Sequence[str]) -> list[int]:
    model: mujoco.MjModel = env.sim.model
    return [int(model.body(name).id) for name in names]
