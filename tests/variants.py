"""Small variants of learning, each as the sections of a config: what must hold for one must hold for all.

Tests that resume, compare ranks or look for waiting are parametrised over them.
"""

from __future__ import annotations

from typing import Any

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "state_dependent_gaussian": {"actor": {"distribution": "state_dependent_gaussian"}},
    "beta": {"actor": {"distribution": "beta", "action_range": [-8.0, 8.0]}},
    "lstm": {name: {"rnn": {"type": "lstm", "hidden_dim": 6, "num_layers": 2}} for name in ("actor", "critic")},
    "rnd": {
        "algorithm": {
            "rnd": {
                "schedule": "linear",
                "final_weight": 0.5,
                "final_step": 20,
                "state_normalization": True,
                "reward_normalization": True,
            }
        }
    },
    "symmetry": {"algorithm": {"symmetry": {"mirror_loss_coef": 0.5}}},
    "image": {"actor": {"image": {"shape": [1, 2, 2], "channels": [4], "kernel_sizes": [3], "strides": [1]}}},
    "gru": {"actor": {"rnn": {"type": "gru", "hidden_dim": 6}}},
}
