"""Physics on CPU threads: `mujoco.batch.Batch`, one float64 state row per world."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt
import torch
from mujoco.batch import Batch
from torch import Tensor

from hpclab.envs.sim.fields import KINEMATIC_FIELDS, check_field, kinematic_columns, sensor_columns
from hpclab.envs.sim.mujoco_log import silence_warnings
from hpclab.envs.sim.state import check_state

Float32 = npt.NDArray[np.float32]

_VELOCITY_STAGE = int(mujoco.mjtStage.mjSTAGE_VEL.value)
_NO_CONSTRAINTS = int(mujoco.mjtDisableBit.mjDSBL_CONTACT) | int(mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)
_FIRST_BAD, _LAST_BAD = int(mujoco.mjtWarning.mjWARN_BADQPOS), int(mujoco.mjtWarning.mjWARN_BADCTRL)
_WARNING_NAMES = {
    int(mujoco.mjtWarning.mjWARN_INERTIA): "singular_inertia",
    int(mujoco.mjtWarning.mjWARN_CONTACTFULL): "contact_overflow",
    int(mujoco.mjtWarning.mjWARN_CNSTRFULL): "constraint_overflow",
    int(mujoco.mjtWarning.mjWARN_BADQPOS): "bad_qpos",
    int(mujoco.mjtWarning.mjWARN_BADQVEL): "bad_qvel",
    int(mujoco.mjtWarning.mjWARN_BADQACC): "bad_qacc",
    int(mujoco.mjtWarning.mjWARN_BADCTRL): "bad_ctrl",
}


class MujocoSim:
    """`Sim` on the CPU. Results do not depend on the number of threads, and a reloaded state continues bit for bit.

    The float64 state rows of the batch are the truth; tensors are float32 copies, refreshed after each call.
    """

    def __init__(self, model: mujoco.MjModel, num_envs: int, *, num_substeps: int = 1, threads: int = 1) -> None:
        """Start `num_envs` worlds at the model's initial state.

        Args:
            model: compiled model; the batch copies it.
            num_envs: number of worlds N.
            num_substeps: physics substeps of one `step`.
            threads: threads that share the work, the caller's included.
        """
        silence_warnings()
        self.model = model
        self.num_envs = num_envs
        self.num_substeps = num_substeps
        self.device = torch.device("cpu")
        self._batch = Batch(model, num_envs, threads)
        self._initial_row = self._batch.state[0].copy()
        self._state_qpos = self._batch.bind("qpos")
        self._state_qvel = self._batch.bind("qvel")
        self._state_ctrl = self._batch.bind("ctrl")
        self._state_sensordata = self._batch.bind("sensordata") if model.nsensordata else np.zeros((num_envs, 0))
        self._disableflags = self._batch.expand("opt.disableflags")
        self._normal_flags = int(model.opt.disableflags)
        fresh, self._held = kinematic_columns(model)
        self._recorded: slice | None = None
        self._substep_sensordata = np.zeros((num_envs, num_substeps, model.nsensordata))
        self._one_sensordata = np.zeros((num_envs, 1, model.nsensordata))
        self._bad_counts = self._batch.warning[:, _FIRST_BAD : _LAST_BAD + 1, 1]
        self._bad_before = self._bad_counts.tobytes()
        self._reported = self._batch.warning[:, :, 1].sum(axis=0)

        # positions and velocities in one array, as they lie in a state row: one copy, one look at all that may diverge
        first = mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_TIME)
        self._state_moving = self._batch.state[:, first : first + model.nq + model.nv]
        self._moving = self._state_moving.astype(np.float32)
        self._live: dict[str, npt.NDArray[Any]] = {
            "qpos": self._moving[:, : model.nq],
            "qvel": self._moving[:, model.nq :],
            "ctrl": self._state_ctrl.astype(np.float32),
            "sensordata": np.zeros((num_envs, model.nsensordata), np.float32),
            "sensor_history": np.zeros((num_envs, num_substeps, model.nsensordata), np.float32),
            "diverged": np.zeros(num_envs, np.bool_),
        }
        self._qpos, self._qvel, self._ctrl = self._live["qpos"], self._live["qvel"], self._live["ctrl"]
        self._sensordata, self._history = self._live["sensordata"], self._live["sensor_history"]
        self._diverged = self._live["diverged"]
        self._fresh = [(self._state_sensordata[:, columns], self._sensordata[:, columns]) for columns in fresh]
        self.qpos, self.qvel, self.ctrl = (torch.from_numpy(a) for a in (self._qpos, self._qvel, self._ctrl))
        self.diverged = torch.from_numpy(self._diverged)
        self._fields: dict[str, tuple[npt.NDArray[Any], Float32]] = {}
        self._model_fields: dict[str, _ModelField] = {}

    @property
    def states(self) -> npt.NDArray[np.float64]:
        """The live (N, S) states from which MuJoCo continues exactly, `mjSTATE_INTEGRATION` of each world."""
        rows: npt.NDArray[np.float64] = self._batch.state
        return rows

    def sensor(self, name: str) -> Tensor:
        """Return the live (N, dim) view of one named sensor."""
        return torch.from_numpy(self._sensordata)[:, sensor_columns(self.model, name)]

    def sensor_history(self, name: str) -> Tensor:
        """Return the live (N, num_substeps, dim) values of one named sensor in each substep of the last `step`."""
        columns = sensor_columns(self.model, name)
        # all that lies between sensors asked for is kept with them: one copy takes less than several small ones
        known = self._recorded or columns
        self._recorded = slice(min(known.start, columns.start), max(known.stop, columns.stop))
        return torch.from_numpy(self._history)[:, :, columns]

    def field(self, name: str) -> Tensor:
        """Return the live (N, ...) tensor of a derived field; see `Sim.field`.

        Raises:
            ValueError: not a field of `fields.py`.
        """
        check_field(name)
        if name not in self._fields:
            source = self._batch.bind(name)
            self._fields[name] = (source, np.zeros(source.shape, np.float32))
            self._live[f"field/{name}"] = self._fields[name][1]
        return torch.from_numpy(self._fields[name][1])

    def model_field(self, name: str) -> Tensor:
        """Give a model field a value per world; see `Sim.model_field`.

        Raises:
            ValueError: MuJoCo has no such field, or it does not hold real numbers.
        """
        if name not in self._model_fields:
            values = self._batch.expand(name)
            if values.dtype != np.float64:
                raise ValueError(f"model field {name!r} holds {values.dtype}, not real numbers")
            self._model_fields[name] = _ModelField(values)
        return torch.from_numpy(self._model_fields[name].values32)

    def commit_model(self) -> None:
        """Make per-world model values take effect, with the constants that follow from them."""
        changed = [name for name, field in self._model_fields.items() if field.commit()]
        if any(name in mujoco.MjModel._setconst_inputs for name in changed):
            self._batch.set_const()

    def step(self, control: Callable[[], None] | None = None) -> None:
        """Advance every world by `num_substeps` substeps; see `Sim.step`."""
        if control is None:
            self._advance(self._history, self._substep_sensordata)
        else:
            for substep in range(self.num_substeps):
                control()
                self._advance(self._history[:, substep : substep + 1], self._one_sensordata)
                self._refresh_state()
        np.copyto(self._sensordata, self._state_sensordata, casting="same_kind")
        for source, live in self._fields.values():
            np.copyto(live, source, casting="same_kind")
        self._refresh_state()
        self._find_diverged()

    def _advance(self, history: Float32, scratch: npt.NDArray[np.float64]) -> None:
        """Simulate as many substeps as the (N, S, dim) history of their sensors is long, under the present `ctrl`."""
        np.copyto(self._state_ctrl, self._ctrl)
        # a world that MuJoCo auto-resets stops for the rest of this call
        record = {} if self._recorded is None else {"sensordata": scratch}
        self._batch.rollout(history.shape[1], record=list(record), out=record)
        if self._recorded is not None:
            np.copyto(history[:, :, self._recorded], scratch[:, :, self._recorded], casting="same_kind")

    def write_state(self, qpos: Tensor, qvel: Tensor, mask: Tensor) -> None:
        """Put worlds with `mask` True into a state; see `Sim.write_state`."""
        worlds = _indices(mask)
        if not worlds:
            return
        qpos32, qvel32 = qpos.numpy(), qvel.numpy()
        # one by one: seldom more than a few begin together, and an assignment by index takes longer than several plain
        for world in worlds:
            self._batch.state[world] = self._initial_row
            self._state_qpos[world] = qpos32[world]
            self._state_qvel[world] = qvel32[world]
            self._moving[world] = self._state_moving[world]
            for columns in self._held:
                self._sensordata[world, columns] = 0.0
            self._diverged[world] = False

    def add_velocity(self, delta: Tensor, mask: Tensor) -> None:
        """Add `delta` (N, nv) to the velocities of worlds with `mask` True."""
        worlds = _indices(mask)
        if not worlds:
            return
        delta32 = delta.numpy()
        for world in worlds:
            self._state_qvel[world] += delta32[world]
            self._qvel[world] = self._state_qvel[world]

    def forward(self) -> None:
        """Compute the quantities of position and velocity at the current state."""
        # half of this stage is finding contacts and building constraints, which no fresh quantity depends on
        self._disableflags.fill(self._normal_flags | _NO_CONSTRAINTS)
        try:
            self._batch.forward(stage=_VELOCITY_STAGE)
        finally:
            self._disableflags.fill(self._normal_flags)
        # the batch's MjData serve many worlds, so what this stage leaves out now holds another world's value
        for source, live in self._fresh:
            np.copyto(live, source, casting="same_kind")
        for name, (source, live) in self._fields.items():
            if name in KINEMATIC_FIELDS:
                np.copyto(live, source, casting="same_kind")

    def capturing(self) -> AbstractContextManager[None]:
        """Nothing to prepare: this backend runs on the CPU alone."""
        return nullcontext()

    def read_diagnostics(self) -> dict[str, Tensor | int]:
        """Return warnings since the last call by name, without those that did not occur."""
        counts = self._batch.warning[:, :, 1].sum(axis=0)
        new = counts - self._reported
        self._reported = counts
        return {name: int(new[index]) for index, name in _WARNING_NAMES.items() if new[index]}

    def state_dict(self) -> dict[str, Tensor]:
        """Return float64 state rows (`integration`), model values (`model/...`) and the live tensors (`live/...`)."""
        state = {"integration": torch.from_numpy(self.states.copy())}
        for name, values in self._live.items():
            state[f"live/{name}"] = torch.from_numpy(values.copy())
        for name, field in self._model_fields.items():
            state[f"model/{name}"] = torch.from_numpy(field.values64.copy())
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from `state`, bit for bit.

        Raises:
            ValueError: `state` has other tensors or shapes than this simulation.
        """
        targets: dict[str, npt.NDArray[Any]] = {"integration": self.states}
        targets.update({f"live/{name}": values for name, values in self._live.items()})
        targets.update({f"model/{name}": field.values64 for name, field in self._model_fields.items()})
        check_state(state, {name: target.shape for name, target in targets.items()})
        for name, target in targets.items():
            target[...] = state[name].numpy()
        for field in self._model_fields.values():
            field.adopt()
        if any(name in mujoco.MjModel._setconst_inputs for name in self._model_fields):
            self._batch.set_const()

    def close(self) -> None:
        """End the threads."""
        del self._batch

    def _refresh_state(self) -> None:
        np.copyto(self._moving, self._state_moving, casting="same_kind")

    def _find_diverged(self) -> None:
        """Flag worlds that MuJoCo reset by itself, and those whose new state it would reset in the next substep."""
        # a small sum of squares, far cheaper than a maximum per world, means that every number is small; and bytes are
        # compared, because NumPy's functions for it take several times as long
        small = np.vdot(self._moving, self._moving) < mujoco.mjMAXVAL**2
        bad = self._bad_counts.tobytes()
        if small and bad == self._bad_before:
            return
        before = np.frombuffer(self._bad_before, self._bad_counts.dtype).reshape(self._bad_counts.shape)
        finite = np.abs(self._moving).max(axis=1, initial=0.0) < mujoco.mjMAXVAL
        self._diverged |= (self._bad_counts != before).any(axis=1) | ~finite
        self._bad_before = bad


def _indices(mask: Tensor) -> list[int]:
    """Return where `mask` is True; by Python, because NumPy's functions for it take several times as long."""
    return [index for index, chosen in enumerate(mask.tolist()) if chosen]


class _ModelField:
    """Per-world values of one model field: float64 for MuJoCo, float32 for the caller to write."""

    def __init__(self, values64: npt.NDArray[np.float64]) -> None:
        self.values64 = values64
        self.values32 = values64.astype(np.float32)
        self._committed = self.values32.copy()

    def commit(self) -> bool:
        """Take over the entries written since the last commit; the others keep all their digits."""
        changed = self.values32 != self._committed
        if not changed.any():
            return False
        self.values64[changed] = self.values32[changed]
        np.copyto(self._committed, self.values32)
        return True

    def adopt(self) -> None:
        """Follow new float64 values."""
        np.copyto(self.values32, self.values64, casting="same_kind")
        np.copyto(self._committed, self.values32)
