"""The promises of hosts and leases."""

from stores import Stores
from stores.records import HostRecord
from tests.conformance.stores.samples import at


async def test_registered_host_comes_back(stores: Stores) -> None:
    await stores.hosts.register("host", "start-1", at(30))
    assert await stores.hosts.get("host") == HostRecord("host", "start-1", at(30))
    assert await stores.hosts.get("other") is None


async def test_a_new_start_takes_the_place_of_the_earlier_one(stores: Stores) -> None:
    await stores.hosts.register("host", "start-1", at(30))
    await stores.hosts.register("host", "start-2", at(40))
    assert await stores.hosts.list() == [HostRecord("host", "start-2", at(40))]


async def test_lease_is_renewed_by_its_own_start_only(stores: Stores) -> None:
    await stores.hosts.register("host", "start-2", at(30))
    assert await stores.hosts.renew("host", "start-2", at(60)) is True
    assert await stores.hosts.renew("host", "start-1", at(90)) is False
    assert await stores.hosts.renew("other", "start-2", at(90)) is False
    assert await stores.hosts.get("host") == HostRecord("host", "start-2", at(60))


async def test_host_is_released_by_its_own_start_only(stores: Stores) -> None:
    await stores.hosts.register("host", "start-2", at(30))
    assert await stores.hosts.release("host", "start-1") is False
    assert await stores.hosts.release("host", "start-2") is True
    assert await stores.hosts.release("host", "start-2") is False
    assert await stores.hosts.renew("host", "start-2", at(60)) is False
    assert await stores.hosts.get("host") is None


async def test_hosts_are_listed_by_id(stores: Stores) -> None:
    for name in ("b", "a", "c"):
        await stores.hosts.register(name, "start-1", at(30))
    assert [host.host_id for host in await stores.hosts.list()] == ["a", "b", "c"]
