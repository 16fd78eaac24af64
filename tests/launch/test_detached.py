from __future__ import annotations

import os
import signal
from pathlib import Path

from hpclab.launch import detached


def test_nobody_sees_the_environment_among_the_arguments() -> None:
    process = detached.start("cd / && export TOKEN='open sesame' && sleep 60", os.environ)
    try:
        seen = b""
        while not seen.endswith(b"sleep\x0060\x00"):
            assert process.poll() is None
            seen = Path(f"/proc/{process.pid}/cmdline").read_bytes()
            assert b"sesame" not in seen
        status = Path(f"/proc/{process.pid}/status").read_text()
        ignored = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn")), 16)
        assert all(ignored & 1 << number - 1 for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM))
        assert b"TOKEN=open sesame" in Path(f"/proc/{process.pid}/environ").read_bytes()
        assert os.readlink(f"/proc/{process.pid}/fd/0") == os.devnull  # noqa: PTH115
    finally:
        detached.end(process, grace_s=0.0)
    assert process.returncode == -signal.SIGKILL
