from __future__ import annotations

import pytest

from hpclab.config.sbatch import parse_sbatch_options
from hpclab.config.schema import SlurmSection


def test_names_are_read_as_people_write_them() -> None:
    given = {"hint": "nomultithread", "exclusive": True, "slurm_comment": "a b", "cluster_constraint": "x", "nice": 100}
    wanted = {"hint": "nomultithread", "exclusive": True, "comment": "a b", "cluster-constraint": "x", "nice": 100}
    assert parse_sbatch_options(given) == wanted
    assert SlurmSection(extra=given).extra == wanted


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("time", "1:00:00", r"time has a setting of its own: slurm\.time"),
        ("slurm_mail_user", "a@b", r"slurm_mail_user has a setting of its own: slurm\.mail_user"),
        ("nodes", 2, r"nodes has a setting of its own: launch\.num_nodes"),
        ("array", "0-3", "array has a setting of its own: --sweep"),
        ("ntasks_per_node", 4, "ntasks_per_node cannot be set: each node runs one task"),
        ("output", "x", "output cannot be set"),
        ("--nice", 1, "'--nice' is no long option"),
        ("N", 1, "'N' is no long option"),
        ("", 1, "'' is no long option"),
        ("comment", "a\n#SBATCH --uid=0", "comment must be one line"),
    ],
)
def test_what_cannot_be_passed_on(name: str, value: str | int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_sbatch_options({name: value})
