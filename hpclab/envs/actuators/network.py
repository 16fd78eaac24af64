"""A drive learned from measurements: a small network maps recent position errors and velocities to efforts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from hpclab.envs.actuators.actuator import Drive
from hpclab.envs.actuators.pd import PerJoint, per_joint
from hpclab.envs.delay import Past
from hpclab.errors import ConfigError

if TYPE_CHECKING:
    from hpclab.envs.manager import ManagerEnv

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "softsign": nn.functional.softsign,
    "elu": nn.functional.elu,
    "relu": nn.functional.relu,
    "tanh": torch.tanh,
}


class LearnedActuator:
    """One multi-layer perceptron for all joints. Source: Hwangbo et al. 2019, arXiv:1901.08652.

    Its inputs are, newest first, the position errors (target - position) `lags` substeps ago, then the velocities as
    long ago, each times its scale; its output times `effort_scale` is the effort, cut to the limit. At the start of an
    episode the past is filled with the present.
    """

    def __init__(
        self,
        env: ManagerEnv,
        *,
        weights: str | Path | Mapping[str, Tensor],
        effort_limit: PerJoint,
        lags: Sequence[int] = (0, 2, 4),
        activation: str = "softsign",
        position_scale: float = 1.0,
        velocity_scale: float = 1.0,
        effort_scale: float = 1.0,
    ) -> None:
        """Load the weights: the state dictionary of an `nn.Sequential`, or the file that `torch.save` made of it.

        Raises:
            ConfigError: the file cannot be read or holds something else, or the layers do not fit the inputs.
        """
        self._layers = _layers(weights, env.device)
        self._activation = _ACTIVATIONS[activation]
        self._scales = (position_scale, velocity_scale, effort_scale)
        self._limit = per_joint(env, effort_limit)
        inputs, outputs = self._layers[0][0].shape[1], self._layers[-1][0].shape[0]
        if (inputs, outputs) != (2 * len(lags), 1):
            raise ConfigError(f"actuator network: {inputs} inputs and {outputs} outputs, {2 * len(lags)} and 1 wanted")
        joints, length = len(env.joints.names), max(lags) + 1
        self._places = torch.tensor([length - 1 - lag for lag in lags], device=env.device)
        self._errors = Past(env, "actuator/errors", length, joints)
        self._velocities = Past(env, "actuator/velocities", length, joints)

    def effort(self, drive: Drive) -> Tensor:
        """Return the (N, J) efforts."""
        position_scale, velocity_scale, effort_scale = self._scales
        self._errors.push((drive.position_target - drive.position) * position_scale)
        self._velocities.push(drive.velocity * velocity_scale)
        recent = [past.values.index_select(1, self._places) for past in (self._errors, self._velocities)]
        values = torch.cat(recent, dim=1).transpose(1, 2)
        for weight, bias in self._layers[:-1]:
            values = self._activation(nn.functional.linear(values, weight, bias))
        effort = nn.functional.linear(values, *self._layers[-1]).squeeze(2) * effort_scale
        return torch.clamp(effort, -self._limit, self._limit)


def _layers(weights: str | Path | Mapping[str, Tensor], device: torch.device) -> list[tuple[Tensor, Tensor]]:
    state = weights if isinstance(weights, Mapping) else _read(Path(weights))
    numbers = [name.removesuffix(".weight") for name in state if name.endswith(".weight")]
    if not numbers or not all(number.isdigit() and f"{number}.bias" in state for number in numbers):
        raise ConfigError(
            "actuator network: the state dictionary of an nn.Sequential of layers with biases is wanted, not one of "
            f"{', '.join(state) or 'nothing'}"
        )
    names = ([f"{number}.weight", f"{number}.bias"] for number in sorted(numbers, key=int))
    return [(state[weight].to(device).float(), state[bias].to(device).float()) for weight, bias in names]


def _read(path: Path) -> Mapping[str, Tensor]:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as problem:  # torch raises a different class for each way of being damaged
        reason = str(problem).partition("\n")[0] or type(problem).__name__
        raise ConfigError(f"actuator network {path}: cannot be read: {reason}") from problem
    if not isinstance(state, Mapping):
        raise ConfigError(f"actuator network {path}: holds a {type(state).__name__}, not a state dictionary")
    return state
