"""A policy as an ONNX file."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import onnx
import torch

import hpclab
from hpclab.errors import CheckpointError
from hpclab.export.policy import Policy

OPSET = 18
"""Version of ONNX's operators: of those torch's exporter writes the oldest, for the old onnxruntime of robots."""
_BATCH = "batch"


def to_onnx(policy: Policy, metadata: Mapping[str, str]) -> bytes:
    """Return the file: the names of `policy` for its inputs and outputs, float32, any number of environments.

    Args:
        policy: what is written.
        metadata: what the file says besides, by key.

    Raises:
        CheckpointError: torch cannot write such a network.
    """
    examples = 2  # with one, torch would take the number for a part of the network
    state = policy.start(examples)
    batch = torch.export.Dim(_BATCH)
    try:
        with _quiet():
            program = torch.onnx.export(
                policy,
                (torch.zeros(examples, policy.num_observations), *state),
                input_names=policy.inputs,
                output_names=policy.outputs,
                dynamic_shapes=({0: batch}, tuple({1: batch} for _ in state)) if state else ({0: batch},),
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        problem = str(error.__cause__ or error).partition("\n")[0]
        raise CheckpointError(f"torch {torch.__version__} cannot write this policy as ONNX: {problem}") from error
    assert program is not None, "returned where no file is named"
    model = program.model_proto
    _forget_origins(model.graph)
    model.ir_version = onnx.helper.find_min_ir_version_for(model.opset_import)
    model.producer_name, model.producer_version = "hpclab", hpclab.__version__
    onnx.helper.set_model_props(model, dict(metadata))
    return bytes(model.SerializeToString())


def _forget_origins(graph: onnx.GraphProto) -> None:
    """Drop which lines of which files on this machine every part came from."""
    parts = (graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer)
    for part in parts:
        del part.metadata_props[:]
        part.doc_string = ""


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what torch's exporter says about its own inside from the user, who can do nothing about it."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
