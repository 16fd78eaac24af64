"""The files of a test cluster, from its settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from slurm_lab import cgroups, requirements
from slurm_lab.config_files import cgroup_conf, gres_conf, hosts_file, slurm_conf, sshd_config
from slurm_lab.processes import environment
from slurm_lab.requirements import check_state_folder, lacking
from slurm_lab.settings import ClusterError, Layout, Settings, default_state, load_settings, save_settings

LAYOUT = Layout(Path("/tmp/some-cluster"))


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines()]


def test_slurm_conf_follows_the_settings() -> None:
    settings = Settings(
        nodes=3, cpus=8, memory_mb=16_000, gpus=4, tracking="cgroup/v1", grace_s=7, extra=("SelectTypeX=1",)
    )
    conf = lines(slurm_conf(settings, LAYOUT))
    assert "NodeName=n[1-3] CPUs=8 RealMemory=16000 Gres=gpu:4 State=UNKNOWN" in conf
    assert "ProctrackType=proctrack/cgroup" in conf
    assert "DefMemPerCPU=2000" in conf
    assert "SlurmctldParameters=preempt_send_user_signal" in conf
    assert any(line.startswith("PartitionName=low ") and "GraceTime=7" in line for line in conf)
    assert "SelectTypeX=1" in conf


def test_every_file_stays_in_the_state_folder() -> None:
    conf = slurm_conf(Settings(), LAYOUT)
    for key in (
        "StateSaveLocation",
        "SlurmdSpoolDir",
        "SlurmctldPidFile",
        "SlurmdPidFile",
        "SlurmctldLogFile",
        "SlurmdLogFile",
    ):
        assert f"{key}={LAYOUT.state}/" in conf
    for key in ("HostKey", "AuthorizedKeysFile"):
        assert f"{key} {LAYOUT.state}/" in sshd_config(LAYOUT)


def test_plain_preemption_and_linuxproc_leave_their_lines_out() -> None:
    conf = slurm_conf(Settings(tracking="linuxproc", preempt_notice="term", gpus=0, nodes=1), LAYOUT)
    assert "preempt_send_user_signal" not in conf
    assert "ProctrackType=proctrack/linuxproc" in conf
    assert "NodeName=n1 CPUs=32 RealMemory=128000  State=UNKNOWN" in conf
    assert gres_conf(Settings(gpus=0), LAYOUT) == ""
    assert "CgroupPlugin" not in cgroup_conf(Settings(tracking="linuxproc"))


@pytest.mark.parametrize(("gpus", "devices"), [(1, "fakegpu0"), (4, "fakegpu[0-3]")])
def test_gres_conf_names_the_fake_devices(gpus: int, devices: str) -> None:
    expected = f"NodeName=n[1-2] Name=gpu File=/tmp/some-cluster/dev/{devices}\n"
    assert gres_conf(Settings(gpus=gpus), LAYOUT) == expected


def test_cgroup_conf_of_either_version() -> None:
    assert "CgroupPlugin=cgroup/v1" in cgroup_conf(Settings(tracking="cgroup/v1"))
    v2 = lines(cgroup_conf(Settings(tracking="cgroup/v2")))
    assert {"CgroupPlugin=cgroup/v2", "IgnoreSystemd=yes"} <= set(v2)


def test_hosts_have_distinct_addresses() -> None:
    settings = Settings(nodes=200)
    assert len(set(settings.addresses.values())) == 201
    assert "10.77.0.2 n2" in lines(hosts_file(settings))


def test_settings_survive_the_state_folder(tmp_path: Path) -> None:
    settings = Settings(nodes=5, accounting=True, extra=("A=1", "B=2"))
    save_settings(Layout(tmp_path), settings)
    assert load_settings(Layout(tmp_path)) == settings


def test_without_a_cluster_the_next_action_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="start one with: up"):
        load_settings(Layout(tmp_path / "none"))


def test_two_clusters_have_two_identities() -> None:
    assert LAYOUT.identity != Layout(Path("/tmp/other")).identity


def test_environment_drops_an_outer_cluster() -> None:
    around = {"SLURM_JOB_ID": "7", "SBATCH_PARTITION": "x", "SLURM_CONF": "/etc/other", "HOME": "/root", "PATH": "/bin"}
    inside = environment(LAYOUT, "n1", around)
    assert not any(name.startswith(("SLURM", "SBATCH")) for name in inside)
    assert inside["HOME"] == "/root"
    assert "/usr/sbin" in inside["PATH"].split(":")


@pytest.mark.parametrize("state", ["/run/x", "/dev/shm/x", "/tmp/with blank", "/tmp/50%"])
def test_a_state_folder_the_hosts_cannot_use_is_refused(state: str) -> None:
    with pytest.raises(ClusterError, match="--state"):
        check_state_folder(Layout(Path(state)))


def test_somebody_elses_folder_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years")
    with pytest.raises(ClusterError, match="not a cluster's"):
        check_state_folder(Layout(tmp_path))
    assert (tmp_path / "thesis.tex").exists()


def test_another_users_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements.os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(ClusterError, match="another user"):
        check_state_folder(Layout(tmp_path))


def test_missing_packages_are_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        requirements.shutil, "which", lambda program, path: None if program in ("slurmd", "ip") else program
    )
    monkeypatch.setattr(requirements, "plugin_installed", lambda name: True)
    assert lacking() == (
        "the test cluster lacks iproute2, slurmd; on Debian: apt-get install --no-install-recommends iproute2 slurmd"
    )


def test_not_root_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "missing_packages", lambda accounting: [])
    monkeypatch.setattr(requirements.os, "geteuid", lambda: 1000)
    assert "needs root" in str(lacking())


@pytest.mark.parametrize(
    ("files", "tracking"),
    [
        (["freezer/cgroup.procs"], "cgroup/v1"),
        (["cgroup.controllers"], "cgroup/v2"),
        (["memory/cgroup.procs"], "linuxproc"),
        ([], "linuxproc"),
    ],
)
def test_tracking_is_what_the_machine_offers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], tracking: str
) -> None:
    monkeypatch.setattr(cgroups, "plugin_installed", lambda name: True)
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert cgroups.detect_tracking(tmp_path) == tracking


def test_tracking_needs_slurms_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cgroup.controllers").touch()
    monkeypatch.setattr(cgroups, "plugin_installed", lambda name: False)
    assert cgroups.detect_tracking(tmp_path) == "linuxproc"


def test_state_folder_by_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HPCLAB_CLUSTER", str(tmp_path))
    assert default_state() == tmp_path
