"""Every setting of a run: its default, unit, bound and source. YAML files state differences only."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from hpclab.config.algorithms import AnyAlgorithm, PPOSection
from hpclab.config.models import ActorSection, CriticSection
from hpclab.config.sbatch import parse_sbatch_options
from hpclab.config.section import Count, FilePath, Line, Positive, Section, inconsistent
from hpclab.config.units import parse_budget, parse_memory_mb, parse_walltime_min

Budget = Annotated[int | Literal["unlimited"], BeforeValidator(parse_budget, json_schema_input_type=int | str)]


def _plain_name(value: str) -> str:
    if value in (".", "..") or "/" in value:
        raise ValueError("must be a plain folder name, without '/'")
    return value


class RunSection(Section):
    """The run itself: where it lives and when it ends."""

    name: Annotated[Line, AfterValidator(_plain_name)] | None = None
    """Folder name of the run under `root`; the config file's stem when not given."""
    root: Line = "runs"
    """Folder that holds runs; shared between nodes on a cluster."""
    max_iterations: Count = 30_000
    """Iterations after which the run is complete; absolute, so a resumed run never adds any."""
    max_env_steps: Count | None = None
    """Environment steps over all ranks after which the run is complete, whichever limit comes first."""
    save_interval: Count = 50
    """Iterations between checkpoints. Source: mjlab 1.6.0."""
    hang_timeout_s: Positive | None = 1800.0
    """Without a finished iteration for this long, every rank writes its stacks and the job ends as crashed [s]; null:
    never. The first iteration, which compiles, has an hour."""
    cuda_graphs: bool = True
    """Capture the rollout and the update in CUDA graphs, which is faster and computes the same; off for debugging."""
    keep_last: Count | None = None
    """Checkpoints to keep, newest first; all when not given."""
    keep_every: Count | None = None
    """With `keep_last`: also keep the checkpoints at multiples of this many iterations."""
    keep_best: str | None = None
    """With `keep_last`: also keep the checkpoint with the highest value of this metric (e.g. Train/mean_reward)."""
    audit_interval: Count | None = 50
    """Iterations between comparisons of the training state over ranks; null: never."""
    audit: Literal["error", "warn"] = "error"
    """What follows when ranks that should hold the same do not: the run ends, or the logs say so."""

    @model_validator(mode="after")
    def _keeping(self) -> Self:
        for key in ("keep_every", "keep_best"):
            if getattr(self, key) is not None and self.keep_last is None:
                raise inconsistent(
                    f"run.{key}", "keeps nothing more: every checkpoint is kept unless run.keep_last is given"
                )
        return self


class EnvSection(Section):
    """The simulated environments of each rank."""

    num_envs: Count = 4096
    """Environments; of each rank or of the whole run, by `num_envs_scope`. Source: mjlab 1.6.0."""
    num_envs_scope: Literal["per_rank", "global"] = "per_rank"
    """per_rank: every rank runs `num_envs`. global: rank r of W runs num_envs // W, plus one if r < num_envs % W."""
    backend: Literal["auto", "mujoco", "warp"] = "auto"
    """Physics: mujoco (C, CPU) or warp (mujoco-warp). auto: warp on CUDA, mujoco on the CPU."""
    threads: Count | None = None
    """CPU threads of the mujoco backend per rank; usable cores divided by the ranks of the node when not given."""
    motion: FilePath | None = None
    """For tasks that follow a motion: its npz file, in place of the task's own; relative to the working folder."""
    njmax: Count | None = None
    """Constraint rows of each world on the warp backend; the task's when not given. `hpclab bench tune` measures it."""
    nconmax: Count | None = None
    """Contacts of each world, on average, on the warp backend; the task's when not given."""


class SyncSection(Section):
    """What ranks share. A key that is not given follows the preset; see `resolved`."""

    preset: Literal["mjlab", "global"] = "mjlab"
    """mjlab: the semantics of mjlab 1.6.0 + RSL-RL 5.4.2, exactly. global: one consistent training state."""
    normalizer: Literal["local", "global"] | None = None
    """local: each rank's own moments. global: merged exactly over all ranks, once per iteration."""
    advantage: Literal["local", "global", "mini_batch"] | None = None
    """Advantages normalised over a rank's rollout, over all ranks' rollouts, or over each rank's mini-batch."""
    learning_rate: Literal["broadcast", "replicated"] | None = None
    """Adaptive KL: rank 0 decides and broadcasts, or every rank decides the same from the reduced KL."""
    curriculum: Literal["local", "rank0", "global"] | None = None
    """Curricula decide once per iteration from each rank's own statistics, from rank 0's, or from all ranks'."""
    rnd_target: Literal["local", "broadcast"] | None = None
    """The random network of `algorithm.rnd`: each rank's own, or rank 0's."""
    metrics: Literal["rank0", "global"] | None = None
    """Logged metrics: rank 0's own, or reduced over all ranks."""
    checkpoint: Literal["rank0", "sharded"] | None = None
    """rank0: rank 0's state; a resume starts the other ranks' environments anew. sharded: every rank's, bit for bit."""

    def resolved(self) -> SyncSection:
        """Return a copy with every key set: the preset's value where none was given."""
        values = SYNC_PRESETS[self.preset] | self.model_dump(exclude_none=True)
        return SyncSection(**values)


SYNC_PRESETS: dict[str, dict[str, Any]] = {
    "mjlab": {
        "normalizer": "local",
        "advantage": "local",
        "learning_rate": "broadcast",
        "curriculum": "local",
        "rnd_target": "local",
        "metrics": "rank0",
        "checkpoint": "rank0",
    },
    "global": {
        "normalizer": "global",
        "advantage": "global",
        "learning_rate": "replicated",
        "curriculum": "global",
        "rnd_target": "broadcast",
        "metrics": "global",
        "checkpoint": "sharded",
    },
}


class LaunchSection(Section):
    """How many workers, on what."""

    num_nodes: Count = 1
    """Nodes of a submitted job."""
    gpus_per_node: Count | None = None
    """GPUs, and so workers, of each node; the profile's value when not given."""
    cpu_workers_per_node: Count | None = None
    """CPU workers of each node, in place of GPU workers."""
    process_group_timeout_s: Positive | None = None
    """A collective that takes longer than this fails the run [s]. null: ten minutes longer than the watchdog of
    `run.hang_timeout_s` waits, which ends a hang with the stacks of all ranks; a shorter one would come before it."""


Agents = Literal["tasks", "ssh", "local"]


class RequeueSection(Section):
    """How often a run comes back by itself, by what ended the attempt; counted over all attempts, never reset."""

    preempted: Budget = "unlimited"
    """Requeues after a preemption, or a notice to save that nobody explains."""
    timeout: Budget = "unlimited"
    """Requeues at the end of the walltime."""
    node_failure: Budget = 5
    """Requeues after a node was lost."""
    crashed: Budget = 1
    """Requeues after a rank failed, was killed or hung."""
    no_progress: Count = 3
    """Attempts in a row that finish no new iteration, after which the run ends whatever the cause."""


class SlurmSection(Section):
    """What is asked of Slurm. Site profiles (slurm/profiles/NAME.yaml) hold the same keys."""

    partition: Line | None = None
    """Partition; the cluster's default when not given."""
    account: Line | None = None
    """Account that pays for the job."""
    qos: Line | None = None
    """Quality of service."""
    constraint: Line | None = None
    """Features that nodes must have."""
    reservation: Line | None = None
    """Reservation to run in."""
    exclude: Line | None = None
    """Host list that the job must not use."""
    gpus_per_node: Count | None = None
    """GPUs of one node of this site; used where `launch.gpus_per_node` is not given."""
    gres: Line | None = None
    """Generic resources in Slurm's words, in place of --gpus-per-node (e.g. gpu:a100:4)."""
    time: Annotated[int, BeforeValidator(parse_walltime_min, json_schema_input_type=int | str), Field(ge=1)] = 1440
    """Walltime of one attempt [min]; reads 90, 12:00:00, 1-12:00:00, 36h, 1.5d."""
    memory: Annotated[int, BeforeValidator(parse_memory_mb, json_schema_input_type=int | str), Field(ge=1)] | None = (
        None
    )
    """Memory of a node [MB]; reads 64G, 64GiB, 4096M; the partition's default when not given."""
    cpus_per_worker: Count = 8
    """CPU cores for each worker."""
    signal_lead_s: Count = 120
    """How long before the walltime Slurm sends the notice to save [s]."""
    requeue: RequeueSection = RequeueSection()
    """How often a run comes back by itself."""
    agents: Agents = "tasks"
    """How a job gets to its nodes. tasks: srun starts one task on each. ssh: the first node reaches the others by ssh,
    without srun. local: one node, neither."""
    mail_user: Line | None = None
    """Address for mail about the job."""
    mail_type: Line | None = None
    """Events that send mail (e.g. END,FAIL)."""
    setup: FilePath | None = None
    """Shell script that the job sources before its workers start; relative to the working folder."""
    command_prefix: Line | None = None
    """Shell words before each node's Python, to run it in a container (e.g. apptainer exec --nv image.sif)."""
    max_parallel: Count | None = None
    """Members of a sweep that run at once; as many as the cluster lets when not given."""
    extra: Annotated[dict[str, str | int | bool], AfterValidator(parse_sbatch_options)] = Field({})
    """Any further sbatch option, by its long name without dashes; true for one without a value, false for none."""


class MetricsSection(Section):
    """Where the numbers of a run go, besides metrics.jsonl."""

    tensorboard: bool = True
    """Write TensorBoard event files."""
    wandb_project: str | None = None
    """Log to this Weights & Biases project; needs the `wandb` extra."""


class RunConfig(Section):
    """One run, complete."""

    task: str
    """A name that `hpclab tasks` lists."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 42
    """Base of every random stream, with rank and purpose; rank r uses seed + r under `sync.preset: mjlab`."""
    run: RunSection = RunSection()
    env: EnvSection = EnvSection()
    algorithm: AnyAlgorithm = PPOSection()
    actor: ActorSection = ActorSection()
    critic: CriticSection = CriticSection()
    sync: SyncSection = SyncSection()
    launch: LaunchSection = LaunchSection()
    slurm: SlurmSection = SlurmSection()
    metrics: MetricsSection = MetricsSection()

    @property
    def recurrent(self) -> bool:
        """Whether a network remembers: mini-batches are then made of whole environments."""
        return self.actor.rnn is not None or self.critic.rnn is not None

    @model_validator(mode="before")
    @classmethod
    def _ppo_when_not_named(cls, values: Any) -> Any:
        algorithm = values.get("algorithm") if isinstance(values, dict) else None
        if isinstance(algorithm, dict) and "name" not in algorithm:
            return values | {"algorithm": {"name": "ppo"} | algorithm}
        return values

    @model_validator(mode="after")
    def _symmetric(self) -> Self:
        if not isinstance(self.algorithm, PPOSection) or self.algorithm.symmetry is None:
            return self
        if self.recurrent:
            raise inconsistent("algorithm.symmetry", "does not work with recurrent networks; leave out one of the two")
        low, high = self.actor.action_range
        if self.actor.distribution == "beta" and low != -high:
            raise inconsistent("actor.action_range", "must be as far to both sides of 0 for algorithm.symmetry")
        return self

    @model_validator(mode="after")
    def _enough_samples(self) -> Self:
        if not isinstance(self.algorithm, PPOSection) or self.env.num_envs_scope == "global":
            return self
        samples = self.env.num_envs * (1 if self.recurrent else self.algorithm.num_steps_per_env)
        if samples < self.algorithm.num_mini_batches:
            what = "environments to recurrent networks" if self.recurrent else "samples an iteration"
            raise inconsistent(
                "env.num_envs",
                f"{self.env.num_envs} gives {samples} {what}, fewer than algorithm.num_mini_batches="
                f"{self.algorithm.num_mini_batches}; raise env.num_envs or lower algorithm.num_mini_batches",
            )
        return self

    @model_validator(mode="after")
    def _launchable(self) -> Self:
        if self.launch.gpus_per_node is not None and self.launch.cpu_workers_per_node is not None:
            raise inconsistent("launch.cpu_workers_per_node", "excludes launch.gpus_per_node; give one of the two")
        patience_s, hang_s = self.launch.process_group_timeout_s, self.run.hang_timeout_s
        if patience_s is not None and hang_s is not None and patience_s <= hang_s:
            raise inconsistent(
                "launch.process_group_timeout_s",
                f"{patience_s:g} would end a hang without stacks, before run.hang_timeout_s={hang_s:g} does with them; "
                "lower run.hang_timeout_s, or set this to null",
            )
        return self
