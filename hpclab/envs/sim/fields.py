"""Which derived quantities of a model depend on what, for both backends."""

from __future__ import annotations

import mujoco

KINEMATIC_FIELDS = frozenset(
    {
        *("xpos", "xquat", "xmat", "xipos", "ximat", "xanchor", "xaxis", "geom_xpos", "geom_xmat"),
        *("site_xpos", "site_xmat", "cam_xpos", "cam_xmat", "subtree_com", "cdof", "cinert", "cvel", "cdof_dot"),
    }
)
"""MjData fields of position and velocity, which `Sim.forward` refreshes."""

DYNAMIC_FIELDS = frozenset(
    {
        *("qacc", "qacc_smooth", "actuator_force", "qfrc_actuator", "qfrc_bias", "qfrc_passive", "qfrc_constraint"),
        *("qfrc_smooth", "actuator_length", "actuator_velocity"),
    }
)
"""MjData fields refreshed by `Sim.step` alone."""


def check_field(name: str) -> None:
    """Raise ValueError unless `name` is a field that both backends compute in every step."""
    if name not in KINEMATIC_FIELDS | DYNAMIC_FIELDS:
        known = ", ".join(sorted(KINEMATIC_FIELDS | DYNAMIC_FIELDS))
        raise ValueError(f"{name!r} is not a derived field of the simulation; there are {known}")


def sensor_columns(model: mujoco.MjModel, name: str) -> slice:
    """Return where a named sensor stands in sensordata.

    Raises:
        ValueError: the model has no such sensor.
    """
    index = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SENSOR, name)
    if index < 0:
        known = ", ".join(model.sensor(i).name for i in range(model.nsensor)) or "none"
        raise ValueError(f"the model has no sensor {name!r}; it has {known}")
    start = int(model.sensor_adr[index])
    return slice(start, start + int(model.sensor_dim[index]))


def kinematic_columns(model: mujoco.MjModel) -> tuple[list[slice], list[slice]]:
    """Split sensordata into the columns that `forward` refreshes and those that keep the last substep's value.

    The second kind are sensors of acceleration and all contact sensors. Neighbours are merged into one slice.
    """
    fresh: list[slice] = []
    held: list[slice] = []
    for i in range(model.nsensor):
        dynamic = (
            model.sensor_needstage[i] > mujoco.mjtStage.mjSTAGE_VEL.value
            or model.sensor_type[i] == mujoco.mjtSensor.mjSENS_CONTACT
        )
        start, stop = int(model.sensor_adr[i]), int(model.sensor_adr[i] + model.sensor_dim[i])
        runs = held if dynamic else fresh
        if runs and runs[-1].stop == start:
            runs[-1] = slice(runs[-1].start, stop)
        else:
            runs.append(slice(start, stop))
    return fresh, held
