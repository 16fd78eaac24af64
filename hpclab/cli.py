"""The command line: one short function a command. What a command needs is imported when it runs."""

from __future__ import annotations

import errno
import sys
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

import hpclab
from hpclab.errors import ConfigError, HpclabError, LaunchError

app = typer.Typer(
    name="hpclab",
    help="Train robot policies on a laptop or a Slurm cluster from one YAML file.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
config_app = typer.Typer(help="Look at a run's configuration before it starts.", no_args_is_help=True)
app.add_typer(config_app, name="config")
checkpoint_app = typer.Typer(help="Look at what a run has saved.", no_args_is_help=True)
app.add_typer(checkpoint_app, name="checkpoint")

bench_app = typer.Typer(help="Measure this machine.", no_args_is_help=True)
app.add_typer(bench_app, name="bench")

_STORAGE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG, errno.ESTALE)
"""What a disk answers that is full, broken or read-only: no defect of ours."""

Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="YAML file that describes the run.")]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder, e.g. runs/g1.")]
Saved = Annotated[Path, typer.Argument(metavar="RUN|CHECKPOINT", help="runs/g1 or runs/g1/checkpoints/iter-000050.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY.SUB=VALUE", help="Settings that replace the file's, e.g. env.num_envs=64."),
]
Profile = Annotated[
    str | None, typer.Option(metavar="NAME", help="Site: slurm/profiles/NAME.yaml, or the path of such a file.")
]


class GpuIdsCommand(TyperCommand):
    """A command whose `--gpu-ids` takes all the ids that follow it: `--gpu-ids 0 1` is `--gpu-ids 0,1`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, join_gpu_ids(args))


class SweepCommand(TyperCommand):
    """A command whose `--sweep` takes all the settings that follow it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, split_sweep(args))


def split_sweep(arguments: list[str]) -> list[str]:
    """Put `--sweep` before each of the settings (`key=values`) that follow it."""
    split: list[str] = []
    in_sweep = False
    for argument in arguments:
        is_setting = "=" in argument and not argument.startswith("-")
        if in_sweep and is_setting and split[-1] != "--sweep":
            split.append("--sweep")
        in_sweep = argument == "--sweep" or (in_sweep and is_setting)
        split.append(argument)
    return split


def join_gpu_ids(arguments: list[str]) -> list[str]:
    """Join what follows `--gpu-ids` with commas, up to the first argument that is no GPU index, UUID or MIG entry."""
    if "--gpu-ids" not in arguments:
        return arguments
    first = arguments.index("--gpu-ids") + 1
    end = min(first + 1, len(arguments))  # the first is its value, whatever it looks like
    while end < len(arguments) and (arguments[end].isdecimal() or arguments[end].startswith(("GPU-", "MIG-"))):
        end += 1
    ids = [",".join(arguments[first:end])] if end > first else []
    return [*arguments[:first], *ids, *join_gpu_ids(arguments[end:])]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"hpclab {hpclab.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    try:
        Path.cwd()
    except FileNotFoundError:
        raise ConfigError("the working folder is gone; change to one that is there") from None


@app.command(cls=GpuIdsCommand)
def train(
    config: Config,
    overrides: Overrides = None,
    gpu_ids: Annotated[
        str | None,
        typer.Option(metavar="0 1 ... | all | none", help="GPUs to train on, one worker each; none: the CPU."),
    ] = None,
    num_workers: Annotated[int | None, typer.Option(metavar="W", min=1, help="CPU workers.")] = None,
    torchrunx_log_dir: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help='torchrunx\'s own logs; "": none. TORCHRUNX_LOG_DIR goes before it.'),
    ] = None,
) -> None:
    """Train on this machine; a run that exists goes on from its last checkpoint."""
    from hpclab.launch.train import train

    ids = None if gpu_ids is None else gpu_ids.replace(",", " ").split()
    train(config, overrides or [], gpu_ids=ids, num_workers=num_workers, torchrunx_log_dir=torchrunx_log_dir)


@app.command(cls=SweepCommand)
def submit(
    config: Config,
    overrides: Overrides = None,
    nodes: Annotated[int | None, typer.Option(metavar="N", min=1, help="Nodes; else launch.num_nodes.")] = None,
    gpus_per_node: Annotated[int | None, typer.Option(metavar="G", min=1, help="GPUs, and workers, a node.")] = None,
    workers_per_node: Annotated[int | None, typer.Option(metavar="W", min=1, help="CPU workers a node.")] = None,
    profile: Profile = None,
    print_only: Annotated[
        bool, typer.Option("--print", help="Show the plan and the sbatch script; start nothing.")
    ] = False,
    local: Annotated[bool, typer.Option("--local", help="Run the same job here, with N pseudo-nodes.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Rehearse here: --local, scaled down, with a report.")
    ] = False,
    sweep: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=A,B KEY=1..5", help="One run for each combination, as a job array."),
    ] = None,
    no_snapshot: Annotated[
        bool, typer.Option("--no-snapshot", help="Run the code as it is when the job starts; else a copy made now.")
    ] = False,
) -> None:
    """Train on a Slurm cluster."""
    from hpclab.launch.submit import submit

    submit(
        config,
        overrides or [],
        num_nodes=nodes,
        gpus_per_node=gpus_per_node,
        workers_per_node=workers_per_node,
        profile=profile,
        print_only=print_only,
        local=local,
        dry_run=dry_run,
        snapshot=not no_snapshot,
        sweep=sweep or [],
    )


@app.command()
def resume(
    run: Run,
    overrides: Overrides = None,
    nodes: Annotated[int | None, typer.Option(metavar="N", min=1, help="Nodes; else as many as before.")] = None,
    new_code: Annotated[
        bool, typer.Option("--new-code", help="Run a new copy of the code; else the one it was submitted with.")
    ] = False,
) -> None:
    """Go on with a run, or with all that is unfinished of a sweep, where and how it ran before."""
    from hpclab.launch.resume import resume

    resume(run, overrides or [], num_nodes=nodes, new_code=new_code)


@app.command()
def status(
    run: Annotated[Path | None, typer.Argument(metavar="RUN", help="Run folder; all runs when not given.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Print again every few seconds, until Ctrl-C.")] = False,
) -> None:
    """Say how runs are doing: state, iteration, reward, speed, attempts."""
    from hpclab.launch.status import status

    status(run, as_json=as_json, watch=watch)


@app.command()
def logs(
    run: Run,
    rank: Annotated[
        int | None, typer.Option(metavar="R", min=0, help="Rank whose log to print; else all, merged by time.")
    ] = None,
    attempt: Annotated[int | None, typer.Option(metavar="A", min=0, help="Attempt; else the last one.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on printing as the log grows.")] = False,
    first_error: Annotated[
        bool, typer.Option("--first-error", help="Print which rank failed first, and why; exit code 1: none did.")
    ] = False,
) -> None:
    """Print what the workers wrote to their logs."""
    from hpclab.launch.logs import logs

    logs(run, rank=rank, attempt=attempt, follow=follow, first_error=first_error)


@app.command()
def export(
    path: Saved,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Else export/policy.onnx in the run's folder."),
    ] = None,
) -> None:
    """Write a policy as ONNX, for robots (of a run's newest checkpoint, where a run is named)."""
    from hpclab.export.command import export_policy

    export_policy(path, output)


@app.command()
def cancel(run: Run) -> None:
    """End a run's job, or the process that trains it here."""
    from hpclab.launch.cancel import cancel

    cancel(run)


@app.command()
def doctor(
    profile: Profile = None,
    nodes: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Also run a short job on N nodes, and check them.")
    ] = None,
    workers_per_node: Annotated[
        int | None, typer.Option(metavar="W", min=1, help="Check for W CPU workers a node, in place of GPUs.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check this machine and the cluster before a run; exit code 1: something would stop it."""
    from hpclab.launch.doctor.command import doctor

    doctor(profile=profile, num_nodes=nodes, workers_per_node=workers_per_node, as_json=as_json)


@app.command()
def tasks() -> None:
    """List what can be trained."""
    from hpclab.config.tasks import task_names

    for name, summary in task_names().items():
        print(f"{name:24} {summary}")


@config_app.command()
def show(config: Config, overrides: Overrides = None, profile: Profile = None) -> None:
    """Print a run with every setting, `sync` as it takes effect."""
    from hpclab.config.load import dump_config, load_config, load_profile

    loaded = load_config(config, overrides or [], profile=None if profile is None else load_profile(profile))
    print(dump_config(loaded.model_copy(update={"sync": loaded.sync.resolved()})), end="")


@config_app.command()
def schema() -> None:
    """Print the JSON Schema of config files, for editors."""
    import json

    from hpclab.config.json_schema import run_json_schema

    print(json.dumps(run_json_schema(), indent=2))


@bench_app.command("tune", cls=GpuIdsCommand)
def bench_tune(
    config: Config,
    overrides: Overrides = None,
    num_envs: Annotated[
        str | None, typer.Option(metavar="N,M,...", help="Sizes to measure; else doubled while that gains.")
    ] = None,
    iterations: Annotated[int, typer.Option(metavar="I", min=1, help="Iterations to measure of each size.")] = 10,
    gpu_ids: Annotated[
        str | None, typer.Option(metavar="0 | none", help="The GPU to measure, else the first; none: the CPU.")
    ] = None,
) -> None:
    """Find the number of environments that trains fastest here, and the contact buffers that it needs."""
    from hpclab.launch.bench import tune

    ids = None if gpu_ids is None else gpu_ids.replace(",", " ").split()
    tune(config, overrides or [], num_envs=num_envs, iterations=iterations, gpu_ids=ids)


@checkpoint_app.command("ls")
def checkpoint_ls(path: Saved) -> None:
    """List a run's checkpoints, or what is inside one."""
    from hpclab.checkpoint.inspect import ls

    ls(path)


@checkpoint_app.command("verify")
def checkpoint_verify(path: Saved) -> None:
    """Read every file again and name those that are damaged."""
    from hpclab.checkpoint.inspect import verify

    verify(path)


@checkpoint_app.command("diff")
def checkpoint_diff(one: Saved, other: Saved) -> None:
    """Say where two checkpoints differ (a run's newest one, where a run is named); exit code 1 if they do."""
    from hpclab.checkpoint.compare import diff

    raise typer.Exit(1 if diff(one, other) else 0)


@checkpoint_app.command("import")
def checkpoint_import(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="RSL-RL 5.x checkpoint, e.g. model_1000.pt.")],
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder to create, e.g. runs/g1.")],
    config: Annotated[Path, typer.Option(metavar="CONFIG", help="YAML file that describes the run.")],
    overrides: Overrides = None,
) -> None:
    """Create a run that goes on from a checkpoint of RSL-RL or mjlab."""
    from hpclab.launch.exchange import import_checkpoint

    import_checkpoint(file, config, run, overrides or [])


@checkpoint_app.command("export")
def checkpoint_export(
    path: Saved,
    file_format: Annotated[str, typer.Option("--format", metavar="rsl_rl", help="Whose checkpoint it becomes.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Else export/model_N.pt in the run's folder.")
    ] = None,
) -> None:
    """Write a checkpoint for RSL-RL or mjlab to train on (a run's newest one, where a run is named)."""
    from hpclab.launch.exchange import export_checkpoint

    export_checkpoint(path, file_format, output)


def main(arguments: list[str] | None = None) -> None:
    """Run one command, print an error as one line for each problem, and exit with its code.

    Raises:
        SystemExit: always; 0 when the command did what was asked, 2 when the request was wrong, 130 after Ctrl-C.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a locale may lack a character of a run's name
    try:
        code = app(arguments, prog_name="hpclab", standalone_mode=False)
    except HpclabError as error:
        _complain(str(error))
        code = error.exit_code
    except typer.TyperException as error:
        if message := error.format_message():  # none: the help was printed
            _complain(f"hpclab: {message}")
        code = error.exit_code
    except OSError as error:
        place = error.filename or "a file"
        if isinstance(error, PermissionError):
            _complain(f"{place}: {error.strerror}; ask for access to it, or name another")
            code = ConfigError.exit_code
        elif error.errno in _STORAGE:
            _complain(f"{place}: cannot be written or read: {error.strerror}; see to that disk, try again")
            code = LaunchError.exit_code
        else:
            raise
    except KeyboardInterrupt:
        code = 130
    sys.exit(code or 0)


def _complain(message: str) -> None:
    """Print to standard error; where that is closed or full, the exit code has to do."""
    with suppress(OSError):
        print(message, file=sys.stderr, flush=True)
