"""The garbage collector rests while device work is captured."""

import gc

import pytest

from hpclab.envs.sim.uncollected import nothing_collected


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_rests_and_is_left_as_it_was(enabled: bool) -> None:
    def capture() -> None:
        with nothing_collected():
            assert not gc.isenabled()
            raise RuntimeError

    if not enabled:
        gc.disable()
    try:
        with pytest.raises(RuntimeError):
            capture()
        assert gc.isenabled() == enabled
    finally:
        gc.enable()
