"""Checkpoints of RSL-RL 5.4.2, as it wrote them, in our models and back."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hpclab.algorithms.ppo import PPO
from hpclab.checkpoint import rsl_rl
from hpclab.config.schema import RunConfig
from hpclab.distributed.audit import leaves, name
from hpclab.envs.vec_env import EnvironmentSpec
from hpclab.errors import CheckpointError, ConfigError
from hpclab.models.normalizers import RunningNormalizer
from tests.runners.runs import small_config

DATA = Path(__file__).parents[1] / "data" / "rsl_rl"
CPU = torch.device("cpu")
MODELS: dict[str, dict[str, Any]] = {
    "normalized_scalar": {"hidden_dims": [8, 6], "obs_normalization": True},
    "plain_log": {"hidden_dims": [7], "obs_normalization": False},
}
SPEC = EnvironmentSpec(observation_dims={"actor": 5, "critic": 5}, num_actions=1, num_envs=8, device=CPU)
STD_TYPES = {"normalized_scalar": "scalar", "plain_log": "log"}
recordings = pytest.mark.parametrize("recording", list(MODELS))


def config_of(recording: str, **actor: Any) -> RunConfig:
    model = MODELS[recording]
    return small_config(actor=model | {"std_type": STD_TYPES[recording]} | actor, critic=model)


def new_ppo(config: RunConfig) -> PPO:
    return PPO(config, SPEC)


def imported(recording: str, config: RunConfig) -> dict[str, Any]:
    return rsl_rl.to_algorithm_state(rsl_rl.read(DATA / f"{recording}.pt"), new_ppo(config).state_dict(), config)


@recordings
@pytest.mark.parametrize("preset", ["mjlab", "global"])
def test_actor_and_critic_compute_what_they_did_there(recording: str, preset: str) -> None:
    config = config_of(recording).model_copy(update={"sync": small_config(sync={"preset": preset}).sync})
    ppo = new_ppo(config)
    ppo.load_state_dict(imported(recording, config))
    with np.load(DATA / "outputs.npz") as file:
        there = {
            key: torch.from_numpy(file[f"{recording}/{key}"])
            for key in ("actor_obs", "critic_obs", "mean", "std", "value")
        }
    with torch.inference_mode():
        mean, std = ppo.actor(there["actor_obs"])
        value = ppo.critic(there["critic_obs"])
    for ours, theirs in ((mean, there["mean"]), (std.expand_as(mean), there["std"]), (value[:, None], there["value"])):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    if preset == "global" and isinstance(ppo.actor.normalizer, RunningNormalizer):
        assert ppo.actor.normalizer.exact_count == ppo.actor.normalizer.count > 0, "merging goes on from there"


@recordings
def test_the_optimiser_goes_on_with_each_parameters_own_moments(recording: str) -> None:
    config = config_of(recording)
    ppo = new_ppo(config)
    ppo.load_state_dict(imported(recording, config))
    file = torch.load(DATA / f"{recording}.pt", weights_only=True)
    theirs = [
        (model, key.replace("log_std", "std"))
        for model in ("actor", "critic")
        for key in file[f"{model}_state_dict"]
        if "normalizer" not in key
    ]
    ours = [(m, key) for m in ("actor", "critic") for key, _ in getattr(ppo, m).named_parameters()]
    moments = ppo.optimizer.state_dict()["state"]
    assert len(theirs) == len(ours) == len(moments)
    assert theirs != ours, "the order is not the same, which is what is tested"
    for index, parameter in enumerate(theirs):
        recorded, taken = file["optimizer_state_dict"]["state"][index], moments[ours.index(parameter)]
        assert all(torch.equal(recorded[key], taken[key]) for key in ("step", "exp_avg", "exp_avg_sq"))
    assert float(ppo.learning_rate) == pytest.approx(file["optimizer_state_dict"]["param_groups"][0]["lr"])


@recordings
def test_there_and_back_is_the_file_itself(recording: str) -> None:
    config = config_of(recording)
    recorded = rsl_rl.read(DATA / f"{recording}.pt")
    assert recorded.iterations == (3 if recording == "normalized_scalar" else 2)
    assert recorded.control_steps == (None if recording == "normalized_scalar" else 16)
    assert recorded.left_out == ()
    back = rsl_rl.to_file(imported(recording, config), iterations=recorded.iterations, control_steps=16, config=config)
    original = torch.load(DATA / f"{recording}.pt", weights_only=True)
    one, other = ([(name(path), leaf) for path, leaf in leaves(file)] for file in (original, back))
    if recording == "normalized_scalar":
        assert one.pop() == ("infos", None)
        assert other.pop() == ("infos/env_state/common_step_counter", 16)
    assert [path for path, _ in one] == [path for path, _ in other], "names, and their order"
    for (path, a), (_, b) in zip(one, other, strict=True):
        if path.endswith("/lr"):
            assert b == pytest.approx(a)
        else:
            assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b, path


def test_a_file_from_before_the_first_step_has_no_iteration_done(tmp_path: Path) -> None:
    config = config_of("plain_log")
    file = torch.load(DATA / "plain_log.pt", weights_only=True)
    file["optimizer_state_dict"]["state"], file["iter"] = {}, 0
    torch.save(file, tmp_path / "model_0.pt")
    recorded = rsl_rl.read(tmp_path / "model_0.pt")
    assert recorded.iterations == 0
    ppo = new_ppo(config)
    ppo.load_state_dict(rsl_rl.to_algorithm_state(recorded, ppo.state_dict(), config))


@pytest.mark.parametrize(
    ("recording", "actor", "problem"),
    [
        ("normalized_scalar", {"obs_normalization": False}, "actor.obs_normalization is true there, not false"),
        ("plain_log", {"obs_normalization": True}, "actor.obs_normalization is false there, not true"),
        ("plain_log", {"std_type": "scalar"}, "actor.std_type is log there, not scalar"),
        ("normalized_scalar", {"hidden_dims": [8, 8]}, r"actor.hidden_dims is \[8, 6\] there, not \[8, 8\]"),
    ],
)
def test_a_setting_that_differs_is_named(recording: str, actor: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=rf"{recording}\.pt: {problem}$"):
        imported(recording, config_of(recording, **actor))


def test_models_of_another_task_are_named() -> None:
    config = config_of("normalized_scalar")
    other = PPO(config, replace(SPEC, observation_dims={"actor": 6, "critic": 5}, num_actions=2))
    with pytest.raises(ConfigError) as problem:
        rsl_rl.to_algorithm_state(rsl_rl.read(DATA / "normalized_scalar.pt"), other.state_dict(), config)
    lines = str(problem.value).splitlines()
    assert [line.partition("actor: ")[2] for line in lines] == [
        "the perceptron has 5 inputs there, 6 for cartpole-balance",
        "the perceptron has 1 outputs there, 2 for cartpole-balance",
    ]


def test_what_is_no_such_checkpoint_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model_1.pt"
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        rsl_rl.read(path)
    torch.save({"model_state_dict": {}, "iter": 3}, path)
    with pytest.raises(ConfigError, match=r"lacks actor_state_dict, .*; holds iter, model_state_dict"):
        rsl_rl.read(path)
    file = torch.load(DATA / "plain_log.pt", weights_only=True)
    torch.save(file | {"infos": {"path": path}}, path)
    with pytest.raises(CheckpointError, match=r"model_1\.pt cannot be loaded"):
        rsl_rl.read(path)
    file["optimizer_state_dict"]["param_groups"][0]["weight_decay"] = 0.01
    torch.save(file, path)
    config = config_of("plain_log")
    with pytest.raises(ConfigError, match=r"not algorithm\.optimizer=adam as here: weight_decay is 0\.01 there, not 0"):
        rsl_rl.to_algorithm_state(rsl_rl.read(path), new_ppo(config).state_dict(), config)
