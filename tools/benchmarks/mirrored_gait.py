"""How much a policy walks differently in the mirror: the mirrored-gait error of velocity tasks.

The policy's mean actions control many robots under commands of their own, without noise, pushes or randomisation, until
their gaits have settled. Then every robot gets a twin in the mirrored state, which follows the mirrored command, and
both walk on. A symmetric policy's twin stays the mirror image; the distance of its joints from there, relative to how
far the joints move in a stride, is the error: 0 for a symmetric gait, 1.4 for gaits that are out of step, more where
one side is held differently as well. It is taken in closed loop because that is what a robot's user sees (it limps,
drifts, turns better to the left), and over a second because any two trajectories on legs part in the end. The robot's
own asymmetry (on the Go1, centres of mass and the IMU) is in it too: `Symmetrised` shows about how much that is.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import torch
from torch import Tensor

from hpclab.envs.manager import ManagerEnv
from hpclab.envs.mirror import Mirror
from hpclab.envs.sim.make import make_sim
from hpclab.envs.spec import TaskSpec
from hpclab.envs.terms.mirror import mirrored_state

Policy = Callable[[Tensor], Tensor]
"""Mean actions (N, A) for the observations (N, D) of the group `actor`."""

_FALLEN = math.cos(math.radians(70.0))
"""Vertical component of the trunk's z axis below which the tasks end episodes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Symmetrised:
    """The mean of a policy and its mirror image, a policy without any error of its own."""

    policy: Policy
    mirror: Mirror

    def __call__(self, observations: Tensor) -> Tensor:
        """Return the (N, A) mean actions."""
        image = self.policy(self.mirror.observations["actor"](observations))
        return (self.policy(observations) + self.mirror.actions(image)) / 2


def quiet_env(task: TaskSpec, num_robots: int) -> ManagerEnv:
    """Return environments of a velocity task for robots and their twins, in which nothing happens by chance."""
    observations = {
        group: {name: dataclasses.replace(term, noise=0.0) for name, term in terms.items()}
        for group, terms in task.observations.items()
    }
    endless = {name: term for name, term in task.terminations.items() if term.time_out}
    task = dataclasses.replace(
        task,
        observations=observations,
        terminations=endless,
        events={},
        curriculum={},
        randomize_initial_episode_length=False,
    )
    device = torch.device("cpu")
    sim = make_sim(task.model(), 2 * num_robots, device=device, num_substeps=task.decimation)
    return ManagerEnv("mirrored gait", task, sim)


@torch.inference_mode()
def mirrored_gait(
    env: ManagerEnv, policy: Policy, *, warm_up_s: float = 2.0, duration_s: float = 1.0, seed: int = 0
) -> dict[str, float]:
    """Return the errors of a policy, root mean squares over robots that did not fall, time and joints.

    Args:
        env: as `quiet_env` returns it.
        policy: what is measured.
        warm_up_s: until the robots get their twins [s].
        duration_s: over which both are compared [s].
        seed: draws the commands, from the ranges in which training begins.

    Returns:
        joint_error: of positions, relative to joint_size; what is called the mirrored-gait error.
        joint_error_rad: the distance itself.
        joint_size_rad: distance of the robots' joints from their own means over the duration; relative errors say
            nothing about a policy for which it is next to 0, which stands still.
        velocity_error: of (vx, vy) in the root's frame, relative to the robots' own velocity.
        velocity_error_m_per_s: the distance itself.
        action_error: |policy(mirror(o)) - mirror(policy(o))| relative to |policy(o)| on the robots' observations.
        tracking_error_m_per_s: distance of (vx, vy) from the command.
        fallen: share of robots that fell before the end; they are left out.

    Raises:
        ValueError: all of them fell.
    """
    mirror = env.mirror()
    assert mirror is not None, "a task with a mirror image is measured"
    robots, everyone = env.num_envs // 2, torch.ones(env.num_envs, dtype=torch.bool)
    twist, reflect_command = env.commands["twist"], torch.tensor([1.0, -1.0, -1.0])
    lower, upper = twist.ranges
    drawn = torch.rand(robots, 3, generator=torch.Generator().manual_seed(seed))
    command = lower + drawn * (upper - lower)
    env.reset()
    twist.hold(command.repeat(2, 1))
    observations = env.refresh(~everyone)
    for _ in range(round(warm_up_s / env.step_dt)):
        observations = env.step(policy(observations["actor"])).observations

    image = mirrored_state(env, mirror.actions, env.sim.qpos[:robots], env.sim.qvel[:robots])
    qpos, qvel = (
        torch.cat([own[:robots], twin]) for own, twin in zip((env.sim.qpos, env.sim.qvel), image, strict=True)
    )
    env.sim.write_state(qpos, qvel, everyone)  # the robots' own too: their solver then starts as their twins' does
    env.actions[robots:] = mirror.actions(env.actions[:robots])
    twist.hold(torch.cat([command, command * reflect_command]))
    observations = env.refresh(~everyone)

    up, velocity = env.sensor("root_up")[:, 2], env.sensor("root_lin_vel")
    standing = up > _FALLEN
    joints, velocities, actions, images = [], [], [], []
    for _ in range(round(duration_s / env.step_dt)):
        seen = observations["actor"]
        action = policy(seen)
        actions.append(action[:robots])
        images.append(mirror.actions(policy(mirror.observations["actor"](seen[:robots]))))
        observations = env.step(action).observations
        standing &= up > _FALLEN
        joints.append(env.joints.pos - env.joints.default_pos)
        velocities.append(velocity[:, :2].clone())
    kept = standing[:robots] & standing[robots:]
    if not kept.any():
        raise ValueError("every robot or its twin has fallen")
    own, twin = (part[:, kept] for part in torch.stack(joints).split(robots, dim=1))
    own_velocity, twin_velocity = (part[:, kept] for part in torch.stack(velocities).split(robots, dim=1))
    action, acted = torch.stack(actions)[:, kept], torch.stack(images)[:, kept]
    joint_error, joint_size = _rms(mirror.actions(twin) - own), _rms(own - own.mean(dim=0))
    velocity_error = _rms(twin_velocity * reflect_command[:2] - own_velocity)
    return {
        "joint_error": joint_error / joint_size,
        "joint_error_rad": joint_error,
        "joint_size_rad": joint_size,
        "velocity_error": velocity_error / _rms(own_velocity),
        "velocity_error_m_per_s": velocity_error,
        "action_error": _rms(acted - action) / _rms(action),
        "tracking_error_m_per_s": _rms(own_velocity - command[kept, :2]),
        "fallen": 1.0 - float(kept.float().mean()),
    }


def _rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt())
