"""A real Slurm cluster of several hosts on one machine, for tests; the command is tools/slurm_cluster.py.

settings.py      what a cluster is made of, and where its files lie
requirements.py  what the machine must offer, said in one line when it does not
config_files.py  slurm.conf, gres.conf, sshd_config, ...: settings -> text
cgroups.py       one private cgroup namespace per host, so that Slurm tracks processes as on a production node
processes.py     find and end every process of a cluster
host.py          process 1 of a host: mounts, daemons, reaping
accounting.py    slurmdbd and its database, on the controller
cluster.py       up, down, exec, ps, crash, boot, logs
"""
