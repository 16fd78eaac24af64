"""Distillation: a student learns, from what it sees, to act as a teacher that sees more would act there.

Source: Chen et al. 2020, arXiv:1912.12294 (learning by cheating), as in RSL-RL 5.4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from hpclab.algorithms.batch_statistics import BatchStatistics, is_rank_local
from hpclab.algorithms.observation_moments import ObservationMoments
from hpclab.algorithms.optimizers import make_optimizer
from hpclab.algorithms.teacher import load_teacher
from hpclab.config.algorithms import DistillationSection
from hpclab.config.schema import RunConfig
from hpclab.distributed import gradients, moments
from hpclab.distributed.collectives import Collectives
from hpclab.distributed.sync import sample_weights
from hpclab.envs.vec_env import EnvironmentSpec, Observations, Step
from hpclab.errors import CheckpointError, ConfigError
from hpclab.models.actor_critic import Actor
from hpclab.models.memory import History, State, restore
from hpclab.models.precision import compute_in

_LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mse": nn.functional.mse_loss,
    "huber": nn.functional.huber_loss,
}


class Distillation:
    """Student, teacher, optimiser and rollout of one rank. The student acts, the teacher says how it would.

    An update goes E times through the T steps of the rollout, in order and without a break between passes. The losses
    of `gradient_length` steps are added up, then the student takes a gradient step: floor(E * T / gradient_length) in
    all; what comes after the last is not learned from. A memory's gradients reach back to the last gradient step.
    """

    def __init__(
        self,
        config: RunConfig,
        spec: EnvironmentSpec,
        collectives: Collectives | None = None,
        *,
        teacher: Actor | None = None,
    ) -> None:
        """Build the student (torch's global generator draws the parameters), read the teacher, make the buffers.

        Args:
            config: the run; its actor is the student.
            spec: of the environments of this rank.
            collectives: the ranks; one rank alone when not given.
            teacher: in place of the one that `config.algorithm.teacher` names.

        Raises:
            ConfigError: the task has no such observation group, or the teacher cannot be found or does not fit.
            CheckpointError: the teacher's checkpoint cannot be read.
        """
        assert isinstance(config.algorithm, DistillationSection)
        self.config = config.algorithm
        self.sync = config.sync.resolved()
        self.device = device = spec.device
        self.collectives = collectives or Collectives()
        for key in ("student_group", "teacher_group"):
            if (group := getattr(self.config, key)) not in spec.observation_dims:
                listed = ", ".join(spec.observation_dims)
                raise ConfigError(f"algorithm.{key}: {config.task} has no observation group {group!r}, but {listed}")
        num_observations, num_actions = spec.observation_dims[self.config.student_group], spec.num_actions
        self.student = Actor(config.actor, num_observations, num_actions).to(device)
        for name, parameter in self.student.named_parameters():
            if name.startswith("distribution."):
                parameter.requires_grad_(False)  # nothing is learned about how far to explore
        if teacher is None:
            num_known = spec.observation_dims[self.config.teacher_group]
            teacher = load_teacher(self.config.teacher, num_known, num_actions)
        # An image's batch normalisation uses what the teacher's own run learned, whoever stands beside it.
        self.teacher = teacher.to(device).requires_grad_(False).eval()
        compute_in(self.config.precision, self.student, self.teacher)

        shape = (self.config.num_steps_per_env, spec.num_envs)
        self.states: dict[str, State] = {
            "student": self.student.start_state(spec.num_envs, device),
            "teacher": self.teacher.start_state(spec.num_envs, device),
        }
        """What recurrent networks remember of the environments; changed in place."""
        self._remembered = [tensor for state in self.states.values() for tensor in state]
        self._first = tuple(map(torch.zeros_like, self.states["student"]))  # before the rollout's first step
        self.observations = torch.zeros(*shape, num_observations, device=device)
        """(T, N, D) what the student saw."""
        self.labels = torch.zeros(*shape, num_actions, device=device)
        """(T, N, A) what the teacher would have done."""
        self.dones = torch.zeros(shape, dtype=torch.bool, device=device)
        self._std = torch.zeros((), device=device)
        self._t = 0

        trained = [parameter for parameter in self.student.parameters() if parameter.requires_grad]
        self.gradients = gradients.FlatGradients([self.student])
        weights = sample_weights(config, self.collectives.world_size)
        self.weight = None if weights is None else weights[self.collectives.rank]
        self.optimizer = make_optimizer(
            self.config.optimizer, trained, torch.tensor(self.config.learning_rate, device=device)
        )
        local = self.sync.normalizer == "local"
        self._moments = ObservationMoments([(self.config.student_group, self.student.normalizer)], local=local)
        self._batch_statistics = BatchStatistics([self.student], self.collectives, self.weight, local=local)
        self._deltas: list[moments.Moments] = []

    @property
    def mean_std(self) -> Tensor:
        """Standard deviation with which the student explores, averaged over actions; 0-dimensional [action units]."""
        return self._std

    def broadcast_parameters(self) -> None:
        """Give every rank rank 0's student and teacher. Collective."""
        gradients.broadcast_parameters([self.student, self.teacher], self.collectives)

    def start_rollout(self) -> None:
        """Begin a new rollout; one that was not finished is forgotten."""
        self._t = 0
        for kept, tensor in zip(self._first, self.states["student"], strict=True):
            kept.copy_(tensor)

    @torch.inference_mode()
    def act(self, observations: Observations) -> Tensor:
        """Return the student's (N, A) actions, sampled, and let the teacher label its observations."""
        seen = observations[self.config.student_group]
        distribution = self.student(seen, self.states["student"], advance=True)
        known = self.teacher(observations[self.config.teacher_group], self.states["teacher"], advance=True)
        self.observations[self._t] = seen
        self.labels[self._t] = self.teacher.distribution.mean(known)
        self._std.copy_(self.student.distribution.std(distribution).mean())
        return self.student.distribution.sample(distribution)

    @torch.inference_mode()
    def act_inference(self, observations: Observations) -> Tensor:
        """Return the (N, A) mean actions of the student; a memory stays as it is."""
        distribution = self.student(observations[self.config.student_group], self.states["student"])
        return self.student.distribution.mean(distribution)

    @torch.inference_mode()
    def process_step(self, step: Step) -> None:
        """Take the answer to the last `act`; a local normaliser sees the new observations."""
        self._moments.step(step.observations)
        self.dones[self._t] = step.dones
        self._t += 1
        for tensor in self._remembered:
            tensor.masked_fill_(step.dones.unsqueeze(-1), 0.0)

    @torch.inference_mode()
    def finish_rollout(self, observations: Observations) -> None:
        """Measure the rollout's observations; one packed collective where moments are global."""
        assert self._t == self.config.num_steps_per_env, "a rollout must be complete before it is finished"
        measured = self._moments.measure({self.config.student_group: self.observations}, observations)
        self._deltas = moments.gather(measured, self.collectives) if measured else []

    def update(self) -> dict[str, Tensor]:
        """Learn from the rollout.

        Returns:
            0-dimensional tensors: behavior_loss, a mean over all E * T steps, grad_norm, a mean over gradient steps
            (both over the ranks too under `sync.metrics: global`), and learning_rate.
        """
        with self._batch_statistics.learning():
            totals = self._learn()
        if self.sync.metrics == "global" and self.collectives.world_size > 1:
            weight = 1.0 / self.collectives.world_size if self.weight is None else self.weight
            self.collectives.all_reduce_sum(totals.mul_(weight))
        self._moments.merge(iter(self._deltas))
        return {
            "behavior_loss": totals[0],
            "grad_norm": totals[1],
            "learning_rate": self.optimizer.learning_rate.clone(),
        }

    def _learn(self) -> Tensor:
        """Take the gradient steps of an update; return (2,) mean loss of a step and mean gradient norm."""
        steps = self.config.num_steps_per_env * self.config.num_learning_epochs
        with torch.no_grad():
            normalized: Tensor = self.student.normalizer(self.observations)
        state, behavior, norms = self._first, torch.zeros((), device=self.device), torch.zeros((), device=self.device)
        num_updates = steps // self.config.gradient_length
        for number in range(num_updates):
            first = number * self.config.gradient_length
            loss, state = self._loss(normalized, first, first + self.config.gradient_length, state)
            self.gradients.zero()
            loss.backward()  # type: ignore[no-untyped-call]
            with torch.no_grad():
                self.gradients.reduce(self.collectives, self.weight)
                norms += self._clip()
                self.optimizer.step()
                behavior += loss.detach()
            state = tuple(tensor.detach() for tensor in state)
        with torch.no_grad():
            if rest := steps - num_updates * self.config.gradient_length:
                behavior += self._loss(normalized, steps - rest, steps, state)[0]
        return torch.stack([behavior / steps, norms / num_updates])

    def _loss(self, normalized: Tensor, first: int, end: int, state: State) -> tuple[Tensor, State]:
        """Add up the losses of steps first .. end - 1, counted through all passes; return the memory after them."""
        total = torch.zeros((), device=self.device)
        for begin, stop in self._within_passes(first, end):
            if begin == 0:
                state = self._first
            history = History(state, self.dones[begin:stop])
            distribution, state = self.student.again(normalized[begin:stop], history)
            actions = self.student.distribution.mean(distribution)
            total = total + _LOSSES[self.config.loss](actions, self.labels[begin:stop]) * (stop - begin)
        return total, state

    def _within_passes(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the stretches of the rollout that make up steps first .. end - 1, cut where a pass ends."""
        length = self.config.num_steps_per_env
        while first < end:
            stop = min(end, (first // length + 1) * length)
            yield first % length, stop - first // length * length
            first = stop

    def _clip(self) -> Tensor:
        if self.config.max_grad_norm is None:
            norm: Tensor = torch.linalg.vector_norm(self.gradients.networks[0])
            return norm
        return self.gradients.clip(self.config.max_grad_norm)[0]

    def state_dict(self) -> dict[str, Any]:
        """Student and teacher with buffers, and the optimiser: complete between two iterations."""
        return {
            "actor": self.student.state_dict(),
            "teacher": self.teacher.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def shared_state_dict(self) -> dict[str, Any]:
        """The part of `state_dict` that all ranks hold alike: without normalisers where each rank has its own."""
        state = self.state_dict()
        if self.sync.normalizer == "local":
            state["actor"] = {key: value for key, value in state["actor"].items() if not is_rank_local(key)}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`, bit for bit.

        Raises:
            CheckpointError: the state is of models of other shapes, or not of a distillation.
        """
        try:
            self.student.load_state_dict(state["actor"])
            self.teacher.load_state_dict(state["teacher"])
            self.optimizer.load_state_dict(state["optimizer"])
        except (KeyError, RuntimeError, ValueError) as error:
            raise CheckpointError(f"the saved training state does not fit the configured models: {error}") from error
        self._moments.restart()

    def memory_state_dict(self) -> dict[str, Tensor]:
        """What is remembered of the environments, which are dimension 1, by name: live tensors."""
        states = self.states.items()
        return {f"{name}/{index}": tensor for name, state in states for index, tensor in enumerate(state)}

    def load_memory_state_dict(self, state: dict[str, Tensor]) -> None:
        """Remember what a `memory_state_dict` of as many environments holds.

        Raises:
            CheckpointError: it is of other networks or another number of environments.
        """
        restore(self.memory_state_dict(), state)


ALGORITHM = Distillation
