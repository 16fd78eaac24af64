from __future__ import annotations

from pathlib import Path

import pytest

from hpclab.config.load import dump_config, load_config
from hpclab.config.schema import RunConfig
from hpclab.errors import ConfigError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


ONE_LINE = "must be one line of text, not empty; leave it out for none"


def write(text: str) -> Path:
    path = Path("run.yaml")
    path.write_text(text)
    return path


def problems(text: str, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(write(text), overrides)
    assert caught.value.exit_code == 2
    return str(caught.value).split("\n")


def test_a_file_states_differences_only(folder: Path) -> None:
    config = load_config(write("task: cartpole-balance\nalgorithm:\n  learning_rate: 1e-4\n  gamma: 1\n"))
    assert config.algorithm.learning_rate == 1e-4
    assert config.algorithm.gamma == 1.0
    assert config.model_copy(update={"algorithm": RunConfig(task="x").algorithm}) == RunConfig(task="cartpole-balance")


def test_precedence(folder: Path) -> None:
    profile = {"partition": "profile", "account": "profile", "qos": "profile", "extra": {"a": 1, "b": 1}}
    path = write("task: cartpole-balance\nslurm: {account: file, qos: file, extra: {b: 2}}\n")
    slurm = load_config(path, ["slurm.qos=line"], profile=profile).slurm
    assert (slurm.partition, slurm.account, slurm.qos) == ("profile", "file", "line")
    assert slurm.extra == {"a": 1, "b": 2}
    assert slurm.time == 1440
    assert profile["account"] == "profile"


@pytest.mark.parametrize(
    ("override", "section", "key", "value"),
    [
        ("algorithm.learning_rate=1e-3", "algorithm", "learning_rate", 1e-3),
        ("actor.hidden_dims=[32, 16]", "actor", "hidden_dims", (32, 16)),
        ("run.name=no", "run", "name", "no"),
        ("run.name=a=b", "run", "name", "a=b"),
        ("run.name=", "run", "name", None),
        ("slurm.time=12:00:00", "slurm", "time", 720),
        ("slurm={time: 1-00:00:00}", "slurm", "time", 1440),
        ("slurm.memory=64G", "slurm", "memory", 65536),
        ("slurm.extra.licenses=x", "slurm", "extra", {"licenses": "x"}),
    ],
)
def test_overrides(folder: Path, override: str, section: str, key: str, value: object) -> None:
    config = load_config(write("task: cartpole-balance\nactor: {hidden_dims: [8]}\n"), [override])
    assert getattr(getattr(config, section), key) == value


def test_the_last_override_wins_and_mends_the_file(folder: Path) -> None:
    config = load_config(write("task: cartpole-balance\nseed: x\n"), ["seed=1", "seed=2"])
    assert config.seed == 2


@pytest.mark.parametrize("key", ["env.motion", "slurm.setup", "algorithm.teacher"])
def test_a_file_is_the_same_one_in_any_working_folder(folder: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    section, _, name = key.partition(".")
    monkeypatch.setenv("HOME", str(folder / "home"))
    path = write("task: cartpole-balance\nalgorithm: {name: distillation, teacher: t}\n")
    for given, meant in [("a/../b c", folder / "b c"), ("~/b", folder / "home" / "b"), ("/x/b", Path("/x/b"))]:
        config = load_config(path, [f"{key}={given}"])
        assert getattr(getattr(config, section), name) == str(meant)


def test_an_empty_section_changes_nothing(folder: Path) -> None:
    path = write("task: cartpole-balance\nalgorithm:\nslurm:\n")
    assert load_config(path, profile={"partition": "p"}).slurm.partition == "p"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("algorithm:\n  clip_parm: 1", "run.yaml:3: algorithm: unknown key 'clip_parm'; did you mean 'clip_param'?"),
        ("algoritm: {}", "run.yaml:2: unknown key 'algoritm'; did you mean 'algorithm'?"),
        ("num_envs: 3", "run.yaml:2: unknown key 'num_envs'; did you mean 'env.num_envs'?"),
        (
            "env: {x: 3}",
            "run.yaml:2: env: unknown key 'x'; "
            "valid keys: backend, motion, nconmax, njmax, num_envs, num_envs_scope, threads",
        ),
        ("seed: 1e6", "run.yaml:2: seed: must be an integer, is 1000000.0; write 1000000"),
        ("seed: 1.5", "run.yaml:2: seed: must be an integer, is 1.5"),
        ("seed: '5'", "run.yaml:2: seed: must be an integer, is the text '5'; write 5"),
        ("seed: 30_000", "run.yaml:2: seed: must be an integer, is the text '30_000'; write 30000"),
        ("seed: true", "run.yaml:2: seed: must be an integer, is true"),
        ("seed: null", "run.yaml:2: seed: must be an integer, is null"),
        ("seed: -1", "run.yaml:2: seed: must be at least 0, is -1"),
        ("seed: {a: 1}", "run.yaml:2: seed: must be an integer, is a section of keys"),
        ("algorithm: {gamma: 1.5}", "run.yaml:2: algorithm.gamma: must be at most 1, is 1.5"),
        ("algorithm: {gamma: abc}", "run.yaml:2: algorithm.gamma: must be a number, is the text 'abc'"),
        ("algorithm: {learning_rate: 0}", "run.yaml:2: algorithm.learning_rate: must be above 0, is 0"),
        ("algorithm: {learning_rate: .nan}", "run.yaml:2: algorithm.learning_rate: must be a finite number, is nan"),
        (
            "algorithm: {schedule: adptive}",
            "run.yaml:2: algorithm.schedule: must be one of adaptive, fixed, is the text 'adptive'; "
            "did you mean 'adaptive'?",
        ),
        (
            "metrics: {tensorboard: no}",
            "run.yaml:2: metrics.tensorboard: must be true or false, is the text 'no'; write false",
        ),
        ("run: {root: 5}", "run.yaml:2: run.root: must be text, is 5; put it in quotes"),
        ('run: {name: "a\\tb"}', f"run.yaml:2: run.name: {ONE_LINE} (is the text 'a\\tb')"),
        ("slurm: {partition: ''}", f"run.yaml:2: slurm.partition: {ONE_LINE} (is the text '')"),
        ("slurm:\n  exclude: |\n    n1\n", f"run.yaml:3: slurm.exclude: {ONE_LINE} (is the text 'n1\\n')"),
        ("algorithm: {name: distillation, teacher: ''}", f"run.yaml:2: algorithm.teacher: {ONE_LINE} (is the text '')"),
        ("algorithm: {name: [ppo]}", "run.yaml:2: algorithm.name: must be one of ppo, distillation, is a list"),
        ("algorithm: {name: }", "run.yaml:2: algorithm.name: must be one of ppo, distillation, is null"),
        ("actor: {action_range: [0, 1, 2]}", "run.yaml:2: actor.action_range: must have 2 entries, has 3"),
        ("run: {name: a/b}", "run.yaml:2: run.name: must be a plain folder name, without '/' (is the text 'a/b')"),
        ("actor: {hidden_dims: 64}", "run.yaml:2: actor.hidden_dims: must be a list, is 64; write [64]"),
        ("actor:\n  hidden_dims:\n  - 64\n  - 0", "run.yaml:5: actor.hidden_dims.1: must be at least 1, is 0"),
        ("launch: 7", "run.yaml:2: launch: must be a section of keys, is 7"),
        (
            "slurm: {time: soon}",
            "run.yaml:2: slurm.time: not a walltime; write minutes (90), HH:MM:SS, D-HH:MM:SS, or 36h, 1.5d "
            "(is the text 'soon')",
        ),
        (
            "slurm: {extra: {a: 1.5}}",
            "run.yaml:2: slurm.extra.a: must be text or an integer or true or false, is 1.5",
        ),
        ("seed: 1\nseed: 2", "run.yaml:3: seed: key given twice, first on line 2; remove one"),
        (
            "env: {num_envs: 1}\nalgorithm:\n  num_mini_batches: 25",
            "run.yaml:2: env.num_envs: 1 gives 24 samples an iteration, fewer than algorithm.num_mini_batches=25; "
            "raise env.num_envs or lower algorithm.num_mini_batches",
        ),
    ],
)
def test_a_wrong_setting_is_one_line_with_place_key_and_remedy(folder: Path, text: str, problem: str) -> None:
    assert problems(f"task: cartpole-balance\n{text}\n") == [problem]


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("algorithm.learning_rate=fast", "algorithm.learning_rate=fast: must be a number, is the text 'fast'"),
        ("algorithm.clip_parm=1", "algorithm.clip_parm=1: unknown key 'clip_parm'; did you mean 'clip_param'?"),
        ("seed", "seed: is not an override; write key.sub=value"),
        ("=3", "=3: is not an override; write key.sub=value"),
        ("run..name=3", "run..name=3: is not an override; write key.sub=value"),
        ("seed.x=3", "seed.x=3: seed: must be an integer, is a section of keys"),
        ("task.x=3", "task.x=3: task is the text 'cartpole-balance', not a section of keys"),
        ("algorithm.gamma.x=3", "algorithm.gamma.x=3: algorithm.gamma: must be a number, is a section of keys"),
        ("env={num_envs: 0}", "env={num_envs: 0}: env.num_envs: must be at least 1, is 0"),
        ("run.name=[a\nb", "run.name=[a b: not YAML"),
        (
            "env.num_envs=1",
            "env.num_envs=1: 1 gives 24 samples an iteration, fewer than algorithm.num_mini_batches=30; "
            "raise env.num_envs or lower algorithm.num_mini_batches",
        ),
        (
            "task=cartpole-balnce",
            "task=cartpole-balnce: unknown task 'cartpole-balnce'; did you mean 'cartpole-balance'",
        ),
    ],
)
def test_a_wrong_override_is_one_line(folder: Path, override: str, problem: str) -> None:
    (found,) = problems("task: cartpole-balance\nalgorithm: {num_mini_batches: 30}\n", override)
    assert found.startswith(f"command line: {problem}")


def test_all_problems_are_reported_at_once_in_the_order_of_the_file(folder: Path) -> None:
    found = problems("seed: x\ntask: cartpole\nenv:\n  num_envs: 0\n  num_envs: 3\n", "x", "sync.preset=mjlb")
    assert [line.split(": ")[0] for line in found] == ["run.yaml:1", "run.yaml:2", "run.yaml:4", "run.yaml:5"] + [
        "command line"
    ] * 2


def test_an_unknown_task_lists_its_neighbours(folder: Path) -> None:
    (found,) = problems("# a comment\ntask: g1_velocity_flt\n")
    near = "'g1-velocity-flat' or 'go1-velocity-flat'"
    assert found == f"run.yaml:2: task: unknown task 'g1_velocity_flt'; did you mean {near}?"


def test_a_task_is_required(folder: Path) -> None:
    assert problems("seed: 1\n") == ["run.yaml: task: is required but not given; `hpclab tasks` lists what there is"]


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "null"])
def test_an_empty_file(folder: Path, text: str) -> None:
    assert problems(text) == ["run.yaml: is empty; write at least 'task: NAME'"]


@pytest.mark.parametrize(("text", "what"), [("- a\n", "a list"), ("just text", "the text 'just text'"), ("5", "5")])
def test_a_file_that_is_no_section(folder: Path, text: str, what: str) -> None:
    assert problems(text) == [f"run.yaml: must be a section of keys, is {what}"]


def test_files_that_cannot_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("task: cartpole-balance\n")
    Path("configs").mkdir()
    Path("configs/cartpole.yaml").write_text("task: cartpole-balance\n")
    Path("latin.yaml").write_bytes(b"task: x\nrun: {name: caf\xe9}\n")
    for path, message in [
        ("rum.yaml", "rum.yaml: no such file; did you mean 'run.yaml'?"),
        ("cartpole.yaml", "cartpole.yaml: no such file; did you mean 'configs/cartpole.yaml'?"),
        ("nowhere/run.yaml", "nowhere/run.yaml: no such file"),
        (".", ".: is a folder; name a YAML file; valid configs: configs/cartpole.yaml, latin.yaml, run.yaml"),
        ("run.yaml/x.yaml", "run.yaml/x.yaml: cannot be read: Not a directory"),
        ("latin.yaml", "latin.yaml:2: is not UTF-8 text; save it as UTF-8"),
    ]:
        with pytest.raises(ConfigError) as caught:
            load_config(Path(path))
        assert str(caught.value) == message

    def refuse(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(ConfigError, match=r"^run\.yaml: cannot be read: Permission denied$"):
        load_config(Path("run.yaml"))


def test_a_byte_order_mark_is_skipped(folder: Path) -> None:
    assert load_config(write("\ufefftask: cartpole-balance\n")).task == "cartpole-balance"


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["run.name='1e3'", "slurm.account='007'", "slurm.extra={a: no, b: 'true', c: true, d: 3}", "algorithm.gamma=1"],
        ["slurm.time=1.5d", "slurm.memory=64GiB", "actor.hidden_dims=[]", "algorithm.learning_rate=3e-7"],
        ["run.root='a: b # c'", "slurm.mail_user=é@x", "metrics.wandb_project='a\n\nb'"],
    ],
)
def test_what_is_dumped_reads_back_equal(folder: Path, overrides: list[str]) -> None:
    config = load_config(write("task: cartpole-balance\n"), overrides)
    assert load_config(write(dump_config(config))) == config


def test_shipped_configs() -> None:
    cartpole, g1 = (load_config(ROOT / "configs" / name) for name in ("cartpole.yaml", "g1.yaml"))
    assert (cartpole.task, cartpole.sync.preset) == ("cartpole-balance", "global")
    assert (g1.task, g1.env.num_envs, g1.run.max_iterations, g1.sync.preset) == (
        "g1-velocity-flat",
        4096,
        30_000,
        "global",
    )
