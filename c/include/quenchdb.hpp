// QuenchDB for C++17: handles that free themselves, exceptions, ranges. Only a header over quenchdb.h.
//
//   quench::database db("shop");
//   quench::table users = db.open_table("users");
//   db.transact([&](quench::transaction &tx) { tx.put(users, "alice", "Vienna"); });
//   for (auto [name, city] : db.snapshot().range(users)) ...
//
// Handles are moved and not copied, and may be destroyed in any order. Threads: as quenchdb.h says; a
// snapshot and a table may be used by many threads, a transaction by one at a time. A moved-from
// handle may only be destroyed or assigned. Keys and values are std::string_view in, std::string out.
#ifndef QUENCHDB_HPP
#define QUENCHDB_HPP

#include "quenchdb.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace quench {

using std::string_view;

/// What a function threw: `what()` is one line, `code()` a quench_code.
class error : public std::runtime_error {
  public:
    /// Takes over what a function returned.
    error(int code, quench_error *given)
        : std::runtime_error(given ? quench_error_message(given) : "error " + std::to_string(code)), code_(code),
          name_(quench_error_name(given)), advice_(quench_error_advice(given)) {
        if (const char *location = quench_error_location(given)) location_ = location;
        quench_error_free(given);
    }
    int code() const noexcept { return code_; }
    /// The code as a word, such as "not-found".
    const std::string &name() const noexcept { return name_; }
    /// What to do.
    const std::string &advice() const noexcept { return advice_; }
    /// Where it happened; empty if that is not known.
    const std::string &location() const noexcept { return location_; }

  private:
    int code_;
    std::string name_, advice_, location_;
};

/// A conflict, a deadlock or a lock timeout: run the whole transaction again.
class retryable_error : public error {
    using error::error;
};

/// The disk is full, or a bound is reached.
class limit_error : public error {
    using error::error;
};

/// The call is wrong.
class argument_error : public error {
    using error::error;
};

namespace detail {

[[noreturn]] inline void raise(int code, quench_error *given) {
    if (quench_is_retryable(code)) throw retryable_error(code, given);
    if (code == QUENCH_OUT_OF_SPACE || code == QUENCH_OUT_OF_MEMORY) throw limit_error(code, given);
    if (code == QUENCH_INVALID_ARGUMENT) throw argument_error(code, given);
    throw error(code, given);
}

/// Calls a function of the library whose last argument is the error. Returns its answer, or throws.
template <typename Function, typename... Arguments> int call(Function function, Arguments... arguments) {
    quench_error *given = nullptr;
    int answer = function(arguments..., &given);
    if (answer < 0) raise(answer, given);
    return answer;
}

template <typename Handle, void (*Free)(Handle *)> struct deleter {
    void operator()(Handle *handle) const noexcept { Free(handle); }
};

template <typename Handle, void (*Free)(Handle *)> using owned = std::unique_ptr<Handle, deleter<Handle, Free>>;

/// Memory that the library allocated.
struct memory {
    void *data = nullptr;
    std::size_t size = 0;
    memory() = default;
    memory(const memory &) = delete;
    memory &operator=(const memory &) = delete;
    ~memory() { quench_free(data); }
    std::string text() const { return data ? std::string(static_cast<const char *>(data), size) : std::string(); }
};

/// Returns the text that a function of the library gives as `char **`.
template <typename Function, typename... Arguments> std::string text(Function function, Arguments... arguments) {
    memory report;
    char *given = nullptr;
    call(function, arguments..., &given);
    report.data = given;
    return given ? std::string(given) : std::string();
}

inline std::int64_t microseconds(std::optional<std::chrono::microseconds> timeout) {
    if (!timeout) return -1;
    return timeout->count() < 0 ? 0 : timeout->count();
}

/// The address of bytes that are given: not NULL, which stands for none.
inline const void *address(const std::optional<string_view> &bytes) {
    if (!bytes) return nullptr;
    return bytes->data() ? bytes->data() : "";
}

inline std::size_t length(const std::optional<string_view> &bytes) { return bytes ? bytes->size() : 0; }

/// A callback's exception, kept while the library returns.
struct caught {
    std::exception_ptr exception;
    static constexpr int code = -1000000;

    template <typename Function> int run(Function function) noexcept {
        try {
            return function();
        } catch (...) {
            exception = std::current_exception();
            return code;
        }
    }
};

} // namespace detail

/// A setting by its name.
using setting = std::pair<std::string, std::string>;

/// Options of a transaction: fields of quench_options, all 0 by default.
struct options : quench_options {
    options() : quench_options QUENCH_OPTIONS_INIT {}
    options &with_isolation(quench_isolation value) { return isolation = value, *this; }
    options &with_durability(quench_durability value) { return durability = value, *this; }
    options &with_pessimistic_locks() { return pessimistic = 1, *this; }
    options &with_lock_timeout(std::chrono::microseconds value) {
        return lock_timeout_us = static_cast<std::uint64_t>(value.count()), *this;
    }
};

/// A range of keys: all of them, from `start` to before `stop`, or those that begin with a prefix.
struct key_range {
    std::optional<string_view> start, stop, prefix;
    bool exclude_start = false, include_stop = false;
    /// A cursor reads no values, and gives each one as empty.
    bool keys_only = false;

    static key_range all() { return {}; }
    static key_range between(std::optional<string_view> start, std::optional<string_view> stop) {
        key_range range;
        range.start = start, range.stop = stop;
        return range;
    }
    static key_range with_prefix(string_view prefix) {
        key_range range;
        range.prefix = prefix;
        return range;
    }
    quench_range raw() const {
        quench_range range = QUENCH_RANGE_INIT;
        range.start = detail::address(start), range.start_bytes = detail::length(start);
        range.stop = detail::address(stop), range.stop_bytes = detail::length(stop);
        range.prefix = detail::address(prefix), range.prefix_bytes = detail::length(prefix);
        range.exclude_start = exclude_start, range.include_stop = include_stop, range.keys_only = keys_only;
        return range;
    }
};

/// A table.
class table {
  public:
    explicit table(quench_table *handle) : handle_(handle) {}
    std::string name() const {
        detail::memory name;
        char *given = nullptr;
        detail::call(quench_table_name, handle_.get(), &given, &name.size);
        name.data = given;
        return name.text();
    }
    quench_table *get() const noexcept { return handle_.get(); }

  private:
    detail::owned<quench_table, quench_table_free> handle_;
};

/// A row, whose key and value are valid until the next step of its cursor.
struct row {
    string_view key, value;
};

/// A row of its own.
struct owned_row {
    std::string key, value;
};

/// Steps over the rows of a range, in both directions.
class cursor {
  public:
    explicit cursor(quench_cursor *handle) : handle_(handle) {}
    std::optional<row> next() { return step(quench_cursor_next); }
    std::optional<row> prev() { return step(quench_cursor_prev); }
    /// `next` goes to the first row whose key is `key` or higher, `prev` to the last one below.
    void seek(string_view key) { detail::call(quench_cursor_seek, handle_.get(), key.data(), key.size()); }

  private:
    template <typename Function> std::optional<row> step(Function function) {
        const void *key = nullptr, *value = nullptr;
        std::size_t key_bytes = 0, value_bytes = 0;
        if (!detail::call(function, handle_.get(), &key, &key_bytes, &value, &value_bytes)) return std::nullopt;
        return row{{static_cast<const char *>(key), key_bytes}, {static_cast<const char *>(value), value_bytes}};
    }
    detail::owned<quench_cursor, quench_cursor_free> handle_;
};

/// The rows of a range, for a `for` loop, which may run over them once.
class rows {
  public:
    class iterator {
      public:
        using iterator_category = std::input_iterator_tag;
        using value_type = row;
        using difference_type = std::ptrdiff_t;
        using pointer = const row *;
        using reference = const row &;

        iterator() = default;
        explicit iterator(rows *of) : of_(of) { ++*this; }
        reference operator*() const { return *row_; }
        pointer operator->() const { return &*row_; }
        iterator &operator++() {
            row_ = of_->reverse_ ? of_->cursor_.prev() : of_->cursor_.next();
            if (!row_) of_ = nullptr;
            return *this;
        }
        void operator++(int) { ++*this; }
        bool operator==(const iterator &other) const { return of_ == other.of_; }
        bool operator!=(const iterator &other) const { return of_ != other.of_; }

      private:
        rows *of_ = nullptr;
        std::optional<row> row_;
    };

    rows(class cursor cursor, bool reverse) : cursor_(std::move(cursor)), reverse_(reverse) {}
    iterator begin() { return iterator(this); }
    iterator end() { return iterator(); }

  private:
    class cursor cursor_;
    bool reverse_;
};

/// What transactions and snapshots have in common.
class reader {
  public:
    /// The value of a key, if there is one.
    std::optional<std::string> get(const table &table, string_view key) const {
        std::optional<std::string> found;
        get_with(table, key, [&](string_view value) { found.emplace(value); });
        return found;
    }
    /// Calls `visit` with the value of a key, without a copy of its own. Returns whether there is one.
    template <typename Visit> bool get_with(const table &table, string_view key, Visit &&visit) const {
        struct passed {
            Visit &visit;
            detail::caught caught;
        } passed{visit, {}};
        auto pass = [](void *context, const void *value, std::size_t size) {
            auto &to = *static_cast<struct passed *>(context);
            to.caught.run([&] { return to.visit(string_view(static_cast<const char *>(value), size)), 0; });
        };
        int found = detail::call(quench_get_with, get(), table.get(), key.data(), key.size(),
                                 quench_value_function(pass), static_cast<void *>(&passed));
        if (passed.caught.exception) std::rethrow_exception(passed.caught.exception);
        return found > 0;
    }
    bool contains(const table &table, string_view key) const {
        return detail::call(quench_contains, get(), table.get(), key.data(), key.size()) > 0;
    }
    std::uint64_t count(const table &table, const key_range &range = {}) const {
        std::uint64_t count = 0;
        quench_range raw = range.raw();
        detail::call(quench_count, get(), table.get(), &raw, &count);
        return count;
    }
    class cursor cursor(const table &table, const key_range &range = {}) const {
        quench_cursor *cursor = nullptr;
        quench_range raw = range.raw();
        detail::call(quench_open_cursor, get(), table.get(), &raw, &cursor);
        return quench::cursor(cursor);
    }
    /// The rows of a range, for a `for` loop.
    rows range(const table &table, const key_range &range = {}) const { return rows(cursor(table, range), false); }
    /// The rows of a range, from the last one to the first.
    rows reversed(const table &table, const key_range &range = {}) const { return rows(cursor(table, range), true); }
    std::optional<owned_row> first(const table &table) const { return own(cursor(table).next()); }
    std::optional<owned_row> last(const table &table) const { return own(cursor(table).prev()); }
    void prefetch(const table &table, const std::vector<string_view> &keys) const {
        std::vector<quench_bytes> raw;
        for (string_view key : keys) raw.push_back({key.data(), key.size()});
        detail::call(quench_prefetch, get(), table.get(), raw.data(), raw.size());
    }
    quench_transaction *get() const noexcept { return handle_.get(); }

  protected:
    explicit reader(quench_transaction *handle) : handle_(handle) {}
    static std::optional<owned_row> own(std::optional<row> row) {
        if (!row) return std::nullopt;
        return owned_row{std::string(row->key), std::string(row->value)};
    }
    detail::owned<quench_transaction, quench_transaction_free> handle_;
};

/// A view of one moment, which blocks no writer.
class snapshot : public reader {
  public:
    explicit snapshot(quench_transaction *handle) : reader(handle) {}
    std::uint64_t csn() const {
        std::uint64_t csn = 0;
        detail::call(quench_snapshot_csn, get(), &csn);
        return csn;
    }
};

/// A commit that was not waited for.
class ticket {
  public:
    explicit ticket(quench_ticket *handle) : handle_(handle) {}
    std::uint64_t csn() const {
        std::uint64_t csn = 0;
        detail::call(quench_ticket_csn, handle_.get(), &csn);
        return csn;
    }
    bool is_durable() const { return detail::call(quench_ticket_poll, handle_.get()) > 0; }
    /// Waits; without a timeout until the end. Returns whether the commit is durable.
    bool wait(std::optional<std::chrono::microseconds> timeout = std::nullopt) const {
        return detail::call(quench_ticket_wait, handle_.get(), detail::microseconds(timeout)) > 0;
    }
    /// Calls `outcome(code)` once, with 0 when the commit is durable. It must not throw, wait, or close
    /// a database.
    template <typename Outcome> void notify(Outcome outcome) const {
        auto *kept = new Outcome(std::move(outcome));
        auto pass = [](void *context, int code) {
            std::unique_ptr<Outcome> kept(static_cast<Outcome *>(context));
            detail::caught().run([&] { return (*kept)(code), 0; });
        };
        // The function is called in any case, and deletes what is kept.
        detail::call(quench_ticket_notify, handle_.get(), quench_outcome_function(pass), static_cast<void *>(kept));
    }

  private:
    detail::owned<quench_ticket, quench_ticket_free> handle_;
};

/// A read-write transaction. Destroyed before `commit`, it takes everything back.
class transaction : public reader {
  public:
    explicit transaction(quench_transaction *handle) : reader(handle) {}

    void put(const table &table, string_view key, string_view value) {
        detail::call(quench_put, get(), table.get(), key.data(), key.size(), value.data(), value.size());
    }
    /// Returns whether the key was new; otherwise changes nothing.
    bool put_new(const table &table, string_view key, string_view value) {
        return detail::call(quench_put_new, get(), table.get(), key.data(), key.size(), value.data(), value.size()) > 0;
    }
    /// Returns the value before.
    std::optional<std::string> replace(const table &table, string_view key, string_view value) {
        detail::memory before;
        int found = detail::call(quench_replace, get(), table.get(), key.data(), key.size(), value.data(), value.size(),
                                 &before.data, &before.size);
        return found ? std::optional(before.text()) : std::nullopt;
    }
    bool remove(const table &table, string_view key) {
        return detail::call(quench_delete, get(), table.get(), key.data(), key.size()) > 0;
    }
    std::optional<std::string> pop(const table &table, string_view key) {
        detail::memory value;
        int found = detail::call(quench_pop, get(), table.get(), key.data(), key.size(), &value.data, &value.size);
        return found ? std::optional(value.text()) : std::nullopt;
    }
    std::optional<owned_row> pop_first(const table &table) { return pop_end(table, 0); }
    std::optional<owned_row> pop_last(const table &table) { return pop_end(table, 1); }
    /// Reads a row and locks it until the end: against other writers, or only against changes.
    std::optional<std::string> get_locked(const table &table, string_view key, bool exclusive = true) {
        detail::memory value;
        int found = detail::call(quench_get_locked, get(), table.get(), key.data(), key.size(), int(exclusive),
                                 &value.data, &value.size);
        return found ? std::optional(value.text()) : std::nullopt;
    }
    /// Sets a row to what `change` makes of its value: std::optional<string_view> in,
    /// std::optional<std::string> out, where nullopt is no row.
    template <typename Change> void update(const table &table, string_view key, Change &&change) {
        struct passed {
            Change &change;
            detail::caught caught;
            std::optional<std::string> made;
        } passed{change, {}, {}};
        auto pass = [](void *context, const void *before, std::size_t size, const void **after, std::size_t *after_size) {
            auto &to = *static_cast<struct passed *>(context);
            return to.caught.run([&] {
                std::optional<string_view> value;
                if (before) value.emplace(static_cast<const char *>(before), size);
                to.made = to.change(value);
                *after = to.made ? to.made->data() : nullptr;
                *after_size = to.made ? to.made->size() : 0;
                return 0;
            });
        };
        quench_error *given = nullptr;
        int answer = quench_update(get(), table.get(), key.data(), key.size(), pass, &passed, &given);
        if (passed.caught.exception) {
            quench_error_free(given);
            std::rethrow_exception(passed.caught.exception);
        }
        if (answer < 0) detail::raise(answer, given);
    }
    /// Sets a row if its value is as expected; nullopt is no row. Returns whether it was.
    bool compare_and_set(const table &table, string_view key, std::optional<string_view> expected,
                         std::optional<string_view> after) {
        return detail::call(quench_compare_and_set, get(), table.get(), key.data(), key.size(),
                            detail::address(expected), detail::length(expected), detail::address(after),
                            detail::length(after)) > 0;
    }
    /// Adds to a counter of 64 bits, and returns the sum.
    std::int64_t add(const table &table, string_view key, std::int64_t delta) {
        std::int64_t sum = 0;
        detail::call(quench_add, get(), table.get(), key.data(), key.size(), delta, &sum);
        return sum;
    }
    std::uint64_t remove_range(const table &table, const key_range &range = {}) {
        std::uint64_t count = 0;
        quench_range raw = range.raw();
        detail::call(quench_delete_range, get(), table.get(), &raw, &count);
        return count;
    }
    void lock(const table &table, bool exclusive) {
        detail::call(quench_lock_table, get(), table.get(), int(exclusive));
    }
    /// Ends the wait of another thread in a call of this transaction, or its next wait. That call
    /// throws an error with QUENCH_INTERRUPTED, and the transaction may continue.
    void interrupt() const { detail::call(quench_interrupt, get()); }
    std::uint64_t savepoint() {
        std::uint64_t point = 0;
        detail::call(quench_savepoint, get(), &point);
        return point;
    }
    void rollback_to(std::uint64_t savepoint) { detail::call(quench_rollback_to, get(), savepoint); }
    bool has_to_retry() const { return detail::call(quench_has_to_retry, get()) > 0; }
    /// Commits, and returns the CSN, 0 if nothing was changed.
    std::uint64_t commit() {
        std::uint64_t csn = 0;
        detail::call(quench_commit, get(), &csn);
        return csn;
    }
    ticket commit_async() {
        quench_ticket *ticket = nullptr;
        detail::call(quench_commit_async, get(), &ticket);
        return quench::ticket(ticket);
    }
    void rollback() { detail::call(quench_rollback, get()); }

  private:
    friend class database;
    void release() noexcept { (void)handle_.release(); }
    std::optional<owned_row> pop_end(const table &table, int last) {
        detail::memory key, value;
        int found = detail::call(quench_pop_end, get(), table.get(), last, &key.data, &key.size, &value.data, &value.size);
        return found ? std::optional(owned_row{key.text(), value.text()}) : std::nullopt;
    }
};

/// A committed transaction of a feed, valid until the next one.
struct committed {
    std::uint64_t csn;
    std::vector<quench_change> changes;
};

/// The committed transactions of a database, or the changes of some rows.
class changes {
  public:
    explicit changes(quench_changes *handle) : handle_(handle) {}
    /// Waits for the next one; without a timeout until the database is closed.
    std::optional<committed> next(std::optional<std::chrono::microseconds> timeout = std::nullopt) {
        committed found{0, {}};
        std::size_t count = 0;
        if (!detail::call(quench_changes_next, handle_.get(), detail::microseconds(timeout), &found.csn, &count))
            return std::nullopt;
        found.changes.resize(count, QUENCH_CHANGE_INIT);
        for (std::size_t at = 0; at < count; at++) detail::call(quench_changes_get, handle_.get(), at, &found.changes[at]);
        return found;
    }
    /// Where a later feed continues.
    std::uint64_t csn() const {
        std::uint64_t csn = 0;
        detail::call(quench_changes_csn, handle_.get(), &csn);
        return csn;
    }

  private:
    detail::owned<quench_changes, quench_changes_free> handle_;
};

/// An open database. `close` reports errors, the destructor does not.
class database {
  public:
    explicit database(string_view path, const std::vector<setting> &settings = {}) {
        auto raw = raw_settings(settings);
        quench_database *db = nullptr;
        detail::call(quench_open, path.data(), path.size(), raw.data(), raw.size(), quench_progress_function(nullptr),
                     static_cast<void *>(nullptr), &db);
        handle_.reset(db);
    }
    explicit database(quench_database *handle) : handle_(handle) {}
    static database in_memory(const std::vector<setting> &settings = {}) {
        auto raw = raw_settings(settings);
        quench_database *db = nullptr;
        detail::call(quench_open_in_memory, raw.data(), raw.size(), &db);
        return database(db);
    }
    static database checkpoint_of(string_view path, const std::vector<setting> &settings = {}) {
        auto raw = raw_settings(settings);
        quench_database *db = nullptr;
        detail::call(quench_open_checkpoint, path.data(), path.size(), raw.data(), raw.size(), &db);
        return database(db);
    }
    void close() { detail::call(quench_close, get()); }

    /// Opens a table; creates it, durably, if it is missing.
    table open_table(string_view name, bool create = true) const {
        quench_table *table = nullptr;
        detail::call(quench_open_table, get(), name.data(), name.size(), int(create), &table);
        return quench::table(table);
    }
    std::vector<std::string> tables() const {
        std::vector<std::string> names;
        auto add = [](void *context, const char *name, std::size_t size) {
            static_cast<std::vector<std::string> *>(context)->emplace_back(name, size);
        };
        detail::call(quench_tables, get(), quench_name_function(add), static_cast<void *>(&names));
        return names;
    }
    void drop_table(string_view name) { detail::call(quench_drop_table, get(), name.data(), name.size()); }
    void clear_table(string_view name) { detail::call(quench_clear_table, get(), name.data(), name.size()); }
    void rename_table(string_view name, string_view new_name) {
        detail::call(quench_rename_table, get(), name.data(), name.size(), new_name.data(), new_name.size());
    }

    transaction begin(const options &options = {}) const {
        quench_transaction *tx = nullptr;
        detail::call(quench_begin, get(), static_cast<const quench_options *>(&options), &tx);
        return transaction(tx);
    }
    class snapshot snapshot() const {
        quench_transaction *tx = nullptr;
        detail::call(quench_begin_read, get(), &tx);
        return quench::snapshot(tx);
    }
    /// Runs `change(tx)`, commits, and returns what it returned. Runs it again after conflicts. An
    /// exception of it takes everything back.
    template <typename Change> auto transact(Change &&change, const options &options = {}) const {
        using Result = std::invoke_result_t<Change &, transaction &>;
        using Kept = std::conditional_t<std::is_void_v<Result>, char, std::optional<Result>>;
        struct passed {
            Change &change;
            detail::caught caught;
            Kept made;
        } passed{change, {}, {}};
        auto pass = [](void *context, quench_transaction *handle, quench_error **) {
            auto &to = *static_cast<struct passed *>(context);
            transaction tx(handle);
            to.caught.exception = nullptr;
            int code = to.caught.run([&] {
                if constexpr (std::is_void_v<Result>) to.change(tx);
                else to.made.emplace(to.change(tx));
                return 0;
            });
            tx.release();
            return code;
        };
        quench_error *given = nullptr;
        int answer = quench_transact(get(), &options, pass, &passed, &given);
        if (passed.caught.exception && answer == detail::caught::code) {
            quench_error_free(given);
            std::rethrow_exception(passed.caught.exception);
        }
        if (answer < 0) detail::raise(answer, given);
        if constexpr (!std::is_void_v<Result>) return std::move(*passed.made);
    }

    /// One row in a snapshot, or in a durable transaction, of its own.
    std::optional<std::string> get(const table &table, string_view key) const { return snapshot().get(table, key); }
    void put(const table &table, string_view key, string_view value) const {
        detail::call(quench_database_put, get(), table.get(), key.data(), key.size(), value.data(), value.size());
    }
    bool remove(const table &table, string_view key) const {
        return detail::call(quench_database_delete, get(), table.get(), key.data(), key.size()) > 0;
    }

    class changes changes(std::uint64_t after = 0) const {
        quench_changes *changes = nullptr;
        detail::call(quench_open_changes, get(), after, &changes);
        return quench::changes(changes);
    }
    class changes watch(const table &table, string_view prefix = {}) const {
        quench_changes *changes = nullptr;
        detail::call(quench_open_watch, get(), table.get(), prefix.data(), prefix.size(), &changes);
        return quench::changes(changes);
    }

    void flush() const { detail::call(quench_flush, get()); }
    /// Reports, statistics and health are texts in JSON.
    std::string checkpoint() const { return detail::text(quench_checkpoint, get()); }
    std::string compact() const { return detail::text(quench_compact, get(), no_progress(), no_context()); }
    std::string backup(string_view target, std::optional<string_view> base = std::nullopt) const {
        return detail::text(quench_backup, get(), target.data(), target.size(),
                            static_cast<const char *>(detail::address(base)), detail::length(base), no_progress(),
                            no_context());
    }
    /// Throws nothing about damage: the report says it.
    std::string verify() const { return detail::text(quench_verify, get(), no_progress(), no_context()); }
    std::string statistics() const { return detail::text(quench_statistics, get()); }
    std::string prometheus() const { return detail::text(quench_prometheus, get()); }
    std::string health() const { return detail::text(quench_health, get()); }
    std::string facts() const { return detail::text(quench_facts, get()); }
    quench_database *get() const noexcept { return handle_.get(); }

  private:
    friend class standby;
    static quench_progress_function no_progress() { return nullptr; }
    static void *no_context() { return nullptr; }
    static std::vector<quench_setting> raw_settings(const std::vector<setting> &settings) {
        std::vector<quench_setting> raw;
        for (const setting &setting : settings) raw.push_back({setting.first.c_str(), setting.second.c_str()});
        return raw;
    }
    detail::owned<quench_database, quench_database_free> handle_;
};

/// A copy of a database in a store of objects that follows the process that writes.
class standby {
  public:
    explicit standby(string_view url, const std::vector<setting> &settings = {}) {
        auto raw = database::raw_settings(settings);
        quench_standby *standby = nullptr;
        detail::call(quench_open_standby, url.data(), url.size(), raw.data(), raw.size(), &standby);
        handle_.reset(standby);
    }
    /// A view of everything that was applied. Its tables are those of `table`.
    class snapshot snapshot() const {
        quench_transaction *tx = nullptr;
        detail::call(quench_standby_snapshot, get(), &tx);
        return quench::snapshot(tx);
    }
    /// Opens a table of a snapshot of a standby, which is for this snapshot only.
    static class table table(const class snapshot &snapshot, string_view name) {
        quench_table *table = nullptr;
        detail::call(quench_standby_table, snapshot.get(), name.data(), name.size(), &table);
        return quench::table(table);
    }
    std::uint64_t csn() const {
        std::uint64_t csn = 0;
        detail::call(quench_standby_csn, get(), &csn);
        return csn;
    }
    /// Waits until new snapshots show a transaction. Returns whether they do.
    bool wait_for(std::uint64_t csn, std::chrono::microseconds timeout) const {
        return detail::call(quench_standby_wait_for, get(), csn, std::uint64_t(timeout.count())) > 0;
    }
    std::string statistics() const { return detail::text(quench_standby_statistics, get()); }
    /// Ends the standby, and opens the database for writing.
    database promote() {
        quench_database *db = nullptr;
        detail::call(quench_standby_promote, get(), &db);
        return database(db);
    }
    quench_standby *get() const noexcept { return handle_.get(); }

  private:
    detail::owned<quench_standby, quench_standby_free> handle_;
};

/// Makes a database of a full backup and its increments. Returns a report in JSON.
inline std::string restore(const std::vector<std::string> &backups, string_view target,
                           std::optional<string_view> log = std::nullopt, std::uint64_t to = 0) {
    std::vector<quench_bytes> raw;
    for (const std::string &backup : backups) raw.push_back({backup.data(), backup.size()});
    return detail::text(quench_restore, raw.data(), raw.size(), target.data(), target.size(),
                        static_cast<const char *>(detail::address(log)), detail::length(log), to,
                        static_cast<const quench_setting *>(nullptr), std::size_t(0));
}

} // namespace quench

#endif
