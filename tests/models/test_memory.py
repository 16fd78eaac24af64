"""Recurrent networks: one step after another, and whole sequences again."""

from __future__ import annotations

import itertools

import pytest
import torch

from hpclab.config.models import ActorSection, RecurrentSection
from hpclab.models.actor_critic import Actor
from hpclab.models.memory import History, Memory

T, N, D, H = 7, 3, 4, 5
KINDS = pytest.mark.parametrize("kind", ["lstm", "gru"])


def parts(kind: str) -> tuple[Memory, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    dones = torch.zeros(T, N, dtype=torch.bool)
    dones[2, 0] = dones[3, 0] = dones[T - 1, 1] = True
    return Memory(RecurrentSection(type=kind, hidden_dim=H, num_layers=2), D), torch.randn(T, N, D), dones


@KINDS
def test_unrolled_it_gives_what_it_gave_step_by_step(kind: str) -> None:
    memory, inputs, dones = parts(kind)
    state = tuple(torch.randn_like(tensor) for tensor in memory.start(N, torch.device("cpu")))
    again, after = memory.unroll(inputs, History(state, dones))
    for step, ended, expected in zip(inputs, dones, again, strict=True):
        features, state = memory(step, state)
        torch.testing.assert_close(features, expected)
        state = tuple(tensor * ~ended.unsqueeze(-1) for tensor in state)
    for tensor, expected in zip(state, after, strict=True):
        torch.testing.assert_close(tensor, expected)


@KINDS
def test_unrolled_it_equals_trajectories_cut_where_episodes_end(kind: str) -> None:
    memory, inputs, dones = parts(kind)
    state = tuple(torch.randn_like(tensor) for tensor in memory.start(N, torch.device("cpu")))
    inputs.requires_grad_()
    again, _ = memory.unroll(inputs, History(state, dones))
    again.square().sum().backward()
    by_steps, inputs.grad = inputs.grad, None
    pieces = []
    for env in range(N):
        ends = [0, *(dones[:, env].nonzero().squeeze(-1) + 1).tolist(), T]
        for number, (first, last) in enumerate(itertools.pairwise(ends)):
            if first == last:
                continue
            start = tuple(tensor[:, env : env + 1] * (number == 0) for tensor in state)
            features, _ = memory.rnn(inputs[first:last, env : env + 1], start if kind == "lstm" else start[0])
            torch.testing.assert_close(features.squeeze(1), again[first:last, env])
            pieces.append(features.square().sum())
    torch.stack(pieces).sum().backward()
    torch.testing.assert_close(by_steps, inputs.grad)


@KINDS
def test_an_actor_remembers_only_the_steps_it_is_told_to(kind: str) -> None:
    torch.manual_seed(0)
    actor = Actor(ActorSection(hidden_dims=(8,), rnn=RecurrentSection(type=kind, hidden_dim=H)), D, 2)
    state, observations = actor.start_state(N, torch.device("cpu")), torch.randn(N, D)
    with torch.no_grad():
        first = actor(observations, state)[0]
        assert torch.equal(actor(observations, state, advance=True)[0], first)
        assert float(state[0].abs().min()) > 0.0
        assert not torch.equal(actor(observations, state)[0], first)
