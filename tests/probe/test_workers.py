"""Workers of one check that meet over real connections on loopback."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from validator.probe import workers
from validator.probe.workers import Group, Settings, settings
from validator.problems import sentence


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in taken]


@pytest.fixture
def addresses() -> list[str]:
    return [f"127.0.0.1:{port}" for port in free_ports(2)]


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def group(opened: ExitStack, addresses: list[str], rank: int, wait_s: float = 20.0) -> Group:
    return opened.enter_context(Group(Settings(tuple(addresses), rank, wait_s), {"told": f"by {rank}"}))


def meet(*groups: Group) -> list[bool]:
    joined = [False] * len(groups)

    def join(number: int) -> None:
        joined[number] = groups[number].join()

    threads = [threading.Thread(target=join, args=(number,)) for number in range(len(groups))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return joined


def attend(one: Group, until: Any, limit_s: float = 10.0) -> None:
    ended = threading.Event()
    timer = threading.Timer(limit_s, ended.set)
    timer.start()
    while not until() and not ended.is_set():
        one.attend()
        ended.wait(0.02)
    timer.cancel()
    assert until()


@pytest.mark.parametrize("variables", [{}, {"VALIDATOR_WORKERS": ""}, {"VALIDATOR_WORKERS": "here:1"}])
def test_without_a_second_worker_there_is_no_group(variables: dict[str, str]) -> None:
    assert settings(variables) is None


def test_the_environment_says_who_the_workers_are() -> None:
    found = settings({"VALIDATOR_WORKERS": "a:1, [::1]:2", "VALIDATOR_WORKER_RANK": "1"})
    assert found == Settings(("a:1", "[::1]:2"), 1, workers.WAIT_S)
    shorter = {"VALIDATOR_WORKERS": "a:1,b:2", "VALIDATOR_WORKER_RANK": "0", "VALIDATOR_WORKER_WAIT_S": "7.5"}
    assert settings(shorter) == Settings(("a:1", "b:2"), 0, 7.5)


@pytest.mark.parametrize(
    ("listed", "rank", "wait", "said"),
    [
        ("a:1,b", "0", "", "has 'b', which is not HOST:PORT"),
        ("a:1,:2", "0", "", "has ':2', which is not HOST:PORT"),
        ("a:1,b:70000", "0", "", "has 'b:70000', which is not HOST:PORT"),
        ("a:1,a:1", "0", "", "names an address twice"),
        ("a:1,b:2", "", "", "VALIDATOR_WORKER_RANK is '', not a number from 0 to 1"),
        ("a:1,b:2", "2", "", "VALIDATOR_WORKER_RANK is '2', not a number from 0 to 1"),
        ("a:1,b:2", "-1", "", "VALIDATOR_WORKER_RANK is '-1'"),
        ("a:1,b:2", "1", "soon", "VALIDATOR_WORKER_WAIT_S is not a number of seconds from 1 to 600"),
        ("a:1,b:2", "1", "9999", "VALIDATOR_WORKER_WAIT_S is not"),
        ("a:1,b:2", "1", "nan", "VALIDATOR_WORKER_WAIT_S is not"),
    ],
)
def test_settings_that_make_no_sense_are_named(listed: str, rank: str, wait: str, said: str) -> None:
    given = {"VALIDATOR_WORKERS": listed, "VALIDATOR_WORKER_RANK": rank, "VALIDATOR_WORKER_WAIT_S": wait}
    with pytest.raises(ValueError, match=said.replace("[", r"\[")):
        settings(given)


@pytest.mark.parametrize("count", [2, 3])
def test_workers_meet_and_free_their_ports_for_tensorflow(count: int, opened: ExitStack) -> None:
    addresses = [f"127.0.0.1:{port}" for port in free_ports(count)]
    groups = [group(opened, addresses, rank) for rank in range(count)]
    assert meet(*groups) == [True] * count
    for one in groups:
        own = one.settings.rank
        told = {peer.rank: peer.hello and peer.hello["told"] for peer in one.peers}
        assert told == {rank: f"by {rank}" for rank in range(count) if rank != own}
        assert {one.own_address(peer) for peer in one.peers} == {"127.0.0.1"}
    # As TensorFlow's server does it, with the connections still open.
    for address in addresses:
        socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))).close()
    groups[0].tell(stage="train", weights="x")
    for one in groups[1:]:
        attend(one, lambda one=one: one.peers[0].stage == "train")
        assert one.peers[0].said["weights"] == "x"


def test_a_worker_that_is_not_there_is_named(addresses: list[str], opened: ExitStack) -> None:
    alone = group(opened, addresses, 0, wait_s=1.0)
    assert not alone.join()
    (problem,) = alone.absent()
    assert problem["code"] == "worker_not_answering"
    assert sentence(problem).startswith(
        f"worker 1 ({addresses[1]}) did not answer within 1 s: Connection refused; start all workers"
    )


def test_a_connection_that_meets_itself_is_no_worker(
    addresses: list[str], opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux connects a socket to itself if it happens to have the port that nobody listens on."""
    to = ("127.0.0.1", int(addresses[1].rpartition(":")[2]))

    def connect_to_itself(address: tuple[str, int], timeout: float) -> socket.socket:
        assert address == to
        one = opened.enter_context(socket.socket())
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(to)
        one.connect(to)
        return one

    alone = group(opened, addresses, 0, wait_s=1.0)
    monkeypatch.setattr(socket, "create_connection", connect_to_itself)
    assert not alone.join()
    (problem,) = alone.absent()
    assert (problem["code"], problem["error"]) == ("worker_not_answering", "nothing listens there")


def test_a_closed_port_of_a_worker_that_runs_is_named(addresses: list[str], opened: ExitStack) -> None:
    (closed,) = free_ports(1)
    first = group(opened, [addresses[0], f"127.0.0.1:{closed}"], 0, wait_s=1.0)
    second = group(opened, addresses, 1, wait_s=1.0)
    assert meet(first, second) == [False, False]
    (problem,) = first.absent()
    assert (problem["code"], problem["rank"]) == ("worker_port_closed", 1)
    assert f"its port is closed: 127.0.0.1:{closed}: Connection refused" in sentence(problem)
    (other,) = second.absent()
    assert (other["code"], other["rank"], other["own"]) == ("worker_does_not_connect", 0, addresses[1])


def test_an_unknown_name_is_named(addresses: list[str], opened: ExitStack) -> None:
    alone = group(opened, [addresses[0], "no-such-host.invalid:1"], 0, wait_s=1.0)
    assert not alone.join()
    assert [problem["code"] for problem in alone.absent()] == ["worker_name_unknown"]


def test_two_workers_with_one_rank_are_named_at_once(addresses: list[str], opened: ExitStack) -> None:
    first = group(opened, addresses, 0)
    with socket.create_connection(("127.0.0.1", int(addresses[0].rpartition(":")[2]))) as other:
        other.sendall(b'{"event": "hello", "rank": 0}\n')
        assert not first.join()
    (problem,) = first.absent()
    assert (problem["code"], problem["addresses"]) == ("workers_with_same_rank", ["127.0.0.1"])


def test_a_port_that_is_taken_is_an_error(addresses: list[str]) -> None:
    port = int(addresses[0].rpartition(":")[2])
    with closing(socket.create_server(("", port))), pytest.raises(OSError, match="in use"):
        Group(Settings(tuple(addresses), 0), {})


def test_a_stranger_does_not_disturb(addresses: list[str], opened: ExitStack) -> None:
    first, second = (group(opened, addresses, rank) for rank in (0, 1))
    for text in (b"GET / HTTP/1.1\r\n\r\n", b'{"event": "hello", "rank": 7}\n', b"x" * 200_000):
        stranger = opened.enter_context(
            socket.create_connection(("127.0.0.1", int(addresses[0].rpartition(":")[2])))
        )
        stranger.sendall(text)
    assert meet(first, second) == [True, True]


def test_a_worker_that_ends_is_lost(addresses: list[str], opened: ExitStack) -> None:
    first = group(opened, addresses, 0)
    with ExitStack() as short:
        assert meet(first, group(short, addresses, 1)) == [True, True]
        assert first.peers[0].lost is None
    attend(first, lambda: first.peers[0].lost == "closed")


def test_a_worker_that_falls_silent_is_lost(
    addresses: list[str], opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (group(opened, addresses, rank) for rank in (0, 1))
    assert meet(first, second) == [True, True]
    monkeypatch.setattr(workers, "SILENCE_S", 0.3)
    monkeypatch.setattr(workers, "BEAT_S", 0.05)
    attend(first, lambda: first.peers[0].lost == "silent")
    # The first one has said nothing but its beats.
    second.attend()
    assert second.peers[0].lost is None
