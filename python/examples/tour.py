"""A tour in cells, for an editor or a notebook that knows `# %%`: a small shop, from orders to a report.

python python/examples/tour.py
"""

# %% A database, and its tables
import asyncio
import tempfile
import threading
from pathlib import Path

import quenchdb

place = tempfile.TemporaryDirectory()
db = quenchdb.open(Path(place.name) / "shop")
stock = db.table("stock", key=str, value=quenchdb.INTEGER)
orders = db.table("orders", key=quenchdb.INTEGER, value=quenchdb.JSON)
by_customer = db.table("orders by customer", key=str)
print(db.open_line())

# %% Goods arrive
stock.update(apples=500, pears=200, plums=50)
print(dict(stock))


# %% An order takes goods from the stock, all or nothing
class OutOfStock(Exception):
    """There is not enough of something."""


def order(customer: str, **goods: int) -> int:
    def place_order(tx: quenchdb.Transaction) -> int:
        for name, count in goods.items():
            left = (tx.get_for_update(stock, name) or 0) - count
            if left < 0:
                raise OutOfStock(f"{name}: {-left} too few")
            tx.put(stock, name, left)
        last = tx.last(orders)
        number = last[0] + 1 if last else 1
        tx.put(orders, number, {"customer": customer, "goods": goods})
        tx.put(by_customer, f"{customer}/{number:08}", b"")
        return number

    return db.transact(place_order, isolation="serializable")


assert order("alice", apples=3, pears=1) == 1
try:
    order("bob", apples=1, plums=51)
except OutOfStock as error:
    print("refused:", error)
assert stock["apples"] == 497

# %% Customers come from many threads
threads = [threading.Thread(target=order, args=(f"customer {n % 5}",), kwargs={"apples": 1}) for n in range(40)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert stock["apples"] == 457 and list(orders) == list(range(1, 42))


# %% ... and from one event loop
async def rush() -> int:
    async def one(number: int) -> None:
        async with db.transaction() as tx:
            tx.put(stock, f"new {number}", number)

    await asyncio.gather(*[one(number) for number in range(200)])
    return db.statistics().device_writes


print("device writes:", asyncio.run(rush()))
assert sum(1 for _ in stock.range(prefix="new ")) == 200

# %% A report reads one moment, while orders continue
with db.snapshot() as snapshot:
    order("carol", pears=10)
    totals: dict[str, int] = {}
    for placed in snapshot.values(orders):
        for name, count in placed["goods"].items():
            totals[name] = totals.get(name, 0) + count
assert totals == {"apples": 43, "pears": 1}
assert [key for key, _ in by_customer.range(prefix="carol/")] == ["carol/00000042"]

# %% Others follow
feed = db.changes()
committed = 0
while (transaction := feed.next(timeout=0)) is not None:
    committed += 1
print(committed, "transactions up to CSN", feed.csn)

# %% A backup, and a look at it
report = db.backup(Path(place.name) / "backup")
print(report)
with quenchdb.open_checkpoint(Path(place.name) / "backup") as copy:
    assert len(copy["orders"]) == 42

# %% The end
assert db.verify().ok
db.close()
place.cleanup()
