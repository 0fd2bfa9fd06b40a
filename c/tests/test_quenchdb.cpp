// Tests of the C++ wrapper: `test_quenchdb_cpp DIRECTORY`, an empty directory.
#include "quenchdb.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

static const char *running = "";

#define CHECK(condition)                                                                             \
    do {                                                                                             \
        if (!(condition)) {                                                                          \
            std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, running, #condition);        \
            std::exit(1);                                                                            \
        }                                                                                            \
    } while (0)

// An expression that must throw an exception of a type; `of` names the exception for the check.
#define THROWS(type, expression, check)                                                              \
    do {                                                                                             \
        bool thrown = false;                                                                         \
        try {                                                                                        \
            (void)(expression);                                                                      \
        } catch (const type &of) {                                                                   \
            thrown = true;                                                                           \
            CHECK(check);                                                                            \
        }                                                                                            \
        CHECK(thrown);                                                                               \
    } while (0)

using namespace std::string_literals;
using namespace std::chrono_literals;

static std::string keys(quench::rows rows) {
    std::string all;
    for (auto [key, value] : rows) all.append(key) += ' ';
    return all;
}

static void rows_and_ranges(const std::string &directory) {
    quench::database db(directory + "/rows", {{"memory_bytes", "33554432"}});
    quench::table users = db.open_table("users");
    CHECK(users.name() == "users");
    std::uint64_t csn = db.transact([&](quench::transaction &tx) {
        tx.put(users, "alice", "Vienna");
        tx.put(users, "bob", "Graz");
        tx.put(users, "zero\0key"s, "zero\0value"s);
        tx.put(users, "empty", {});
        return std::uint64_t(tx.count(users));
    });
    CHECK(csn == 4);
    quench::snapshot snapshot = db.snapshot();
    CHECK(snapshot.csn() > 0);
    CHECK(snapshot.get(users, "alice") == "Vienna");
    CHECK(snapshot.get(users, "empty") == "");
    CHECK(snapshot.get(users, "nobody") == std::nullopt);
    CHECK(snapshot.get(users, "zero\0key"s) == "zero\0value"s);
    CHECK(!snapshot.contains(users, "zero"));
    CHECK(keys(snapshot.range(users)) == "alice bob empty zero\0key "s);
    CHECK(keys(snapshot.reversed(users, quench::key_range::between("b", "f"))) == "empty bob ");
    CHECK(keys(snapshot.range(users, quench::key_range::with_prefix("al"))) == "alice ");
    CHECK(keys(snapshot.range(users, quench::key_range::between("c", "d"))).empty());
    CHECK(snapshot.first(users)->key == "alice" && snapshot.last(users)->value == "zero\0value"s);
    snapshot.prefetch(users, {"alice", "bob"});
    quench::cursor cursor = snapshot.cursor(users);
    cursor.seek("b");
    CHECK(cursor.next()->key == "bob" && cursor.prev()->key == "alice" && !cursor.prev());
    db.put(users, "carol", "Linz");
    CHECK(db.get(users, "carol") == "Linz" && db.remove(users, "carol") && !db.remove(users, "carol"));
    CHECK(db.tables() == std::vector<std::string>{"users"});
    CHECK(db.verify().find("\"problems\":[]") != std::string::npos);
    CHECK(db.statistics().front() == '{' && db.health().find("healthy") != std::string::npos);
    db.backup(directory + "/backup");
    quench::restore({directory + "/backup"}, directory + "/restored");
    quench::database restored(directory + "/restored");
    CHECK(restored.get(restored.open_table("users", false), "bob") == "Graz");
    db.close();
    THROWS(quench::argument_error, db.snapshot(), of.code() == QUENCH_INVALID_ARGUMENT);
}

static void changes_in_transactions(const std::string &) {
    auto db = quench::database::in_memory();
    auto table = db.open_table("t");
    auto tx = db.begin(quench::options().with_isolation(QUENCH_SERIALIZABLE).with_lock_timeout(10ms));
    CHECK(tx.put_new(table, "k", "1") && !tx.put_new(table, "k", "2"));
    CHECK(tx.replace(table, "k", "3") == "1" && tx.replace(table, "new", "4") == std::nullopt);
    CHECK(tx.compare_and_set(table, "k", "3", "5") && !tx.compare_and_set(table, "k", std::nullopt, "6"));
    CHECK(tx.compare_and_set(table, "e", std::nullopt, quench::string_view()) && tx.get(table, "e") == "");
    CHECK(tx.get_locked(table, "k") == "5");
    CHECK(tx.add(table, "n", 5) == 5 && tx.add(table, "n", -6) == -1);
    tx.update(table, "k", [](std::optional<quench::string_view> before) { return std::optional(std::string(*before) + "!"); });
    CHECK(tx.get(table, "k") == "5!");
    tx.update(table, "k", [](auto) -> std::optional<std::string> { return std::nullopt; });
    CHECK(!tx.contains(table, "k"));
    auto point = tx.savepoint();
    CHECK(tx.remove_range(table) == 3);
    tx.rollback_to(point);
    CHECK(tx.pop_first(table)->key == "e" && tx.pop_last(table)->key == "new" && tx.pop(table, "n")->size() == 8);
    CHECK(!tx.pop_first(table) && !tx.pop(table, "n"));
    tx.lock(table, true);
    quench::cursor cursor = tx.cursor(table);
    CHECK(tx.commit() > 0);
    THROWS(quench::argument_error, tx.commit(), !of.advice().empty());
    THROWS(quench::argument_error, cursor.next(), of.name() == "invalid-argument"s);

    auto one = db.begin(), two = db.begin();
    one.put(table, "x", "1");
    one.commit();
    THROWS(quench::retryable_error, two.put(table, "x", "2"), of.code() == QUENCH_CONFLICT);
    CHECK(two.has_to_retry());
    THROWS(quench::error, db.open_table("none", false), of.code() == QUENCH_NOT_FOUND);
    THROWS(quench::argument_error, quench::database::in_memory({{"no", "1"}}), true);
}

static void exceptions_cross_callbacks(const std::string &) {
    auto db = quench::database::in_memory();
    auto table = db.open_table("t");
    db.put(table, "k", "v");
    auto failing = [&](quench::transaction &tx) {
        tx.put(table, "k", "changed");
        throw std::logic_error("mine");
    };
    THROWS(std::logic_error, (db.transact(failing), 0), of.what() == "mine"s);
    CHECK(db.get(table, "k") == "v");
    int calls = 0;
    db.transact([&](quench::transaction &tx) {
        if (++calls == 1) db.put(table, "k", "other");
        tx.put(table, "k", "mine");
    });
    CHECK(calls == 2 && db.get(table, "k") == "mine");
    auto tx = db.begin();
    auto refuse = [](auto) -> std::optional<std::string> { throw std::runtime_error("no"); };
    THROWS(std::runtime_error, (tx.update(table, "k", refuse), 0), of.what() == "no"s);
    auto visit = [](quench::string_view) { throw 7; };
    THROWS(int, tx.get_with(table, "k", visit), of == 7);
    CHECK(tx.get(table, "k") == "mine");
    THROWS(quench::error, (db.transact([&](quench::transaction &) { db.open_table("none", false); }), 0),
           of.code() == QUENCH_NOT_FOUND);
}

static void tickets_and_feeds(const std::string &directory) {
    quench::database db(directory + "/feeds");
    auto table = db.open_table("t");
    auto watch = db.watch(table, "k");
    auto start = db.snapshot().csn();
    std::atomic<int> outcome{1};
    auto tx = db.begin();
    tx.put(table, "k1", "v1");
    auto ticket = tx.commit_async();
    ticket.notify([&outcome](int code) { outcome = code; });
    CHECK(ticket.wait() && ticket.is_durable() && ticket.csn() > 0);
    for (int waits = 0; outcome != 0; waits++) {
        CHECK(waits < 10000);
        std::this_thread::sleep_for(1ms);
    }
    auto changes = db.changes(start);
    auto committed = changes.next(5s);
    CHECK(committed && committed->csn == ticket.csn() && committed->changes.size() == 1);
    CHECK(committed->changes[0].kind == QUENCH_PUT && committed->changes[0].key_bytes == 2);
    CHECK(!changes.next(1ms) && changes.csn() >= ticket.csn());
    CHECK(watch.next(5s)->csn == ticket.csn());
    std::thread closer([&] { db.close(); });
    CHECK(!changes.next());
    closer.join();
}

static void handles_are_destroyed_in_any_order(const std::string &) {
    std::optional<quench::database> db(quench::database::in_memory());
    std::optional<quench::table> table(db->open_table("t"));
    db->put(*table, "k", "v");
    std::optional<quench::snapshot> snapshot(db->snapshot());
    auto cursor = snapshot->cursor(*table);
    auto tx = db->begin();
    auto moved = std::move(tx);
    db.reset();
    moved.put(*table, "l", "w");
    snapshot.reset();
    table.reset();
    CHECK(cursor.next()->value == "v" && !cursor.next());
    moved.commit();
}

static void a_standby_takes_over(const std::string &directory) {
    auto url = "file://" + directory + "/store";
    quench::database db(url);
    auto table = db.open_table("t");
    db.put(table, "k", "value");
    quench::standby standby(url);
    auto csn = db.snapshot().csn();
    CHECK(standby.wait_for(csn, 30s) && standby.csn() >= csn);
    auto snapshot = standby.snapshot();
    auto seen = quench::standby::table(snapshot, "t");
    CHECK(snapshot.get(seen, "k") == "value");
    quench::key_range keys;
    keys.keys_only = true;
    for (auto row : snapshot.range(seen, keys)) CHECK(row.key == "k" && row.value.empty());
    CHECK(standby.statistics().find("\"csn\":") != std::string::npos);
    auto promoted = standby.promote();
    CHECK(promoted.tables().size() == 1);
}

static void an_interrupt_is_an_exception(const std::string &) {
    auto db = quench::database::in_memory({{"lock_wait", "60"}});
    auto table = db.open_table("t");
    auto holder = db.begin(), waiter = db.begin();
    std::thread([&] { holder.put(table, "k", "1"); }).join();
    std::thread interrupts([&] { waiter.interrupt(); });
    int code = 0;
    try {
        waiter.put(table, "k", "2");
    } catch (const quench::error &error) {
        code = error.code();
    }
    interrupts.join();
    CHECK(code == QUENCH_INTERRUPTED);
    waiter.put(table, "l", "2");
    waiter.commit();
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    std::pair<const char *, void (*)(const std::string &)> tests[] = {
        {"rows_and_ranges", rows_and_ranges},
        {"changes_in_transactions", changes_in_transactions},
        {"exceptions_cross_callbacks", exceptions_cross_callbacks},
        {"tickets_and_feeds", tickets_and_feeds},
        {"handles_are_destroyed_in_any_order", handles_are_destroyed_in_any_order},
        {"a_standby_takes_over", a_standby_takes_over},
        {"an_interrupt_is_an_exception", an_interrupt_is_an_exception},
    };
    int ran = 0;
    for (auto [name, test] : tests) {
        running = name;
        test(arguments[1]);
        ran++;
    }
    std::printf("%d passed, 0 failed\n", ran);
}
