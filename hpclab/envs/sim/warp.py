"""Physics on GPUs: mujoco-warp, all worlds in one set of device arrays. Warp's CPU device runs the same code slowly."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import mujoco
import mujoco_warp as mjw
import torch
import warp as wp
from torch import Tensor

from hpclab.envs.sim import warp_kernels as kernels
from hpclab.envs.sim.fields import check_field, kinematic_columns, sensor_columns
from hpclab.envs.sim.state import check_state
from hpclab.envs.sim.warp_graph import LaunchGraph

wp.config.log_level = wp.LOG_WARNING  # no banner and no line per compiled module

_INTEGRATION = int(mjw.State.INTEGRATION)
_NORMAL_FLAGS = mjw.OverflowType.ITERATIONS | mjw.OverflowType.LS_ITERATIONS
_OVERFLOW_NAMES = {mjw.OverflowType.NEFC: "constraint_overflow", mjw.OverflowType.NARROWPHASE: "contact_overflow"}
# what set_const writes, and so must have a value per world when one of its inputs has
_CONSTANTS = ("body_subtreemass", "dof_invweight0", "body_invweight0", "tendon_invweight0", "actuator_acc0")
_BOUNDS = ("geom_rbound", "geom_aabb")


class WarpSim:
    """`Sim` on mujoco-warp. Tensors are mujoco-warp's own arrays, so nothing is copied.

    Work goes to torch's current stream without a host synchronisation. On CUDA the second call of `step` and of
    `forward` captures it in a graph that later calls launch; inside a capture of the caller's they launch their kernels
    into that one instead. Only `commit_model` and the state dictionary wait for the device.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        num_envs: int,
        *,
        device: torch.device,
        num_substeps: int = 1,
        njmax: int | None = None,
        nconmax: int | None = None,
    ) -> None:
        """Start `num_envs` worlds at the model's initial state.

        Args:
            model: compiled model.
            num_envs: number of worlds N.
            device: a CUDA device, or the CPU for tests.
            num_substeps: physics substeps of one `step`.
            njmax: most constraint rows of one world; None lets mujoco-warp guess.
            nconmax: contacts per world, on average; None lets mujoco-warp guess.

        Raises:
            ValueError: the model keeps state that `write_state` cannot clear here (delays, plasticity, plugins).
        """
        for part in (mujoco.mjtState.mjSTATE_HISTORY, mujoco.mjtState.mjSTATE_PLASTIC, mujoco.mjtState.mjSTATE_PLUGIN):
            if mujoco.mj_stateSize(model, int(part)):
                raise ValueError(f"the warp backend cannot reset {part.name} of single worlds")
        self.model = model
        self.num_envs = num_envs
        self.num_substeps = num_substeps
        self.device = device
        self._wp_device = wp.get_device(str(device))
        self._streams: dict[int, Any] = {}  # by CUDA handle; warp's wrappers must outlive a capture
        self._batched: set[str] = set()
        with self._on_stream():
            self._m = self._put_model()
            self._d = mjw.put_data(model, mujoco.MjData(model), nworld=num_envs, njmax=njmax, nconmax=nconmax)
            self._history = wp.zeros((num_envs, num_substeps, model.nsensordata), dtype=float)
            self._diverged = wp.zeros(num_envs, dtype=bool)
            self._diverged_count = wp.zeros(1, dtype=int)
            # as in C MuJoCo, which looks at inputs after it has cut them to their ranges: only NaN is left there
            limits = [float("inf") if limited else mujoco.mjMAXVAL for limited in model.actuator_ctrllimited]
            self._ctrl_limit = wp.array(limits, dtype=float)
            _, self._held = kinematic_columns(model)
            self._sensor_backup = wp.zeros((num_envs, model.nsensordata), dtype=float)
            self._early_contacts = wp.array(_early_contact_columns(model), dtype=int)

        d = self._d
        self.qpos, self.qvel, self.ctrl = _tensor(d.qpos), _tensor(d.qvel), _tensor(d.ctrl)
        self.diverged = _tensor(self._diverged)
        self._sensordata = _tensor(d.sensordata)
        self._history_tensor = _tensor(self._history)
        self._memory = [_tensor(d.time)[:, None], _tensor(d.qacc_warmstart), _tensor(d.act)]
        self._captures: list[Any] = []
        self._record = False
        self._model_fields: dict[str, Tensor] = {}
        self._committed: dict[str, Tensor] = {}
        self._step = LaunchGraph(self._launch_step)
        self._substeps = [LaunchGraph(functools.partial(self._launch_substep, i)) for i in range(num_substeps)]
        self._forward = LaunchGraph(self._launch_forward)

    def sensor(self, name: str) -> Tensor:
        """Return the live (N, dim) view of one named sensor."""
        return self._sensordata[:, sensor_columns(self.model, name)]

    def sensor_history(self, name: str) -> Tensor:
        """Return the live (N, num_substeps, dim) values of one named sensor in each substep of the last `step`."""
        columns = sensor_columns(self.model, name)
        if not self._record:
            self._record = True
            self._drop_graphs()
        return self._history_tensor[:, :, columns]

    def field(self, name: str) -> Tensor:
        """Return the live (N, ...) tensor of a derived field; see `Sim.field`.

        Raises:
            ValueError: not a field of `fields.py`.
        """
        check_field(name)
        return _tensor(getattr(self._d, name))

    def model_field(self, name: str) -> Tensor:
        """Give a model field a value per world; see `Sim.model_field`.

        Raises:
            ValueError: mujoco-warp has no such field per world.
        """
        if name == "opt.gravity":
            return self._gravity()
        if name not in self._model_fields:
            needed = {name}
            if name in mujoco.MjModel._setconst_inputs:
                needed |= {*_CONSTANTS, *(_BOUNDS if name == "geom_size" else ())}
            kept = {other: getattr(self._m, other) for other in self._batched}
            gravity = self._m.opt.gravity
            self._batched |= needed
            with self._on_stream():
                self._m = self._put_model()
            self._m.opt.gravity = gravity
            for other, array in kept.items():
                setattr(self._m, other, array)
            self._model_fields[name] = _tensor(getattr(self._m, name))
            self._committed[name] = self._model_fields[name].clone()
            self._drop_graphs()
        return self._model_fields[name]

    def _gravity(self) -> Tensor:
        if "opt.gravity" not in self._model_fields:
            with self._on_stream():
                per_world = wp.zeros(self.num_envs, dtype=wp.vec3)
                per_world.fill_(wp.vec3(*self.model.opt.gravity))
                self._m.opt.gravity = per_world
            self._model_fields["opt.gravity"] = _tensor(per_world)
            self._committed["opt.gravity"] = self._model_fields["opt.gravity"].clone()
            self._drop_graphs()
        return self._model_fields["opt.gravity"]

    def commit_model(self) -> None:
        """Make per-world model values take effect, with the constants that follow from them."""
        changed = [
            name for name, values in self._model_fields.items() if not torch.equal(values, self._committed[name])
        ]
        for name in changed:
            self._committed[name].copy_(self._model_fields[name])
        if any(name in mujoco.MjModel._setconst_inputs for name in changed):
            self._set_const()

    def step(self, control: Callable[[], None] | None = None) -> None:
        """Advance every world by `num_substeps` substeps; see `Sim.step`."""
        with self._on_stream():
            if control is None:
                self._step.run(self._wp_device)
                return
            for substep in self._substeps:
                control()
                substep.run(self._wp_device)
            self._launch_find_diverged()

    def write_state(self, qpos: Tensor, qvel: Tensor, mask: Tensor) -> None:
        """Put worlds with `mask` True into a state; see `Sim.write_state`."""
        column = mask[:, None]
        # where instead of arithmetic: the other rows, and the old ones, may hold NaN
        torch.where(column, qpos, self.qpos, out=self.qpos)
        torch.where(column, qvel, self.qvel, out=self.qvel)
        for memory in self._memory:
            memory.masked_fill_(column, 0.0)
        for columns in self._held:
            self._sensordata[:, columns].masked_fill_(column, 0.0)
        self.diverged.masked_fill_(mask, False)

    def add_velocity(self, delta: Tensor, mask: Tensor) -> None:
        """Add `delta` (N, nv) to the velocities of worlds with `mask` True."""
        torch.where(mask[:, None], self.qvel + delta, self.qvel, out=self.qvel)

    def forward(self) -> None:
        """Compute the quantities of position and velocity at the current state."""
        with self._on_stream():
            self._forward.run(self._wp_device)

    @contextlib.contextmanager
    def capturing(self) -> Iterator[None]:
        """Tell warp of the capture that goes on on torch's current stream."""
        with self._on_stream():
            stream = self._wp_device.stream
            wp.capture_begin(stream=stream, external=True)
            try:
                yield
            finally:
                # what warp allocated meanwhile lives as long as its own record of the graph
                self._captures.append(wp.capture_end(stream=stream))

    def read_diagnostics(self) -> dict[str, Tensor | int]:
        """Return the number of worlds with each new problem since the last call.

        A solver that stops at its iteration limit is normal and not reported.
        """
        flags, diverged = _tensor(self._d.overflow), _tensor(self._diverged_count)
        counts: dict[str, Tensor | int] = {
            _OVERFLOW_NAMES.get(kind, f"{str(kind.name).lower()}_overflow"): (flags & int(kind)).ne(0).sum()
            for kind in mjw.OverflowType
            if not kind & _NORMAL_FLAGS
        }
        counts["bad_state"] = diverged.sum()
        flags.zero_()
        diverged.zero_()
        return counts

    def loads(self) -> dict[str, Tensor]:
        """Return live counts of the last substep, also of what found no place.

        `rows` (N,) constraint rows of each world, which njmax limits; `contacts` and `pairs` (1,) contacts and
        candidate pairs of geoms over all worlds, which nconmax * N limits.
        """
        return {
            "rows": _tensor(self._d.nefc),
            "contacts": _tensor(self._d.nacon),
            "pairs": _tensor(self._d.ncollision),
        }

    def state_dict(self) -> dict[str, Tensor]:
        """Return float32 state rows (`integration`), model values (`model/...`) and live tensors (`live/...`)."""
        with self._on_stream():
            rows = wp.zeros((self.num_envs, mujoco.mj_stateSize(self.model, _INTEGRATION)), dtype=float)
            mjw.get_state(self._m, self._d, rows, _INTEGRATION)
        state = {"integration": _tensor(rows)}
        state.update({f"live/{name}": tensor for name, tensor in self._live().items()})
        state.update({f"model/{name}": tensor for name, tensor in self._model_fields.items()})
        return {name: tensor.to("cpu", copy=True) for name, tensor in state.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from `state`, up to the order of the device's atomic additions.

        Raises:
            ValueError: `state` has other tensors or shapes than this simulation.
        """
        width = mujoco.mj_stateSize(self.model, _INTEGRATION)
        targets = {f"live/{name}": tensor for name, tensor in self._live().items()}
        targets.update({f"model/{name}": tensor for name, tensor in self._model_fields.items()})
        shapes = {name: tuple(tensor.shape) for name, tensor in targets.items()}
        check_state(state, {"integration": (self.num_envs, width)} | shapes)
        for name, tensor in targets.items():
            tensor.copy_(state[name])
        rows = state["integration"].to(self.device).contiguous()
        with self._on_stream():
            mjw.set_state(self._m, self._d, wp.from_torch(rows), _INTEGRATION)
        self.commit_model()
        self._synchronize()

    def close(self) -> None:
        """Free graphs and device arrays."""
        self._drop_graphs()
        self._captures.clear()
        self._synchronize()
        del self._m, self._d

    def _put_model(self) -> Any:
        m = mjw.put_model(self.model, batch_sizes=dict.fromkeys(self._batched, self.num_envs))
        m.opt.warn_overflow = 0  # a print from the device for every world; the flags are kept
        return m

    def _set_const(self) -> None:
        with self._on_stream():
            mjw.set_const(self._m, self._d)
        self._synchronize()

    def _drop_graphs(self) -> None:
        for graph in (self._step, self._forward, *self._substeps):
            graph.drop()

    def _launch_step(self) -> None:
        for substep in range(self.num_substeps):
            self._launch_substep(substep)
        self._launch_find_diverged()

    def _launch_substep(self, substep: int) -> None:
        m, d = self._m, self._d
        mjw.step(m, d)
        if self._record:
            wp.launch(kernels.record, d.sensordata.shape, inputs=[d.sensordata, substep], outputs=[self._history])

    def _launch_find_diverged(self) -> None:
        d = self._d
        wp.launch(
            kernels.find_diverged,
            self.num_envs,
            inputs=[d.qpos, d.qvel, d.ctrl, float(mujoco.mjMAXVAL), self._ctrl_limit],
            outputs=[self._diverged, self._diverged_count],
        )

    def _launch_forward(self) -> None:
        m, d = self._m, self._d
        if self._early_contacts.size:
            wp.copy(self._sensor_backup, d.sensordata)
        mjw.fwd_kinematics(m, d)
        mjw.transmission(m, d)
        mjw.com_vel(m, d)
        mjw.sensor_pos(m, d)
        mjw.sensor_vel(m, d)
        if self._early_contacts.size:
            wp.launch(
                kernels.restore_columns,
                (self.num_envs, self._early_contacts.size),
                inputs=[self._early_contacts, self._sensor_backup],
                outputs=[d.sensordata],
            )

    def _live(self) -> dict[str, Tensor]:
        return {
            "sensordata": self._sensordata,
            "sensor_history": self._history_tensor,
            "diverged": self.diverged,
        }

    @contextlib.contextmanager
    def _on_stream(self) -> Iterator[None]:
        """Run warp on this device and on torch's current stream, so that their work is ordered without waiting."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(wp.ScopedDevice(self._wp_device))
            if self._wp_device.is_cuda:
                current = torch.cuda.current_stream(self.device)
                if current.cuda_stream not in self._streams:
                    self._streams[current.cuda_stream] = wp.stream_from_torch(current)
                stream = self._streams[current.cuda_stream]
                stack.enter_context(wp.ScopedStream(stream, sync_enter=False, sync_exit=False))
            yield

    def _synchronize(self) -> None:
        if self._wp_device.is_cuda:
            torch.cuda.current_stream(self.device).synchronize()


def _tensor(array: Any) -> Tensor:
    """View a warp array as a torch tensor, matrices as (..., rows, columns)."""
    tensor: Tensor = wp.to_torch(array)
    return tensor


def _early_contact_columns(model: mujoco.MjModel) -> list[int]:
    """Return the columns of contact sensors that need no forces: mujoco-warp evaluates them with positions."""
    columns: list[int] = []
    for i in range(model.nsensor):
        contact = model.sensor_type[i] == mujoco.mjtSensor.mjSENS_CONTACT
        if contact and model.sensor_needstage[i] < mujoco.mjtStage.mjSTAGE_ACC.value:
            start = int(model.sensor_adr[i])
            columns.extend(range(start, start + int(model.sensor_dim[i])))
    return columns
