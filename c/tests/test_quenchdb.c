/* Tests of the C interface: `test_quenchdb DIRECTORY [NAME]`, in an empty directory. */
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <time.h>
#include <sys/wait.h>
#include <unistd.h>

const char *running = "";
static char directory[4000];
/* This process ends without freeing what it has. */
static int frees_nothing = 0;

int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return frees_nothing; }

static const char *place(const char *name) {
    static char path[4200];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static quench_database *opened(const char *name) {
    quench_database *db;
    const char *path = place(name);
    WORKS(quench_open(path, strlen(path), NULL, 0, NULL, NULL, &db, &error));
    return db;
}

static quench_database *in_memory(void) {
    quench_database *db;
    WORKS(quench_open_in_memory(NULL, 0, &db, &error));
    return db;
}

static quench_table *table_of(quench_database *db, const char *name) {
    quench_table *table;
    WORKS(quench_open_table(db, name, strlen(name), 1, &table, &error));
    return table;
}

static quench_transaction *begun(quench_database *db) {
    quench_transaction *tx;
    WORKS(quench_begin(db, NULL, &tx, &error));
    return tx;
}

static void put(quench_transaction *tx, quench_table *table, const char *key, const char *value) {
    WORKS(quench_put(tx, table, key, strlen(key), value, strlen(value), &error));
}

/* Returns whether a row has a value; NULL: whether it does not exist. */
static int has(quench_transaction *tx, quench_table *table, const char *key, const char *expected) {
    void *value;
    size_t bytes;
    int found = quench_get(tx, table, key, strlen(key), &value, &bytes, NULL);
    int as_expected = expected == NULL ? found == 0 && value == NULL && bytes == 0
                                       : found == 1 && bytes == strlen(expected) && strcmp(value, expected) == 0;
    quench_free(value);
    return as_expected;
}

/* Returns the keys of a walk, each followed by a blank. */
static const char *walk(quench_cursor *cursor, int back) {
    static char keys[2000];
    const void *key;
    size_t bytes;
    size_t at = 0;
    for (;;) {
        int found = back ? quench_cursor_prev(cursor, &key, &bytes, NULL, NULL, NULL)
                         : quench_cursor_next(cursor, &key, &bytes, NULL, NULL, NULL);
        CHECK(found >= 0);
        if (found == 0) {
            keys[at] = 0;
            return keys;
        }
        memcpy(keys + at, key, bytes);
        at += bytes;
        keys[at++] = ' ';
    }
}

static void count_names(void *context, const char *name, size_t bytes) {
    CHECK(name != NULL && bytes > 0);
    ++*(int *)context;
}

static void rows_are_written_and_read(void) {
    quench_database *db = opened("rows");
    quench_table *table = table_of(db, "users");
    quench_transaction *tx = begun(db);
    put(tx, table, "alice", "Vienna");
    put(tx, table, "bob", "Graz");
    CHECK(has(tx, table, "alice", "Vienna"));
    CHECK(quench_contains(tx, table, S("bob"), NULL) == 1);
    CHECK(quench_contains(tx, table, S("carol"), NULL) == 0);
    uint64_t csn = 0;
    WORKS(quench_commit(tx, &csn, &error));
    CHECK(csn > 0);
    quench_transaction_free(tx);

    quench_transaction *snapshot;
    WORKS(quench_begin_read(db, &snapshot, &error));
    uint64_t seen = 0;
    WORKS(quench_snapshot_csn(snapshot, &seen, &error));
    CHECK(seen >= csn);
    CHECK(has(snapshot, table, "bob", "Graz"));
    CHECK(has(snapshot, table, "carol", NULL));
    CHECK(quench_delete(snapshot, table, S("bob"), NULL) == QUENCH_INVALID_ARGUMENT);
    quench_transaction_free(snapshot);

    CHECK(quench_database_delete(db, table, S("bob"), NULL) == 1);
    CHECK(quench_database_delete(db, table, S("bob"), NULL) == 0);
    WORKS(quench_database_put(db, table, S("dora"), S("Linz"), &error));
    void *value;
    CHECK(quench_database_get(db, table, S("dora"), &value, NULL, NULL) == 1);
    CHECK(strcmp(value, "Linz") == 0);
    quench_free(value);
    WORKS(quench_close(db, &error));
    quench_table_free(table);
    quench_database_free(db);

    db = opened("rows");
    table = table_of(db, "users");
    CHECK(quench_database_get(db, table, S("alice"), NULL, NULL, NULL) == 1);
    quench_table_free(table);
    quench_database_free(db);
}

static void sum_bytes(void *context, const void *value, size_t bytes) {
    for (size_t at = 0; at < bytes; at++) *(unsigned *)context += ((const unsigned char *)value)[at];
}

static void values_are_read_without_allocating(void) {
    quench_database *db = in_memory();
    quench_table *table = table_of(db, "t");
    WORKS(quench_database_put(db, table, S("key"), S("abc"), &error));
    quench_transaction *snapshot;
    WORKS(quench_begin_read(db, &snapshot, &error));
    char buffer[8] = "xxxxxxx";
    size_t bytes;
    CHECK(quench_get_into(snapshot, table, S("key"), buffer, sizeof buffer, &bytes, NULL) == 1);
    CHECK(bytes == 3 && memcmp(buffer, "abcxxxx", 8) == 0);
    CHECK(quench_get_into(snapshot, table, S("key"), buffer, 1, &bytes, NULL) == 1 && bytes == 3);
    CHECK(quench_get_into(snapshot, table, S("key"), NULL, 0, &bytes, NULL) == 1 && bytes == 3);
    CHECK(quench_get_into(snapshot, table, S("no"), buffer, 8, &bytes, NULL) == 0 && bytes == 0);
    unsigned sum = 0;
    CHECK(quench_get_with(snapshot, table, S("key"), sum_bytes, &sum, NULL) == 1 && sum == 'a' + 'b' + 'c');
    CHECK(quench_get_with(snapshot, table, S("no"), sum_bytes, &sum, NULL) == 0 && sum == 'a' + 'b' + 'c');
    quench_bytes keys[] = {{S("key")}, {S("no")}};
    WORKS(quench_prefetch(snapshot, table, keys, 2, &error));
    quench_transaction_free(snapshot);
    quench_table_free(table);
    quench_database_free(db);
}

static int append_mark(void *context, const void *before, size_t bytes, const void **after, size_t *after_bytes) {
    char *made = context;
    if (bytes > 0) memcpy(made, before, bytes);
    made[bytes] = '!';
    *after = made;
    *after_bytes = bytes + 1;
    return 0;
}

static int erase(void *context, const void *before, size_t bytes, const void **after, size_t *after_bytes) {
    (void)before, (void)bytes;
    *after = NULL;
    *after_bytes = 0;
    return ++*(int *)context;
}

static int refuse(void *context, const void *before, size_t bytes, const void **after, size_t *after_bytes) {
    (void)context, (void)before, (void)bytes, (void)after, (void)after_bytes;
    return -1234;
}

static void changes_are_composed_of_read_and_write(void) {
    quench_database *db = in_memory();
    quench_table *table = table_of(db, "t");
    quench_transaction *tx = begun(db);
    void *key, *value;
    size_t key_bytes, bytes;
    CHECK(quench_put_new(tx, table, S("a"), S("1"), NULL) == 1);
    CHECK(quench_put_new(tx, table, S("a"), S("2"), NULL) == 0);
    CHECK(quench_replace(tx, table, S("a"), S("3"), &value, &bytes, NULL) == 1 && bytes == 1 && *(char *)value == '1');
    quench_free(value);
    CHECK(quench_replace(tx, table, S("b"), S("4"), &value, &bytes, NULL) == 0 && value == NULL);
    CHECK(quench_compare_and_set(tx, table, S("a"), S("3"), S("5"), NULL) == 1);
    CHECK(quench_compare_and_set(tx, table, S("a"), NULL, 0, S("6"), NULL) == 0);
    CHECK(quench_compare_and_set(tx, table, S("a"), S("5"), NULL, 0, NULL) == 1);
    CHECK(has(tx, table, "a", NULL));
    CHECK(quench_compare_and_set(tx, table, S("a"), NULL, 0, S(""), NULL) == 1);
    CHECK(has(tx, table, "a", ""));
    CHECK(quench_compare_and_set(tx, table, S("a"), NULL, 0, S("x"), NULL) == 0);
    int64_t sum;
    WORKS(quench_add(tx, table, S("n"), 7, &sum, &error));
    WORKS(quench_add(tx, table, S("n"), -10, &sum, &error));
    CHECK(sum == -3);
    CHECK(quench_pop(tx, table, S("n"), &value, &bytes, NULL) == 1 && bytes == 8);
    quench_free(value);
    char made[100];
    CHECK(quench_update(tx, table, S("u"), append_mark, made, NULL) == 0);
    CHECK(quench_update(tx, table, S("u"), append_mark, made, NULL) == 0);
    CHECK(has(tx, table, "u", "!!"));
    FAILS(-1234, "callback returned -1234", quench_update(tx, table, S("u"), refuse, NULL, &error));
    CHECK(has(tx, table, "u", "!!"));
    int erased = 0;
    CHECK(quench_update(tx, table, S("u"), erase, &erased, NULL) == 1 && has(tx, table, "u", NULL));
    CHECK(quench_get_locked(tx, table, S("b"), 1, &value, NULL, NULL) == 1);
    quench_free(value);
    CHECK(quench_pop_end(tx, table, 0, &key, &key_bytes, &value, &bytes, NULL) == 1);
    CHECK(strcmp(key, "a") == 0 && bytes == 0);
    quench_free(key), quench_free(value);
    CHECK(quench_pop_end(tx, table, 1, &key, NULL, NULL, NULL, NULL) == 1 && strcmp(key, "b") == 0);
    quench_free(key);
    CHECK(quench_pop_end(tx, table, 1, &key, &key_bytes, &value, &bytes, NULL) == 0 && key == NULL && value == NULL);
    uint64_t point, count;
    put(tx, table, "s1", "");
    WORKS(quench_savepoint(tx, &point, &error));
    put(tx, table, "s2", "");
    CHECK(quench_delete(tx, table, S("s1"), NULL) == 1);
    WORKS(quench_rollback_to(tx, point, &error));
    CHECK(has(tx, table, "s1", "") && has(tx, table, "s2", NULL));
    FAILS(QUENCH_INVALID_ARGUMENT, "no savepoint 9", quench_rollback_to(tx, 9, &error));
    WORKS(quench_lock_table(tx, table, 1, &error));
    quench_range range = QUENCH_RANGE_INIT;
    range.prefix = "s", range.prefix_bytes = 1;
    WORKS(quench_count(tx, table, &range, &count, &error));
    CHECK(count == 1);
    WORKS(quench_delete_range(tx, table, NULL, &count, &error));
    CHECK(count == 1);
    WORKS(quench_rollback(tx, &error));
    quench_transaction_free(tx);
    quench_table_free(table);
    quench_database_free(db);
}

static void cursors_step_in_both_directions(void) {
    quench_database *db = in_memory();
    quench_table *table = table_of(db, "t");
    quench_transaction *tx = begun(db);
    const char *all = "a b ba bb c d ";
    put(tx, table, "a", "1"), put(tx, table, "b", "2"), put(tx, table, "ba", "3");
    put(tx, table, "bb", "4"), put(tx, table, "c", "5"), put(tx, table, "d", "6");
    quench_cursor *cursor;
    WORKS(quench_open_cursor(tx, table, NULL, &cursor, &error));
    CHECK(strcmp(walk(cursor, 0), all) == 0);
    CHECK(strcmp(walk(cursor, 0), "") == 0);
    CHECK(strcmp(walk(cursor, 1), "d c bb ba b a ") == 0);
    CHECK(strcmp(walk(cursor, 1), "") == 0);
    CHECK(strcmp(walk(cursor, 0), all) == 0);
    WORKS(quench_cursor_seek(cursor, S("bab"), &error));
    CHECK(strcmp(walk(cursor, 0), "bb c d ") == 0);
    WORKS(quench_cursor_seek(cursor, S("ba"), &error));
    CHECK(strcmp(walk(cursor, 1), "b a ") == 0);
    /* The row that a step returned is behind the next step, in each direction. */
    const void *key, *value;
    size_t key_bytes, value_bytes;
    WORKS(quench_cursor_seek(cursor, S("ba"), &error));
    CHECK(quench_cursor_next(cursor, &key, &key_bytes, &value, &value_bytes, NULL) == 1);
    CHECK(key_bytes == 2 && memcmp(key, "ba", 2) == 0 && value_bytes == 1 && *(const char *)value == '3');
    CHECK(quench_cursor_prev(cursor, &key, &key_bytes, NULL, NULL, NULL) == 1 && *(const char *)key == 'b');
    /* What the transaction writes ahead of the cursor appears; what it deletes does not. */
    put(tx, table, "b5", "");
    CHECK(quench_delete(tx, table, S("bb"), NULL) == 1);
    CHECK(strcmp(walk(cursor, 0), "b5 ba c d ") == 0);
    quench_cursor_free(cursor);

    quench_range range = QUENCH_RANGE_INIT;
    range.start = "b", range.start_bytes = 1, range.exclude_start = 1;
    range.stop = "c", range.stop_bytes = 1, range.include_stop = 1;
    WORKS(quench_open_cursor(tx, table, &range, &cursor, &error));
    CHECK(strcmp(walk(cursor, 0), "b5 ba c ") == 0);
    WORKS(quench_cursor_seek(cursor, S("z"), &error));
    CHECK(strcmp(walk(cursor, 0), "") == 0);
    WORKS(quench_cursor_seek(cursor, S("z"), &error));
    CHECK(strcmp(walk(cursor, 1), "c ba b5 ") == 0);
    WORKS(quench_cursor_seek(cursor, S(""), &error));
    CHECK(strcmp(walk(cursor, 1), "") == 0);
    WORKS(quench_cursor_seek(cursor, S("a"), &error));
    CHECK(strcmp(walk(cursor, 0), "b5 ba c ") == 0);
    quench_cursor_free(cursor);
    range.prefix = "b", range.prefix_bytes = 1;
    FAILS(QUENCH_INVALID_ARGUMENT, "a prefix, or start and stop", quench_open_cursor(tx, table, &range, &cursor, &error));
    CHECK(cursor == NULL);
    quench_transaction_free(tx);
    quench_table_free(table);
    quench_database_free(db);
}

static void a_long_walk_returns_each_row_once(void) {
    enum { ROWS = 20000 };
    quench_database *db = in_memory();
    quench_table *table = table_of(db, "t");
    quench_transaction *tx = begun(db);
    for (unsigned n = 0; n < ROWS; n++) {
        unsigned char key[4] = {n >> 24, n >> 16, n >> 8, n};
        WORKS(quench_put(tx, table, key, 4, key, n % 5, &error));
    }
    WORKS(quench_commit(tx, NULL, &error));
    quench_transaction_free(tx);
    WORKS(quench_begin_read(db, &tx, &error));
    quench_cursor *cursor;
    WORKS(quench_open_cursor(tx, table, NULL, &cursor, &error));
    /* The snapshot stays for its cursor. */
    quench_transaction_free(tx);
    quench_table_free(table);
    quench_database_free(db);
    const void *key;
    size_t key_bytes, value_bytes;
    unsigned n = 0;
    for (; quench_cursor_next(cursor, &key, &key_bytes, NULL, &value_bytes, NULL) == 1; n++) {
        const unsigned char *bytes = key;
        unsigned number = (unsigned)bytes[0] << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3];
        CHECK(number == n && value_bytes == n % 5);
    }
    CHECK(n == ROWS);
    for (; quench_cursor_prev(cursor, NULL, NULL, NULL, NULL, NULL) == 1; n--) {}
    CHECK(n == 0);
    quench_cursor_free(cursor);
}

static void tables_are_created_listed_and_dropped(void) {
    quench_database *db = in_memory();
    quench_table *table;
    FAILS(QUENCH_NOT_FOUND, "none", quench_open_table(db, S("none"), 0, &table, &error));
    CHECK(table == NULL);
    table = table_of(db, "one");
    quench_table_free(table_of(db, "two"));
    int names = 0;
    WORKS(quench_tables(db, count_names, &names, &error));
    CHECK(names == 2);
    FAILS(QUENCH_ALREADY_EXISTS, "two", quench_rename_table(db, S("one"), S("two"), &error));
    WORKS(quench_rename_table(db, S("one"), S("first"), &error));
    char *name;
    size_t bytes;
    WORKS(quench_table_name(table, &name, &bytes, &error));
    CHECK(bytes == 5 && strcmp(name, "first") == 0);
    quench_free(name);
    WORKS(quench_clear_table(db, S("first"), &error));
    FAILS(QUENCH_NOT_FOUND, "", quench_database_put(db, table, S("k"), S("v"), &error));
    quench_table_free(table);
    WORKS(quench_drop_table(db, S("first"), &error));
    FAILS(QUENCH_NOT_FOUND, "first", quench_drop_table(db, S("first"), &error));
    FAILS(QUENCH_INVALID_ARGUMENT, "not UTF-8", quench_open_table(db, S("\xff\xfe"), 1, &table, &error));
    FAILS(QUENCH_INVALID_ARGUMENT, "table name", quench_open_table(db, S(""), 1, &table, &error));
    quench_database_free(db);
}

static void bytes_may_be_any(void) {
    quench_database *db = in_memory();
    quench_table *table = table_of(db, "t");
    quench_transaction *tx = begun(db);
    size_t bytes;
    WORKS(quench_put(tx, table, S("empty"), NULL, 0, &error));
    CHECK(quench_get_into(tx, table, S("empty"), NULL, 0, &bytes, NULL) == 1 && bytes == 0);
    FAILS(QUENCH_INVALID_ARGUMENT, "this one has 0", quench_put(tx, table, NULL, 0, S("v"), &error));
    WORKS(quench_put(tx, table, S("a\0b"), S("\0\0"), &error));
    CHECK(quench_get_into(tx, table, S("a\0b"), NULL, 0, &bytes, NULL) == 1 && bytes == 2);
    CHECK(quench_contains(tx, table, S("a"), NULL) == 0);
    FAILS(QUENCH_INVALID_ARGUMENT, "`key`", quench_put(tx, table, NULL, 3, S("v"), &error));
    size_t large = 1 << 20;
    char *much = calloc(large, 1);
    FAILS(QUENCH_INVALID_ARGUMENT, "key", quench_put(tx, table, much, large, S("v"), &error));
    WORKS(quench_put(tx, table, S("large"), much, large, &error));
    CHECK(quench_get_into(tx, table, S("large"), NULL, 0, &bytes, NULL) == 1 && bytes == large);
    free(much);
    WORKS(quench_commit(tx, NULL, &error));
    quench_transaction_free(tx);
    quench_table_free(table);
    quench_database_free(db);
}

static void settings_and_options_are_checked(void) {
    quench_database *db;
    quench_setting wrong[] = {{"memory_bits", "1"}};
    FAILS(QUENCH_INVALID_ARGUMENT, "no setting is called `memory_bits`", quench_open_in_memory(wrong, 1, &db, &error));
    CHECK(db == NULL);
    wrong[0] = (quench_setting){"memory_bytes", "much"};
    FAILS(QUENCH_INVALID_ARGUMENT, "`memory_bytes` cannot be `much`", quench_open_in_memory(wrong, 1, &db, &error));
    wrong[0] = (quench_setting){"create", "yes"};
    FAILS(QUENCH_INVALID_ARGUMENT, "`true` or `false`", quench_open_in_memory(wrong, 1, &db, &error));
    wrong[0] = (quench_setting){"lock_wait", "-1"};
    FAILS(QUENCH_INVALID_ARGUMENT, "seconds", quench_open_in_memory(wrong, 1, &db, &error));
    wrong[0] = (quench_setting){"page_bytes", "17"};
    FAILS(QUENCH_INVALID_ARGUMENT, "page_bytes", quench_open_in_memory(wrong, 1, &db, &error));
    wrong[0] = (quench_setting){NULL, "1"};
    FAILS(QUENCH_INVALID_ARGUMENT, "`name` is NULL", quench_open_in_memory(wrong, 1, &db, &error));
    FAILS(QUENCH_INVALID_ARGUMENT, "`settings`", quench_open_in_memory(NULL, 1, &db, &error));
    quench_setting good[] = {{"memory_bytes", "33554432"}, {"lock_wait", "0.25"}, {"compression", "lz4"},
                             {"preset", "group"}, {"monitor", "false"}};
    WORKS(quench_open_in_memory(good, 5, &db, &error));

    quench_options options = QUENCH_OPTIONS_INIT;
    quench_transaction *tx;
    options.isolation = QUENCH_SERIALIZABLE, options.pessimistic = 1, options.lock_timeout_us = 1000;
    options.priority = -1, options.release_at_commit = 1;
    WORKS(quench_begin(db, &options, &tx, &error));
    quench_transaction_free(tx);
    options.durability = 7;
    FAILS(QUENCH_INVALID_ARGUMENT, "`durability` cannot be 7", quench_begin(db, &options, &tx, &error));
    options = (quench_options)QUENCH_OPTIONS_INIT;
    options.size = 0;
    FAILS(QUENCH_INVALID_ARGUMENT, "`size`", quench_begin(db, &options, &tx, &error));
    /* A program with an older header, and one with a newer one. */
    options.size = offsetof(quench_options, pessimistic);
    options.isolation = QUENCH_READ_COMMITTED, options.priority = 1000;
    WORKS(quench_begin(db, &options, &tx, &error));
    quench_transaction_free(tx);
    struct { quench_options known; int newer; } newer = {QUENCH_OPTIONS_INIT, 0};
    newer.known.size = sizeof newer;
    WORKS(quench_begin(db, &newer.known, &tx, &error));
    quench_transaction_free(tx);
    newer.newer = 1;
    FAILS(QUENCH_UNSUPPORTED, "newer header", quench_begin(db, &newer.known, &tx, &error));
    quench_options read_only = QUENCH_OPTIONS_INIT;
    read_only.read_only = 1;
    WORKS(quench_begin(db, &read_only, &tx, &error));
    quench_table *table = table_of(db, "t");
    FAILS(QUENCH_INVALID_ARGUMENT, "read-only", quench_put(tx, table, S("k"), S("v"), &error));
    quench_transaction_free(tx);
    quench_table_free(table);
    quench_database_free(db);
}

static void null_is_an_error(void) {
    quench_database *db = in_memory();
    quench_table *table = table_of(db, "t");
    quench_transaction *tx;
    quench_database *other;
    FAILS(QUENCH_INVALID_ARGUMENT, "`database` is NULL", quench_begin(NULL, NULL, &tx, &error));
    CHECK(tx == NULL);
    tx = begun(db);
    FAILS(QUENCH_INVALID_ARGUMENT, "`transaction` is NULL", quench_begin(db, NULL, NULL, &error));
    FAILS(QUENCH_INVALID_ARGUMENT, "`transaction` is NULL", quench_put(NULL, table, S("k"), S("v"), &error));
    FAILS(QUENCH_INVALID_ARGUMENT, "`table` is NULL", quench_put(tx, NULL, S("k"), S("v"), &error));
    FAILS(QUENCH_INVALID_ARGUMENT, "`table` is NULL", quench_get(tx, NULL, S("k"), NULL, NULL, &error));
    FAILS(QUENCH_INVALID_ARGUMENT, "`cursor` is NULL", quench_cursor_next(NULL, NULL, NULL, NULL, NULL, &error));
    FAILS(QUENCH_INVALID_ARGUMENT, "`ticket` is NULL", quench_ticket_wait(NULL, 0, &error));
    FAILS(QUENCH_INVALID_ARGUMENT, "`changes` is NULL", quench_changes_next(NULL, 0, NULL, NULL, &error));
    FAILS(QUENCH_INVALID_ARGUMENT, "`change` is NULL", quench_transact(db, NULL, NULL, NULL, &error));
    FAILS(QUENCH_INVALID_ARGUMENT, "`visit` is NULL", quench_get_with(tx, table, S("k"), NULL, NULL, &error));
    FAILS(QUENCH_INVALID_ARGUMENT, "`each` is NULL", quench_tables(db, NULL, NULL, &error));
    FAILS(QUENCH_INVALID_ARGUMENT, "`path` is empty", quench_open(NULL, 0, NULL, 0, NULL, NULL, &other, &error));
    CHECK(other == NULL);
    CHECK(quench_put(NULL, NULL, NULL, 0, NULL, 0, NULL) == QUENCH_INVALID_ARGUMENT);
    quench_database_free(NULL), quench_table_free(NULL), quench_transaction_free(NULL), quench_cursor_free(NULL);
    quench_ticket_free(NULL), quench_changes_free(NULL), quench_error_free(NULL), quench_free(NULL);
    CHECK(quench_error_code(NULL) == 0 && strcmp(quench_error_name(NULL), "ok") == 0);
    CHECK(quench_error_location(NULL) == NULL);
    quench_transaction_free(tx);
    quench_table_free(table);
    quench_database_free(db);
}

static void what_has_ended_is_an_error(void) {
    quench_database *db = in_memory();
    quench_table *table = table_of(db, "t");
    quench_transaction *tx = begun(db);
    put(tx, table, "a", "1"), put(tx, table, "b", "2");
    quench_cursor *cursor;
    WORKS(quench_open_cursor(tx, table, NULL, &cursor, &error));
    CHECK(quench_cursor_next(cursor, NULL, NULL, NULL, NULL, NULL) == 1);
    WORKS(quench_commit(tx, NULL, &error));
    FAILS(QUENCH_INVALID_ARGUMENT, "has ended", quench_put(tx, table, S("k"), S("v"), &error));
    FAILS(QUENCH_INVALID_ARGUMENT, "has ended", quench_get(tx, table, S("k"), NULL, NULL, &error));
    FAILS(QUENCH_INVALID_ARGUMENT, "has ended", quench_commit(tx, NULL, &error));
    FAILS(QUENCH_INVALID_ARGUMENT, "has ended", quench_rollback(tx, &error));
    FAILS(QUENCH_INVALID_ARGUMENT, "has ended", quench_cursor_next(cursor, NULL, NULL, NULL, NULL, &error));
    quench_transaction_free(tx);
    FAILS(QUENCH_INVALID_ARGUMENT, "has ended", quench_cursor_prev(cursor, NULL, NULL, NULL, NULL, &error));
    quench_cursor_free(cursor);
    /* A transaction ends when it is freed, although a cursor is left: its rows are free again. */
    tx = begun(db);
    put(tx, table, "a", "3");
    WORKS(quench_open_cursor(tx, table, NULL, &cursor, &error));
    quench_transaction_free(tx);
    WORKS(quench_database_put(db, table, S("a"), S("4"), &error));
    FAILS(QUENCH_INVALID_ARGUMENT, "has ended", quench_cursor_next(cursor, NULL, NULL, NULL, NULL, &error));
    quench_cursor_free(cursor);
    /* A close ends everything. */
    quench_transaction *snapshot;
    tx = begun(db);
    WORKS(quench_begin_read(db, &snapshot, &error));
    WORKS(quench_close(db, &error));
    FAILS(QUENCH_INVALID_ARGUMENT, "closed", quench_put(tx, table, S("k"), S("v"), &error));
    FAILS(QUENCH_INVALID_ARGUMENT, "closed", quench_get(snapshot, table, S("a"), NULL, NULL, &error));
    FAILS(QUENCH_INVALID_ARGUMENT, "closed", quench_tables(db, count_names, NULL, &error));
    quench_transaction_free(tx);
    quench_database_free(db);
    quench_transaction_free(snapshot);
    quench_table_free(table);
}

static void handles_are_freed_in_any_order(void) {
    for (int order = 0; order < 24; order++) {
        quench_database *db = in_memory();
        quench_table *table = table_of(db, "t");
        quench_transaction *tx = begun(db), *snapshot;
        put(tx, table, "a", "1");
        WORKS(quench_begin_read(db, &snapshot, &error));
        quench_cursor *cursor;
        WORKS(quench_open_cursor(order % 2 ? tx : snapshot, table, NULL, &cursor, &error));
        int left[] = {0, 1, 2, 3, 4};
        for (int count = 5, choice = order; count > 0; count--, choice /= 2) {
            int at = choice % count, what = left[at];
            memmove(left + at, left + at + 1, (size_t)(count - at - 1) * sizeof *left);
            if (what == 0) quench_database_free(db);
            if (what == 1) quench_table_free(table);
            if (what == 2) quench_transaction_free(tx);
            if (what == 3) quench_transaction_free(snapshot);
            if (what == 4) quench_cursor_free(cursor);
        }
    }
    /* The children keep the database open. */
    quench_database *db = opened("children");
    quench_table *table = table_of(db, "t");
    quench_transaction *tx = begun(db);
    quench_database_free(db);
    put(tx, table, "a", "1");
    WORKS(quench_commit(tx, NULL, &error));
    quench_transaction_free(tx);
    quench_table_free(table);
    db = opened("children");
    table = table_of(db, "t");
    CHECK(quench_database_get(db, table, S("a"), NULL, NULL, NULL) == 1);
    quench_table_free(table);
    quench_database_free(db);
}

struct transacting {
    quench_database *db;
    quench_table *table;
    int calls, what;
};

static int transact(void *context, quench_transaction *tx, quench_error **error) {
    struct transacting *how = context;
    how->calls++;
    int64_t sum;
    int code = quench_add(tx, how->table, S("n"), 1, &sum, error);
    if (code < 0) return code;
    switch (how->what) {
    case 1: /* another transaction changes a row that this one has read */
        if (how->calls == 1) {
            quench_database_put(how->db, how->table, S("other"), S("1"), NULL);
            return quench_put(tx, how->table, S("other"), S("2"), error);
        }
        return 0;
    case 2: return -1001;
    case 3: return quench_put(tx, NULL, S("k"), S("v"), error);
    case 4: return quench_commit(tx, NULL, error);
    default: return 5;
    }
}

static void transact_repeats_and_reports(void) {
    quench_database *db = in_memory();
    struct transacting how = {db, table_of(db, "t"), 0, 0};
    CHECK(quench_transact(db, NULL, transact, &how, NULL) == 5 && how.calls == 1);
    how = (struct transacting){db, how.table, 0, 1};
    WORKS(quench_transact(db, NULL, transact, &how, &error));
    CHECK(how.calls == 2);
    how.what = 2;
    FAILS(-1001, "callback returned -1001", quench_transact(db, NULL, transact, &how, &error));
    how.what = 3;
    FAILS(QUENCH_INVALID_ARGUMENT, "`table` is NULL", quench_transact(db, NULL, transact, &how, &error));
    CHECK(quench_transact(db, NULL, transact, &how, NULL) == QUENCH_INVALID_ARGUMENT);
    how.what = 4;
    FAILS(QUENCH_INVALID_ARGUMENT, "quench_transact ends", quench_transact(db, NULL, transact, &how, &error));
    quench_transaction *tx = begun(db);
    int64_t sum;
    WORKS(quench_add(tx, how.table, S("n"), 0, &sum, &error));
    CHECK(sum == 2);
    quench_transaction_free(tx);
    quench_table_free(how.table);
    quench_database_free(db);
}

static void transactions_conflict(void) {
    quench_database *db = in_memory();
    quench_table *table = table_of(db, "t");
    quench_transaction *one = begun(db), *two = begun(db);
    put(one, table, "k", "1");
    WORKS(quench_commit(one, NULL, &error));
    quench_error *error = NULL;
    int code = quench_put(two, table, S("k"), S("2"), &error);
    CHECK(code == QUENCH_CONFLICT && quench_is_retryable(code) && !quench_is_retryable(QUENCH_IO));
    CHECK(strcmp(quench_error_name(error), "conflict") == 0);
    quench_error_free(error);
    CHECK(quench_has_to_retry(two, NULL) == 1);
    quench_transaction_free(one), quench_transaction_free(two);
    quench_table_free(table);
    quench_database_free(db);
}

static void use_the_transaction(void *context, const void *value, size_t bytes) {
    void **objects = context;
    CHECK(bytes == 1 && *(const char *)value == '1');
    put(objects[0], objects[1], "k", "22");
    CHECK(has(objects[0], objects[1], "k", "22"));
    CHECK(*(const char *)value == '1');
}

static void a_callback_may_use_what_is_read_from(void) {
    quench_database *db = in_memory();
    quench_table *table = table_of(db, "t");
    quench_transaction *tx = begun(db);
    put(tx, table, "k", "1");
    void *objects[] = {tx, table};
    CHECK(quench_get_with(tx, table, S("k"), use_the_transaction, objects, NULL) == 1);
    CHECK(has(tx, table, "k", "22"));
    quench_transaction_free(tx);
    quench_table_free(table);
    quench_database_free(db);
}

static void note_outcome(void *context, int code) { atomic_store((atomic_int *)context, code == 0 ? 1 : code); }

static void commits_need_not_be_waited_for(void) {
    quench_database *db = opened("tickets");
    quench_table *table = table_of(db, "t");
    atomic_int outcomes[20] = {0};
    quench_ticket *ticket;
    for (int n = 0; n < 20; n++) {
        quench_transaction *tx = begun(db);
        put(tx, table, "k", "v");
        WORKS(quench_commit_async(tx, &ticket, &error));
        uint64_t csn;
        WORKS(quench_ticket_csn(ticket, &csn, &error));
        CHECK(csn > 0);
        WORKS(quench_ticket_notify(ticket, note_outcome, &outcomes[n], &error));
        quench_transaction_free(tx);
        if (n % 2) {
            CHECK(quench_ticket_wait(ticket, -1, NULL) == 1);
            CHECK(quench_ticket_poll(ticket, NULL) == 1);
        }
        quench_ticket_free(ticket);
    }
    for (int n = 0; n < 20; n++) {
        for (int waits = 0; atomic_load(&outcomes[n]) == 0; waits++) {
            CHECK(waits < 10000);
            usleep(1000);
        }
        CHECK(atomic_load(&outcomes[n]) == 1);
    }
    /* At level lazy the close makes it durable; the ticket may outlive the database. */
    quench_options lazy = QUENCH_OPTIONS_INIT;
    lazy.durability = QUENCH_LAZY;
    quench_transaction *tx;
    WORKS(quench_begin(db, &lazy, &tx, &error));
    put(tx, table, "k", "lazy");
    WORKS(quench_commit_async(tx, &ticket, &error));
    CHECK(quench_ticket_wait(ticket, 0, NULL) >= 0);
    quench_transaction_free(tx);
    quench_database_free(db);
    CHECK(quench_ticket_wait(ticket, -1, NULL) == 1);
    quench_ticket_free(ticket);
    quench_table_free(table);
}

static void *close_later(void *db) {
    usleep(100000);
    WORKS(quench_close(db, &error));
    return NULL;
}

static void feeds_return_committed_transactions(void) {
    quench_database *db = opened("feeds");
    quench_table *table = table_of(db, "users");
    quench_changes *watch, *changes;
    WORKS(quench_open_watch(db, table, S("al"), &watch, &error));
    quench_transaction *tx = begun(db);
    put(tx, table, "alice", "Vienna");
    WORKS(quench_delete(tx, table, S("nobody"), &error));
    uint64_t committed, csn = 0;
    WORKS(quench_commit(tx, &committed, &error));
    quench_transaction_free(tx);
    WORKS(quench_open_changes(db, 0, &changes, &error));
    size_t count = 0;
    quench_change change = QUENCH_CHANGE_INIT;
    while (csn < committed) CHECK(quench_changes_next(changes, 5000000, &csn, &count, NULL) == 1);
    CHECK(csn == committed && count == 1);
    WORKS(quench_changes_get(changes, 0, &change, &error));
    CHECK(change.kind == QUENCH_PUT && change.table_bytes == 5 && memcmp(change.table, "users", 5) == 0);
    CHECK(change.key_bytes == 5 && memcmp(change.key, "alice", 5) == 0);
    CHECK(change.value_bytes == 6 && memcmp(change.value, "Vienna", 6) == 0 && change.size == sizeof change);
    FAILS(QUENCH_INVALID_ARGUMENT, "no change 1", quench_changes_get(changes, 1, &change, &error));
    CHECK(quench_changes_next(changes, 1000, NULL, NULL, NULL) == 0);
    WORKS(quench_changes_csn(changes, &csn, &error));
    CHECK(csn >= committed);
    FAILS(QUENCH_INVALID_ARGUMENT, "CSN", quench_open_changes(db, 1u << 30, &(quench_changes *){NULL}, &error));
    CHECK(quench_changes_next(watch, 5000000, &csn, &count, NULL) == 1 && csn == committed && count == 1);
    /* A wait without limit ends when the database is closed. */
    pthread_t closer;
    pthread_create(&closer, NULL, close_later, db);
    CHECK(quench_changes_next(changes, -1, NULL, NULL, NULL) == 0);
    pthread_join(closer, NULL);
    quench_database_free(db);
    quench_changes_free(changes), quench_changes_free(watch);
    quench_table_free(table);
}

static void count_progress(void *context, const char *what, uint64_t done, uint64_t all) {
    CHECK(strlen(what) > 0);
    (void)done, (void)all;
    ++*(int *)context;
}

static void databases_are_copied_and_checked(void) {
    quench_database *db = opened("origin");
    quench_table *table = table_of(db, "t");
    WORKS(quench_database_put(db, table, S("k"), S("v"), &error));
    char full[4200], more[4200], copy[4200], *report;
    strcpy(full, place("full")), strcpy(more, place("more")), strcpy(copy, place("copy"));
    int calls = 0;
    WORKS(quench_backup(db, full, strlen(full), NULL, 0, count_progress, &calls, &report, &error));
    CHECK(strstr(report, "\"pages_copied\":") != NULL && calls > 0);
    quench_free(report);
    WORKS(quench_database_put(db, table, S("k2"), S("v2"), &error));
    WORKS(quench_backup(db, more, strlen(more), full, strlen(full), NULL, NULL, NULL, &error));
    FAILS(QUENCH_ALREADY_EXISTS, "", quench_backup(db, full, strlen(full), NULL, 0, NULL, NULL, &report, &error));
    CHECK(report == NULL);
    quench_bytes backups[] = {{full, strlen(full)}, {more, strlen(more)}};
    WORKS(quench_restore(backups, 2, copy, strlen(copy), NULL, 0, 0, NULL, 0, &report, &error));
    quench_free(report);
    CHECK(quench_verify_path(copy, strlen(copy), NULL, 0, &report, NULL) == 1);
    CHECK(strstr(report, "\"problems\":[]") != NULL);
    quench_free(report);
    CHECK(quench_verify(db, NULL, NULL, NULL, NULL) == 1);
    WORKS(quench_checkpoint(db, &report, &error));
    CHECK(strstr(report, "\"csn\":") != NULL);
    quench_free(report);
    WORKS(quench_compact(db, NULL, NULL, NULL, &error));
    WORKS(quench_flush(db, &error));
    WORKS(quench_statistics(db, &report, &error));
    CHECK(report[0] == '{' && strstr(report, "\"committed\":") != NULL);
    quench_free(report);
    WORKS(quench_prometheus(db, &report, &error));
    CHECK(strstr(report, "# TYPE") != NULL);
    quench_free(report);
    WORKS(quench_health(db, &report, &error));
    CHECK(strstr(report, "\"healthy\"") != NULL);
    quench_free(report);
    WORKS(quench_facts(db, &report, &error));
    CHECK(strstr(report, "\"max_key_bytes\":") != NULL);
    quench_free(report);
    WORKS(quench_reset_statistics(db, &error));
    quench_database *reader;
    const char *origin = place("origin");
    WORKS(quench_ask_statistics(origin, strlen(origin), &report, &error));
    quench_free(report);
    WORKS(quench_open_checkpoint(origin, strlen(origin), NULL, 0, &reader, &error));
    quench_table *same = NULL;
    WORKS(quench_open_table(reader, S("t"), 0, &same, &error));
    CHECK(quench_database_get(reader, same, S("k2"), NULL, NULL, NULL) == 1);
    quench_table_free(same);
    quench_database_free(reader);
    quench_table_free(table);
    quench_database_free(db);
}

/* Returns how a child ended that ran `run`. In valgrind (3.19) the exit of a child of a process with
   threads spins, so the parent ends it once it has told its status. */
static int in_child(int (*run)(void *), void *context) {
    int is_killed = getenv("UNDER_VALGRIND") != NULL;
    fflush(NULL);
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char told = (char)run(context);
        CHECK(write(pipes[1], &told, 1) == 1);
        if (is_killed) pause();
        _exit(told);
    }
    close(pipes[1]);
    char told = 100;
    ssize_t bytes = read(pipes[0], &told, 1);
    close(pipes[0]);
    if (is_killed) CHECK(kill(child, SIGKILL) == 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    if (is_killed) return bytes == 1 ? told : 200;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 200 + WTERMSIG(status);
}

struct inherited {
    quench_database *db;
    quench_table *table;
    quench_transaction *tx, *snapshot;
    quench_cursor *cursor;
};

static int use_in_child(void *context) {
    struct inherited *of = context;
    FAILS(QUENCH_FORKED, "forked", quench_put(of->tx, of->table, S("k"), S("child"), &error));
    FAILS(QUENCH_FORKED, "forked", quench_commit(of->tx, NULL, &error));
    FAILS(QUENCH_FORKED, "forked", quench_get(of->snapshot, of->table, S("k"), NULL, NULL, &error));
    FAILS(QUENCH_FORKED, "forked", quench_cursor_next(of->cursor, NULL, NULL, NULL, NULL, &error));
    FAILS(QUENCH_FORKED, "forked", quench_begin(of->db, NULL, &(quench_transaction *){NULL}, &error));
    FAILS(QUENCH_FORKED, "forked", quench_tables(of->db, count_names, NULL, &error));
    FAILS(QUENCH_FORKED, "forked", quench_flush(of->db, &error));
    FAILS(QUENCH_FORKED, "forked", quench_close(of->db, &error));
    quench_database_free(of->db), quench_transaction_free(of->tx), quench_cursor_free(of->cursor);
    quench_transaction_free(of->snapshot), quench_table_free(of->table);
    quench_database_free(in_memory());
    return 0;
}

static void a_forked_child_gets_errors_and_harms_nothing(void) {
    quench_database *db = opened("forked");
    struct inherited of = {db, table_of(db, "t"), begun(db), NULL, NULL};
    put(of.tx, of.table, "k", "parent");
    WORKS(quench_begin_read(db, &of.snapshot, &error));
    WORKS(quench_open_cursor(of.snapshot, of.table, NULL, &of.cursor, &error));
    CHECK(in_child(use_in_child, &of) == 0);
    WORKS(quench_commit(of.tx, NULL, &error));
    CHECK(quench_database_get(db, of.table, S("k"), NULL, NULL, NULL) == 1);
    quench_cursor_free(of.cursor), quench_transaction_free(of.tx), quench_transaction_free(of.snapshot);
    quench_table_free(of.table);
    quench_database_free(db);
}

static int open_in_child(void *context) {
    (void)context;
    quench_database *db;
    const char *path = place("owned");
    FAILS(QUENCH_BUSY, "", quench_open(path, strlen(path), NULL, 0, NULL, NULL, &db, &error));
    CHECK(db == NULL);
    return 0;
}

static void a_second_process_is_refused(void) {
    quench_database *db = opened("owned");
    CHECK(in_child(open_in_child, NULL) == 0);
    quench_database_free(db);
}

static void *write_for_ever(void *context) {
    struct inherited *of = context;
    for (unsigned n = 0;; n++) {
        if (quench_database_put(of->db, of->table, &n, sizeof n, S("value"), NULL) < 0) return NULL;
    }
}

/* Ends while threads use the database, which is not closed. */
static int exit_with_threads(void *context) {
    quench_database *db = opened("exits");
    static struct inherited of;
    of.db = db, of.table = table_of(db, "t");
    pthread_t threads[2];
    for (int n = 0; n < 2; n++) pthread_create(&threads[n], NULL, write_for_ever, &of);
    WORKS(quench_database_put(db, of.table, S("done"), S("1"), &error));
    usleep(50000);
    frees_nothing = 1;
    if (context != NULL) exit(0);
    return 0;
}

static void an_exit_with_threads_loses_nothing(void) {
    alarm(120);
    for (int how = 0; how < 2; how++) {
        int status = in_child(exit_with_threads, how ? &how : NULL);
        CHECK(status == 0);
        quench_database *db = opened("exits");
        quench_table *table = table_of(db, "t");
        CHECK(quench_database_get(db, table, S("done"), NULL, NULL, NULL) == 1);
        quench_table_free(table);
        quench_database_free(db);
    }
    alarm(0);
}

static void *read_many(void *context) {
    struct inherited *of = context;
    char buffer[16];
    for (unsigned n = 0; n < 3000; n++) {
        unsigned key = n % 100;
        CHECK(quench_get_into(of->snapshot, of->table, &key, sizeof key, buffer, 16, NULL, NULL) == 1);
        int code = quench_put(of->tx, of->table, &key, sizeof key, S("new"), NULL);
        CHECK(code == 0 || code == QUENCH_INVALID_ARGUMENT);
    }
    return NULL;
}

static void threads_share_handles_as_the_header_says(void) {
    quench_database *db = in_memory();
    struct inherited of = {db, table_of(db, "t"), NULL, NULL, NULL};
    quench_transaction *tx = begun(db);
    for (unsigned n = 0; n < 100; n++) WORKS(quench_put(tx, of.table, &n, sizeof n, S("value"), &error));
    WORKS(quench_commit(tx, NULL, &error));
    quench_transaction_free(tx);
    WORKS(quench_begin_read(db, &of.snapshot, &error));
    of.tx = begun(db);
    pthread_t threads[4];
    for (int n = 0; n < 4; n++) pthread_create(&threads[n], NULL, read_many, &of);
    for (int n = 0; n < 4; n++) pthread_join(threads[n], NULL);
    WORKS(quench_commit(of.tx, NULL, &error));
    quench_transaction_free(of.tx), quench_transaction_free(of.snapshot);
    quench_table_free(of.table);
    quench_database_free(db);
}

static void errors_describe_themselves(void) {
    quench_database *db;
    quench_setting settings[] = {{"create", "false"}};
    const char *path = place("missing");
    quench_error *error;
    CHECK(quench_open(path, strlen(path), settings, 1, NULL, NULL, &db, &error) == QUENCH_NOT_FOUND);
    CHECK(strcmp(quench_error_name(error), "not-found") == 0);
    CHECK(strstr(quench_error_message(error), quench_error_advice(error)) != NULL);
    quench_error_free(error);
    CHECK(quench_open(path, strlen(path), settings, 1, NULL, NULL, &db, NULL) == QUENCH_NOT_FOUND);
    CHECK(strcmp(quench_version(), QUENCH_VERSION) == 0);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void *interrupt_soon(void *context) {
    usleep(100000);
    WORKS(quench_interrupt(context, &error));
    return NULL;
}

static void *hold(void *context) {
    struct inherited *of = context;
    put(of->tx, of->table, "held", "1");
    return NULL;
}

static void an_interrupt_ends_a_wait(void) {
    quench_setting settings[] = {{"lock_wait", "60"}};
    quench_database *db;
    WORKS(quench_open_in_memory(settings, 1, &db, &error));
    quench_table *table = table_of(db, "t");
    quench_transaction *holder = begun(db), *waiter = begun(db), *snapshot;
    put(waiter, table, "own", "1");
    /* A thread that waited for itself would be an error at once. */
    pthread_t thread;
    pthread_create(&thread, NULL, hold, &(struct inherited){db, table, holder, NULL, NULL});
    pthread_join(thread, NULL);
    for (int before = 0; before < 2; before++) {
        /* While it waits, and before it waits. */
        if (before) WORKS(quench_interrupt(waiter, &error));
        else pthread_create(&thread, NULL, interrupt_soon, waiter);
        double begin = seconds();
        FAILS(QUENCH_INTERRUPTED, "ended the wait", quench_put(waiter, table, S("held"), S("2"), &error));
        CHECK(seconds() - begin < 5);
        if (!before) pthread_join(thread, NULL);
        CHECK(quench_has_to_retry(waiter, NULL) == 0 && !quench_is_retryable(QUENCH_INTERRUPTED));
    }
    /* Both continue. */
    put(waiter, table, "later", "2");
    WORKS(quench_commit(waiter, NULL, &error));
    WORKS(quench_commit(holder, NULL, &error));
    WORKS(quench_begin_read(db, &snapshot, &error));
    CHECK(has(snapshot, table, "held", "1") && has(snapshot, table, "own", "1") && has(snapshot, table, "later", "2"));
    FAILS(QUENCH_INVALID_ARGUMENT, "NULL", quench_interrupt(NULL, &error));
    quench_transaction_free(holder), quench_transaction_free(waiter), quench_transaction_free(snapshot);
    quench_table_free(table);
    quench_database_free(db);
}

static void a_cursor_may_read_keys_only(void) {
    quench_database *db = in_memory();
    quench_table *table = table_of(db, "t");
    static char large[100000];
    WORKS(quench_database_put(db, table, S("a"), S("small"), &error));
    WORKS(quench_database_put(db, table, S("b"), large, sizeof large, &error));
    quench_transaction *snapshot;
    WORKS(quench_begin_read(db, &snapshot, &error));
    quench_range range = QUENCH_RANGE_INIT;
    range.keys_only = 1;
    quench_cursor *cursor;
    WORKS(quench_open_cursor(snapshot, table, &range, &cursor, &error));
    const void *key, *value;
    size_t key_bytes, value_bytes;
    for (char expected = 'a'; expected <= 'b'; expected++) {
        CHECK(quench_cursor_next(cursor, &key, &key_bytes, &value, &value_bytes, NULL) == 1);
        CHECK(key_bytes == 1 && *(const char *)key == expected && value_bytes == 0);
    }
    CHECK(quench_cursor_next(cursor, NULL, NULL, NULL, NULL, NULL) == 0);
    /* A caller with an older header. */
    quench_cursor_free(cursor);
    range.size = offsetof(quench_range, keys_only);
    WORKS(quench_open_cursor(snapshot, table, &range, &cursor, &error));
    CHECK(quench_cursor_next(cursor, NULL, NULL, NULL, &value_bytes, NULL) == 1 && value_bytes == 5);
    quench_cursor_free(cursor), quench_transaction_free(snapshot), quench_table_free(table);
    quench_database_free(db);
}

static void a_standby_follows_and_takes_over(void) {
    char url[4300], text[4400];
    snprintf(url, sizeof url, "file://%s", place("store"));
    quench_database *db, *promoted;
    WORKS(quench_open(url, strlen(url), NULL, 0, NULL, NULL, &db, &error));
    quench_table *table = table_of(db, "t"), *seen;
    quench_standby *standby;
    WORKS(quench_open_standby(url, strlen(url), NULL, 0, &standby, &error));
    quench_transaction *tx = begun(db), *snapshot;
    put(tx, table, "k", "value");
    uint64_t csn, shown;
    WORKS(quench_commit(tx, &csn, &error));
    CHECK(quench_standby_wait_for(standby, csn, 30000000, NULL) == 1);
    CHECK(quench_standby_wait_for(standby, csn + 1000, 1000, NULL) == 0);
    WORKS(quench_standby_csn(standby, &shown, &error));
    CHECK(shown >= csn);
    WORKS(quench_standby_snapshot(standby, &snapshot, &error));
    WORKS(quench_snapshot_csn(snapshot, &shown, &error));
    CHECK(shown >= csn);
    FAILS(QUENCH_NOT_FOUND, "no table", quench_standby_table(snapshot, S("u"), &seen, &error));
    FAILS(QUENCH_INVALID_ARGUMENT, "not one of a standby", quench_standby_table(tx, S("t"), &seen, &error));
    WORKS(quench_standby_table(snapshot, S("t"), &seen, &error));
    CHECK(has(snapshot, seen, "k", "value"));
    FAILS(QUENCH_INVALID_ARGUMENT, "only be read", quench_put(snapshot, seen, S("k"), S("v"), &error));
    char *json;
    WORKS(quench_standby_statistics(standby, &json, &error));
    snprintf(text, sizeof text, "\"csn\":%llu", (unsigned long long)shown);
    CHECK(strstr(json, text) != NULL && strstr(json, "\"failure\":null") != NULL);
    quench_free(json);

    WORKS(quench_standby_promote(standby, &promoted, &error));
    FAILS(QUENCH_INVALID_ARGUMENT, "has ended", quench_standby_csn(standby, &shown, &error));
    FAILS(QUENCH_INVALID_ARGUMENT, "has ended", quench_standby_promote(standby, &(quench_database *){NULL}, &error));
    quench_standby_free(standby);
    CHECK(has(snapshot, seen, "k", "value"));
    quench_table_free(seen), quench_transaction_free(snapshot);
    seen = table_of(promoted, "t");
    WORKS(quench_database_put(promoted, seen, S("k"), S("newer"), &error));
    CHECK(quench_database_put(db, table, S("k"), S("lost"), NULL) < 0);
    quench_table_free(seen), quench_table_free(table), quench_transaction_free(tx);
    quench_database_free(promoted), quench_database_free(db);
    quench_standby_free(NULL);
}

static void a_database_lies_in_several_buckets(void) {
    char url[13000];
    int length = 0;
    for (char name = 'a'; name <= 'c'; name++) {
        length += snprintf(url + length, sizeof url - (size_t)length, "%sfile://%s/bucket-%c", name > 'a' ? "," : "", directory, name);
    }
    quench_setting settings[] = {{"acknowledge", "all"}};
    quench_database *db;
    WORKS(quench_open(url, (size_t)length, settings, 1, NULL, NULL, &db, &error));
    quench_table *table = table_of(db, "t");
    WORKS(quench_database_put(db, table, S("k"), S("value"), &error));
    quench_table_free(table);
    WORKS(quench_close(db, &error));
    quench_database_free(db);
    settings[0].value = "most";
    FAILS(QUENCH_INVALID_ARGUMENT, "there are majority, all",
          quench_open(url, (size_t)length, settings, 1, NULL, NULL, &db, &error));
    /* A majority is enough to open it. */
    struct stat found;
    CHECK(stat(place("bucket-b"), &found) == 0);
    char gone[4200];
    strcpy(gone, place("bucket-b.gone"));
    CHECK(rename(place("bucket-b"), gone) == 0 && mkdir(place("bucket-b"), 0777) == 0);
    WORKS(quench_open(url, (size_t)length, NULL, 0, NULL, NULL, &db, &error));
    table = table_of(db, "t");
    CHECK(quench_database_get(db, table, S("k"), NULL, NULL, NULL) == 1);
    quench_table_free(table);
    quench_database_free(db);
}

#define TEST(name) {#name, name, 0}
#define TEST_THAT_FORKS(name) {#name, name, 1}
static const struct {
    const char *name;
    void (*run)(void);
    int forks;
} tests[] = {
    TEST(rows_are_written_and_read),
    TEST(values_are_read_without_allocating),
    TEST(changes_are_composed_of_read_and_write),
    TEST(cursors_step_in_both_directions),
    TEST(a_long_walk_returns_each_row_once),
    TEST(tables_are_created_listed_and_dropped),
    TEST(bytes_may_be_any),
    TEST(settings_and_options_are_checked),
    TEST(null_is_an_error),
    TEST(what_has_ended_is_an_error),
    TEST(handles_are_freed_in_any_order),
    TEST(transact_repeats_and_reports),
    TEST(transactions_conflict),
    TEST(a_callback_may_use_what_is_read_from),
    TEST(commits_need_not_be_waited_for),
    TEST(feeds_return_committed_transactions),
    TEST(databases_are_copied_and_checked),
    TEST(a_forked_child_gets_errors_and_harms_nothing),
    TEST(a_second_process_is_refused),
    TEST_THAT_FORKS(an_exit_with_threads_loses_nothing),
    TEST(threads_share_handles_as_the_header_says),
    TEST(errors_describe_themselves),
    TEST(an_interrupt_ends_a_wait),
    TEST(a_cursor_may_read_keys_only),
    TEST(a_standby_follows_and_takes_over),
    TEST(a_database_lies_in_several_buckets),
};

int main(int count, char **arguments) {
    CHECK(count >= 2 && strlen(arguments[1]) < sizeof directory);
    strcpy(directory, arguments[1]);
    int ran = 0;
    /* This child ends by itself, with threads. */
    int skips_forks = getenv("UNDER_VALGRIND") != NULL;
    for (size_t n = 0; n < sizeof tests / sizeof *tests; n++) {
        running = tests[n].name;
        if (skips_forks && tests[n].forks) continue;
        if (count > 2 && strcmp(arguments[2], running) != 0) continue;
        tests[n].run();
        ran++;
    }
    CHECK(ran > 0);
    printf("%d passed, 0 failed\n", ran);
    return 0;
}
