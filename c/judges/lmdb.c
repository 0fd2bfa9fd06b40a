/* LMDB's interface over QuenchDB: what its mtest.c and mtest2.c need. Sizes of maps and numbers of readers and databases have no
 * counterpart, and are accepted. A database is a table, which is created outside of the transaction. */
#include "lmdb.h"
#include "quenchdb.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct MDB_env { quench_database *db; quench_table *tables[8]; unsigned count; };
struct MDB_txn { MDB_env *env; quench_transaction *tx; };
struct MDB_cursor { MDB_txn *txn; quench_table *table; quench_cursor *cursor; };

static int code_of(int code) {
    if (code >= 0) return MDB_SUCCESS;
    return code == QUENCH_NOT_FOUND ? MDB_NOTFOUND : code;
}

char *mdb_strerror(int code) {
    return code == MDB_KEYEXIST ? "the key exists" : code == MDB_NOTFOUND ? "there is no such row" : "an error of QuenchDB";
}

int mdb_env_create(MDB_env **env) { return *env = calloc(1, sizeof **env), MDB_SUCCESS; }
int mdb_env_set_maxreaders(MDB_env *env, unsigned count) { return (void)env, (void)count, MDB_SUCCESS; }
int mdb_env_set_mapsize(MDB_env *env, mdb_size_t bytes) { return (void)env, (void)bytes, MDB_SUCCESS; }
int mdb_env_set_maxdbs(MDB_env *env, MDB_dbi count) { return (void)env, (void)count, MDB_SUCCESS; }
int mdb_env_open(MDB_env *env, const char *path, unsigned flags, mdb_mode_t mode) {
    (void)flags, (void)mode;
    return code_of(quench_open(path, strlen(path), NULL, 0, NULL, NULL, &env->db, NULL));
}
void mdb_env_close(MDB_env *env) {
    for (unsigned at = 0; at < env->count; at++) quench_table_free(env->tables[at]);
    quench_database_free(env->db), free(env);
}
static int entries(quench_transaction *tx, quench_table *table, MDB_stat *stat) {
    uint64_t count = 0;
    memset(stat, 0, sizeof *stat);
    int code = quench_count(tx, table, NULL, &count, NULL);
    stat->ms_entries = count;
    return code_of(code);
}
int mdb_env_stat(MDB_env *env, MDB_stat *stat) {
    quench_transaction *tx;
    int code = code_of(quench_begin_read(env->db, &tx, NULL));
    if (code == MDB_SUCCESS) code = entries(tx, env->tables[0], stat);
    quench_transaction_free(tx);
    return code;
}

int mdb_txn_begin(MDB_env *env, MDB_txn *parent, unsigned flags, MDB_txn **txn) {
    if (parent) return QUENCH_UNSUPPORTED;
    *txn = calloc(1, sizeof **txn);
    (*txn)->env = env;
    return code_of(flags & MDB_RDONLY ? quench_begin_read(env->db, &(*txn)->tx, NULL)
                                      : quench_begin(env->db, NULL, &(*txn)->tx, NULL));
}
void mdb_txn_abort(MDB_txn *txn) { quench_transaction_free(txn->tx), free(txn); }
int mdb_txn_commit(MDB_txn *txn) {
    int code = code_of(quench_commit(txn->tx, NULL, NULL));
    mdb_txn_abort(txn);
    return code;
}
int mdb_dbi_open(MDB_txn *txn, const char *name, unsigned flags, MDB_dbi *dbi) {
    (void)flags;
    MDB_env *env = txn->env;
    *dbi = env->count;
    if (!name) name = "main";
    return code_of(quench_open_table(env->db, name, strlen(name), 1, &env->tables[env->count++], NULL));
}
void mdb_dbi_close(MDB_env *env, MDB_dbi dbi) { (void)env, (void)dbi; }
int mdb_stat(MDB_txn *txn, MDB_dbi dbi, MDB_stat *stat) { return entries(txn->tx, txn->env->tables[dbi], stat); }

int mdb_put(MDB_txn *txn, MDB_dbi dbi, MDB_val *key, MDB_val *data, unsigned flags) {
    quench_table *table = txn->env->tables[dbi];
    if (!(flags & MDB_NOOVERWRITE)) {
        return code_of(quench_put(txn->tx, table, key->mv_data, key->mv_size, data->mv_data, data->mv_size, NULL));
    }
    int code = quench_put_new(txn->tx, table, key->mv_data, key->mv_size, data->mv_data, data->mv_size, NULL);
    return code == 0 ? MDB_KEYEXIST : code_of(code);
}
int mdb_del(MDB_txn *txn, MDB_dbi dbi, MDB_val *key, MDB_val *data) {
    (void)data;
    int code = quench_delete(txn->tx, txn->env->tables[dbi], key->mv_data, key->mv_size, NULL);
    return code == 0 ? MDB_NOTFOUND : code_of(code);
}

int mdb_cursor_open(MDB_txn *txn, MDB_dbi dbi, MDB_cursor **cursor) {
    *cursor = calloc(1, sizeof **cursor);
    (*cursor)->txn = txn, (*cursor)->table = txn->env->tables[dbi];
    return code_of(quench_open_cursor(txn->tx, (*cursor)->table, NULL, &(*cursor)->cursor, NULL));
}
void mdb_cursor_close(MDB_cursor *cursor) { quench_cursor_free(cursor->cursor), free(cursor); }
int mdb_cursor_get(MDB_cursor *cursor, MDB_val *key, MDB_val *data, MDB_cursor_op op) {
    if (op == MDB_FIRST || op == MDB_LAST) {
        quench_cursor_free(cursor->cursor);
        quench_open_cursor(cursor->txn->tx, cursor->table, NULL, &cursor->cursor, NULL);
    } else if (op != MDB_NEXT && op != MDB_PREV) {
        return QUENCH_UNSUPPORTED;
    }
    const void *row_key, *value;
    size_t key_bytes, value_bytes;
    int back = op == MDB_LAST || op == MDB_PREV;
    int found = (back ? quench_cursor_prev : quench_cursor_next)(cursor->cursor, &row_key, &key_bytes, &value, &value_bytes, NULL);
    if (found == 0) {
        /* LMDB's cursor stays at the row. */
        (back ? quench_cursor_next : quench_cursor_prev)(cursor->cursor, NULL, NULL, NULL, NULL, NULL);
        return MDB_NOTFOUND;
    }
    if (found < 0) return found;
    *key = (MDB_val){key_bytes, (void *)row_key};
    *data = (MDB_val){value_bytes, (void *)value};
    return MDB_SUCCESS;
}
