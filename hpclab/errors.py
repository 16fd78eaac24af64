"""The errors a user can meet. Each message gives place, problem and next action; each class has one exit code."""


class HpclabError(Exception):
    """Base of every error that ends a command with one clear line instead of a traceback."""

    exit_code = 1


class ConfigError(HpclabError):
    """The request itself cannot be carried out: a config, an option, or what it names. Nothing was started."""

    exit_code = 2


class LaunchError(HpclabError):
    """The request was valid, but its workers or its job could not be started."""

    exit_code = 3


class WorkerError(HpclabError):
    """A rank failed while it trained."""

    exit_code = 4


class CheckpointError(HpclabError):
    """A checkpoint could not be written, or none that is complete could be read."""

    exit_code = 5
