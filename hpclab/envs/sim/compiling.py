"""Compile what a simulation runs before anything waits for it."""

from __future__ import annotations

from hpclab.envs.sim.sim import Sim


def compile_kernels(sim: Sim) -> None:
    """Run once all that a simulation runs in training, and put its state back: afterwards nothing of it compiles."""
    state = sim.state_dict()
    sim.step()
    sim.forward()
    sim.load_state_dict(state)
    sim.read_diagnostics()  # what that one step may have counted
