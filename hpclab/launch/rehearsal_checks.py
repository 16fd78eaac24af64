"""What a rehearsal looks at when its runs are over: every line of its table."""

from __future__ import annotations

from collections.abc import Iterator

import psutil

from hpclab.checkpoint.folder import folder_name, newest_complete
from hpclab.config.load import load_config
from hpclab.errors import HpclabError
from hpclab.launch import jobs
from hpclab.launch.check_list import Check, Look, examine_all
from hpclab.launch.compare_runs import How, compare_checkpoints, compare_curves
from hpclab.launch.lock import process_is_alive
from hpclab.launch.plan import SubmissionPlan
from hpclab.launch.rehearsed_preemption import last_handover
from hpclab.metrics.jsonl import read_curve
from hpclab.run_folder import RunFolder

_SHOWN = 3


def examine(plan: SubmissionPlan, straight: RunFolder, *, noticed: int | None, total: int | None) -> Iterator[Check]:
    """Look at what the interrupted run and the uninterrupted one have left behind.

    Args:
        plan: of the interrupted run.
        straight: the run that nobody interrupted.
        noticed: the last iteration that was reported when the notice was sent.
        total: iterations of both runs.
    """
    run, nodes = plan.run, plan.num_nodes
    rank_0_alone = plan.world_size > 1 and plan.config.sync.resolved().checkpoint == "rank0"
    how: How = "counts" if plan.use_gpus or rank_0_alone else "exact"
    why = "a checkpoint holds rank 0's environments alone" if rank_0_alone else "GPU physics is not repeatable"
    equal = "equal bit for bit" if how == "exact" else f"have equal counters and shapes ({why})"
    curves = "curves are equal" if how == "exact" else "curves have the same iterations and steps"
    checks: list[tuple[str, Look]] = [
        ("configuration is valid", lambda: (load_config(run.config).task == plan.config.task, plan.config.task)),
        ("run folder is written", lambda: _written(run)),
        (f"{nodes} agents started in each attempt", lambda: _agents(run, nodes)),
        (f"{plan.world_size} ranks trained", lambda: _ranks(run, plan.world_size)),
        ("notice: all ranks saved and stopped", lambda: _stopped(run, noticed)),
        ("the job requeued itself", lambda: _requeued(run)),
        ("resumed with the next iteration", lambda: _resumed(run)),
        ("every iteration once", lambda: _iterations(run, total)),
        ("checkpoint is complete and loads", lambda: _checkpoint(run, total)),
        ("an uninterrupted run completed", lambda: _completed(straight, total)),
        (f"checkpoints of both {equal}", lambda: _same_checkpoints(run, straight, total, how)),
        (curves, lambda: _same_curves(run, straight, how)),
        ("no process is left", lambda: _processes_gone(run, straight)),
    ]
    yield from examine_all(checks)


def _written(run: RunFolder) -> tuple[bool, str]:
    missing = [path.name for path in (run.config, run.manifest, run.jobs) if not path.is_file()]
    return not missing, f"missing: {', '.join(missing)}" if missing else str(run.path)


def _agents(run: RunFolder, nodes: int) -> tuple[bool, str]:
    folders = [path for path in (run.submitit / "handover").iterdir() if path.is_dir()]
    started = [len(list(folder.glob("*.agent"))) for folder in folders]
    return started == [nodes] * len(jobs.read(run)), f"{' + '.join(map(str, started))} started"


def _ranks(run: RunFolder, world_size: int) -> tuple[bool, str]:
    attempts = range(len(jobs.read(run)))
    logs = [run.rank_log(number, rank) for number in attempts for rank in range(world_size)]
    written = sum(log.stat().st_size > 0 for log in logs)
    return written == len(logs) > 0, f"{written} rank logs in {len(attempts)} attempts"


def _stopped(run: RunFolder, noticed: int | None) -> tuple[bool, str]:
    first = jobs.read(run)[0]
    if noticed is None or first.last_iteration is None:
        return False, f"no notice was sent; the first attempt {first.cause or 'has no end'}"
    saved = run.checkpoints / folder_name(first.last_iteration + 1)
    in_order = first.cause == "preempted" and saved.is_dir()
    return in_order, f"USR2 after iteration {noticed}; {first.cause}, saved after iteration {first.last_iteration}"


def _requeued(run: RunFolder) -> tuple[bool, str]:
    attempts = jobs.read(run)
    same_job = len({attempt.job_id for attempt in attempts}) == 1
    causes = [str(attempt.cause) for attempt in attempts]
    return same_job and causes == ["preempted", "completed"], f"one job's attempts: {', '.join(causes)}"


def _resumed(run: RunFolder) -> tuple[bool, str]:
    first, second = jobs.read(run)[:2]
    assert first.last_iteration is not None
    return second.first_iteration == first.last_iteration + 1, f"iteration {second.first_iteration}"


def _iterations(run: RunFolder, total: int | None) -> tuple[bool, str]:
    curve = read_curve(run.metrics / "metrics.jsonl")
    once = total is not None and [line["iteration"] for line in curve] == list(range(total))
    return once, f"{len(curve)} of {total}, {len(curve[-1])} values each" if curve else "none"


def _checkpoint(run: RunFolder, total: int | None) -> tuple[bool, str]:
    for path, manifest in newest_complete(run.checkpoints):
        if isinstance(manifest, HpclabError):
            return False, str(manifest)
        compared, _ = compare_checkpoints(path, path, "counts")
        return manifest.iteration == total, f"{path.name}, {len(manifest.files)} files, {compared} values"
    return False, "none"


def _completed(straight: RunFolder, total: int | None) -> tuple[bool, str]:
    attempts = jobs.read(straight)
    causes = [str(attempt.cause) for attempt in attempts]
    done = len(read_curve(straight.metrics / "metrics.jsonl"))
    return causes == ["completed"] and done == total, f"{done} of {total} iterations, {', '.join(causes) or 'not run'}"


def _same_checkpoints(run: RunFolder, straight: RunFolder, total: int | None, how: How) -> tuple[bool, str]:
    if total is None:
        return False, "the interrupted run has no end"
    name = folder_name(total)
    compared, different = compare_checkpoints(run.checkpoints / name, straight.checkpoints / name, how)
    return compared > 0 and not different, _differing(different) or f"{name}: {compared} values of all ranks"


def _same_curves(run: RunFolder, straight: RunFolder, how: How) -> tuple[bool, str]:
    one, other = (read_curve(folder.metrics / "metrics.jsonl") for folder in (run, straight))
    different = compare_curves(one, other, how)
    return bool(one) and not different, _differing(different) or f"{len(one)} lines"


def _differing(different: list[str]) -> str:
    shown = ", ".join(different[:_SHOWN])
    return f"{len(different)} differ: {shown}" if different else ""


def _processes_gone(*runs: RunFolder) -> tuple[bool, str]:
    alive = set()
    for run in runs:
        handover = last_handover(run)
        for agent in handover.processes() if handover is not None else []:
            if process_is_alive(agent["pid"], agent["started"]):
                alive.add(agent["pid"])
    folders = {str(run.path) for run in runs}
    for process in psutil.process_iter():
        try:
            if process.environ().get("HPCLAB_RUN") in folders:
                alive.add(process.pid)
        except psutil.Error:
            continue  # ended meanwhile, or somebody else's
    return not alive, f"left: {', '.join(map(str, sorted(alive)))}" if alive else "all have ended"
