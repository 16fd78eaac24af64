"""Actuator models worked by hand, and drives in a simulated robot."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mujoco
import pytest
import torch
from torch import Tensor, nn

from hpclab.envs.actuators.actuator import Drive
from hpclab.envs.actuators.network import LearnedActuator
from hpclab.envs.actuators.pd import PD, DCMotor
from hpclab.envs.manager import ManagerEnv
from hpclab.envs.robots import legged
from hpclab.envs.sim.make import make_sim
from hpclab.envs.spec import Term
from hpclab.envs.tasks import load_task
from hpclab.envs.terms import actions, drives
from hpclab.errors import ConfigError
from tests.envs.terms.bare_env import bare_env

N = 2
GAINS = {
    "stiffness": {r".*_(hip|thigh)_joint": 15.895243, r".*_calf_joint": 35.764296},
    "damping": {r".*_(hip|thigh)_joint": 1.0119226, r".*_calf_joint": 2.2768258},
    "effort_limit": {r".*_(hip|thigh)_joint": 23.7, r".*_calf_joint": 35.55},
}


def two_joints(num_envs: int = 1) -> Any:
    return bare_env(num_envs, joints=SimpleNamespace(names=("hip", "knee")))


def drive(*, error: float = 0.0, velocity: float = 0.0, feed: float = 0.0) -> Drive:
    """A drive of two joints, the second one's numbers of the opposite sign."""
    sign = torch.tensor([[1.0, -1.0]])
    return Drive(0.5 + error * sign, 0.0 * sign, feed * sign, torch.full((1, 2), 0.5), velocity * sign)


def test_pd_cuts_at_the_effort_limit() -> None:
    pd = PD(two_joints(), stiffness={"hip": 10.0, "knee": 20.0}, damping=2.0, effort_limit=5.0)
    assert pd.effort(drive(error=0.1, velocity=0.2, feed=0.5)).tolist() == [pytest.approx([1.1, -2.1])]
    assert pd.effort(drive(error=1.0)).tolist() == [[5.0, -5.0]]


def test_pd_gains_of_environments_differ_within_their_scales() -> None:
    torch.manual_seed(0)
    pd = PD(two_joints(500), stiffness=10.0, damping=2.0, effort_limit=5.0, stiffness_scale=(0.5, 1.5))
    assert (pd.stiffness.min().item(), pd.stiffness.max().item()) == pytest.approx((5.0, 15.0), abs=0.1)
    assert (pd.damping == 2.0).all()


@pytest.mark.parametrize(
    ("error", "velocity", "effort"),
    [
        (1.0, 0.0, 6.0),  # at rest the drive's limit counts
        (1.0, 5.0, 5.0),  # half of the stall torque at half of the speed
        (1.0, 12.0, 0.0),  # beyond the no-load speed nothing pushes further
        (-1.0, 5.0, -6.0),  # braking is not limited by the line
        (0.01, 0.0, 1.0),
    ],
)
def test_dc_motor_weakens_with_speed(error: float, velocity: float, effort: float) -> None:
    motor = DCMotor(
        two_joints(), stiffness=100.0, damping=0.0, effort_limit=6.0, stall_effort=10.0, no_load_velocity=10.0
    )
    assert motor.effort(drive(error=error, velocity=velocity)).tolist() == [pytest.approx([effort, -effort])]


def test_learned_actuator_is_its_network_over_the_past(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 8), nn.Softsign(), nn.Linear(8, 1))
    torch.save(network.state_dict(), tmp_path / "drive.pt")
    learned = LearnedActuator(
        two_joints(), weights=tmp_path / "drive.pt", effort_limit=100.0, lags=(0, 2), effort_scale=3.0
    )
    learned._errors.reset(torch.tensor([True]))
    learned._velocities.reset(torch.tensor([True]))
    for error in (0.1, 0.2, 0.4):
        effort = learned.effort(drive(error=error, velocity=10 * error))
    with torch.no_grad():
        expected = 3.0 * network(torch.tensor([[0.4, 0.1, 4.0, 1.0], [-0.4, -0.1, -4.0, -1.0]]))
    torch.testing.assert_close(effort, expected.T)


def test_a_network_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="4 inputs and 1 outputs, 6 and 1 wanted"):
        LearnedActuator(two_joints(), weights=nn.Sequential(nn.Linear(4, 1)).state_dict(), effort_limit=1.0)
    with pytest.raises(ConfigError, match=r"missing\.pt"):
        LearnedActuator(two_joints(), weights=tmp_path / "missing.pt", effort_limit=1.0)
    (tmp_path / "text.pt").write_text("hello")
    with pytest.raises(ConfigError, match=r"text\.pt: cannot be read"):
        LearnedActuator(two_joints(), weights=tmp_path / "text.pt", effort_limit=1.0)
    with pytest.raises(ConfigError, match=r"not one of net\.0\.weight, net\.0\.bias"):
        LearnedActuator(
            two_joints(), weights=nn.ModuleDict({"net": nn.Sequential(nn.Linear(6, 1))}).state_dict(), effort_limit=1.0
        )
    with pytest.raises(ConfigError, match=r"layers with biases is wanted, not one of 0\.weight"):
        LearnedActuator(two_joints(), weights={"0.weight": torch.zeros(1, 6)}, effort_limit=1.0)


def go1(action: Term, convert: Callable[[mujoco.MjSpec], None] | None = None) -> ManagerEnv:
    """The Go1 from its default pose, with other actuators or another action."""
    task = dataclasses.replace(
        load_task("go1-velocity-flat"), action=action, events={}, curriculum={}, randomize_initial_episode_length=False
    )
    spec = task.model()
    if convert is not None:
        convert(spec)
    sim = make_sim(spec, N, device=torch.device("cpu"), num_substeps=task.decimation)
    env = ManagerEnv("go1", task, sim)
    torch.manual_seed(0)
    env.reset()
    return env


def positions(env: ManagerEnv, sequence: Tensor) -> Tensor:
    found = []
    for action in sequence:
        env.step(action)
        found.append(env.sim.qpos.clone())
    return torch.stack(found)


SEQUENCE = torch.randn(8, N, 12, generator=torch.Generator().manual_seed(1)) * 0.5
POSITION = Term(actions.JointPosition, {"scale": legged.action_scale})
SCALES = dict(zip(("hip", "thigh", "calf"), (0.3727530, 0.3727530, 0.2485020), strict=True))


def scale(model: mujoco.MjModel) -> list[float]:
    """The action scale of a Go1 whose actuators are motors, which do not tell it."""
    return [SCALES[name.split("_")[1]] for name in legged.joint_names(model)]


def test_a_delay_of_a_control_step_is_an_action_sequence_one_step_late() -> None:
    delayed = Term(drives.Delayed, {"action": POSITION, "substeps": (4, 4)})
    late = positions(go1(delayed), SEQUENCE)
    shifted = positions(go1(POSITION), torch.cat([SEQUENCE[:1], SEQUENCE[:-1]]))
    assert torch.equal(late, shifted)


def undamped(spec: mujoco.MjSpec) -> None:
    for actuator in spec.actuators:
        actuator.biasprm[2] = 0.0


def modelled(pd: dict[str, Any] | None = None, **params: Any) -> ManagerEnv:
    drive = Term(PD, GAINS | (pd or {"damping": 0.0}))
    action = Term(drives.ModelledDrives, {"target": "position", "scale": scale, "actuator": drive, **params})
    return go1(action, legged.as_motors)


def test_modelled_pd_drives_move_the_robot_like_mujocos_own() -> None:
    # without damping, which MuJoCo takes at the end of a substep and the model at its start
    native = positions(go1(POSITION, undamped), SEQUENCE[:5])
    torch.testing.assert_close(positions(modelled(), SEQUENCE[:5]), native, rtol=0, atol=1e-4)
    assert (native[-1] - native[0]).abs().max() > 0.1


def test_targets_of_modelled_drives_arrive_late_by_their_delay() -> None:
    shifted = positions(modelled(), torch.cat([SEQUENCE[:1], SEQUENCE[:-1]]))
    assert torch.equal(positions(modelled(delay=(4, 4)), SEQUENCE), shifted)


def test_actions_say_what_they_ask_for() -> None:
    env = go1(Term(drives.Delayed, {"action": POSITION, "substeps": (0, 0)}))
    native, own = env.action_meaning(), modelled({"stiffness_scale": (0.5, 1.5)}).action_meaning()
    assert native is not None
    assert own is not None
    assert (native.quantity, native.names) == (own.quantity, own.names) == ("position", env.joints.names)
    for numbers in ("scale", "offset", "stiffness", "damping"):
        assert getattr(native, numbers) == pytest.approx(getattr(own, numbers), rel=1e-6), numbers
    env.step(SEQUENCE[0])
    asked = torch.tensor(native.offset) + torch.tensor(native.scale) * SEQUENCE[0]
    torch.testing.assert_close(env.sim.ctrl[:, env.joints.actuators(env.sim.model)], asked)


@pytest.mark.parametrize(
    ("convert", "quantity"),
    [(lambda spec: legged.as_velocity_servos(spec, 1.5), "velocity"), (legged.as_motors, "effort")],
    ids=["velocity", "effort"],
)
def test_velocity_and_effort_targets_reach_their_joints(convert: Callable[..., None], quantity: str) -> None:
    env = go1(Term(drives.JointTargets, {"scale": 2.0}), convert)
    env.step(SEQUENCE[0])
    calf = env.joints.names.index("FL_calf_joint")
    actuator = env.sim.model.actuator("FL_calf_joint").id
    assert actuator != calf
    torch.testing.assert_close(env.sim.ctrl[:, actuator], 2.0 * SEQUENCE[0][:, calf])
    meaning = env.action_meaning()
    assert meaning is not None
    assert (meaning.quantity, meaning.scale, meaning.offset) == (quantity, (2.0,) * 12, (0.0,) * 12)


def test_models_want_plain_motors() -> None:
    with pytest.raises(ValueError, match="as_motors"):
        go1(Term(drives.ModelledDrives, {"target": "effort", "scale": 1.0, "actuator": Term(PD, GAINS)}))
