"""The sections of the learning algorithms."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hpclab.config.models import Activation, Sizes
from hpclab.config.section import Count, FilePath, Fraction, NonNegative, Positive, Section, inconsistent


class RNDSection(Section):
    """Random network distillation: an intrinsic reward for observations that a predictor has not learned yet."""

    weight: NonNegative = 1.0
    """Factor of the intrinsic reward, multiplied by the control step's length as task rewards are."""
    schedule: Literal["constant", "step", "linear"] = "constant"
    """How the weight changes. step: to `final_weight` at `final_step`. linear: from `initial_step` to `final_step`."""
    final_weight: NonNegative = 0.0
    """Weight at the end of the schedule, multiplied by the control step's length as well (RSL-RL 5.4.2 does not)."""
    initial_step: Annotated[int, Field(ge=0)] = 0
    """Control steps of an environment at which a linear schedule leaves `weight`."""
    final_step: Count = 10_000
    """Control steps of an environment at which the schedule has reached `final_weight`."""
    group: str = "actor"
    """Observation group whose novelty is rewarded."""
    num_outputs: Count = 16
    """Numbers that the networks give for an observation."""
    predictor_hidden_dims: Sizes = (64,)
    """Width of each hidden layer of the network that learns [units]."""
    target_hidden_dims: Sizes = (64,)
    """Width of each hidden layer of the random network [units]."""
    activation: Activation = "elu"
    """Activation between layers of both."""
    state_normalization: bool = False
    """Normalise the observations that both read by running moments."""
    reward_normalization: bool = False
    """Divide intrinsic rewards by the running deviation of their discounted sums."""
    learning_rate: Positive = 1e-3
    """Step size of the predictor's own Adam. Source: RSL-RL 5.4.2."""

    @model_validator(mode="after")
    def _scheduled(self) -> Self:
        if self.schedule == "linear" and self.final_step <= self.initial_step:
            raise inconsistent(
                "algorithm.rnd.final_step",
                f"{self.final_step} is not after algorithm.rnd.initial_step={self.initial_step}",
            )
        return self


class SymmetrySection(Section):
    """Learn from mirrored samples; for tasks that say what is mirrored how."""

    data_augmentation: bool = True
    """Learn from the mirror image of every sample too, which doubles mini-batches."""
    mirror_loss_coef: NonNegative = 0.0
    """Weight of the squared distance between the action for a mirrored observation and the mirrored action; 0: it is
    reported only."""


class AlgorithmSection(Section):
    """What every algorithm has."""

    optimizer: Literal["adam", "adamw", "sgd", "muon"] = "adam"
    """What steps with the gradients; muon steps with AdamW where a parameter is not a matrix."""
    precision: Literal["float32", "tf32", "bf16"] = "tf32"
    """How networks multiply matrices. float32: in float32. tf32: on GPUs in TF32, which rounds factors to 10 bits, as
    mjlab 1.6.0 does. bf16: perceptrons in bfloat16, which rounds to 7 bits, the rest as tf32. All else is float32."""
    num_steps_per_env: Count = 24
    """Rollout steps T per iteration."""


class PPOSection(AlgorithmSection):
    """Proximal policy optimisation. Source of the defaults: mjlab 1.6.0 + RSL-RL 5.4.2, G1."""

    name: Literal["ppo"] = "ppo"
    """The algorithm."""
    num_learning_epochs: Count = 5
    """Passes E over the rollout per update."""
    num_mini_batches: Count = 4
    """Mini-batches M per epoch; each holds floor(N * T / M) samples of a rank, the remainder is dropped."""
    learning_rate: Positive = 1e-3
    """Step size, at the start when the schedule is adaptive."""
    schedule: Literal["adaptive", "fixed"] = "adaptive"
    """adaptive: KL > 2 * desired_kl divides the learning rate by 1.5, 0 < KL < desired_kl / 2 multiplies it."""
    desired_kl: Positive = 0.01
    """Target KL divergence between the rollout policy and the updated one [nat]."""
    min_learning_rate: Positive = 1e-5
    """Floor of the adaptive schedule."""
    max_learning_rate: Positive = 1e-2
    """Cap of the adaptive schedule."""
    gamma: Fraction = 0.99
    """Discount per control step."""
    lam: Fraction = 0.95
    """GAE bias-variance trade-off."""
    clip_param: Positive = 0.2
    """Range of the probability ratio and of the clipped value loss."""
    use_clipped_value_loss: bool = True
    """Clip the value function's change to clip_param."""
    value_loss_coef: NonNegative = 1.0
    """Weight of the value loss."""
    entropy_coef: NonNegative = 0.01
    """Weight of the entropy bonus."""
    max_grad_norm: Positive = 1.0
    """Gradient norm limit, for actor and critic each, after the reduction over ranks."""
    rnd: RNDSection | None = None
    """Reward novelty; not when not given."""
    symmetry: SymmetrySection | None = None
    """Learn from mirrored samples; not when not given."""


class DistillationSection(AlgorithmSection):
    """A student, the run's actor, learns to act as a teacher that sees more. Source of the defaults: RSL-RL 5.4.2."""

    name: Literal["distillation"]
    """The algorithm."""
    teacher: FilePath
    """Folder of the PPO run whose newest checkpoint has the teacher, or of one of its checkpoints;
    relative to the working folder."""
    student_group: str = "actor"
    """Observation group that the student sees."""
    teacher_group: str = "critic"
    """Observation group that the teacher sees: of the numbers, in the order, that its own run gave to its actor."""
    num_learning_epochs: Count = 1
    """Passes E over the rollout per update."""
    gradient_length: Count = 15
    """Steps whose losses are added up for a gradient step; floor(E * T / gradient_length) gradient steps an update."""
    loss: Literal["mse", "huber"] = "mse"
    """Distance between the student's mean action and the teacher's: squared, or Huber's with threshold 1."""
    learning_rate: Positive = 1e-3
    """Step size."""
    max_grad_norm: Positive | None = None
    """Gradient norm limit, after the reduction over ranks; none when not given."""

    @model_validator(mode="after")
    def _learning(self) -> Self:
        steps = self.num_learning_epochs * self.num_steps_per_env
        if self.gradient_length > steps:
            raise inconsistent(
                "algorithm.gradient_length",
                f"{self.gradient_length} steps for a gradient step, but an update has only {steps} "
                "(algorithm.num_learning_epochs * algorithm.num_steps_per_env): nothing would be learned",
            )
        return self


AnyAlgorithm = Annotated[PPOSection | DistillationSection, Field(discriminator="name")]
