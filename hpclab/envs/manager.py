"""The environment made of named terms: a `VecEnv` for any `TaskSpec` on any `Sim`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from hpclab.envs.buffers import Buffers
from hpclab.envs.events import EventManager, nobody
from hpclab.envs.joints import Joints
from hpclab.envs.mirror import Mirror
from hpclab.envs.observations import ObservationManager
from hpclab.envs.rewards import MetricManager, RewardManager
from hpclab.envs.sim.sim import Sim
from hpclab.envs.spec import Action, ActionMeaning, Command, Curriculum, TaskSpec, Tracker, meaning_of
from hpclab.envs.terminations import TerminationManager
from hpclab.envs.terms.mirror import mirror_of
from hpclab.envs.vec_env import CurriculumLevels, EpisodeTotals, Observations, Step
from hpclab.errors import CheckpointError


class ManagerEnv:
    """N environments of one task, with the step order of mjlab 1.6.0.

    Every tensor that must survive a checkpoint is in `buffers`, in the simulation, or among the last observations.
    Random numbers come from torch's default generator of the device, drawn for all N and applied by mask.

    Attributes (N environments, J joints, A actions), for terms:
        sim: the physics.
        joints: names, live positions and velocities of the robot's joints.
        actions, previous_actions: (N, A) raw policy actions of this control step and the one before, 0 at reset.
        commands, trackers, curricula: by name.
        episode_length: (N,) control steps of the running episodes.
        resetting: (N,) bool, the environments whose episode ends in this control step, for curricula and reset events.
        timing_out: (N,) bool, those of them that end by a time limit alone.
        step_count: (1,) int64 control steps since training began.
    """

    def __init__(self, name: str, task: TaskSpec, sim: Sim) -> None:
        self.name = name
        self.task = task
        self.sim = sim
        self.num_envs = sim.num_envs
        self.device = sim.device
        self.step_dt = float(sim.model.opt.timestep) * task.decimation
        self.substep_dt = float(sim.model.opt.timestep)
        self.episode_length_s = task.episode_length_s
        self.max_episode_length = round(task.episode_length_s / self.step_dt)

        self._sensors: dict[str, Tensor] = {}
        self.buffers = Buffers(self.num_envs, self.device)
        self.episode_length = self.buffers.per_env("episode_length", dtype=torch.int64)
        self.step_count = self.buffers.shared("step_count", 1, dtype=torch.int64)
        self.resetting = self.timing_out = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)
        self.joints = Joints(sim, self.buffers)

        self._trackers: list[Tracker] = []
        self._action: Action = task.action.bind(self)
        self._before_substep: Callable[[], None] | None = getattr(self._action, "before_substep", None)
        self.num_actions = self._action.num_actions
        self.actions = self.buffers.per_env("actions", self.num_actions)
        self.previous_actions = self.buffers.per_env("previous_actions", self.num_actions)

        self.trackers: dict[str, Any] = {}
        self.commands: dict[str, Any] = {}
        for tracker, term in task.trackers.items():
            self.trackers[tracker] = term.bind(self)
        for command, term in task.commands.items():
            self.commands[command] = term.bind(self)
        self._trackers.extend(self.trackers.values())
        self._commands: list[Command] = list(self.commands.values())
        self.curricula: dict[str, Curriculum] = {name: term.bind(self) for name, term in task.curriculum.items()}
        self.events = EventManager(self, task.events)
        self.terminations = TerminationManager(self, task.terminations)
        self.rewards = RewardManager(self, task.rewards)
        self._metrics = MetricManager(self, task.metrics)
        self.observations = ObservationManager(self, task.observations)
        self.events.startup()

    def follow(self, tracker: Tracker) -> None:
        """Call one more tracker, for a term that needs to know of steps or resets; to be asked for while building."""
        self._trackers.append(tracker)

    def sensor(self, name: str) -> Tensor:
        """Return the live (N, dim) view of one named sensor."""
        if name not in self._sensors:
            self._sensors[name] = self.sim.sensor(name)
        return self._sensors[name]

    @property
    def observation_dims(self) -> dict[str, int]:
        """Size of each observation group."""
        return dict(self.observations.dims)

    def action_meaning(self) -> ActionMeaning | None:
        """Return what actions ask of the robot, where the task's action says so."""
        return meaning_of(self._action)

    def mirror(self) -> Mirror | None:
        """Return what observations and actions look like in the mirror, where the task says so.

        Raises:
            ConfigError: it leaves an observation term out.
        """
        return mirror_of(self)

    @torch.inference_mode()
    def reset(self) -> Observations:
        """Start every environment anew and observe; spread episodes over their length where the task says so."""
        everyone = torch.ones(self.num_envs, dtype=torch.bool, device=self.device)
        self.resetting = everyone
        for curriculum in self.curricula.values():
            curriculum.start()
        self._reset(everyone)
        self.read_episode_totals()  # what ended here was no episode
        if self.task.randomize_initial_episode_length:
            self.episode_length.random_(0, self.max_episode_length)
        return self.refresh(everyone)

    def observe(self) -> Observations:
        """Return the observations of the current state, as the last `reset` or `step` computed them."""
        return self.observations.values

    @torch.inference_mode()
    def step(self, actions: Tensor) -> Step:
        """Apply (N, A) raw policy actions for one control step."""
        self.previous_actions.copy_(self.actions)
        self.actions.copy_(actions)
        self._action.apply(self.actions)
        self.sim.step(self._before_substep)
        for tracker in self._trackers:
            tracker.after_step()
        self.episode_length.add_(1)
        self.step_count.add_(1)
        # Until `forward`, poses and velocities are those before the last substep; terminations and rewards read them.
        dones, time_outs = self.terminations.compute()
        rewards = self.rewards.compute()
        self._metrics.compute()
        self.events.interval()
        self.resetting, self.timing_out = dones, time_outs
        for curriculum in self.curricula.values():
            curriculum.step(dones)
        self._reset(dones)
        return Step(self.refresh(dones), rewards, dones, time_outs)

    def _reset(self, mask: Tensor) -> None:
        if nobody(mask):
            return
        self.terminations.close_episodes(mask)
        self.rewards.close_episodes(mask)
        self._metrics.close_episodes(mask)
        self.events.reset(mask)
        for tracker in self._trackers:
            tracker.reset(mask)
        rows = mask.unsqueeze(1)
        self.actions.masked_fill_(rows, 0.0)
        self.previous_actions.masked_fill_(rows, 0.0)
        self.episode_length.masked_fill_(mask, 0)

    @torch.inference_mode()
    def refresh(self, fresh: Tensor) -> Observations:
        """Bring derived quantities, commands and trackers up to date and observe; `fresh` (N,) episodes are new."""
        self.sim.forward()
        for command in self._commands:
            command.update(fresh)
        for tracker in self._trackers:
            tracker.before_observations()
        return self.observations.compute()

    def capturing(self) -> AbstractContextManager[None]:
        """Enter while `step` is captured in a CUDA graph on torch's current stream."""
        return self.sim.capturing()

    def read_episode_totals(self) -> EpisodeTotals:
        """Return the totals since the last call and clear them."""
        count, terminations = self.terminations.read_totals()
        sums = self.rewards.ledger.read() | terminations | self._metrics.ledger.read()
        return EpisodeTotals(count, sums)

    def read_diagnostics(self) -> dict[str, Tensor | int]:
        """Return the simulation's warnings by name since the last call."""
        return self.sim.read_diagnostics()

    def curriculum_statistics(self) -> Tensor:
        """Return (K,) what curricula have counted since their last decision, one after the other."""
        kept = [curriculum.statistics for curriculum in self.curricula.values() if curriculum.statistics is not None]
        return torch.cat(kept) if kept else torch.empty(0, device=self.device)

    @torch.inference_mode()
    def decide_curriculum(self, statistics: Tensor) -> None:
        """Let curricula decide from (K,) `statistics`, in the order of `curriculum_statistics`, and count anew."""
        first = 0
        for curriculum in self.curricula.values():
            if curriculum.statistics is not None:
                last = first + len(curriculum.statistics)
                curriculum.decide(statistics[first:last])
                curriculum.statistics.zero_()
                first = last

    def curriculum_levels(self) -> CurriculumLevels:
        """Return how far curricula have come, by log tag."""
        levels = CurriculumLevels()
        for name, curriculum in self.curricula.items():
            own = curriculum.levels()
            levels.means.update({f"Curriculum/{name}/{tag}": mean for tag, mean in own.means.items()})
            levels.maxima.update({f"Curriculum/{name}/{tag}": highest for tag, highest in own.maxima.items()})
        return levels

    def curriculum_state_dict(self) -> dict[str, Any]:
        """Return what curricula have decided for all environments, by curriculum: references to live tensors."""
        return {name: dict(curriculum.state()) for name, curriculum in self.curricula.items()}

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to continue, on the CPU; bit for bit there, given the generator's state as well."""
        return {
            "task": self.name,
            "num_envs": self.num_envs,
            "buffers": self.buffers.state_dict(),
            "sim": self.sim.state_dict(),
            "observations": {group: values.to("cpu", copy=True) for group, values in self.observations.values.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`.

        Raises:
            CheckpointError: the state is of another task or size.
        """
        for key, own in (("task", self.name), ("num_envs", self.num_envs)):
            if state[key] != own:
                raise CheckpointError(f"environment state: {key} is {state[key]} in the checkpoint, {own} in this run")
        self.buffers.load_state_dict(state["buffers"])
        try:
            self.sim.load_state_dict(state["sim"])
        except ValueError as problem:
            raise CheckpointError(f"environment state: {problem}") from problem
        for group, values in self.observations.values.items():
            values.copy_(state["observations"][group])

    def progress_state_dict(self) -> dict[str, Any]:
        """How far training is, as far as the task follows it: the step count and what curricula have reached."""
        return self.buffers.shared_state_dict()

    def load_progress_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next `reset` start environments at that point of training.

        Raises:
            CheckpointError: the state is of another task.
        """
        self.buffers.load_shared_state_dict(state)

    def close(self) -> None:
        """Release threads and device memory."""
        self.sim.close()
