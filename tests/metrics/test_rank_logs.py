"""A rank's log has everything, with the time."""

import logging
import re
import subprocess
import sys
from pathlib import Path

from hpclab.metrics.rank_logs import tee_logging

CAPTURE = """
import ctypes, logging, os, subprocess, sys, warnings
from pathlib import Path
from hpclab.metrics.rank_logs import capture_all

logging.basicConfig(level=logging.INFO)
libc = ctypes.CDLL(None)
print("before")
with capture_all(Path(sys.argv[1])):
    print("printed")
    print("half", end="")
    print(" and half")
    logging.getLogger("hpclab.test").info("logged")
    logging.getLogger("other").debug("too fine")
    warnings.warn("warned")
    libc.puts(b"from C")
    libc.fflush(None)
    subprocess.run(["echo", "from a child"])
    print("no newline", end="")
print("after")
logging.info("root again")
if len(sys.argv) > 2:
    with capture_all(Path(sys.argv[1])):
        libc.puts(b"last words"); libc.fflush(None)
        os.abort()
"""


def test_prints_logging_warnings_c_and_children_are_captured(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "rank-0000.log"
    result = subprocess.run(
        [sys.executable, "-c", CAPTURE, str(path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout == "before\nafter\n"
    assert result.stderr == "INFO:root:root again\n"
    text = path.read_text()
    stamp = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} "
    for line in ("printed$", "half and half$", "INFO logged$", ".*UserWarning: warned$", "no newline$"):
        assert re.search(stamp + line, text, re.MULTILINE), line
    assert "\nfrom C\n" in text
    assert "\nfrom a child\n" in text
    assert "too fine" not in text


def test_a_crash_leaves_its_trace(tmp_path: Path) -> None:
    path = tmp_path / "rank-0000.log"
    result = subprocess.run(
        [sys.executable, "-c", CAPTURE, str(path), "crash"], capture_output=True, check=False, timeout=60
    )
    assert result.returncode < 0
    text = path.read_text()
    assert "last words" in text
    assert "Fatal Python error: Aborted" in text


def test_in_the_users_process_logging_is_copied_and_warnings_are_shown(tmp_path: Path, capfd) -> None:
    path = tmp_path / "rank-0000.log"
    logger = logging.getLogger("hpclab.test")
    with tee_logging(path):
        print("stays on the terminal")
        logger.info("for the log")
        logger.warning("for both")
    logger.warning("after")
    output = capfd.readouterr()
    assert output.out == "stays on the terminal\n"
    assert output.err.startswith("hpclab: for both\n")
    assert "for the log" not in output.err
    text = path.read_text()
    assert "INFO for the log" in text
    assert "WARNING for both" in text
    assert "after" not in text
