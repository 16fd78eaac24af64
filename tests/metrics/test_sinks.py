"""Console, TensorBoard, Weights & Biases, and what happens when one cannot write."""

import io
import logging
import types
from pathlib import Path

import pytest
from rich.console import Console

from hpclab.errors import ConfigError
from hpclab.metrics.console import ConsoleSink, TimeLeft, clock
from hpclab.metrics.record import Record
from hpclab.metrics.reporter import Reporter
from hpclab.metrics.wandb import WandbSink

SEMANTICS = [("ranks", "2", "64 environments on this rank, 128 in all")]


def record(iteration: int, time: float = 0.0, **extra: float) -> Record:
    values = {
        "Train/mean_reward": 3.25,
        "Train/mean_episode_length": 77.0,
        "Loss/value_loss": 0.125,
        "Perf/total_fps": 12345.6,
        "Perf/collection_time": 0.2,
        "Perf/learning_time": 0.1,
        "Episode_Reward/upright": 0.75,
    }
    return Record(iteration, 100 * (iteration + 1), time, 0, values | extra)


def console_sink(console: Console | None) -> ConsoleSink:
    return ConsoleSink("pole", SEMANTICS, max_iterations=10, max_env_steps=None, console=console)


def test_without_a_terminal_each_iteration_is_one_plain_line() -> None:
    output = io.StringIO()
    sink = console_sink(Console(file=output, width=100))
    sink.write(record(0, 0.0))
    sink.write(record(1, 2.0))
    sink.close()
    lines = output.getvalue().splitlines()
    assert "\x1b" not in output.getvalue()
    assert any("ranks" in line and "128 in all" in line for line in lines)
    assert lines[-2:] == [
        "iteration 0/10  reward 3.25  length 77.0  12,346 steps/s (collect 0.200 s, learn 0.100 s)",
        "iteration 1/10  reward 3.25  length 77.0  12,346 steps/s (collect 0.200 s, learn 0.100 s)  left 0:00:16",
    ]


def test_before_an_episode_has_ended_no_reward_is_shown(caplog) -> None:
    early = record(0)
    del early.values["Train/mean_reward"]
    with caplog.at_level(logging.INFO, logger="hpclab"):
        console_sink(None).write(early)
    assert "iteration 0/10  12,346 steps/s" in caplog.messages[-1]


def test_the_log_gets_a_line_per_iteration_whatever_is_shown(caplog) -> None:
    with caplog.at_level(logging.INFO, logger="hpclab"):
        sink = console_sink(None)
        sink.write(record(4))
    assert caplog.messages[0] == "ranks: 2 (64 environments on this rank, 128 in all)"
    assert caplog.messages[1].startswith("iteration 4/10  reward 3.25")


def test_a_terminal_shows_reward_terms_losses_and_speed() -> None:
    output = io.StringIO()
    sink = console_sink(Console(file=output, force_terminal=True, width=100, color_system=None))
    sink.write(record(4, 0.0))
    sink.write(record(5, 1.0))
    sink.close()
    text = output.getvalue()
    for expected in ("pole", "6/10", "left 0:00:04", "upright", "0.75", "value_loss", "0.125", "total_fps", "12,346"):
        assert expected in text


def test_the_time_left_follows_iterations_or_the_step_budget() -> None:
    by_iterations = TimeLeft(max_iterations=100, max_env_steps=None)
    assert by_iterations.update(record(9, 50.0)) is None
    assert by_iterations.update(record(10, 52.0)) == pytest.approx(89 * 2.0)
    by_steps = TimeLeft(max_iterations=100, max_env_steps=2050)
    by_steps.update(record(9, 50.0))
    assert by_steps.update(record(10, 52.0)) == pytest.approx(10 * 2.0)
    assert TimeLeft(10, None).update(record(9)) is None
    assert clock(3725.4) == "1:02:05"


class Recorder:
    def __init__(self, fails: set[int]) -> None:
        self.fails, self.seen, self.closed = fails, [], False

    def write(self, record: Record) -> None:
        if record.iteration in self.fails:
            raise OSError("No space left on device")
        self.seen.append(record.iteration)

    def close(self) -> None:
        self.closed = True


def test_a_sink_that_cannot_write_does_not_stop_the_others(caplog) -> None:
    broken, fine = Recorder({1, 2}), Recorder(set())
    reporter = Reporter([broken, fine])
    for iteration in range(5):
        reporter.write(record(iteration))
    reporter.close()
    assert broken.seen == [0, 3, 4]
    assert fine.seen == [0, 1, 2, 3, 4]
    assert broken.closed
    assert fine.closed
    assert caplog.text.count("cannot write iteration") == 1
    assert "cannot write iteration 1: No space left" in caplog.text
    assert "writes again, from iteration 3" in caplog.text


def test_an_error_that_is_not_of_storage_is_not_hidden() -> None:
    class Wrong(Recorder):
        def write(self, record: Record) -> None:
            raise KeyError("bug")

    with pytest.raises(KeyError):
        Reporter([Wrong(set())]).write(record(0))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of TensorBoard's own imports
def test_tensorboard_shows_each_iteration_once(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from hpclab.metrics.tensorboard import TensorboardSink

    for first, last in ((0, 3), (0, 6), (4, 8)):  # one that never saved, one, and one that goes on from iteration 4
        sink = TensorboardSink(tmp_path, first_iteration=first)
        for iteration in range(first, last):
            sink.write(record(iteration, time=1000.0 * first + iteration))
        sink.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    rewards = events.Scalars("Train/mean_reward")
    assert [event.step for event in rewards] == list(range(8))
    assert [event.wall_time for event in rewards][4:] == [4004.0, 4005.0, 4006.0, 4007.0]
    assert events.Scalars("Episode_Reward/upright")[0].value == 0.75


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of TensorBoard's own imports
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # of its writer
def test_tensorboard_goes_on_when_its_disk_is_back(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from hpclab.metrics.tensorboard import TensorboardSink

    folder, gone = tmp_path / "tensorboard", tmp_path / "gone"
    sink = TensorboardSink(folder, first_iteration=0)
    sink.write(record(0))
    assert sink._writer is not None
    sink._writer.flush()
    folder.rename(gone)

    def write_until_noticed() -> None:  # its queue takes some
        for iteration in range(1, 10_000):
            sink.write(record(iteration))

    with pytest.raises(OSError, match="No such file"):
        write_until_noticed()
    with pytest.raises(OSError, match="No such file"):
        sink.write(record(10_000))
    assert not folder.exists()
    gone.rename(folder)
    sink.write(record(10_001))
    sink.close()
    events = EventAccumulator(str(folder))
    events.Reload()
    assert {event.step for event in events.Scalars("Train/mean_reward")} - set(range(1, 10_000)) == {0, 10_001}


def test_wandb_without_the_package_names_the_extra(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    with pytest.raises(ConfigError, match=r"pip install 'hpclab\[wandb\]'"):
        WandbSink(tmp_path, project="p", name="n", config={})


def test_wandb_that_cannot_be_reached_is_one_line_with_what_to_do(tmp_path: Path, monkeypatch) -> None:
    def init(**_: object) -> None:
        raise UnreachableError("no such host\nwhile retrying")

    monkeypatch.setitem(__import__("sys").modules, "wandb", types.SimpleNamespace(init=init, Error=UnreachableError))
    with pytest.raises(
        ConfigError, match=r"^metrics\.wandb_project: .*no such host while retrying; .*WANDB_MODE=offline"
    ):
        WandbSink(tmp_path, project="p", name="n", config={})


class UnreachableError(Exception):
    pass


class FakeWandbRun:
    def __init__(self, run_id: str) -> None:
        self.id, self.logged, self.finished = run_id, [], False

    def define_metric(self, name: str, step_metric: str | None = None) -> None: ...

    def log(self, values: dict) -> None:
        self.logged.append(values)

    def finish(self) -> None:
        self.finished = True


def test_wandb_continues_the_run_whose_id_is_stored(tmp_path: Path, monkeypatch) -> None:
    calls, runs = [], []

    def init(**arguments: object) -> FakeWandbRun:
        calls.append(arguments)
        runs.append(FakeWandbRun(str(arguments["id"] or "new-id")))
        return runs[-1]

    monkeypatch.setitem(__import__("sys").modules, "wandb", types.SimpleNamespace(init=init, Error=UnreachableError))
    for _ in range(2):
        sink = WandbSink(tmp_path / "metrics", project="p", name="n", config={"task": "t"})
        sink.write(record(3))
        sink.close()
    assert [call["id"] for call in calls] == [None, "new-id"]
    assert calls[1]["resume"] == "allow"
    assert runs[1].logged[0]["iteration"] == 3
    assert runs[1].logged[0]["Loss/value_loss"] == 0.125
    assert runs[1].finished
