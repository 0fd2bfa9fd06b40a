/* Reads values of 100 bytes from a snapshot: `get WAY COUNT`, as tools/get.rs. */
#include <quenchdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile size_t seen;

static void look(void *context, const void *value, size_t bytes) {
    (void)value;
    *(size_t *)context += bytes;
}

int main(int count, char **arguments) {
    enum { ROWS = 10000 };
    if (count != 3) return 2;
    enum { INTO, WITH, OWNED } way = strcmp(arguments[1], "into") == 0 ? INTO : strcmp(arguments[1], "with") == 0 ? WITH : OWNED;
    const unsigned reads = (unsigned)atoi(arguments[2]);
    quench_database *db;
    quench_table *table;
    quench_transaction *tx;
    char value[100] = "value", key[17];
    if (quench_open_in_memory(NULL, 0, &db, NULL) < 0 || quench_open_table(db, "t", 1, 1, &table, NULL) < 0) return 1;
    quench_begin(db, NULL, &tx, NULL);
    for (unsigned n = 0; n < ROWS; n++) {
        snprintf(key, sizeof key, "%016u", n);
        if (quench_put(tx, table, key, 16, value, sizeof value, NULL) < 0) return 1;
    }
    quench_commit(tx, NULL, NULL);
    quench_transaction_free(tx);
    quench_begin_read(db, &tx, NULL);
    char (*keys)[17] = malloc(ROWS * sizeof *keys);
    for (unsigned n = 0; n < ROWS; n++) snprintf(keys[n], 17, "%016u", n * 7919 % ROWS);
    char buffer[128];
    size_t bytes = 0, sum = 0;
    quench_error *error;
    for (unsigned n = 0; n < reads; n++) {
        const char *at = keys[n % ROWS];
        int found;
        if (way == INTO) {
            found = quench_get_into(tx, table, at, 16, buffer, sizeof buffer, &bytes, &error);
            sum += bytes;
        } else if (way == WITH) {
            found = quench_get_with(tx, table, at, 16, look, &sum, &error);
        } else {
            void *copy;
            found = quench_get(tx, table, at, 16, &copy, &bytes, &error);
            sum += bytes;
            quench_free(copy);
        }
        if (found != 1) return 1;
    }
    seen = sum;
    free(keys);
    quench_transaction_free(tx), quench_table_free(table), quench_database_free(db);
    return 0;
}
