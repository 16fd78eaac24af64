"""tools/benchmarks/kill.py in small: a few kills at random times, and a difference that it has to see."""

from pathlib import Path

import pytest
import torch
from benchmarks.kill import Trial, summary

from hpclab.checkpoint import folder as disk
from hpclab.checkpoint.state import from_bytes, to_bytes

pytestmark = pytest.mark.distributed


def test_after_six_kills_the_run_equals_one_without_and_a_changed_bit_is_seen(tmp_path: Path) -> None:
    trial = Trial(tmp_path, iterations=12, ranks=1, seed=3)
    found = list(trial.go(6))
    assert [kill.number for kill in found] == list(range(1, 7))
    assert [kill.different for kill in found] == [""] * 6
    assert all(kill.compared > 0 for kill in found)
    counted = summary(trial)
    assert (counted["kills"], counted["exact_resumes"]) == (6, 6)

    folder = tmp_path / "straight" / "checkpoints" / disk.folder_name(12)
    state = from_bytes((folder / disk.SHARED_FILE).read_bytes(), "test")
    state["algorithm"]["learning_rate"].view(torch.int32).bitwise_xor_(1)
    manifest = disk.read_manifest(folder)
    manifest.files[disk.SHARED_FILE] = disk.write_file(folder / disk.SHARED_FILE, to_bytes(state))
    (folder / disk.MANIFEST_FILE).write_text(manifest.dump())
    (kill,) = list(trial.go(7))
    assert kill.different.startswith("iter-000012/shared.pt: algorithm/")
    assert summary(trial)["exact_resumes"] == 6
