"""Random network distillation: a reward for what a predictor has not seen yet.

Source: Burda et al. 2018, arXiv:1810.12894, as in RSL-RL 5.4.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from hpclab.algorithms.adam import Adam
from hpclab.algorithms.extension import Extension
from hpclab.config.algorithms import RNDSection
from hpclab.config.schema import SyncSection
from hpclab.distributed import moments
from hpclab.distributed.moments import Moments
from hpclab.envs.vec_env import Observations
from hpclab.models.distribution import Parameters
from hpclab.models.mlp import mlp
from hpclab.models.normalizers import ReturnScaler, RunningNormalizer
from hpclab.storage.rollout import MiniBatch, RolloutStorage


class RandomNetworkDistillation(Extension):
    """A predictor learns to give what a random network, which stays as it is, gives for the observations seen.

    The distance between the two is the intrinsic reward of reaching an observation. The predictor is the same on every
    rank; whether the random target is, and whose moments normalise, is up to `sync`.
    """

    name = "rnd"
    numbers = ("rnd_loss", "intrinsic_reward")

    def __init__(
        self,
        config: RNDSection,
        sync: SyncSection,
        *,
        num_observations: int,
        num_envs: int,
        step_dt: float,
        gamma: float,
        device: torch.device,
    ) -> None:
        """Build the networks (torch's global generator draws the parameters).

        Args:
            config: the extension's settings.
            sync: what ranks share, with every key set.
            num_observations: size of the group `config.group`.
            num_envs: N, environments of this rank.
            step_dt: length of a control step [s], by which weights are multiplied.
            gamma: discount per control step of the returns by which rewards are scaled.
            device: where everything lives.
        """
        self.config = config
        self._local = sync.normalizer == "local"
        self._local_target = sync.rnd_target == "local"
        self._step_dt = step_dt
        outputs, activation = config.num_outputs, config.activation
        self.predictor = mlp(num_observations, config.predictor_hidden_dims, outputs, activation).to(device)
        self.target = mlp(num_observations, config.target_hidden_dims, outputs, activation).to(device)
        self.target.requires_grad_(False)
        self.state_normalizer = RunningNormalizer(num_observations).to(device) if config.state_normalization else None
        self.scaler = ReturnScaler(num_envs, gamma).to(device) if config.reward_normalization else None
        self.trained = (self.predictor,)
        self.broadcast = (self.predictor,) if self._local_target else (self.predictor, self.target)
        self.optimizer = Adam(self.predictor.parameters(), torch.tensor(config.learning_rate, device=device))
        self.num_steps = torch.zeros((), dtype=torch.int64, device=device)
        """Control steps of an environment so far, which the schedule of the weight follows."""
        self._mean_reward = torch.zeros((), device=device)

    def finish_rollout(self, storage: RolloutStorage, last: Observations) -> list[Moments]:
        """Add the intrinsic reward of every step's outcome, s_1 .. s_T, to the rollout's rewards."""
        reached = torch.cat([storage.observations[self.config.group][1:], last[self.config.group].unsqueeze(0)])
        measured = []
        if self.state_normalizer is not None and not self._local:
            measured.append(moments.measure(reached))
        states = self._normalized_in_turn(reached)
        rewards = torch.linalg.vector_norm(self.target(states) - self.predictor(states), dim=-1)
        if self.scaler is not None:
            if self._local:
                rewards = torch.stack([self.scaler.update(step) for step in rewards])
            else:
                returns = torch.stack([self.scaler.accumulate(step) for step in rewards])
                measured.append(moments.measure(returns.unsqueeze(-1)))
                rewards = self.scaler(rewards)
        rewards = rewards * self._weights(storage.num_steps).unsqueeze(-1)
        storage.rewards.add_(rewards)
        self._mean_reward.copy_(rewards.mean())
        return measured

    def _normalized_in_turn(self, reached: Tensor) -> Tensor:
        """Normalise (T, N, D) observations: each step by local moments that have just seen it, or all by the merged."""
        if self.state_normalizer is None:
            return reached
        if not self._local:
            merged: Tensor = self.state_normalizer(reached)
            return merged
        normalized = []
        for observations in reached:
            self.state_normalizer.update(observations)
            normalized.append(self.state_normalizer(observations))
        return torch.stack(normalized)

    def _weights(self, count: int) -> Tensor:
        """Return the (T,) weights of the next `count` control steps, and count them."""
        config = self.config
        steps = self.num_steps + torch.arange(1, count + 1, device=self.num_steps.device)
        self.num_steps += count
        if config.schedule == "constant":
            progress = torch.zeros(count, device=steps.device)
        elif config.schedule == "step":
            progress = (steps >= config.final_step).to(torch.float32)
        else:
            span = config.final_step - config.initial_step
            progress = ((steps - config.initial_step) / span).clamp(0.0, 1.0)
        weights: Tensor = (config.weight + (config.final_weight - config.weight) * progress) * self._step_dt
        return weights

    def columns(self, storage: RolloutStorage) -> dict[str, Tensor]:
        """Return the rollout's observations as the predictor reads them, and what it should give for them."""
        states = storage.observations[self.config.group]
        if self.state_normalizer is not None:
            states = self.state_normalizer(states)
        return {"rnd_state": states, "rnd_target": self.target(states)}

    def loss(self, batch: MiniBatch, distribution: Parameters) -> tuple[Tensor | None, list[Tensor]]:
        """Return the mean squared error of the predictor; it depends on no parameter of the policy."""
        error = nn.functional.mse_loss(self.predictor(batch.extra["rnd_state"]), batch.extra["rnd_target"])
        return error, [error, self._mean_reward]

    def step(self) -> None:
        """Let the predictor take its own step."""
        self.optimizer.step()

    def merge(self, moments: Iterator[Moments]) -> None:
        """Take in what all ranks measured of states and returns."""
        if self._local:
            return
        if self.state_normalizer is not None:
            self.state_normalizer.merge(next(moments))
        if self.scaler is not None:
            self.scaler.normalizer.merge(next(moments))

    def state_dict(self) -> dict[str, Any]:
        """Networks, normalisers, optimiser and the step that the schedule has reached."""
        return {
            "predictor": self.predictor.state_dict(),
            "target": self.target.state_dict(),
            "state_normalizer": {} if self.state_normalizer is None else self.state_normalizer.state_dict(),
            "reward_normalizer": {} if self.scaler is None else self.scaler.normalizer.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "num_steps": self.num_steps.clone(),
        }

    def shared_state_dict(self) -> dict[str, Any]:
        """`state_dict` without a target or normalisers that each rank has of its own."""
        own = {"target"} if self._local_target else set()
        own |= {"state_normalizer", "reward_normalizer"} if self._local else set()
        return {key: value for key, value in self.state_dict().items() if key not in own}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.predictor.load_state_dict(state["predictor"])
        self.target.load_state_dict(state["target"])
        normalizers = {"state_normalizer": self.state_normalizer}
        normalizers["reward_normalizer"] = None if self.scaler is None else self.scaler.normalizer
        for key, normalizer in normalizers.items():
            if normalizer is not None:
                normalizer.load_state_dict(state[key])
                if not self._local:
                    normalizer.start_exact()
        self.optimizer.load_state_dict(state["optimizer"])
        self.num_steps.copy_(state["num_steps"])

    def memory_state_dict(self) -> dict[str, Tensor]:
        """The discounted returns that are running, (1, N)."""
        return {} if self.scaler is None else {"rnd/returns": self.scaler.returns}
