"""Run a short job on several nodes with a profile's own settings, and judge what the nodes found."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hpclab.launch import environment
from hpclab.launch.doctor.finding import Finding, error, ok, warning
from hpclab.launch.doctor.request import Request

_WALLTIME_MIN = 5
_QUEUE_WAIT_S = 900.0
_MAX_SKEW_S = 1.0
_SLOW_BYTES_PER_S = 1e9
_COPIED = (
    *("nodes", "ntasks_per_node", "cpus_per_task", "mem", "gpus_per_node", "gres"),
    *("partition", "account", "qos", "constraint", "exclude"),
)
_OF_BATCH_JOBS = frozenset({"requeue", "open-mode", "signal", "array"})


def check_allocation(request: Request, folder: Path) -> Iterator[Finding]:
    """Run one task on each node and report.

    Args:
        request: the job whose settings are used; its walltime is a few minutes.
        folder: on the file system that all nodes share.
    """
    if shutil.which("srun") is None:
        agents = "ssh" if request.slurm.agents == "tasks" else request.slurm.agents
        trial = f"hpclab submit CONFIG --nodes {request.plan.num_nodes} slurm.agents={agents} run.max_iterations=2"
        action = f"call this on a login node; on a cluster without srun try the nodes with a short run: {trial}"
        yield error("nodes' job", "no srun here, which starts the check on every node", action)
        return
    existing = next(one for one in (folder, *folder.parents) if one.exists())
    scratch = Path(tempfile.mkdtemp(prefix=".hpclab-doctor-", dir=existing))
    try:
        problem = _run(request, scratch)
        reports = [json.loads(path.read_text()) for path in sorted(scratch.glob("node-*.json"))]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if problem and not reports:
        yield error("nodes' job", problem, "see the findings above, and try hpclab submit CONFIG --print")
        return
    if problem or len(reports) < request.plan.num_nodes:
        text = f"{len(reports)} of {request.plan.num_nodes} nodes have reported" + (f"; {problem}" if problem else "")
        yield error("nodes' job", text, "the others may not see this folder: set run.root to a shared one")
    else:
        yield ok("nodes' job", f"ran on {', '.join(one['host'] for one in reports)}, which see {existing}")
    yield from judge(reports, gpus_per_node=request.gpus_per_node)


def srun_command(request: Request, program: Sequence[str]) -> list[str]:
    """Return the srun line that runs `program` once per node with the settings of `hpclab submit`."""
    parameters = request.plan.parameters()
    options = {key.replace("_", "-"): parameters[key] for key in _COPIED if parameters.get(key) is not None}
    extra = parameters.get("additional_parameters", {})
    options |= {key.replace("_", "-"): value for key, value in extra.items()}
    words = [
        f"--{key}" if value is True else f"--{key}={value}"
        for key, value in options.items()
        if key not in _OF_BATCH_JOBS
    ]
    prefix = shlex.split(request.slurm.command_prefix or "")
    program = [*prefix, *program]
    setup = request.plan.setup
    if setup is not None:
        program = ["bash", "-c", f"source {shlex.quote(str(setup))} && exec {shlex.join(program)}"]
    fixed = ["--job-name=hpclab-doctor", f"--time={_WALLTIME_MIN}", "--export=ALL", "--kill-on-bad-exit=0"]
    return ["srun", *words, *fixed, *program]


def _run(request: Request, scratch: Path) -> str:
    """Return what went wrong, empty when nothing did."""
    program = [sys.executable, "-m", "hpclab.launch.doctor.node_check", str(scratch), request.slurm.agents]
    inside = "SLURM_JOB_ID" in os.environ  # a step of that job: what surrounds it says where it runs
    variables = dict(os.environ) if inside else environment.for_submission()[0]
    print(f"asking Slurm for {request.plan.num_nodes} nodes ...", file=sys.stderr, flush=True)
    try:
        with subprocess.Popen(
            srun_command(request, program), env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as process:
            try:
                _, said = process.communicate(timeout=_QUEUE_WAIT_S)
            except BaseException:
                process.terminate()  # unlike a killed srun, it takes its job out of the queue
                raise
    except subprocess.TimeoutExpired:
        return f"no result after {_QUEUE_WAIT_S / 60:.0f} min: the job still waited, or hung"
    except OSError as problem:
        return str(problem)
    if process.returncode == 0:
        return ""
    lines = [line.strip() for line in said.decode(errors="replace").splitlines() if line.strip()]
    words = [line.removeprefix("srun: error: ") for line in lines if line.startswith("srun: error:")]
    return "; ".join(words[:3]) or (lines[-1] if lines else f"srun ended with exit code {process.returncode}")


def judge(reports: Sequence[dict[str, Any]], *, gpus_per_node: int) -> Iterator[Finding]:
    """Return the findings on what the nodes reported."""
    yield from _versions(reports)
    yield from _gpus(reports, gpus_per_node)
    yield from _clocks(reports)
    for one in reports:
        cache = one["kernel_cache"]
        if cache["level"] != "ok":
            yield Finding("kernel cache", cache["level"], f"{one['host']}: {cache['text']}", cache["action"])
            break
    addresses = ", ".join(f"{one['host']} {one['address']} on {one['interface']}" for one in reports)
    yield ok("node addresses", addresses)
    for one in reports:
        if "failed" in one:
            failed = one["failed"]
            action = "let the nodes reach each other on all ports; with several networks set GLOO_SOCKET_IFNAME and "
            yield error(failed["step"], f"{one['host']}: {failed['error']}", f"{action}NCCL_SOCKET_IFNAME in setup.sh")
    if reports and (problems := reports[0].get("ssh")) is not None:
        for problem in problems:
            what, _, action = problem.partition(". ")
            yield error("agents", what, action)
        if not problems:
            yield ok("agents", f"ssh gets from {reports[0]['host']} to every other node")
    speeds = [one["all_reduce"] for one in reports if one.get("all_reduce")]
    if speeds:
        slowest = min(float(one["bytes_per_s"]) for one in speeds)
        text = f"64 MB over {len(speeds)} nodes by {speeds[0]['backend']}: {slowest / 1e9:.2f} GB/s"
        if slowest < _SLOW_BYTES_PER_S and speeds[0]["backend"] == "nccl":
            yield warning(
                "all-reduce", text, "name the fast network in slurm/setup.sh: NCCL_SOCKET_IFNAME, NCCL_IB_HCA"
            )
        else:
            yield ok("all-reduce", text)


def _versions(reports: Sequence[dict[str, Any]]) -> Iterator[Finding]:
    different = []
    for name in dict.fromkeys(name for one in reports for name in one["versions"]):
        by_host = {one["host"]: one["versions"].get(name) for one in reports}
        if len(set(by_host.values())) > 1:
            different.append(f"{name}: " + ", ".join(f"{version} on {host}" for host, version in by_host.items()))
    if different:
        action = "use one environment on a folder that all nodes share"
        yield error("versions", "; ".join(different), action)
    elif reports:
        yield ok("versions", "equal on all nodes")


def _gpus(reports: Sequence[dict[str, Any]], wanted: int) -> Iterator[Finding]:
    problems = [f"{one['host']}: {one['gpu_problem']}" for one in reports if one["gpu_problem"]]
    if problems:
        yield error("nodes' GPUs", "; ".join(problems), "have the driver loaded there, or exclude these nodes")
    for one in reports:
        listed = one["visible_gpus"]
        given = len(one["gpus"]) if listed is None else len([entry for entry in listed.split(",") if entry.strip()])
        if given < wanted:
            text = f"{one['host']}: {wanted} asked for, {given} given"
            yield error("nodes' GPUs", text, "fix the profile's gres, or use --workers-per-node for CPU workers")
    kinds = {tuple(one["gpus"]) for one in reports}
    if len(kinds) > 1:
        text = "; ".join(f"{one['host']}: {', '.join(one['gpus']) or 'none'}" for one in reports)
        yield warning("nodes' GPUs", f"differ: {text}", "the slowest sets the pace; name one kind by slurm.constraint")
    elif wanted and reports and reports[0]["gpus"]:
        yield ok("nodes' GPUs", f"{len(reports[0]['gpus'])} x {reports[0]['gpus'][0]} on every node")


def _clocks(reports: Sequence[dict[str, Any]]) -> Iterator[Finding]:
    found = {one["host"]: one["clock"] for one in reports if one.get("clock")}
    if not found:
        return
    host, worst = max(found.items(), key=lambda item: abs(item[1]["offset_s"]))
    slowest = max(one["round_trip_s"] for one in found.values())
    text = f"{host} is {worst['offset_s']:+.3f} s from {reports[0]['host']}; a round trip takes {slowest * 1e3:.1f} ms"
    if abs(worst["offset_s"]) > _MAX_SKEW_S:
        yield warning("clocks", text, "have them set by NTP: merged logs and the first error go by these times")
    else:
        yield ok("clocks", text)
