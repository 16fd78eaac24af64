"""What a failure leaves behind."""

import json
import logging
from pathlib import Path

import pytest

from hpclab.errors import ConfigError
from hpclab.run_folder import RunFolder
from hpclab.worker.failure import FailureReport, describe


def report(tmp_path: Path) -> FailureReport:
    return FailureReport(RunFolder(tmp_path), 2, 7, launched=False)


def read(tmp_path: Path) -> dict:
    return json.loads(RunFolder(tmp_path).rank_error(2, 7).read_text())


def test_the_error_file_says_who_when_where_and_why(tmp_path: Path, caplog) -> None:
    failure = report(tmp_path)
    failure.iteration = lambda: 12
    with caplog.at_level(logging.INFO, logger="hpclab"), pytest.raises(ValueError, match="boom"), failure:
        raise ValueError("boom")
    content = read(tmp_path)
    assert content["rank"] == 7
    assert content["iteration"] == 12
    assert content["error"] == "ValueError: boom"
    assert content["exit_code"] == 1
    assert content["in_collective"] is False
    assert content["time"] > 1.7e9
    assert content["host"]
    assert 'raise ValueError("boom")' in content["traceback"]
    assert 'raise ValueError("boom")' in caplog.text


def test_the_first_block_that_sees_it_records_it(tmp_path: Path, caplog) -> None:
    failure = report(tmp_path)
    with caplog.at_level(logging.INFO, logger="hpclab"), pytest.raises(ValueError, match="inner"), failure, failure:
        raise ValueError("inner")
    assert caplog.text.count("rank 7 failed") == 1


def test_our_own_errors_keep_their_words_and_exit_code(tmp_path: Path) -> None:
    with pytest.raises(ConfigError), report(tmp_path):
        raise ConfigError("env.num_envs=3: too few")
    assert read(tmp_path)["error"] == "env.num_envs=3: too few"
    assert read(tmp_path)["exit_code"] == 2


def test_no_failure_and_no_file_without_an_error_or_for_ctrl_c(tmp_path: Path) -> None:
    with report(tmp_path):
        pass
    with pytest.raises(KeyboardInterrupt), report(tmp_path):
        raise KeyboardInterrupt
    assert not RunFolder(tmp_path).logs(2).exists()


def test_a_disk_that_is_gone_does_not_hide_the_error(tmp_path: Path, caplog) -> None:
    (tmp_path / "logs").write_text("not a folder")
    with pytest.raises(ValueError, match="boom"), report(tmp_path):
        raise ValueError("boom")
    assert "the error file could not be written" in caplog.text


def test_a_hang_stays_on_record_when_the_rank_it_waits_for_leaves_first(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("hpclab.worker.failure.leave", lambda: None)
    run = RunFolder(tmp_path)
    report = FailureReport(run, 0, 1, launched=True)
    report.record_hang(2.0)
    with pytest.raises(RuntimeError), report:
        raise RuntimeError("Connection closed by peer")
    assert json.loads(run.rank_error(0, 1).read_text())["cause"] == "hang"


def test_what_a_rank_knows_itself_is_kept_when_it_is_closed(tmp_path: Path) -> None:
    failure = FailureReport(RunFolder(tmp_path), 2, 7, launched=True)
    failure.record_hang(30.0)
    failure.record_closed()
    assert read(tmp_path)["cause"] == "hang"
    assert read(tmp_path)["in_collective"] is False


def test_an_error_of_many_lines_is_told_in_one() -> None:
    assert describe(RuntimeError("Overflow\nException raised from unpack\nframe #0")) == "RuntimeError: Overflow"
    assert describe(ValueError("\n")) == "ValueError"
    assert describe(ConfigError("a.yaml:1: bad\na.yaml:2: bad")) == "a.yaml:1: bad\na.yaml:2: bad"
