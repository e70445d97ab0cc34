"""How many requests are in flight, on servers that are simulated in virtual time; and limits."""

import asyncio

import pytest

from consilience.endpoints.client import MOST, START, Clock, Pace


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes at once where nothing is ready."""

    now = 0.0

    def time(self):
        return self.now

    def _run_once(self):
        if not self._ready and self._scheduled:
            self.now = max(self.now, self._scheduled[0].when())
        super()._run_once()


def simulate(requests, slots, *, seconds=0.1, refuses=False, fixed=None, most=None, slow=30.0):
    """The pace after so many requests to a server with slots, the time, and refused requests.

    A server that ``refuses`` has no queue: it refuses what finds no slot.
    """
    loop = VirtualLoop()
    pace = Pace(fixed, Clock(loop.time), slow)
    if most is not None:
        pace.take_at_most(most)
    server, refused = asyncio.Semaphore(slots), []

    async def request():
        while True:
            started = await pace.enter()
            try:
                if refuses and server.locked():
                    pace.overloaded(started, None)
                    refused.append(loop.time())
                else:
                    async with server:
                        await asyncio.sleep(seconds)
                    pace.replied(started)
                    return
            finally:
                pace.leave()
            await asyncio.sleep(0.5)

    async def all_requests():
        await asyncio.gather(*(request() for _ in range(requests)))

    loop.run_until_complete(all_requests())
    loop.close()
    return pace, loop.now, refused


@pytest.mark.parametrize("slots", [1, 2, 5, 16, 50, 100])
def test_a_server_that_queues_is_kept_busy(slots):
    """One that could answer more than ``MOST`` at once needs --concurrency to be."""
    pace, seconds, _ = simulate(1200, slots)
    assert pace.limit == MOST
    assert seconds <= 1.15 * 1200 * 0.1 / min(slots, MOST) + 0.5


def test_a_long_queue_does_not_grow():
    """A reply that takes as long as ``slow`` is no reason to send more at once; none takes more
    than twice as long."""
    pace, _, _ = simulate(300, 1, seconds=2.0, slow=30.0)
    assert pace.limit * 2.0 <= 2 * 30.0
    pace, _, _ = simulate(60, 1, seconds=40.0, slow=30.0)
    assert pace.limit == START


def test_a_server_that_says_how_many_it_takes_gets_no_more():
    pace, seconds, _ = simulate(600, 20, most=6)
    assert pace.limit == 6
    assert seconds == pytest.approx(600 * 0.1 / 6), "as many from the first request on"
    pace = Pace(None)
    pace.take_at_most(6)
    for held, limit in ((16, 6), (1, 1)):
        with pace.held(held):
            assert pace.limit == limit


@pytest.mark.parametrize("slots", [1, 6, 20])
def test_a_server_that_refuses_halves_the_number(slots):
    pace, seconds, refused = simulate(1200, slots, refuses=True)
    assert pace.limit <= slots + 2
    assert len(refused) < 0.1 * 1200
    assert seconds < 2 * 1200 * 0.1 / slots + 5


def test_one_storm_halves_once_and_a_wait_stops_all():
    now = 0.0
    pace = Pace(None, Clock(lambda: now))
    pace._size = 16.0
    now = 1.0
    for _ in range(16):
        pace.overloaded(0.0, None)
    assert pace.limit == 8
    now = 2.0
    pace.overloaded(1.5, 3.0)
    assert pace.limit == 4
    fixed = Pace(16, Clock(lambda: now))
    fixed.overloaded(1.5, None)
    assert fixed.limit == 16, "a number that the user set stays"
    pace, seconds, _ = simulate(60, 8, fixed=3)
    assert (pace.limit, seconds) == (3, pytest.approx(60 * 0.1 / 3))


def test_what_a_limit_does_not_admit_holds_no_place_and_starts_when_another_ends():
    """Nothing is polled: it is looked at again when a request has ended."""
    loop = VirtualLoop()
    pace, looks, order = Pace(2, Clock(loop.time)), [], []

    async def request(name, seconds, admits=lambda: True):
        started = await pace.enter(admits)
        order.append((name, started))
        await asyncio.sleep(seconds)
        pace.leave()

    def small_is_done():
        looks.append(loop.time())
        return loop.time() >= 2

    async def all_requests():
        large = request("large", 1, small_is_done)
        await asyncio.gather(request("first", 1), large, request("small", 2), request("last", 1))

    loop.run_until_complete(all_requests())
    loop.close()
    assert order == [("first", 0), ("small", 0), ("last", 1), ("large", 2)]
    assert looks == [0, 1, 2]
