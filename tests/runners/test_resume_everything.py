"""Every task and every way to learn, at 1, 2 and 4 ranks: killed, gone on with by new processes, and no bit differs.

What is added to the tasks or to `tests/variants.py` is tested without a word here.
"""

import ast
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import hpclab.algorithms
from hpclab.checkpoint.store import CheckpointStore
from hpclab.config.schema import RunConfig
from hpclab.config.tasks import task_names
from hpclab.run_folder import RunFolder
from hpclab.worker.context import WorkerContext
from hpclab.worker.main import run_worker
from hpclab.worker.spec import WorkerSpec
from tests.distributed.ranks import TestContext, free_port, run_on_ranks
from tests.runners.runs import attempt, checkpoint_files, curve, differences, small_config, write_config
from tests.variants import VARIANTS

pytestmark = pytest.mark.distributed
ITERATIONS, KILLED_IN = 3, 2
DISTILLATION = {"algorithm": {"name": "distillation", "gradient_length": 2}, "actor": VARIANTS["gru"]["actor"]}
CASES = {task: ("global", {"task": task}) for task in task_names()} | {
    variant: ("mjlab", sections) for variant, sections in (VARIANTS | {"distillation": DISTILLATION}).items()
}
LIKE_ANOTHER = {"cartpole-sparse", "g1-tracking-no-state-estimation"}
"""Tasks that differ from another in what is observed or rewarded: two ranks are enough."""


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run for those who learn from another."""
    run = write_config(tmp_path_factory.mktemp("teacher"), small_config(run={"max_iterations": 1}))
    attempt(run)
    return run.path


def config_of(case: str, teacher: Path) -> RunConfig:
    preset, sections = CASES[case]
    if sections.get("algorithm", {}).get("name") == "distillation":
        sections = sections | {"algorithm": sections["algorithm"] | {"teacher": str(teacher)}}
    small = small_config(
        run={"max_iterations": ITERATIONS, "save_interval": 1},
        env={"num_envs": 2},
        algorithm={"num_steps_per_env": 3, "num_learning_epochs": 1} | sections.get("algorithm", {}),
        sync={"preset": preset, "checkpoint": "sharded"},
        **{name: values for name, values in sections.items() if name not in ("task", "algorithm")},
    )
    return small.model_copy(update={"task": sections.get("task", small.task)})


def train(context: TestContext, attempts: list[tuple[RunFolder, int, int]], killed: bool) -> list[int]:
    """Train as one rank: attempts of runs, one after the other, as (run, attempt, port where the ranks meet).

    Where `killed`, all ranks end by SIGKILL after iteration 2, of which nothing is saved yet.
    """
    original = CheckpointStore.begin

    def begin(store: CheckpointStore, iteration: int, **state: Any) -> None:
        if iteration == KILLED_IN + 1:
            os.kill(os.getpid(), signal.SIGKILL)
        original(store, iteration, **state)

    if killed:
        CheckpointStore.begin = begin  # of this process alone
    iterations = []
    for run, number, port in attempts:
        place = WorkerContext.single()
        if context.world_size > 1:
            ranks = (context.rank, context.rank, context.world_size, context.world_size)
            place = WorkerContext(*ranks, context.master_addr, port)
        spec = WorkerSpec(str(run.path), number, ("cpu",) * context.world_size, console=False)
        iterations.append(run_worker(spec, place).iteration)
    return iterations


@pytest.mark.parametrize(
    ("case", "world_size"), [(case, size) for case in CASES for size in ((2,) if case in LIKE_ANOTHER else (1, 2, 4))]
)
def test_killed_and_resumed_equals_uninterrupted(case: str, world_size: int, teacher: Path, tmp_path: Path) -> None:
    whole, parts = (write_config(tmp_path / name, config_of(case, teacher)) for name in ("whole", "parts"))

    def start(*attempts: tuple[RunFolder, int], killed: bool = False) -> list[list[int]]:
        places = [(run, number, free_port()) for run, number in attempts]
        return run_on_ranks(train, world_size, places, killed, join_group=False)

    with pytest.raises(AssertionError, match="died without an answer"):
        start((parts, 0), killed=True)
    assert [line["iteration"] for line in curve(parts)] == [0, 1, 2], "the last of them is not saved"
    # The uninterrupted run comes last, in the same processes: what it owed to them would be a difference.
    assert start((parts, 1), (whole, 0)) == [[ITERATIONS, ITERATIONS]] * world_size
    assert f"with iteration {KILLED_IN}: exactly where it was" in parts.rank_log(1, world_size - 1).read_text()
    files = checkpoint_files(whole, ITERATIONS)
    assert len(files) == world_size + 1
    assert differences(files, checkpoint_files(parts, ITERATIONS)) == []
    assert curve(whole) == curve(parts)


def test_every_algorithm_is_among_the_cases() -> None:
    (folder,) = hpclab.algorithms.__path__
    modules = {path.stem: ast.parse(path.read_text()).body for path in Path(folder).glob("*.py")}
    algorithms = {
        name
        for name, body in modules.items()
        if any(isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ALGORITHM" for node in body)
    }
    assert algorithms == {sections.get("algorithm", {}).get("name", "ppo") for _, sections in CASES.values()}
