"""Put one rank together: process group, environments, algorithm, checkpoints, metrics; then let the runner work."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import time
from contextlib import closing, nullcontext, suppress
from pathlib import Path

import torch
from rich.console import Console

from hpclab.algorithms.make import algorithm_for
from hpclab.checkpoint.retention import Retention
from hpclab.checkpoint.store import CheckpointStore
from hpclab.config.load import load_config
from hpclab.config.schema import RunConfig
from hpclab.distributed.collectives import Collectives, process_group
from hpclab.distributed.seeds import start_streams
from hpclab.distributed.sync import describe_sync
from hpclab.envs.make import make_env
from hpclab.envs.manager import ManagerEnv
from hpclab.envs.sim.compiling import compile_kernels
from hpclab.envs.vec_env import VecEnv
from hpclab.errors import LaunchError
from hpclab.metrics.console import ConsoleSink
from hpclab.metrics.jsonl import JsonlSink
from hpclab.metrics.record import Sink
from hpclab.metrics.reporter import Reporter
from hpclab.models.precision import set_float32_products
from hpclab.run_folder import RunFolder, write_atomic
from hpclab.runners.on_policy import OnPolicyRunner
from hpclab.worker.compile_progress import CompileProgress
from hpclab.worker.context import WorkerContext
from hpclab.worker.failure import FailureReport, leave
from hpclab.worker.kernel_turn import KernelTurn, cache_mark
from hpclab.worker.spec import Outcome, WorkerSpec
from hpclab.worker.stop import StopRequest
from hpclab.worker.watchdog import Watchdog, collective_timeout_s, dump_stacks

_LOGGER = logging.getLogger(__name__)
_HANG_GRACE_S = 5.0
_MEETING_S = 600.0
"""For all ranks to reach rank 0 and each other, once they have imported torch."""


def train(
    spec: WorkerSpec,
    run: RunFolder,
    context: WorkerContext,
    stop: StopRequest,
    failure: FailureReport,
    *,
    on_cpu: bool,
) -> Outcome:
    """Train the run in `run` as the rank `context`, from its newest checkpoint on."""
    config = load_config(run.config)
    device = _device(on_cpu)
    threads = config.env.threads or context.cpu_threads()
    _prepare_torch(config, context, device)
    seeding = start_streams(config, context.rank)
    num_envs = context.num_envs(config.env)
    _LOGGER.info(
        "rank %d of %d on %s (pid %d): device %s, %d environments, %d simulation threads, %s",
        *(context.rank, context.world_size, platform.node(), os.getpid()),
        *(_device_name(device), num_envs, threads, seeding),
    )

    turn_file = Path(spec.kernel_turn) if spec.kernel_turn is not None and _compiles(config, device) else None
    mark = cache_mark(run.config.read_bytes(), _device_name(device))
    turn = KernelTurn(turn_file, local_rank=context.local_rank, mark=mark)
    patience_s = collective_timeout_s(config.launch.process_group_timeout_s, config.run.hang_timeout_s)

    def on_hang(silent_s: float) -> None:
        dump_stacks()
        failure.record_hang(silent_s)
        if failure.launched:
            time.sleep(_HANG_GRACE_S)  # the first rank that leaves ends all others: let them write their stacks too
            leave()

    # Each block records a failure before the next outer one cleans up: leaving a process group can wait for ranks that
    # wait for this one.
    with (
        Watchdog(config.run.hang_timeout_s, on_hang, dump_when_stuck=failure.launched) as watchdog,
        process_group(
            context, device=device, timeout_s=patience_s, meeting_s=_MEETING_S, meeting=run.meeting(spec.attempt)
        ) as collectives,
        failure,
        closing(_env(config, turn, num_envs=num_envs, device=device, threads=threads)) as env,
        failure,
    ):
        runner = _runner(config, run, env, collectives, stop)
        failure.iteration = lambda: runner.iteration
        runner.on_progress = watchdog.beat
        if context.rank == 0:
            runner.saving.on_saved = lambda duration_s: _write_save_time(run, duration_s)
        runner.resume()
        sinks = _sinks(spec, run, config, context.world_size, runner) if context.rank == 0 else []
        with closing(Reporter(sinks)) as reporter, failure:
            outcome = runner.learn(reporter, spec.attempt)
        runner.close()
    _LOGGER.info("%s: %d iterations, %d environment steps", outcome.kind, outcome.iteration, outcome.env_steps)
    return outcome


def _env(config: RunConfig, turn: KernelTurn, *, num_envs: int, device: torch.device, threads: int) -> ManagerEnv:
    with turn, CompileProgress() if _compiles(config, device) else nullcontext():
        env = make_env(config, num_envs=num_envs, device=device, threads=threads)
        if _compiles(config, device):
            compile_kernels(env.sim)
    return env


def _compiles(config: RunConfig, device: torch.device) -> bool:
    return config.env.backend == "warp" or device.type == "cuda"


def _runner(
    config: RunConfig,
    run: RunFolder,
    env: VecEnv,
    collectives: Collectives,
    stop: StopRequest,
) -> OnPolicyRunner:
    algorithm = algorithm_for(env, config, collectives)
    digest = hashlib.sha256(run.config.read_bytes()).hexdigest()
    retention = Retention(config.run.keep_last, config.run.keep_every, config.run.keep_best)
    store = CheckpointStore(run.checkpoints, collectives, config_sha256=digest, retention=retention)
    return OnPolicyRunner(config, env, algorithm, collectives, store, stop.requested)


def _write_save_time(run: RunFolder, duration_s: float) -> None:
    """Tell the launcher how long a checkpoint takes; training does not depend on it."""
    with suppress(OSError):
        run.metrics.mkdir(parents=True, exist_ok=True)
        write_atomic(run.save_time, json.dumps({"save_s": round(duration_s, 3)}) + "\n")


def _sinks(spec: WorkerSpec, run: RunFolder, config: RunConfig, world_size: int, runner: OnPolicyRunner) -> list[Sink]:
    first = runner.iteration
    sinks: list[Sink] = [JsonlSink(run.metrics / "metrics.jsonl", first_iteration=first)]
    if config.metrics.tensorboard:
        from hpclab.metrics.tensorboard import TensorboardSink  # costs seconds: only where it is used

        sinks.append(TensorboardSink(run.metrics / "tensorboard", first_iteration=first))
    if config.metrics.wandb_project is not None:
        from hpclab.metrics.wandb import WandbSink

        settings = config.model_dump(mode="json")
        sinks.append(WandbSink(run.metrics, project=config.metrics.wandb_project, name=run.name, config=settings))
    sinks.append(
        ConsoleSink(
            f"{run.name}: {config.task}",
            describe_sync(config, world_size, runner.env.num_envs),
            max_iterations=config.run.max_iterations,
            max_env_steps=config.run.max_env_steps,
            console=Console() if spec.console else None,
        )
    )
    return sinks


def _device(on_cpu: bool) -> torch.device:
    if on_cpu:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        raise LaunchError(f"{platform.node()}: torch finds no GPU with CUDA_VISIBLE_DEVICES={visible!r}")
    return torch.device("cuda", 0)


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def _prepare_torch(config: RunConfig, context: WorkerContext, device: torch.device) -> None:
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(context.cpu_threads())
    set_float32_products(config.algorithm.precision, device)
