"""What a simulation warned of."""

from hpclab.envs.sim.sim import Sim


def warned(sim: Sim) -> dict[str, int]:
    """Return the warnings since the last call that there were."""
    return {name: int(count) for name, count in sim.read_diagnostics().items() if count}
