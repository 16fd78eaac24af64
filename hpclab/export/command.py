"""`hpclab export`: a run's policy as a file for robots, compared with the policy before it is kept."""

from __future__ import annotations

import importlib
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from hpclab.checkpoint.saved import Saved, check_output
from hpclab.errors import CheckpointError, ConfigError
from hpclab.run_folder import write_atomic
from hpclab.versions import installed

if TYPE_CHECKING:
    from hpclab.export.policy import Policy

TOLERANCE = 1e-4
"""Largest difference between torch and onnxruntime that is due to rounding."""
_FILE = "policy.onnx"
_LIBRARIES = ("onnx", "onnxscript", "onnxruntime")


def export_policy(path: Path, output: Path | None) -> None:
    """Write the policy of a checkpoint as ONNX.

    Args:
        path: a checkpoint, or a run for its newest one.
        output: file to write; export/policy.onnx in the run's folder when not given.

    Raises:
        ConfigError: there is no such checkpoint, its policy does not fit its task, or the extra is not installed.
        CheckpointError: the checkpoint is damaged, or the file computes something else or cannot be written.
    """
    saved = Saved.find(path)
    target = output or saved.run.export / _FILE
    check_output(output)
    _require_libraries()

    # torch, which costs seconds: not before the request is known to be good
    from hpclab.export.check import BATCHES, STEPS, worst_difference
    from hpclab.export.onnx import to_onnx

    policy, metadata = _policy(saved)
    file = to_onnx(policy, metadata)
    worst = worst_difference(file, policy)
    if not worst <= TOLERANCE:  # nor NaN
        raise CheckpointError(
            f"{target}: not written: torch's and onnxruntime's results differ by {worst:.1e}, more than {TOLERANCE:.0e}"
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(target, file)
    except OSError as error:
        raise CheckpointError(f"{target}: cannot be written: {error.strerror}") from error
    print(f"{target}: the policy of {saved.folder.name}, {len(file) / 1e3:.0f} kB: {policy.signature()}")
    print(
        f"onnxruntime {installed('onnxruntime')} and torch differ by at most {worst:.1e}, over {STEPS} steps of "
        f"{' and of '.join(map(str, BATCHES))} environments"
    )


def _policy(saved: Saved) -> tuple[Policy, dict[str, str]]:
    """Return a checkpoint's policy, and all that its file says besides."""
    from hpclab.envs.make import make_single_env
    from hpclab.export.metadata import network_metadata, task_metadata
    from hpclab.export.policy import load_policy, observation_group

    config, shared = saved.config, saved.read()
    group = observation_group(config)
    with closing(make_single_env(config)) as env:
        if group not in env.observation_dims:
            raise ConfigError(f"{config.task} has no observation group {group!r}, which the policy was trained to see")
        policy = load_policy(shared, config, env.observation_dims[group], env.num_actions)
        about = {"run": saved.run.path.resolve().name, "iteration": str(shared["counters"]["iteration"])}
        return policy, about | task_metadata(env, group) | network_metadata(config.actor)


def _require_libraries() -> None:
    for name in _LIBRARIES:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ConfigError(f"hpclab export needs {name} ({error}): pip install 'hpclab[export]'") from error
