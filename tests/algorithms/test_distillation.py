"""Distillation: what is learned from which steps, where the teacher comes from, and what ranks share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hpclab.algorithms.adam import Adam
from hpclab.algorithms.distillation import Distillation
from hpclab.algorithms.teacher import load_teacher
from hpclab.config.algorithms import DistillationSection
from hpclab.config.models import ActorSection
from hpclab.config.schema import EnvSection, RunConfig, SyncSection
from hpclab.distributed.collectives import Collectives
from hpclab.envs.vec_env import EnvironmentSpec, Step
from hpclab.errors import ConfigError
from hpclab.models.actor_critic import Actor
from tests.algorithms.scripted import CPU, part, script
from tests.distributed.ranks import run_on_ranks
from tests.runners.runs import attempt, small_config, write_config
from tools.check_oracle import check

DATA = Path(__file__).parents[1] / "data"
DIMS = {"actor": 7, "critic": 9}
T = 8
LSTM = {"rnn": {"type": "lstm", "hidden_dim": 6}}


def make(
    num_envs: int,
    collectives: Collectives | None = None,
    *,
    seed: int = 1,
    student: dict[str, Any] | None = None,
    teacher: Actor | None = None,
    preset: str = "mjlab",
    scope: str = "per_rank",
    device: torch.device = CPU,
    **algorithm: Any,
) -> Distillation:
    settings = {"num_steps_per_env": T, "num_learning_epochs": 2, "gradient_length": 5} | algorithm
    collectives = collectives or Collectives()
    config = RunConfig(
        task="scripted",
        env=EnvSection(num_envs=num_envs if scope == "per_rank" else 5, num_envs_scope=scope),
        algorithm=DistillationSection(name="distillation", teacher="given", **settings),
        actor=ActorSection.model_validate({"hidden_dims": (16,)} | (student or {})),
        sync=SyncSection(preset=preset),
    )
    torch.manual_seed(0)
    teacher = teacher or Actor(ActorSection(hidden_dims=(12,)), DIMS["critic"], 3)
    torch.manual_seed(seed)
    spec = EnvironmentSpec(observation_dims=DIMS, num_actions=3, num_envs=num_envs, device=device)
    return Distillation(config, spec, collectives, teacher=teacher)


def train(distillation: Distillation, data: dict[str, Tensor], iterations: range) -> list[dict[str, Tensor]]:
    losses = []
    for iteration in iterations:
        distillation.start_rollout()
        for t in range(iteration * T, (iteration + 1) * T):
            distillation.act({group: data[group][t] for group in DIMS})
            after = {group: data[group][t + 1] for group in DIMS}
            distillation.process_step(
                Step(after, data["rewards"][t + 1], data["dones"][t + 1], data["time_outs"][t + 1])
            )
        distillation.finish_rollout(after)
        losses.append(distillation.update())
    return losses


def parameters(distillation: Distillation) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in distillation.student.state_dict().items()}


@pytest.mark.distributed
def test_a_recorded_run_is_reproduced_with_its_collectives() -> None:
    errors = check(DATA / "distill_w2.npz")
    assert [error for error in errors.values() if not error.ok] == []
    assert {"labels", "behavior_loss", "collectives", "student/mlp.2.weight", "student/normalizer.var"} <= errors.keys()
    assert max(error.worst for error in errors.values()) < 1e-5


@pytest.mark.parametrize(("epochs", "length", "steps"), [(2, 5, 3), (1, 8, 1), (2, 16, 1), (3, 1, 24), (1, 7, 1)])
def test_gradient_steps_are_counted_through_all_passes(epochs: int, length: int, steps: int) -> None:
    distillation = make(4, num_learning_epochs=epochs, gradient_length=length)
    train(distillation, script(4, 1), range(1))
    taken = distillation.optimizer.state_dict()["state"][0]["step"]
    assert int(taken) == steps


def test_a_gradient_step_that_would_never_come_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing would be learned"):
        make(4, num_learning_epochs=1, gradient_length=9)


@pytest.mark.parametrize("student", [{}, LSTM], ids=["perceptron", "lstm"])
@pytest.mark.parametrize("loss", ["mse", "huber"])
def test_the_student_comes_nearer_to_the_teacher(student: dict[str, Any], loss: str) -> None:
    distillation = make(6, student=student, loss=loss, learning_rate=1e-2, max_grad_norm=1.0)
    data = script(6, 1)
    data["critic"][..., :7] = data["actor"]  # so that the student could know
    losses = [float(train(distillation, data, range(1))[0]["behavior_loss"]) for _ in range(12)]
    assert losses[-1] < 0.5 * losses[0]


def test_how_far_the_student_explores_is_not_learned() -> None:
    distillation = make(4, optimizer="adamw")
    before = parameters(distillation)
    train(distillation, script(4, 1), range(1))
    after = parameters(distillation)
    assert torch.equal(before["distribution.std_param"], after["distribution.std_param"])
    assert not torch.equal(before["mlp.0.weight"], after["mlp.0.weight"])


@pytest.mark.parametrize("student", [{}, LSTM], ids=["perceptron", "lstm"])
def test_saved_and_loaded_it_continues_bit_for_bit(student: dict[str, Any]) -> None:
    data = script(4, 3)
    one, other = make(4, student=student), make(4, student=student, seed=9)
    train(one, data, range(2))
    other.load_state_dict(one.state_dict())
    other.load_memory_state_dict(one.memory_state_dict())
    losses = [train(distillation, data, range(2, 3))[0] for distillation in (one, other)]
    assert all(torch.equal(losses[0][name], losses[1][name]) for name in losses[0])
    assert all(torch.equal(a, b) for a, b in zip(parameters(one).values(), parameters(other).values(), strict=True))


@pytest.mark.distributed
@pytest.mark.parametrize(("counts", "student"), [([2, 2], LSTM), ([3, 2], {})], ids=["lstm", "uneven"])
def test_ranks_under_the_global_preset_equal_one_rank(counts: list[int], student: dict[str, Any]) -> None:
    scope = "per_rank" if counts[0] == counts[1] else "global"

    def spread(collectives: Collectives) -> tuple[dict[str, Tensor], Tensor]:
        first, count = sum(counts[: collectives.rank]), counts[collectives.rank]
        parts = {"student": student, "preset": "global", "scope": scope, "seed": 1 + collectives.rank}
        distillation = make(count, collectives, **parts)
        distillation.broadcast_parameters()
        losses = train(distillation, part(script(sum(counts), 2), slice(first, first + count)), range(2))
        return parameters(distillation), losses[-1]["behavior_loss"]

    alone = make(sum(counts), student=student, preset="global")
    loss = train(alone, script(sum(counts), 2), range(2))[-1]["behavior_loss"]
    for found, found_loss in run_on_ranks(spread, 2):
        for name, value in parameters(alone).items():
            torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(found_loss, loss, rtol=1e-5, atol=1e-6)


def test_the_teacher_is_the_actor_of_a_run_or_of_a_checkpoint(tmp_path: Path) -> None:
    run = write_config(tmp_path / "teacher", small_config(run={"max_iterations": 2, "save_interval": 1}, actor=LSTM))
    attempt(run)
    newest = torch.load(run.checkpoints / "iter-000002" / "shared.pt", weights_only=True)["algorithm"]["actor"]
    for path in (run.path, run.checkpoints / "latest"):
        state = load_teacher(str(path), 5, 1).state_dict()
        assert all(torch.equal(state[name], value) for name, value in newest.items())
    first = load_teacher(str(run.checkpoints / "iter-000001"), 5, 1).state_dict()
    assert not torch.equal(first["mlp.0.weight"], newest["mlp.0.weight"])
    with pytest.raises(ConfigError, match="does not read the 4 numbers"):
        load_teacher(str(run.path), 4, 1)
    with pytest.raises(ConfigError, match="has no checkpoint; name the folder of a PPO run"):
        load_teacher(str(tmp_path / "nothing"), 5, 1)


def test_a_group_that_the_task_lacks_is_named() -> None:
    with pytest.raises(ConfigError, match="has no observation group 'camera', but actor, critic"):
        make(4, student_group="camera")


@pytest.mark.parametrize("student", [{}, LSTM], ids=["perceptron", "lstm"])
def test_no_value_is_waited_for(monkeypatch: pytest.MonkeyPatch, student: dict[str, Any]) -> None:
    """On the meta device tensors hold no data: reading a value, or branching on one, is an error."""
    monkeypatch.setattr(Adam, "step", lambda self: None)  # its fused kernel knows no tensors without data
    device = torch.device("meta")
    distillation = make(4, student=student, preset="global", device=device)
    data = {name: values.to(device) for name, values in script(4, 1).items()}
    losses = train(distillation, data, range(1))[0]
    assert all(loss.is_meta for loss in losses.values())


def test_a_teacher_labels_by_what_its_own_run_learned_whoever_stands_beside() -> None:
    image = {"shape": [1, 3, 3], "channels": [4], "kernel_sizes": [3], "strides": [1], "norm": "batch"}
    teacher = Actor(ActorSection.model_validate({"hidden_dims": (12,), "image": image}), DIMS["critic"], 3)
    learned = {name: tensor.clone() for name, tensor in teacher.state_dict().items()}
    distillation = make(4, teacher=teacher)
    observations = {group: torch.randn(4, dim) for group, dim in DIMS.items()}
    labels = []
    for others in (1.0, 5.0):
        observations["critic"][1:] *= others
        distillation.start_rollout()
        distillation.act(observations)
        labels.append(distillation.labels[0, 0].clone())
    assert torch.equal(*labels)
    assert all(torch.equal(tensor, learned[name]) for name, tensor in teacher.state_dict().items())
