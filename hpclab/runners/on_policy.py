"""The on-policy loop: collect a rollout, learn from it, report, save, and stop together."""

from __future__ import annotations

import logging
import math
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext

import torch
from torch import Tensor

from hpclab.algorithms.algorithm import Algorithm
from hpclab.checkpoint.store import CheckpointStore
from hpclab.config.schema import RunConfig
from hpclab.distributed.collectives import Collectives
from hpclab.envs.vec_env import VecEnv
from hpclab.errors import WorkerError
from hpclab.metrics import record as tags
from hpclab.metrics.episodes import EpisodeTracker
from hpclab.metrics.record import Record
from hpclab.metrics.reduce import Metric, Number, PackedSum, Reduction
from hpclab.metrics.reporter import Reporter
from hpclab.metrics.stopwatch import Stopwatch
from hpclab.metrics.stragglers import Stragglers
from hpclab.runners.auditor import Auditor
from hpclab.runners.capture import Captured
from hpclab.runners.curriculum import CurriculumSync
from hpclab.runners.outcome import Outcome
from hpclab.runners.saving import Saving, States
from hpclab.runners.training_state import TrainingState

_LOGGER = logging.getLogger(__name__)
_SMALL_ROLLOUT = 512
"""Environments of a rank below which a rollout on the CPU is faster on one torch thread: dividing its small products
costs more than it gains, and waiting torch threads take cores from the simulation's."""


class OnPolicyRunner:
    """Trains one rank from the newest checkpoint, or from the start, to the end of the run or a stop.

    Besides the algorithm's, an iteration has one collective: a packed sum with the request to stop, the progress of a
    checkpoint, when ranks were done collecting, the metrics, and what curricula decide from.
    """

    def __init__(
        self,
        config: RunConfig,
        env: VecEnv,
        algorithm: Algorithm,
        collectives: Collectives,
        store: CheckpointStore,
        stop: Callable[[], bool],
    ) -> None:
        """Take the parts of one rank.

        Args:
            config: the run.
            env: the environments of this rank.
            algorithm: learns from them.
            collectives: the ranks.
            store: the run's checkpoints.
            stop: whether this rank knows of a request to stop.
        """
        self.config = config
        self.env = env
        self.algorithm = algorithm
        self.collectives = collectives
        self.store = store
        self.stop = stop
        self.iteration = 0
        """The iteration that runs, or is next; also the number of iterations done."""
        self.env_steps = 0
        """Environment steps done, over all ranks and attempts."""
        self._episodes = EpisodeTracker(env.num_envs, env.device)
        self.on_progress: Callable[[], None] = lambda: None
        """Told at the end of every iteration."""
        self._values: dict[str, float] = {}
        """What the last iteration reported."""
        self._state = TrainingState(env, algorithm, self._episodes, collectives, config)
        self.saving = Saving(store, num_envs=env.num_envs, collectives=collectives, capture=self._capture)
        sync = config.sync.resolved()
        self._curriculum = CurriculumSync(env, sync, collectives.rank)
        self._auditor = Auditor(config, env, algorithm, collectives)
        self._packed = PackedSum(collectives, env.device)
        self._stopwatch = Stopwatch(env.device)
        graphs = config.run.cuda_graphs
        self._rollout = Captured(
            self._collect, name="the rollout", device=env.device, enabled=graphs, guard=env.capturing
        )
        self._finish = Captured(
            self._finish_rollout, name="the returns", device=env.device, enabled=graphs, guard=nullcontext
        )
        self._update = Captured(
            algorithm.update, name="the update", device=env.device, enabled=graphs, guard=nullcontext
        )
        self._threads = torch.get_num_threads()
        self._rollout_threads = 1 if env.device.type == "cpu" and env.num_envs < _SMALL_ROLLOUT else self._threads
        self._global_metrics = sync.metrics == "global"
        self._reduction = Reduction(collectives.rank, collectives.world_size if self._global_metrics else 1)
        ranks = collectives.gather_objects((socket.gethostname(), env.num_envs))
        self._steps_per_iteration = config.algorithm.num_steps_per_env * sum(num_envs for _, num_envs in ranks)
        self._stragglers = Stragglers(collectives.rank, [host for host, _ in ranks])
        self._met_at: float | None = None
        """When all ranks last met, at the end of an iteration; of this process's monotonic clock [s]."""

    def resume(self) -> None:
        """Continue from the newest complete checkpoint, or start a new run where there is none. Collective.

        Raises:
            CheckpointError: there are only damaged checkpoints, or they are of another task or other models.
        """
        checkpoint = self.store.load_newest(self.env.num_envs)
        if checkpoint is not None:
            counters = checkpoint.shared["counters"]
            self.iteration, self.env_steps = counters["iteration"], counters["env_steps"]
        self._state.restore(checkpoint)

    def learn(self, reporter: Reporter, attempt: int = 0) -> Outcome:
        """Run iterations until the run is complete or a rank was asked to stop, and save; see `Saving`.

        Args:
            reporter: takes the metrics; of rank 0, others have one without sinks.
            attempt: which start of the run this is.

        A failure leaves the checkpoint whose write had begun, as far as no other rank is needed for it.

        Raises:
            CheckpointError: the state could not be saved at the end or at the stop.
            WorkerError: a loss is no number any more, or the audit found ranks that differ where they must not.
        """
        try:
            return self._learn(reporter, attempt)
        except BaseException:
            self.saving.rescue()
            raise

    def _learn(self, reporter: Reporter, attempt: int) -> Outcome:
        if self._complete():
            _LOGGER.info("nothing to do: %d iterations are done", self.iteration)
            return Outcome("completed", self.iteration, self.env_steps)
        while True:
            stopping = self.iterate(reporter, attempt)
            self._auditor.check(self.iteration)
            self.on_progress()
            if self._complete():
                self.save()
                return Outcome("completed", self.iteration, self.env_steps)
            if stopping:
                self.save()
                return Outcome("stopped", self.iteration, self.env_steps)
            if self.iteration % self.config.run.save_interval == 0:
                self.saving.begin(self.iteration, self._values)

    def save(self) -> None:
        """Write a checkpoint of the state between two iterations and wait for it. Collective.

        Raises:
            CheckpointError: it could not be written.
        """
        self.saving.save(self.iteration, self._values)

    def close(self) -> None:
        """Free the CUDA graphs: a process group cannot be left while a graph holds collectives of it."""
        for captured in (self._rollout, self._finish, self._update):
            captured.release()

    def _capture(self) -> States:
        counters = {
            "iteration": self.iteration,
            "env_steps": self.env_steps,
            "control_steps": self.iteration * self.config.algorithm.num_steps_per_env,
        }
        return self._state.capture(counters)

    def _complete(self) -> bool:
        limit = self.config.run.max_env_steps
        return self.iteration >= self.config.run.max_iterations or (limit is not None and self.env_steps >= limit)

    def iterate(self, reporter: Reporter, attempt: int = 0) -> bool:
        """Run one iteration and report it; return whether any rank was asked to stop. Collective.

        Raises:
            WorkerError: a loss is no number any more.
        """
        since_meeting_s = 0.0 if self._met_at is None else time.monotonic() - self._met_at
        self._stopwatch.start()
        self._rollout()
        self._stopwatch.mark()
        self._finish()
        self._stopwatch.mark()
        losses = self._update()
        self._stopwatch.mark()
        numbers, values = self._read_numbers(losses, since_meeting_s + self._stopwatch.first_span_s())
        self._met_at = time.monotonic()
        self.saving.advance(numbers)
        self._curriculum.decide(numbers)
        collection_s, returns_s, update_s = self._stopwatch.spans_s()
        learning_s = returns_s + update_s
        self.env_steps += self._steps_per_iteration
        values |= {
            tags.TOTAL_FPS: self._steps_per_iteration / (collection_s + learning_s),
            tags.COLLECTION_TIME: collection_s,
            tags.LEARNING_TIME: learning_s,
        }
        values |= self._stragglers.values(numbers, since_meeting_s + collection_s + learning_s)
        self._values = values
        reporter.write(Record(self.iteration, self.env_steps, time.time(), attempt, values))
        self._check_losses(values)
        self.iteration += 1
        return numbers["stop"] > 0

    def _check_losses(self, values: Mapping[str, float]) -> None:
        """Let nothing that cannot be learned from any more take the place of a checkpoint that can."""
        for tag, value in values.items():
            if tag.startswith("Loss/") and not math.isfinite(value):
                raise WorkerError(
                    f"{tag} of iteration {self.iteration} is {value}: an observation was no finite number, or learning "
                    "has diverged. Checkpoints from before it are whole: change what led to it, such as "
                    "algorithm.learning_rate, and resume"
                )

    def _collect(self) -> None:
        self.algorithm.start_rollout()
        observations = self.env.observe()
        torch.set_num_threads(self._rollout_threads)
        ends: list[tuple[Tensor, Tensor]] = []
        for _ in range(self.config.algorithm.num_steps_per_env):
            step = self.env.step(self.algorithm.act(observations))
            self.algorithm.process_step(step)
            ends.append((step.rewards, step.dones))
            observations = step.observations
        rewards, dones = zip(*ends, strict=True)
        self._episodes.add(torch.stack(rewards), torch.stack(dones))  # at the end: the physics empties the caches
        torch.set_num_threads(self._threads)

    def _finish_rollout(self) -> None:
        """Compute returns; apart from the steps, because ranks may wait for each other here."""
        self.algorithm.finish_rollout(self.env.observe())

    def _read_numbers(self, losses: dict[str, Tensor], arrival_s: float) -> tuple[dict[str, float], dict[str, float]]:
        """Return what the ranks tell each other, and this iteration's values by tag. Collective.

        Args:
            losses: of the update.
            arrival_s: how long this rank took from the last meeting of all ranks to the end of its rollout [s].
        """
        warnings = self.env.read_diagnostics()
        metrics, counts = self._record(losses, warnings)
        packed = self._reduction.pack(metrics, counts)
        news: dict[str, Number] = {"stop": float(self.stop())}
        news |= self.saving.progress() | self._stragglers.share(arrival_s) | self._curriculum.shared()
        shared, own = (news | packed, {}) if self._global_metrics else (news, packed)
        own |= {_warning_tag(name): count for name, count in warnings.items()}
        numbers = self._packed.read(shared, own | self._curriculum.own())
        self._log_warnings({name: numbers[_warning_tag(name)] for name in warnings})
        return numbers, self._reduction.unpack(metrics, numbers)

    def _record(
        self, losses: dict[str, Tensor], warnings: Mapping[str, Number]
    ) -> tuple[dict[str, Metric], dict[str, Number]]:
        """Return this rank's metrics by tag, and what their means are over."""
        recent, ended = self._episodes.totals(), self.env.read_episode_totals()
        lowest, highest = self._episodes.extremes()
        metrics = {f"Loss/{name}": Metric(value, "mean") for name, value in losses.items()} | {
            tags.MEAN_STD: Metric(self.algorithm.mean_std, "mean"),
            tags.WARNINGS: Metric(sum(warnings.values()), "sum"),
            tags.MEAN_REWARD: Metric(recent["return"], "mean", per="recent episodes"),
            tags.MIN_REWARD: Metric(lowest, "min"),
            tags.MAX_REWARD: Metric(highest, "max"),
            tags.MEAN_EPISODE_LENGTH: Metric(recent["length"], "mean", per="recent episodes"),
        }
        metrics |= {tag: Metric(total, "mean", per="ended episodes") for tag, total in ended.sums.items()}
        counts: dict[str, Number] = {"recent episodes": recent["count"], "ended episodes": ended.count}
        levels = self.env.curriculum_levels()
        for tag, (total, count) in levels.means.items():
            metrics[tag], counts[f"environments of {tag}"] = Metric(total, "mean", per=f"environments of {tag}"), count
        metrics |= {tag: Metric(highest, "max") for tag, highest in levels.maxima.items()}
        return metrics, counts

    def _log_warnings(self, counts: dict[str, float]) -> None:
        """Log what should not have happened in this rank's simulation."""
        listed = ", ".join(f"{name} {count:g} times" for name, count in counts.items() if count)
        if listed:
            _LOGGER.warning("simulation at iteration %d: %s", self.iteration, listed)


def _warning_tag(name: str) -> str:
    return f"simulation warning {name}"
