from __future__ import annotations

from collections.abc import Callable

import pytest

from hpclab.errors import ConfigError
from hpclab.launch.devices import node_gpus, resolve, visible_gpus

Program = Callable[[str, str], None]
FOUR = "\n".join(f"echo 'GPU {i}: NVIDIA H100 (UUID: GPU-8932f93{i})'" for i in range(4))


@pytest.fixture
def four_gpus(program: Program) -> None:
    program("nvidia-smi", FOUR)


@pytest.fixture
def no_gpu(program: Program) -> None:
    program("nvidia-smi", "echo 'No devices were found'; exit 6")


@pytest.mark.parametrize(
    ("listed", "visible"),
    [
        (None, ("0", "1", "2", "3")),
        ("2,3", ("2", "3")),
        ("3, 1", ("3", "1")),
        ("", ()),
        ("-1", ()),
        ("1,7,2", ("1",)),
        ("GPU-8932f931", ("GPU-8932f931",)),
        ("MIG-a,MIG-b", ("MIG-a", "MIG-b")),
    ],
)
def test_visible_follows_cuda_visible_devices(four_gpus: None, listed: str | None, visible: tuple[str, ...]) -> None:
    assert visible_gpus({} if listed is None else {"CUDA_VISIBLE_DEVICES": listed}) == visible


@pytest.mark.usefixtures("four_gpus")
@pytest.mark.parametrize(
    ("gpu_ids", "listed", "devices"),
    [
        (["0", "1"], None, ("0", "1")),
        (["0,2"], None, ("0", "2")),
        (["1"], "2,3", ("3",)),
        (["all"], "2,3", ("2", "3")),
        (["0"], "MIG-a,MIG-b", ("MIG-a",)),
        (["MIG-b"], "MIG-a,MIG-b", ("MIG-b",)),
        (["none"], None, ("cpu",)),
        (None, None, ("0",)),
        (None, "", ("cpu",)),
    ],
)
def test_ids_are_relative_to_what_is_visible(
    gpu_ids: list[str] | None, listed: str | None, devices: tuple[str, ...]
) -> None:
    assert resolve(gpu_ids, None, {} if listed is None else {"CUDA_VISIBLE_DEVICES": listed}) == devices


@pytest.mark.usefixtures("four_gpus")
@pytest.mark.parametrize(
    ("gpu_ids", "listed", "message"),
    [
        (["7"], None, "--gpu-ids 7: there is no GPU 7; visible here: 0 to 3"),
        (["3"], "0", "there is no GPU 3; visible here: only 0 of CUDA_VISIBLE_DEVICES=0"),
        (["-1"], None, "there is no GPU -1"),
        (["x"], None, "there is no GPU x"),
        (["0", "0"], None, "names a GPU twice"),
        (["all", "1"], None, "write GPU indices"),
        ([], None, "write GPU indices"),
        (["all"], "", "no GPU is visible here (CUDA_VISIBLE_DEVICES=)"),
    ],
)
def test_wrong_ids_are_refused(gpu_ids: list[str], listed: str | None, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        resolve(gpu_ids, None, {} if listed is None else {"CUDA_VISIBLE_DEVICES": listed})
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_all_without_a_gpu_is_refused(no_gpu: None) -> None:
    with pytest.raises(ConfigError, match="no GPU is visible here; use --gpu-ids none"):
        resolve(["all"], None, {})


def test_without_a_gpu_one_worker_takes_the_cpu(no_gpu: None) -> None:
    assert resolve(None, None, {}) == ("cpu",)


@pytest.mark.usefixtures("four_gpus")
def test_workers_mean_the_cpu_unless_gpus_are_named() -> None:
    assert resolve(None, 3, {}) == ("cpu",) * 3
    assert resolve(["none"], 2, {}) == ("cpu",) * 2
    assert resolve(["0", "1"], 2, {}) == ("0", "1")
    with pytest.raises(ConfigError, match="each GPU has one worker"):
        resolve(["0", "1"], 3, {})
    with pytest.raises(ConfigError, match="at least 1"):
        resolve(None, 0, {})


def test_a_node_uses_what_slurm_gave_it() -> None:
    assert node_gpus(2, {"CUDA_VISIBLE_DEVICES": "2,3"}) == ("2", "3")
    assert node_gpus(2, {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b,GPU-c"}) == ("GPU-a", "GPU-b")
    assert node_gpus(2, {}) == ("0", "1")
    with pytest.raises(ConfigError, match="2 workers need 2 GPUs, but CUDA_VISIBLE_DEVICES='0'"):
        node_gpus(2, {"CUDA_VISIBLE_DEVICES": "0"})
