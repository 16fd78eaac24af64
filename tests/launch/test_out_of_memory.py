from __future__ import annotations

import time
from pathlib import Path

import pytest

from hpclab.launch import jobs, out_of_memory
from hpclab.launch.failures import first_error
from hpclab.launch.handover import Handover
from hpclab.launch.out_of_memory import hosts_without_memory, num_kills, watched
from hpclab.run_folder import RunFolder

V1 = "6:freezer:/job_1/step_0\n4:memory:/job_1/step_0/task_0\n0::/\n"
V2 = "0::/system.slice/job_1/step_0/user/task_0\n"


@pytest.mark.parametrize(
    ("own", "counter", "text"),
    [
        (V1, "memory/job_1/step_0/task_0/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
        (V2, "system.slice/job_1/step_0/user/task_0/memory.events", "oom 3\noom_kill 2\noom_group_kill 0\n"),
    ],
)
def test_the_kernels_count_is_read_from_either_version_of_cgroups(
    tmp_path: Path, own: str, counter: str, text: str
) -> None:
    (tmp_path / "own").write_text(own)
    assert num_kills(tmp_path / "own", tmp_path) is None
    path = tmp_path / counter
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert num_kills(tmp_path / "own", tmp_path) == 2


def test_a_killed_rank_of_a_node_without_memory_says_so(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs.begin(run, "slurm", hosts=["n1", "n2"], num_workers=2, job_id="11")
    run.logs(0).mkdir(parents=True)
    handover = Handover.of(run, "11", 0)
    handover.put("attempt", "0")
    kills = iter([7, 7])
    monkeypatch.setattr(out_of_memory, "num_kills", lambda: next(kills, 8))
    with watched(run, handover, host="n2"):
        end = time.monotonic() + 10
        while hosts_without_memory(run, 0) != {"n2"}:
            assert time.monotonic() < end, "the note of n2"
    line = "x torchrunx.{} ERROR failed (exitcode: {}) local_rank: 0 (pid: 5)\n"
    run.launcher_log(0).write_text(line.format("n2", -9))
    said = str(first_error(run, 0))
    assert said == "rank 1 on n2 failed: out of memory, killed by the kernel; raise slurm.memory, or lower env.num_envs"
    run.launcher_log(0).write_text(line.format("n2", -11))
    assert str(first_error(run, 0)).endswith("ended by SIGSEGV")
    run.launcher_log(0).write_text(line.format("n1", -9))
    assert "or killed by hand" in str(first_error(run, 0))
