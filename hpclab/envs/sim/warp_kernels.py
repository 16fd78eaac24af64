"""Small warp kernels around mujoco-warp's own."""

# mypy: ignore-errors
# Kernels are warp's language, not Python's. No postponed annotations: warp reads the types of the arguments.

import warp as wp


@wp.kernel
def record(sensordata: wp.array2d(dtype=float), substep: int, history: wp.array3d(dtype=float)):
    """Store the sensors of one substep."""
    world, column = wp.tid()
    history[world, substep, column] = sensordata[world, column]


@wp.kernel
def find_diverged(
    qpos: wp.array2d(dtype=float),
    qvel: wp.array2d(dtype=float),
    ctrl: wp.array2d(dtype=float),
    limit: float,
    ctrl_limit: wp.array(dtype=float),
    diverged: wp.array(dtype=bool),
    count: wp.array(dtype=int),
):
    """Flag worlds whose state or actuator input is not a number or beyond its limit, and count the newly flagged."""
    world = wp.tid()
    bad = wp.int32(0)
    for i in range(qpos.shape[1]):
        if not (wp.abs(qpos[world, i]) < limit):  # also true for NaN
            bad = 1
    for i in range(qvel.shape[1]):
        if not (wp.abs(qvel[world, i]) < limit):
            bad = 1
    for i in range(ctrl.shape[1]):  # the ranges of inputs and forces hide it from the state
        if not (wp.abs(ctrl[world, i]) <= ctrl_limit[i]):
            bad = 1
    if bad == 1 and not diverged[world]:
        diverged[world] = True
        wp.atomic_add(count, 0, 1)


@wp.kernel
def restore_columns(
    columns: wp.array(dtype=int),
    backup: wp.array2d(dtype=float),
    sensordata: wp.array2d(dtype=float),
):
    """Put the listed columns of sensordata back."""
    world, i = wp.tid()
    sensordata[world, columns[i]] = backup[world, columns[i]]
