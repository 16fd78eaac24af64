"""A training state comes from RSL-RL, goes on here, and goes back."""

from pathlib import Path

import pytest
import torch

from hpclab.cli import main
from hpclab.config.load import dump_config, load_config
from hpclab.run_folder import RunFolder
from hpclab.runners.outcome import Outcome
from tests.runners.runs import attempt, checkpoint_files, curve, small_config

DATA = Path(__file__).parents[1] / "data" / "rsl_rl"


def hpclab(*arguments: object) -> int:
    with pytest.raises(SystemExit) as end:
        main(["checkpoint", *map(str, arguments)])
    assert isinstance(end.value.code, int)
    return end.value.code


@pytest.fixture
def config(tmp_path: Path) -> Path:
    model = {"hidden_dims": [7], "obs_normalization": False}
    path = tmp_path / "cartpole.yaml"
    path.write_text(dump_config(small_config(actor=model | {"std_type": "log"}, critic=model)))
    return path


def test_a_run_goes_on_from_a_checkpoint_of_mjlab_and_back(tmp_path: Path, config: Path, capsys) -> None:
    run = RunFolder(tmp_path / "run")
    assert hpclab("import", DATA / "plain_log.pt", run.path, "--config", config, "run.max_iterations=3") == 0
    said = capsys.readouterr().out
    assert "2 iterations done" in said
    assert f"hpclab resume {run.path}" in said
    saved = checkpoint_files(run, 2)
    assert list(saved) == ["shared.pt"]
    assert saved["shared.pt"]["counters"] == {"iteration": 2, "env_steps": 16 * 8, "control_steps": 16}
    assert saved["shared.pt"]["progress"]["step_count"].item() == 16
    assert load_config(run.config).run.name == "run"

    assert hpclab("ls", run.path) == 0
    assert "imported" in capsys.readouterr().out
    assert hpclab("export", run.path, "--format", "rsl_rl") == 0
    original, back = (
        torch.load(path, weights_only=True) for path in (DATA / "plain_log.pt", run.path / "export" / "model_1.pt")
    )
    assert back["iter"] == original["iter"] == 1
    assert back["infos"] == original["infos"]
    weight = "mlp.0.weight"
    assert torch.equal(back["actor_state_dict"][weight], original["actor_state_dict"][weight])

    assert attempt(run) == Outcome("completed", 3, 16 * 8 + 64)
    assert [line["iteration"] for line in curve(run)] == [2]
    log = run.rank_log(0, 0).read_text()
    assert "continuing from iter-000002 with iteration 2: it was imported" in log
    assert "over all ranks 0 continue, 8 start anew" in log
    assert hpclab("export", run.path, "--format", "rsl_rl", "-o", tmp_path / "out.pt") == 0
    trained = torch.load(tmp_path / "out.pt", weights_only=True)
    assert (trained["iter"], trained["infos"]["env_state"]["common_step_counter"]) == (2, 24)
    steps = original["optimizer_state_dict"]["state"][0]["step"]
    assert trained["optimizer_state_dict"]["state"][0]["step"] == steps + 4
    assert not torch.equal(trained["actor_state_dict"][weight], original["actor_state_dict"][weight])


def test_what_cannot_be_imported_writes_nothing(tmp_path: Path, config: Path, capsys) -> None:
    run = tmp_path / "run"
    assert hpclab("import", DATA / "normalized_scalar.pt", run, "--config", config) == 2
    problems = capsys.readouterr().err.splitlines()
    assert any("actor.hidden_dims is [8, 6] there, not [7]" in line for line in problems)
    assert any("critic.obs_normalization is true there" in line for line in problems)
    assert not run.exists()
    assert hpclab("import", DATA / "plain_log.pt", run, "--config", config) == 0
    assert hpclab("import", DATA / "plain_log.pt", run, "--config", config) == 2
    assert "holds a run already" in capsys.readouterr().err
    assert hpclab("export", run, "--format", "onnx") == 2
    assert hpclab("export", tmp_path / "none", "--format", "rsl_rl") == 2
