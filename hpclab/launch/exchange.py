"""`hpclab checkpoint import` and `export`: come from RSL-RL and mjlab with a training state, and go there."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpclab.checkpoint.saved import Saved, check_output
from hpclab.config.load import dump_config, load_config
from hpclab.config.schema import RunConfig
from hpclab.errors import CheckpointError, ConfigError
from hpclab.launch import runs
from hpclab.run_folder import RunFolder, write_atomic

if TYPE_CHECKING:
    from hpclab.checkpoint.rsl_rl import Recorded

FORMATS = ("rsl_rl",)
_HOW = {"command": "train", "gpu_ids": None, "num_workers": None, "torchrunx_log_dir": None}


def import_checkpoint(file: Path, config_path: Path, run: Path, overrides: list[str]) -> None:
    """Create a run that goes on from an RSL-RL 5.x checkpoint.

    Args:
        file: model_1000.pt.
        config_path: the run's settings; its models must be those of the file.
        run: folder to create.
        overrides: `key.sub=value`.

    Raises:
        ConfigError: the file does not fit the config, or there is a run already; nothing was written.
        CheckpointError: the file cannot be loaded, or the run's checkpoint not be written.
    """
    folder = RunFolder.at(run)
    config = runs.named(load_config(config_path, overrides), folder)
    runs.check(folder, config)
    if folder.config.exists():
        raise ConfigError(f"{folder.path}: holds a run already; name a new folder")

    from hpclab.checkpoint import rsl_rl  # torch, which costs seconds: not before the request is known to be good
    from hpclab.checkpoint.store import CheckpointStore
    from hpclab.distributed.collectives import Collectives

    _require_exchangeable(config, rsl_rl.OPTIMIZERS)
    recorded = rsl_rl.read(file)
    shared = _training_state(recorded, config)
    digest = hashlib.sha256(dump_config(config).encode()).hexdigest()
    # The checkpoint first: a run without it would begin from nothing.
    store = CheckpointStore(folder.checkpoints, Collectives(), config_sha256=digest)
    store.save(recorded.iterations, shared=shared, shard=None, num_envs=0)
    with runs.opened(folder, config, _HOW):
        pass
    counters = shared["counters"]
    rate = float(shared["algorithm"]["learning_rate"])
    print(f"imported {file}: {recorded.iterations} iterations done, learning rate {rate:g}")
    if recorded.left_out:
        print(f"left out, having no place here: {', '.join(recorded.left_out)}")
    print(
        f"as configured, because the file does not say: activation {config.actor.activation}; {counters['env_steps']} "
        f"environment steps so far, of {config.env.num_envs} environments. Environments start anew"
    )
    print(f"go on with: hpclab resume {folder.argument}")


def export_checkpoint(path: Path, file_format: str, output: Path | None) -> None:
    """Write a checkpoint's training state as RSL-RL 5.x would have saved it.

    Args:
        path: a checkpoint, or a run for its newest one.
        file_format: one of `FORMATS`.
        output: file to write; export/model_N.pt in the run's folder when not given.

    Raises:
        ConfigError: there is no such checkpoint or format, or it is not of PPO.
        CheckpointError: the checkpoint is damaged, or the file cannot be written.
    """
    if file_format not in FORMATS:
        raise ConfigError(
            f"--format {file_format}: unknown; there is {', '.join(FORMATS)}. `hpclab export` writes a policy as ONNX"
        )
    saved = Saved.find(path)
    check_output(output)

    import torch

    from hpclab.checkpoint import rsl_rl

    config = saved.config
    _require_exchangeable(config, rsl_rl.OPTIMIZERS)
    shared = saved.read()
    counters = shared["counters"]
    exported = rsl_rl.to_file(
        shared["algorithm"],
        iterations=counters["iteration"],
        control_steps=counters["control_steps"],
        config=config,
    )
    target = output or saved.run.export / f"model_{exported['iter']}.pt"
    buffer = io.BytesIO()
    torch.save(exported, buffer)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(target, buffer.getvalue())
    except OSError as error:
        raise CheckpointError(f"{target}: cannot be written: {error.strerror}") from error
    print(f"{target}: {saved.folder.name} as RSL-RL 5.x saves it")
    if left_out := sorted(shared["algorithm"].keys() - rsl_rl.EXPORTED):
        print(f"left out: {', '.join(left_out)}")


def _training_state(recorded: Recorded, config: RunConfig) -> dict[str, Any]:
    """Return what ranks share: PPO's state, how far the task's curricula are, and the counters."""
    from hpclab.algorithms.make import algorithm_for
    from hpclab.checkpoint.rsl_rl import to_algorithm_state
    from hpclab.distributed.collectives import Collectives
    from hpclab.envs.make import make_single_env

    env = make_single_env(config)
    fresh = algorithm_for(env, config, Collectives()).state_dict()
    algorithm = to_algorithm_state(recorded, fresh, config)
    steps = recorded.control_steps
    if steps is None:
        steps = recorded.iterations * config.algorithm.num_steps_per_env
    env.step_count.fill_(steps)
    progress = env.progress_state_dict()
    env.close()
    counters = {
        "iteration": recorded.iterations,
        "env_steps": steps * config.env.num_envs,
        "control_steps": steps,
    }
    return {"algorithm": algorithm, "progress": progress, "counters": counters}


def _require_exchangeable(config: RunConfig, optimizers: tuple[str, ...]) -> None:
    if config.algorithm.name != "ppo":
        raise ConfigError(f"algorithm.name is {config.algorithm.name}; RSL-RL's files are exchanged for ppo alone")
    if config.algorithm.optimizer not in optimizers:
        raise ConfigError(f"algorithm.optimizer is {config.algorithm.optimizer}; exchanged: {', '.join(optimizers)}")
