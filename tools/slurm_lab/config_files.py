"""slurm.conf, gres.conf, sshd_config, ...: settings -> text."""

from __future__ import annotations

import os
import subprocess

from slurm_lab.settings import CONTROLLER, Layout, Settings


def slurm_conf(settings: Settings, layout: Layout) -> str:
    """Render slurm.conf: partitions to preempt each other, and short periods so that tests need not wait."""
    nodes = node_list(settings)
    gres = f"Gres=gpu:{settings.gpus}" if settings.gpus else ""
    notice = "SlurmctldParameters=preempt_send_user_signal" if settings.preempt_notice == "user-signal" else ""
    storage = "accounting_storage/slurmdbd" if settings.accounting else "accounting_storage/none"
    host = f"AccountingStorageHost={CONTROLLER}" if settings.accounting else ""
    extra = "\n".join(settings.extra)
    return f"""\
ClusterName=lab
SlurmctldHost={CONTROLLER}({settings.addresses[CONTROLLER]})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=cred_expire={settings.cred_expire_s}
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/{"linuxproc" if settings.tracking == "linuxproc" else "cgroup"}
TaskPlugin=task/{"cgroup" if settings.memory_cgroup else "none"}
JobAcctGatherType=jobacct_gather/none
AccountingStorageType={storage}
{host}
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU={settings.memory_mb // settings.cpus}
GresTypes=gpu
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0,sched_min_interval=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{notice}
JobRequeue=1
ReturnToService=2
SlurmdTimeout=10
SlurmctldTimeout=10
InactiveLimit=0
KillWait={settings.kill_wait_s}
UnkillableStepTimeout=30
MinJobAge=600
MaxArraySize=1001
StateSaveLocation={layout.controller_state}
SlurmdSpoolDir={layout.spool}/%n
SlurmctldPidFile={layout.run}/slurmctld.pid
SlurmdPidFile={layout.run}/slurmd-%n.pid
SlurmctldLogFile={layout.log}/slurmctld.log
SlurmdLogFile={layout.log}/slurmd-%n.log
SlurmctldDebug=verbose
SlurmdDebug=verbose
SlurmdParameters=config_overrides
NodeName={nodes} CPUs={settings.cpus} RealMemory={settings.memory_mb} {gres} State=UNKNOWN
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime={settings.grace_s} State=UP
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF State=UP
PartitionName=lownograce Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE GraceTime=0 State=UP
PartitionName=lowcancel Nodes=ALL PriorityTier=1 PreemptMode=CANCEL GraceTime={settings.grace_s} State=UP
{extra}
"""


def node_list(settings: Settings) -> str:
    """The compute nodes in Slurm's words: n1, or n[1-4]."""
    return "n1" if settings.nodes == 1 else f"n[1-{settings.nodes}]"


def gres_conf(settings: Settings, layout: Layout) -> str:
    if not settings.gpus:
        return ""
    devices = "fakegpu0" if settings.gpus == 1 else f"fakegpu[0-{settings.gpus - 1}]"
    return f"NodeName={node_list(settings)} Name=gpu File={layout.devices}/{devices}\n"


def cgroup_conf(settings: Settings) -> str:
    """Render cgroup.conf: tracking, and nothing is constrained but, where asked for, memory."""
    memory = "yes" if settings.memory_cgroup else "no"
    plugin = "" if settings.tracking == "linuxproc" else f"CgroupPlugin={settings.tracking}\n"
    # Slurm would ask systemd for a scope; the hosts here run no systemd.
    systemd = "IgnoreSystemd=yes\n" if settings.tracking == "cgroup/v2" else ""
    automount = "CgroupAutomount=no\n" if settings.tracking == "cgroup/v1" else ""
    return f"{plugin}{systemd}{automount}ConstrainCores=no\nConstrainDevices=no\nConstrainRAMSpace={memory}\n"


def slurmdbd_conf(layout: Layout) -> str:
    return f"""\
AuthType=auth/munge
DbdHost={CONTROLLER}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_acct
LogFile={layout.log}/slurmdbd.log
PidFile={layout.run}/slurmdbd.pid
"""


def hosts_file(settings: Settings) -> str:
    lines = [f"{address} {name}" for name, address in settings.addresses.items()]
    return "\n".join(["127.0.0.1 localhost", *lines]) + "\n"


def ssh_config(settings: Settings, layout: Layout) -> str:
    """Render what stands in for /etc/ssh/ssh_config on every host: `ssh n2` works without a question."""
    return f"""\
Host {" ".join(settings.addresses)}
    User root
    IdentityFile {layout.ssh}/user_key
    IdentitiesOnly yes
    UserKnownHostsFile {layout.ssh}/known_hosts
    StrictHostKeyChecking yes
    ConnectTimeout 5
"""


def sshd_config(layout: Layout) -> str:
    return f"""\
Port 22
ListenAddress 0.0.0.0
HostKey {layout.ssh}/host_key
PidFile none
AuthorizedKeysFile {layout.ssh}/user_key.pub
PermitRootLogin prohibit-password
PasswordAuthentication no
StrictModes no
UsePAM no
PrintMotd no
MaxStartups 100:30:200
Subsystem sftp internal-sftp
"""


def write_all(settings: Settings, layout: Layout) -> None:
    """Write every file that the hosts read, with fresh keys that only this cluster knows."""
    for folder in (
        *layout.folders(),
        layout.log,
        layout.slurm_etc,
        *(layout.spool / name for name in settings.addresses),
    ):
        folder.mkdir(parents=True, exist_ok=True)
    for index in range(settings.gpus):
        # A device that opens and reads as nothing: the node counts it, no program can use it.
        os.mknod(layout.devices / f"fakegpu{index}", 0o20666, os.makedev(1, 3))
    for name in ("user_key", "host_key"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test-cluster", "-f", str(layout.ssh / name)]
        subprocess.run(command, check=True)
    host_key = " ".join((layout.ssh / "host_key.pub").read_text().split()[:2])
    known_hosts = "".join(f"{name},{address} {host_key}\n" for name, address in settings.addresses.items())
    (layout.ssh / "known_hosts").write_text(known_hosts)
    (layout.ssh / "ssh_config").write_text(ssh_config(settings, layout))
    (layout.ssh / "sshd_config").write_text(sshd_config(layout))
    (layout.etc / "hosts").write_text(hosts_file(settings))
    (layout.slurm_etc / "slurm.conf").write_text(slurm_conf(settings, layout))
    (layout.slurm_etc / "gres.conf").write_text(gres_conf(settings, layout))
    (layout.slurm_etc / "cgroup.conf").write_text(cgroup_conf(settings))
    if settings.accounting:
        path = layout.slurm_etc / "slurmdbd.conf"
        path.touch(mode=0o600)
        path.write_text(slurmdbd_conf(layout))
    layout.munge_key.touch(mode=0o600)
    layout.munge_key.write_bytes(os.urandom(128))
