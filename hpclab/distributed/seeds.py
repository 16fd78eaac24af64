"""Where each rank's random numbers begin."""

from __future__ import annotations

import random
import zlib

import numpy as np
import torch

from hpclab.config.schema import RunConfig


def seed_words(seed: int, rank: int, purpose: str, iteration: int = 0) -> tuple[int, ...]:
    """Return four 32-bit words that begin the stream of a rank for one purpose.

    Seed, rank, purpose and iteration are hashed together, so streams of adjacent seeds and ranks share nothing.
    Source: numpy.random.SeedSequence.

    Args:
        seed: of the run.
        rank: global rank.
        purpose: what draws from it.
        iteration: with which the rank began; ranks that join a run later must not repeat what others drew.
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(rank, zlib.crc32(purpose.encode()), iteration))
    return tuple(int(word) for word in sequence.generate_state(4))


def start_streams(config: RunConfig, rank: int, iteration: int = 0) -> str:
    """Start every random stream of this process, and return how in words.

    Under `sync.preset: mjlab` each is seeded with seed + rank, as mjlab 1.6.0 does. Warp kernels take seeds from torch.
    """
    if config.sync.preset == "mjlab":
        seed = config.seed + rank
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        return f"seed {seed}"
    random.seed(_number(seed_words(config.seed, rank, "python", iteration)))
    np.random.seed(seed_words(config.seed, rank, "numpy", iteration))
    torch.manual_seed(_number(seed_words(config.seed, rank, "torch", iteration)) % 2**63)
    return f"seed {config.seed} for rank {rank}"


def _number(words: tuple[int, ...]) -> int:
    return sum(word << (32 * index) for index, word in enumerate(words))
