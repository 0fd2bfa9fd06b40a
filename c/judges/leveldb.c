/* The C interface of LevelDB over QuenchDB: what its c_test.c needs. Caches, filters, environments, comparators and most options
 * have no counterpart, and are accepted: the order of keys is that of bytes, which is what the test's comparator says. */
#define _GNU_SOURCE
#include "leveldb/c.h"
#include "quenchdb.h"
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct leveldb_t { quench_database *db; quench_table *table; };
struct leveldb_snapshot_t { quench_transaction *tx; };
struct leveldb_options_t { int create_if_missing, error_if_exists; };
struct leveldb_readoptions_t { const leveldb_snapshot_t *snapshot; };
struct leveldb_writeoptions_t { int sync; };
struct leveldb_iterator_t {
    leveldb_t *of;
    quench_transaction *tx, *own;
    quench_cursor *cursor;
    const void *key, *value;
    size_t key_bytes, value_bytes;
    int valid;
    quench_error *error;
};
struct change { char *key, *value; size_t key_bytes, value_bytes; };
struct leveldb_writebatch_t { struct change *changes; size_t count; };

/* Gives the text of an error. Returns whether there is one. */
static int failed(int code, quench_error *error, char **to) {
    if (code >= 0) return 0;
    *to = strdup(quench_error_message(error));
    quench_error_free(error);
    return 1;
}

int leveldb_major_version(void) { return 1; }
int leveldb_minor_version(void) { return 22; }
void leveldb_free(void *memory) { free(memory); }

/* What is accepted and has no effect: one object stands for each. */
static char nothing;
leveldb_comparator_t *leveldb_comparator_create(void *state, void (*destroy)(void *),
    int (*compare)(void *, const char *, size_t, const char *, size_t), const char *(*name)(void *)) {
    (void)state, (void)destroy, (void)compare, (void)name;
    return (leveldb_comparator_t *)&nothing;
}
leveldb_filterpolicy_t *leveldb_filterpolicy_create(void *state, void (*destroy)(void *),
    char *(*create)(void *, const char *const *, const size_t *, int, size_t *),
    unsigned char (*match)(void *, const char *, size_t, const char *, size_t), const char *(*name)(void *)) {
    (void)state, (void)destroy, (void)create, (void)match, (void)name;
    return (leveldb_filterpolicy_t *)&nothing;
}
leveldb_filterpolicy_t *leveldb_filterpolicy_create_bloom(int bits) { (void)bits; return (leveldb_filterpolicy_t *)&nothing; }
leveldb_cache_t *leveldb_cache_create_lru(size_t bytes) { (void)bytes; return (leveldb_cache_t *)&nothing; }
leveldb_env_t *leveldb_create_default_env(void) { return (leveldb_env_t *)&nothing; }
char *leveldb_env_get_test_directory(leveldb_env_t *env) { (void)env; return strdup(getenv("JUDGE_DIRECTORY")); }
void leveldb_comparator_destroy(leveldb_comparator_t *object) { (void)object; }
void leveldb_filterpolicy_destroy(leveldb_filterpolicy_t *object) { (void)object; }
void leveldb_cache_destroy(leveldb_cache_t *object) { (void)object; }
void leveldb_env_destroy(leveldb_env_t *object) { (void)object; }

leveldb_options_t *leveldb_options_create(void) { return calloc(1, sizeof(leveldb_options_t)); }
void leveldb_options_destroy(leveldb_options_t *options) { free(options); }
void leveldb_options_set_create_if_missing(leveldb_options_t *options, unsigned char on) { options->create_if_missing = on; }
void leveldb_options_set_error_if_exists(leveldb_options_t *options, unsigned char on) { options->error_if_exists = on; }
#define IGNORED(name, type) void leveldb_options_set_##name(leveldb_options_t *o, type value) { (void)o, (void)value; }
IGNORED(comparator, leveldb_comparator_t *)
IGNORED(filter_policy, leveldb_filterpolicy_t *)
IGNORED(cache, leveldb_cache_t *)
IGNORED(env, leveldb_env_t *)
IGNORED(info_log, leveldb_logger_t *)
IGNORED(write_buffer_size, size_t)
IGNORED(paranoid_checks, unsigned char)
IGNORED(max_open_files, int)
IGNORED(block_size, size_t)
IGNORED(block_restart_interval, int)
IGNORED(max_file_size, size_t)
IGNORED(compression, int)
leveldb_readoptions_t *leveldb_readoptions_create(void) { return calloc(1, sizeof(leveldb_readoptions_t)); }
void leveldb_readoptions_destroy(leveldb_readoptions_t *options) { free(options); }
void leveldb_readoptions_set_verify_checksums(leveldb_readoptions_t *options, unsigned char on) { (void)options, (void)on; }
void leveldb_readoptions_set_fill_cache(leveldb_readoptions_t *options, unsigned char on) { (void)options, (void)on; }
void leveldb_readoptions_set_snapshot(leveldb_readoptions_t *options, const leveldb_snapshot_t *snapshot) {
    options->snapshot = snapshot;
}
leveldb_writeoptions_t *leveldb_writeoptions_create(void) { return calloc(1, sizeof(leveldb_writeoptions_t)); }
void leveldb_writeoptions_destroy(leveldb_writeoptions_t *options) { free(options); }
void leveldb_writeoptions_set_sync(leveldb_writeoptions_t *options, unsigned char on) { options->sync = on; }

static int remove_entry(const char *path, const struct stat *stat, int type, struct FTW *walk) {
    (void)stat, (void)type, (void)walk;
    return remove(path);
}

void leveldb_destroy_db(const leveldb_options_t *options, const char *name, char **to) {
    (void)options, (void)to;
    nftw(name, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

leveldb_t *leveldb_open(const leveldb_options_t *options, const char *name, char **to) {
    leveldb_t *of = calloc(1, sizeof *of);
    quench_setting settings[] = {{"create", "false"}};
    quench_error *error;
    int code = quench_open(name, strlen(name), settings, 1, NULL, NULL, &of->db, &error);
    if (code >= 0 && options->error_if_exists) {
        quench_database_free(of->db), free(of);
        *to = strdup("the database exists");
        return NULL;
    }
    if (code == QUENCH_NOT_FOUND && options->create_if_missing) {
        quench_error_free(error);
        code = quench_open(name, strlen(name), NULL, 0, NULL, NULL, &of->db, &error);
    }
    if (code >= 0) code = quench_open_table(of->db, "all", 3, 1, &of->table, &error);
    if (!failed(code, error, to)) return of;
    free(of);
    return NULL;
}

void leveldb_close(leveldb_t *of) { quench_database_free(of->db), quench_table_free(of->table), free(of); }

void leveldb_repair_db(const leveldb_options_t *options, const char *name, char **to) {
    (void)options;
    quench_error *error;
    int whole = quench_verify_path(name, strlen(name), NULL, 0, NULL, &error);
    if (!failed(whole, error, to) && !whole) *to = strdup("the database is damaged");
}

char *leveldb_get(leveldb_t *of, const leveldb_readoptions_t *options, const char *key, size_t bytes, size_t *value_bytes, char **to) {
    void *value;
    quench_error *error;
    int code = options->snapshot
        ? quench_get(options->snapshot->tx, of->table, key, bytes, &value, value_bytes, &error)
        : quench_database_get(of->db, of->table, key, bytes, &value, value_bytes, &error);
    failed(code, error, to);
    return value;
}

/* Makes changes in one transaction. */
static void change(leveldb_t *of, const leveldb_writeoptions_t *how, const struct change *changes, size_t count, char **to) {
    quench_options options = QUENCH_OPTIONS_INIT;
    options.durability = how->sync ? QUENCH_DURABLE : QUENCH_LAZY;
    quench_transaction *tx;
    quench_error *error;
    int code = quench_begin(of->db, &options, &tx, &error);
    for (size_t at = 0; at < count && code >= 0; at++) {
        const struct change *one = &changes[at];
        code = one->value ? quench_put(tx, of->table, one->key, one->key_bytes, one->value, one->value_bytes, &error)
                          : quench_delete(tx, of->table, one->key, one->key_bytes, &error);
    }
    if (code >= 0) code = quench_commit(tx, NULL, &error);
    failed(code, error, to);
    quench_transaction_free(tx);
}

void leveldb_put(leveldb_t *of, const leveldb_writeoptions_t *how, const char *key, size_t bytes, const char *value,
                 size_t value_bytes, char **to) {
    struct change one = {(char *)key, (char *)value, bytes, value_bytes};
    change(of, how, &one, 1, to);
}
void leveldb_delete(leveldb_t *of, const leveldb_writeoptions_t *how, const char *key, size_t bytes, char **to) {
    struct change one = {(char *)key, NULL, bytes, 0};
    change(of, how, &one, 1, to);
}
void leveldb_write(leveldb_t *of, const leveldb_writeoptions_t *how, leveldb_writebatch_t *batch, char **to) {
    change(of, how, batch->changes, batch->count, to);
}

leveldb_writebatch_t *leveldb_writebatch_create(void) { return calloc(1, sizeof(leveldb_writebatch_t)); }
void leveldb_writebatch_clear(leveldb_writebatch_t *batch) {
    while (batch->count > 0) {
        struct change *last = &batch->changes[--batch->count];
        free(last->key), free(last->value);
    }
}
void leveldb_writebatch_destroy(leveldb_writebatch_t *batch) { leveldb_writebatch_clear(batch), free(batch->changes), free(batch); }
static void *copied(const char *data, size_t bytes) { return memcpy(malloc(bytes + 1), data, bytes); }
void leveldb_writebatch_put(leveldb_writebatch_t *batch, const char *key, size_t bytes, const char *value, size_t value_bytes) {
    batch->changes = realloc(batch->changes, (batch->count + 1) * sizeof *batch->changes);
    batch->changes[batch->count++] =
        (struct change){copied(key, bytes), value ? copied(value, value_bytes) : NULL, bytes, value_bytes};
}
void leveldb_writebatch_delete(leveldb_writebatch_t *batch, const char *key, size_t bytes) {
    leveldb_writebatch_put(batch, key, bytes, NULL, 0);
}
void leveldb_writebatch_append(leveldb_writebatch_t *to, const leveldb_writebatch_t *from) {
    for (size_t at = 0; at < from->count; at++) {
        const struct change *one = &from->changes[at];
        leveldb_writebatch_put(to, one->key, one->key_bytes, one->value, one->value_bytes);
    }
}
void leveldb_writebatch_iterate(const leveldb_writebatch_t *batch, void *state,
                                void (*put)(void *, const char *, size_t, const char *, size_t),
                                void (*deleted)(void *, const char *, size_t)) {
    for (size_t at = 0; at < batch->count; at++) {
        const struct change *one = &batch->changes[at];
        if (one->value) put(state, one->key, one->key_bytes, one->value, one->value_bytes);
        else deleted(state, one->key, one->key_bytes);
    }
}

leveldb_iterator_t *leveldb_create_iterator(leveldb_t *of, const leveldb_readoptions_t *options) {
    leveldb_iterator_t *iter = calloc(1, sizeof *iter);
    iter->of = of;
    if (options->snapshot) iter->tx = options->snapshot->tx;
    else quench_begin_read(of->db, &iter->own, &iter->error), iter->tx = iter->own;
    return iter;
}
void leveldb_iter_destroy(leveldb_iterator_t *iter) {
    quench_cursor_free(iter->cursor), quench_transaction_free(iter->own), quench_error_free(iter->error), free(iter);
}
static void step(leveldb_iterator_t *iter, int back) {
    int found = (back ? quench_cursor_prev : quench_cursor_next)(iter->cursor, &iter->key, &iter->key_bytes, &iter->value,
                                                                &iter->value_bytes, &iter->error);
    iter->valid = found == 1;
}
static void restart(leveldb_iterator_t *iter) {
    quench_cursor_free(iter->cursor);
    quench_open_cursor(iter->tx, iter->of->table, NULL, &iter->cursor, &iter->error);
}
unsigned char leveldb_iter_valid(const leveldb_iterator_t *iter) { return (unsigned char)iter->valid; }
void leveldb_iter_seek_to_first(leveldb_iterator_t *iter) { restart(iter), step(iter, 0); }
void leveldb_iter_seek_to_last(leveldb_iterator_t *iter) { restart(iter), step(iter, 1); }
void leveldb_iter_seek(leveldb_iterator_t *iter, const char *key, size_t bytes) {
    if (quench_cursor_seek(iter->cursor, key, bytes, &iter->error) >= 0) step(iter, 0);
}
void leveldb_iter_next(leveldb_iterator_t *iter) { step(iter, 0); }
void leveldb_iter_prev(leveldb_iterator_t *iter) { step(iter, 1); }
const char *leveldb_iter_key(const leveldb_iterator_t *iter, size_t *bytes) { *bytes = iter->key_bytes; return iter->key; }
const char *leveldb_iter_value(const leveldb_iterator_t *iter, size_t *bytes) { *bytes = iter->value_bytes; return iter->value; }
void leveldb_iter_get_error(const leveldb_iterator_t *iter, char **to) {
    if (iter->error) *to = strdup(quench_error_message(iter->error));
}

const leveldb_snapshot_t *leveldb_create_snapshot(leveldb_t *of) {
    leveldb_snapshot_t *snapshot = calloc(1, sizeof *snapshot);
    quench_begin_read(of->db, &snapshot->tx, NULL);
    return snapshot;
}
void leveldb_release_snapshot(leveldb_t *of, const leveldb_snapshot_t *snapshot) {
    (void)of;
    quench_transaction_free(snapshot->tx), free((void *)snapshot);
}

void leveldb_compact_range(leveldb_t *of, const char *start, size_t start_bytes, const char *limit, size_t limit_bytes) {
    (void)start, (void)start_bytes, (void)limit, (void)limit_bytes;
    quench_compact(of->db, NULL, NULL, NULL, NULL);
}
char *leveldb_property_value(leveldb_t *of, const char *name) {
    char *json = NULL;
    if (strcmp(name, "leveldb.stats") == 0) quench_statistics(of->db, &json, NULL);
    return json;
}
void leveldb_approximate_sizes(leveldb_t *of, int count, const char *const *start, const size_t *start_bytes,
                               const char *const *limit, const size_t *limit_bytes, uint64_t *sizes) {
    quench_transaction *tx;
    quench_begin_read(of->db, &tx, NULL);
    for (int at = 0; at < count; at++) {
        quench_range range = QUENCH_RANGE_INIT;
        range.start = start[at], range.start_bytes = start_bytes[at], range.stop = limit[at], range.stop_bytes = limit_bytes[at];
        quench_count(tx, of->table, &range, &sizes[at], NULL);
    }
    quench_transaction_free(tx);
}
