from __future__ import annotations

import threading

from hpclab.launch.watching import watching

EVERY_S = 0.001


def test_it_looks_again_until_there_is_no_more_to_see() -> None:
    seen = iter([False, False, True])
    looks: list[bool] = []
    thread: list[threading.Thread] = []

    def look() -> bool:
        thread[:] = [threading.current_thread()]
        looks.append(next(seen))
        looked.set()
        return looks[-1]

    looked = threading.Event()
    with watching(look, every_s=EVERY_S, name="a watch"):
        assert looked.wait(10)
        thread[0].join(10)
        assert (looks, thread[0].name) == ([False, False, True], "a watch")


def test_it_ends_with_its_block() -> None:
    thread: list[threading.Thread] = []
    looked = threading.Event()

    def look() -> bool:
        thread[:] = [threading.current_thread()]
        looked.set()
        return False

    with watching(look, every_s=EVERY_S, name="a watch"):
        assert looked.wait(10)
        assert thread[0].is_alive()
    thread[0].join(10)
    assert not thread[0].is_alive()
