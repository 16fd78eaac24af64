"""Physics behind one interface: MuJoCo on CPU threads, mujoco-warp on GPUs."""
