"""What a task is made of: named terms, each a torch function or a small class, with its weight and parameters."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import mujoco
from torch import Tensor

from hpclab.envs.vec_env import CurriculumLevels

if TYPE_CHECKING:
    from hpclab.envs.manager import ManagerEnv
    from hpclab.envs.mirror import TaskMirror


@dataclass(frozen=True, slots=True)
class Term:
    """A function `func(env, **params)`, or a class `func(env, **params)` whose object is then called with nothing.

    Classes are for terms that hold tensors: tables built once, or state per environment (made with
    `env.buffers`, so that it is part of a checkpoint). Terms use masked operations only: no `.item()`, no
    `nonzero`, no Python branch on data.
    """

    func: Callable[..., Any]
    params: Mapping[str, Any] = field(default_factory=dict)

    def bind(self, env: ManagerEnv) -> Any:
        """Return the term as a callable without arguments."""
        if isinstance(self.func, type):
            return self.func(env, **self.params)
        return functools.partial(self.func, env, **self.params)


@dataclass(frozen=True, slots=True)
class ObservationTerm(Term):
    """Part of an observation group, (N, dim). What the settings ask for happens in their order."""

    noise: float = 0.0
    """Uniform noise within ± this is added, in the unit of the term."""
    clip: tuple[float, float] | None = None
    """Then values are cut to this range."""
    scale: float = 1.0
    """Then they are multiplied."""
    delay: tuple[int, int] = (0, 0)
    """Then they are held back by a number of control steps, drawn within these bounds for each episode."""
    history: int = 1
    """Then as many of the latest are given side by side, the newest last: (N, history * dim)."""

    @property
    def is_plain(self) -> bool:
        """Nothing is asked for but noise."""
        return (self.clip, self.scale, self.delay, self.history) == (None, 1.0, (0, 0), 1)


@dataclass(frozen=True, slots=True)
class RewardTerm(Term):
    """A value (N,) per control step. NaN and infinity count as 0."""

    weight: float = field(kw_only=True)
    """Factor, multiplied by the control step's length as well. A term of weight 0 is not evaluated and reads 0."""


@dataclass(frozen=True, slots=True)
class TerminationTerm(Term):
    """A mask (N,) of the environments whose episode ends."""

    time_out: bool = False
    """The episode ends by a time limit: the value of its last state is bootstrapped."""


@dataclass(frozen=True, slots=True)
class EventTerm(Term):
    """Something that happens to the simulation beside the policy's actions.

    startup: called once, before the first reset; may write model fields.
    reset: called every control step as `term(qpos, qvel)`, to change the (N, nq) and (N, nv) states in which new
        episodes would start; only environments that are reset take theirs.
    interval: called every control step with the (N,) mask of the environments whose time has come.
    """

    mode: Literal["startup", "reset", "interval"] = field(kw_only=True)
    interval_s: tuple[float, float] = (0.0, 0.0)
    """Range of the time between two interval events of an environment [s]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionMeaning:
    """What policy actions ask of a robot, for programs that let them act on a real one: offset + scale * action."""

    quantity: Literal["position", "velocity", "effort"]
    """Of what targets are set [rad, rad/s, N m; for slides m, m/s, N]."""
    names: tuple[str, ...]
    """Joints, or for efforts actuators, in the order of the actions."""
    scale: tuple[float, ...]
    offset: tuple[float, ...]
    clip: tuple[float, float] | None = None
    """Actions are cut to this range first."""
    stiffness: tuple[float, ...] | None = None
    """Effort by error of position [N m/rad or N/m], of each joint; None: the drives are no proportional ones."""
    damping: tuple[float, ...] | None = None
    """Effort by error of velocity [N m s/rad or N s/m]."""


class Action(Protocol):
    """Turns policy actions into actuator inputs.

    One that also has a method `before_substep(self) -> None` is called before each physics substep, to write `sim.ctrl`
    from the current state of the joints. One that has a method `meaning(self) -> ActionMeaning` says what its actions
    ask for, and `hpclab export` hands it on.
    """

    num_actions: int

    def apply(self, actions: Tensor) -> None:
        """Write `sim.ctrl` for (N, num_actions) raw actions."""
        ...


def meaning_of(action: Action) -> ActionMeaning | None:
    """Return what an action says that it asks for; None: it does not say."""
    say: Callable[[], ActionMeaning | None] | None = getattr(action, "meaning", None)
    return None if say is None else say()


class Tracker:
    """Follows what the simulation alone does not remember. Each method does nothing unless a tracker needs it."""

    def after_step(self) -> None:
        """Take in the substeps just simulated; before terminations and rewards."""

    def before_observations(self) -> None:
        """Take in the current state; after resets and `forward`."""

    def reset(self, mask: Tensor) -> None:
        """Start anew where `mask` (N,) is True."""


class Command(Protocol):
    """What the policy is asked to do."""

    value: Tensor
    """(N, dim), as observed."""

    def update(self, fresh: Tensor) -> None:
        """Go on by one control step; environments in `fresh` (N,) begin an episode: a new command, no time passed."""
        ...


class Curriculum:
    """What becomes harder as training goes on. Each method does nothing unless a curriculum needs it.

    What concerns one environment alone, such as the terrain that it is put on, is decided in `step` and kept in
    buffers per environment. What holds for all of them is a function of `env.step_count`, which is equal on all ranks,
    or follows from `statistics`: `step` adds to them, and once an iteration `decide` is given them as
    `sync.curriculum` says.

    Attributes:
        statistics: (K,) sums over environments and steps since the last decision, a shared buffer; None: none are kept.
    """

    statistics: Tensor | None = None

    def start(self) -> None:
        """Bring what depends on `env.step_count` up to date, before all environments are reset."""

    def step(self, ended: Tensor) -> None:
        """Take in a control step; episodes in `ended` (N,) are over, with their last state and command still there."""

    def decide(self, statistics: Tensor) -> None:
        """Decide, between two iterations, from (K,) sums; those in `statistics` begin anew afterwards."""

    def levels(self) -> CurriculumLevels:
        """Return how far it has come, by name, for the logs: called once an iteration."""
        return CurriculumLevels()

    def state(self) -> Mapping[str, Tensor]:
        """Return what has been decided for all environments, by name: equal on all ranks unless each decides alone."""
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """One task. Mappings are ordered: observations are concatenated in their order."""

    model: Callable[[], mujoco.MjSpec]
    """Build the robot and its world. A keyframe `default` is where episodes start before reset events."""
    decimation: int
    """Physics substeps per control step."""
    episode_length_s: float
    """Time limit of an episode [s]."""
    observations: Mapping[str, Mapping[str, ObservationTerm]]
    """By group: "actor" and "critic"."""
    action: Term
    """How policy actions become actuator inputs: a class with the methods of `Action`."""
    rewards: Mapping[str, RewardTerm]
    terminations: Mapping[str, TerminationTerm]
    """An environment whose state is no longer finite terminates in every task, under the name `diverged`."""
    trackers: Mapping[str, Term] = field(default_factory=dict)
    """What is followed within or between control steps (contact times, foot heights): see `Tracker`."""
    commands: Mapping[str, Term] = field(default_factory=dict)
    """What the policy is asked to do: see `Command`."""
    events: Mapping[str, EventTerm] = field(default_factory=dict)
    curriculum: Mapping[str, Term] = field(default_factory=dict)
    """What becomes harder: see `Curriculum`."""
    metrics: Mapping[str, Term] = field(default_factory=dict)
    """Values (N,) per control step, logged as their mean over an episode."""
    mirror: Callable[[ManagerEnv], TaskMirror] | None = None
    """What observation terms and actions look like in the mirror, for tasks that have one."""
    randomize_initial_episode_length: bool = True
    """Start training at random points of the first episode, so that environments do not end theirs together."""
    njmax: int
    """Constraint rows allotted to each world (GPU backend)."""
    nconmax: int
    """Contacts allotted to each world (GPU backend)."""
