"""Compares an ONNX file, as a robot would run it, with the policy that it was made of."""

from __future__ import annotations

import onnxruntime
import torch
from torch import Tensor

from hpclab.export.policy import Policy
from hpclab.models.normalizers import RunningNormalizer

STEPS = 20
BATCHES = (1, 3)
"""Numbers of environments to try: a robot has one."""


@torch.inference_mode()
def worst_difference(file: bytes, policy: Policy) -> float:
    """Return how far onnxruntime's results are from torch's, over `STEPS` steps with the state carried on.

    The observations are random, of the distribution that the policy has seen. A difference is taken in relation to
    numbers that are larger than 1. The result is NaN where one of the two gives NaN.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # more would be pinned to cores that a job may not use
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    generator = torch.Generator().manual_seed(0)
    differences = []
    for num_envs in BATCHES:
        state = policy.start(num_envs)  # changed in place
        carried = [tensor.numpy().copy() for tensor in state]
        for _ in range(STEPS):
            observations = _observations(policy, num_envs, generator)
            distribution = policy.actor(observations, state, advance=True)
            expected = [policy.actor.distribution.mean(distribution), *state]
            feed = dict(zip(policy.inputs, [observations.numpy(), *carried], strict=True))
            actions, *carried = session.run(policy.outputs, feed)
            results = map(torch.from_numpy, [actions, *carried])
            differences += [_difference(one, other) for one, other in zip(results, expected, strict=True)]
    return float(torch.stack(differences).max())


def _observations(policy: Policy, num_envs: int, generator: torch.Generator) -> Tensor:
    values = torch.randn(num_envs, policy.num_observations, generator=generator)
    normalizer = policy.actor.normalizer
    if isinstance(normalizer, RunningNormalizer):
        known = values[:, : normalizer.num_features]
        known.mul_(normalizer.std + normalizer.eps).add_(normalizer.mean)
    return values


def _difference(result: Tensor, expected: Tensor) -> Tensor:
    return ((result - expected).abs() / expected.abs().clamp(min=1.0)).max()
