/*
 * QuenchDB: an embeddable transactional storage engine. The C interface.
 * Written from the sources of the library by `make header`: do not edit it.
 *
 * Results.  A function that can fail returns an int: 0 or more if it worked, a negative quench_code
 *           if it failed. Where a function has an answer, 1 is yes and 0 is no.
 * Errors.   The last argument of such a function may be NULL, or the address of a variable that gets
 *           NULL or an error, which quench_error_free frees. There is no last error.
 * Handles.  quench_open... and quench_begin... give a handle, or NULL if they fail. Each has a
 *           function that frees it, which allows NULL. Handles may be freed in any order: a
 *           transaction, a snapshot and a cursor keep the database open. A handle that was freed
 *           must not be used. A NULL handle is QUENCH_INVALID_ARGUMENT.
 * Bytes.    Keys, values, names and paths are addresses with lengths. They may contain NUL, and are
 *           copied. The address may be NULL if the length is 0. Names are UTF-8.
 * Results   by address may be NULL if they are not wanted, except handles. Bytes and texts that are
 *           `for quench_free` belong to the caller; others belong to the handle or to the error.
 * Threads.  Each function says which threads may call it. Where it is `one at a time`, a second call
 *           with the same handle meanwhile is QUENCH_INVALID_ARGUMENT and changes nothing.
 * Callbacks get the address `context` of the caller. They must return: no longjmp, no exception.
 * Forks.    In a forked child each call is QUENCH_FORKED; handles may be freed there.
 * Signals.  No function may be called in a signal handler.
 */


#ifndef QUENCHDB_H
#define QUENCHDB_H

#include <stddef.h>
#include <stdint.h>

/* The version of this header; quench_version gives that of the library. */
#define QUENCH_VERSION "0.1.0"

/* The begin of structures that have a size, so that libraries of other versions understand them. */
#define QUENCH_OPTIONS_INIT {sizeof(quench_options), 0, 0, 0, 0, 0, 0, 0, 0}
#define QUENCH_RANGE_INIT {sizeof(quench_range), NULL, 0, NULL, 0, NULL, 0, 0, 0, 0}
#define QUENCH_CHANGE_INIT {sizeof(quench_change), 0, NULL, 0, NULL, 0, NULL, 0, 0}

/**
 * What a function returns if it fails. Errors are negative; numbers do not change from version to
 * version, and later versions may add some. A callback that fails returns -1000 or less.
 */
typedef enum quench_code {
    /** It worked; for functions with an answer: no. */
    QUENCH_OK = 0,
    /** Another transaction changed or holds the same row. Run the whole transaction again. */
    QUENCH_CONFLICT = -1,
    /** Transactions waited for one another. Run the whole transaction again. */
    QUENCH_DEADLOCK = -2,
    /** Others held a row or a lock for too long. Run the whole transaction again. */
    QUENCH_LOCK_TIMEOUT = -3,
    /** The call or a setting is wrong: fix it. Nothing was changed. */
    QUENCH_INVALID_ARGUMENT = -4,
    /** The named table or database does not exist. */
    QUENCH_NOT_FOUND = -5,
    /** The named table or database exists already. */
    QUENCH_ALREADY_EXISTS = -6,
    /** Another user has the database or the table, or a limit on open objects is reached. */
    QUENCH_BUSY = -7,
    /** The disk or the log space is full. Free space; reads still work. */
    QUENCH_OUT_OF_SPACE = -8,
    /** A limit on memory, or on the size of a transaction, is reached. */
    QUENCH_OUT_OF_MEMORY = -9,
    /** The device failed to read or write. */
    QUENCH_IO = -10,
    /** An earlier write of the log failed. Reopen the database to recover. */
    QUENCH_POISONED = -11,
    /** The commit may or may not survive. Reopen the database and check. */
    QUENCH_OUTCOME_UNKNOWN = -12,
    /** Another process has taken the database, which lies in a store of objects. */
    QUENCH_FENCED = -13,
    /** The log no longer has what a change feed needs. */
    QUENCH_FELL_BEHIND = -14,
    /** Stored bytes are not what was written. Restore from a backup. */
    QUENCH_CORRUPTION = -15,
    /** A newer format, or something that this build or machine cannot do. */
    QUENCH_UNSUPPORTED = -16,
    /** The operation did not finish in time. */
    QUENCH_TIMEOUT = -17,
    /** The process was forked after the database was opened. Open it in the child. */
    QUENCH_FORKED = -18,
    /** The library has a bug, and stopped the call. Report it; reopen the database. */
    QUENCH_PANIC = -19,
    /** An error that this version of the interface has no number for. */
    QUENCH_OTHER = -20,
    /** quench_interrupt ended the wait for a row or a lock. The transaction may continue. */
    QUENCH_INTERRUPTED = -21,
} quench_code;

/** What a transaction sees of others. */
typedef enum quench_isolation {
    /** The state of the moment at which it began; a conflict at the first row that others changed. */
    QUENCH_SNAPSHOT = 0,
    /** As if transactions ran one after the other. */
    QUENCH_SERIALIZABLE = 1,
    /** For each call what is committed then. */
    QUENCH_READ_COMMITTED = 2,
} quench_isolation;

/** What a commit waits for. */
typedef enum quench_durability {
    /** Until a power cut takes nothing back. */
    QUENCH_DURABLE = 0,
    /** Until a crash of the process takes nothing back. */
    QUENCH_WRITTEN = 1,
    /** Not at all: durable within the setting `loss_window`. */
    QUENCH_BOUNDED_LOSS = 2,
    /** Not at all: durable with another write, a flush or a close. */
    QUENCH_LAZY = 3,
} quench_durability;

/** What a change did. */
typedef enum quench_change_kind {
    /** Set a row to a value. */
    QUENCH_PUT = 0,
    /** Set the bytes of a value from `offset` on. */
    QUENCH_PATCH = 1,
    /** Deleted a row. */
    QUENCH_DELETE = 2,
    /** Created a table. */
    QUENCH_CREATE_TABLE = 3,
    /** Dropped a table. */
    QUENCH_DROP_TABLE = 4,
    /** Renamed a table, to `table`. */
    QUENCH_RENAME_TABLE = 5,
    /** Set the types of a table, or something that this version of the interface has no number for. */
    QUENCH_OTHER_CHANGE = 6,
} quench_change_kind;

/** A feed of the committed transactions of a database, or of the changes of some rows. */
typedef struct quench_changes quench_changes;

/**
 * Rows of a range of a transaction or a snapshot, fetched many at a time. It stands before the
 * first row, at a row, or behind the last one.
 */
typedef struct quench_cursor quench_cursor;

/** An open database. */
typedef struct quench_database quench_database;

/** An error: a code, a text, advice, and where it happened. */
typedef struct quench_error quench_error;

/** A copy of a database in a store of objects that follows the process that writes. */
typedef struct quench_standby quench_standby;

/**
 * A table of a database. The handle may outlive the table and the database: its use is an error
 * then.
 */
typedef struct quench_table quench_table;

/**
 * A transaction on its way to the device. It may be freed at any time: the commit continues. It
 * does not keep the database open.
 */
typedef struct quench_ticket quench_ticket;

/**
 * A transaction, or a snapshot, which is a view of one moment that does not change. Both are read
 * from with the same functions.
 */
typedef struct quench_transaction quench_transaction;

/**
 * A setting by its name, as the guide lists them. Both texts end with NUL. Numbers are decimal,
 * durations are seconds such as "0.5", and switches are "true" or "false".
 */
typedef struct quench_setting {
    /** Such as "memory_bytes". */
    const char *name;
    /** Such as "67108864". */
    const char *value;
} quench_setting;

/**
 * Called now and then during long work with a text that names the work and its unit, how much is
 * done, and how much there is. It must not use the database, and is called by the calling thread
 * or by threads of the library, one at a time.
 */
typedef void (*quench_progress_function)(void *context,
                                         const char *what,
                                         uint64_t done,
                                         uint64_t all);

/** Gets the name of a table, which is valid during the call and does not end with NUL. */
typedef void (*quench_name_function)(void *context, const char *name, size_t name_bytes);

/** Options of a transaction. Begin with QUENCH_OPTIONS_INIT and set fields. */
typedef struct quench_options {
    /** sizeof(quench_options). */
    size_t size;
    /** A quench_isolation. */
    int isolation;
    /** A quench_durability. */
    int durability;
    /** 1: waits for rows of others instead of failing. */
    int pessimistic;
    /** 1: a pessimistic transaction releases its locks when it is durable, and not before. */
    int release_at_commit;
    /** 1: fails instead of waiting for a row or lock. */
    int no_wait;
    /** 1: every change is an error. */
    int read_only;
    /** From -128 to 127. Of transactions in a deadlock one with the lowest priority ends. */
    int priority;
    /** Microseconds to wait for one row or lock; 0: the setting `lock_wait`. */
    uint64_t lock_timeout_us;
} quench_options;

/**
 * Changes rows for quench_transact. Returns 0 or more to commit, and a negative number to roll
 * back: what a function of this library returned, whose error it may have put in `error`, or -1000
 * or less for a reason of its own. It must not free the transaction.
 */
typedef int (*quench_transact_function)(void *context,
                                        quench_transaction *transaction,
                                        quench_error **error);

/** Gets a value, which is valid during the call and must not be changed. */
typedef void (*quench_value_function)(void *context, const void *value, size_t value_bytes);

/** A range of keys. Begin with QUENCH_RANGE_INIT, which is all rows, and set fields. */
typedef struct quench_range {
    /** sizeof(quench_range). */
    size_t size;
    /** The first key, or NULL. */
    const void *start;
    /** Its length. */
    size_t start_bytes;
    /** The key at which the range ends, or NULL. */
    const void *stop;
    /** Its length. */
    size_t stop_bytes;
    /** Instead of both: what all keys begin with, or NULL. */
    const void *prefix;
    /** Its length. */
    size_t prefix_bytes;
    /** 1: without the key `start`. */
    int exclude_start;
    /** 1: with the key `stop`. */
    int include_stop;
    /** 1: a cursor reads no values, and gives each one as empty. */
    int keys_only;
} quench_range;

/** Bytes of the caller, where a function takes many. */
typedef struct quench_bytes {
    /** Where they are. */
    const void *data;
    /** Their number. */
    size_t size;
} quench_bytes;

/**
 * Returns in `after` what becomes of a value, which is NULL if there is no row: bytes that stay
 * valid until quench_update returns, or NULL to delete the row. Returns 0, or -1000 or less to
 * change nothing. It may use the transaction.
 */
typedef int (*quench_update_function)(void *context,
                                      const void *before,
                                      size_t before_bytes,
                                      const void **after,
                                      size_t *after_bytes);

/**
 * Gets the outcome of a commit: 0 when it is durable, or the code of an error. Called by a thread
 * of the library, or by quench_ticket_notify itself. It must not wait, nor close or free a
 * database.
 */
typedef void (*quench_outcome_function)(void *context, int code);

/**
 * A change. Set `size` before a call; what it points to is valid until the next call with the
 * feed.
 */
typedef struct quench_change {
    /** sizeof(quench_change). */
    size_t size;
    /** A quench_change_kind. */
    int kind;
    /** The name of the table, without NUL at its end. */
    const char *table;
    /** Its length. */
    size_t table_bytes;
    /** The key; NULL for a change of a table. */
    const void *key;
    /** Its length. */
    size_t key_bytes;
    /** The value, or the bytes of a patch; otherwise NULL. */
    const void *value;
    /** Its length. */
    size_t value_bytes;
    /** Where a patch begins in the value. */
    uint64_t offset;
} quench_change;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/* ---- Version and memory ---- */

/**
 * Returns the version of the library, such as "0.1.0". QUENCH_VERSION is that of the header.
 * Threads: any.
 */
const char *quench_version(void);

/**
 * Frees bytes or a text that a function of this library allocated. NULL is allowed.
 * Threads: any.
 */
void quench_free(void *memory);

/* ---- Errors ---- */

/**
 * Returns the code of an error, which the function returned, too. 0 for NULL.
 * Threads: any, also several at a time; so for all functions of errors.
 */
int quench_error_code(quench_error *error);

/**
 * Returns the code as a word that does not change, such as "lock-timeout". It belongs to the
 * error.
 */
const char *quench_error_name(quench_error *error);

/** Returns one line: what happened, where, and what to do. It belongs to the error. */
const char *quench_error_message(quench_error *error);

/** Returns what to do. It belongs to the error. */
const char *quench_error_advice(quench_error *error);

/** Returns where it happened: a file, a page, a table, a setting. NULL if that is not known. */
const char *quench_error_location(quench_error *error);

/** Frees an error. NULL is allowed. */
void quench_error_free(quench_error *error);

/**
 * Returns 1 if running the whole transaction again may succeed: a conflict, a deadlock, or a lock
 * timeout. quench_transact does so.
 */
int quench_is_retryable(int code);

/* ---- Opening and closing databases ---- */

/**
 * Opens the database in a directory and recovers it if it was not closed; creates it if it is
 * missing, unless the setting `create` is "false". The path may be a URL such as "file:///path".
 * `progress` may be NULL; it gets the progress of recovery.
 * Threads: any.
 */
int quench_open(const char *path,
                size_t path_bytes,
                const struct quench_setting *settings,
                size_t settings_count,
                quench_progress_function progress,
                void *context,
                quench_database **database,
                quench_error **error);

/**
 * Opens a new database in memory, which is gone with its last handle.
 * Threads: any.
 */
int quench_open_in_memory(const struct quench_setting *settings,
                          size_t settings_count,
                          quench_database **database,
                          quench_error **error);

/**
 * Opens the newest checkpoint for reading, while another process has the database open for
 * writing.
 * Threads: any.
 */
int quench_open_checkpoint(const char *path,
                           size_t path_bytes,
                           const struct quench_setting *settings,
                           size_t settings_count,
                           quench_database **database,
                           quench_error **error);

/**
 * Makes everything durable and closes the database, so that the next open replays nothing. Open
 * transactions count as aborted, and further calls are errors. All handles have to be freed still.
 * Threads: any, also while others use the database.
 */
int quench_close(quench_database *database, quench_error **error);

/**
 * Frees a database. NULL is allowed. The database is closed with the last of its transactions,
 * snapshots and cursors; call quench_close to learn of errors.
 * Threads: any; not while another call uses the handle, as for all functions that free.
 */
void quench_database_free(quench_database *database);

/* ---- Tables: rows of bytes, in the order of the bytes of their keys ---- */

/**
 * Opens a table. If the table is missing, it is created, durably, with `create` 1, and otherwise
 * QUENCH_NOT_FOUND.
 * Threads: any. A handle may be used by many threads at a time.
 */
int quench_open_table(quench_database *database,
                      const char *name,
                      size_t name_bytes,
                      int create,
                      quench_table **table,
                      quench_error **error);

/**
 * Frees a handle of a table. NULL is allowed. The table stays.
 * Threads: any.
 */
void quench_table_free(quench_table *table);

/**
 * Returns the current name of a table: a text with NUL at its end, for quench_free, and its
 * length.
 * Threads: any.
 */
int quench_table_name(quench_table *table,
                      char **name,
                      size_t *name_bytes,
                      quench_error **error);

/**
 * Calls `each` with the name of each table, in order.
 * Threads: any.
 */
int quench_tables(quench_database *database,
                  quench_name_function each,
                  void *context,
                  quench_error **error);

/**
 * Drops a table and its rows, durably. QUENCH_BUSY while open transactions or snapshots use it.
 * Threads: any.
 */
int quench_drop_table(quench_database *database,
                      const char *name,
                      size_t name_bytes,
                      quench_error **error);

/**
 * Gives a table another name, durably. Handles of the table continue to work.
 * Threads: any.
 */
int quench_rename_table(quench_database *database,
                        const char *name,
                        size_t name_bytes,
                        const char *new_name,
                        size_t new_name_bytes,
                        quench_error **error);

/**
 * Makes a table empty in one step, durably. Handles of the old table are errors from then on.
 * Threads: any.
 */
int quench_clear_table(quench_database *database,
                       const char *name,
                       size_t name_bytes,
                       quench_error **error);

/* ---- Transactions and snapshots ---- */

/**
 * Begins a transaction. `options` may be NULL: snapshot isolation, durable.
 * Threads: any. One thread at a time may use the transaction; a second call meanwhile is an error.
 */
int quench_begin(quench_database *database,
                 const struct quench_options *options,
                 quench_transaction **transaction,
                 quench_error **error);

/**
 * Takes a snapshot, to read from. It blocks no writer, and no crash takes back what it returns.
 * Threads: any. Many threads at a time may read from the snapshot.
 */
int quench_begin_read(quench_database *database,
                      quench_transaction **snapshot,
                      quench_error **error);

/**
 * Returns the CSN of the newest transaction that a snapshot sees: a change feed may begin there.
 * Threads: any.
 */
int quench_snapshot_csn(quench_transaction *snapshot,
                        uint64_t *csn,
                        quench_error **error);

/**
 * Commits. Returns when the transaction is as durable as its options say, and gives its CSN, 0 if
 * it changed nothing. The transaction has ended then, also after an error, and has to be freed
 * still.
 * Threads: one at a time.
 */
int quench_commit(quench_transaction *transaction,
                  uint64_t *csn,
                  quench_error **error);

/**
 * Commits and returns at once: others see the changes. The ticket says when they are durable.
 * Threads: one at a time.
 */
int quench_commit_async(quench_transaction *transaction,
                        quench_ticket **ticket,
                        quench_error **error);

/**
 * Takes everything back and ends the transaction. quench_transaction_free does so, too.
 * Threads: one at a time.
 */
int quench_rollback(quench_transaction *transaction, quench_error **error);

/**
 * Frees a transaction, and rolls it back if it has not ended; or a snapshot, which its cursors
 * keep until they are freed. NULL is allowed.
 * Threads: any; not while another call uses the handle.
 */
void quench_transaction_free(quench_transaction *transaction);

/**
 * Calls `change` with a transaction, commits it, and returns what `change` returned. After a
 * conflict, a deadlock or a lock timeout everything is taken back, and `change` is called again,
 * so it must have no other effects that may not be repeated. `change` is called by the calling
 * thread.
 * Threads: any.
 */
int quench_transact(quench_database *database,
                    const struct quench_options *options,
                    quench_transact_function change,
                    void *context,
                    quench_error **error);

/**
 * Returns 1 if a call of this transaction met another transaction, so that running it again may
 * succeed.
 * Threads: one at a time.
 */
int quench_has_to_retry(quench_transaction *transaction, quench_error **error);

/**
 * Returns a point to roll back to: a number, valid until the transaction ends.
 * Threads: one at a time.
 */
int quench_savepoint(quench_transaction *transaction,
                     uint64_t *savepoint,
                     quench_error **error);

/**
 * Takes back every change since a savepoint, which stays valid.
 * Threads: one at a time.
 */
int quench_rollback_to(quench_transaction *transaction,
                       uint64_t savepoint,
                       quench_error **error);

/**
 * Locks all rows of a table until the transaction ends: against changes, or, with `exclusive` 1,
 * against locking reads as well.
 * Threads: one at a time.
 */
int quench_lock_table(quench_transaction *transaction,
                      quench_table *table,
                      int exclusive,
                      quench_error **error);

/**
 * Ends the wait of a transaction for a row or a lock, or its next wait if it waits for none:
 * within about 10 ms that call returns QUENCH_INTERRUPTED and has changed nothing. The transaction
 * may continue. A commit is not ended: see quench_commit_async.
 * Threads: any, also while another call uses the transaction; not while it is freed.
 */
int quench_interrupt(quench_transaction *transaction, quench_error **error);

/* ---- Reading rows, from transactions and snapshots ---- */

/**
 * Reads the value of a key; in a transaction, own changes included. Returns 1 and the value, for
 * quench_free, or 0 and NULL if there is no such key. A NUL follows the value, and does not count.
 * Threads: any for a snapshot, one at a time for a transaction.
 */
int quench_get(quench_transaction *transaction,
               quench_table *table,
               const void *key,
               size_t key_bytes,
               void **value,
               size_t *value_bytes,
               quench_error **error);

/**
 * Reads the value of a key into a buffer, and allocates nothing for values up to 64 KiB. Returns 1
 * and the length of the value, of which the buffer gets as much as it has space for; 0 without
 * such a key.
 * Threads: as quench_get.
 */
int quench_get_into(quench_transaction *transaction,
                    quench_table *table,
                    const void *key,
                    size_t key_bytes,
                    void *buffer,
                    size_t buffer_bytes,
                    size_t *value_bytes,
                    quench_error **error);

/**
 * Calls `visit` with the value of a key, and allocates nothing for values up to 64 KiB. Returns 1;
 * 0 without such a key, and then does not call it. `visit` is called by the calling thread, and
 * may use the transaction and the database.
 * Threads: as quench_get.
 */
int quench_get_with(quench_transaction *transaction,
                    quench_table *table,
                    const void *key,
                    size_t key_bytes,
                    quench_value_function visit,
                    void *context,
                    quench_error **error);

/**
 * Returns 1 if a key exists. Of a large value nothing is read.
 * Threads: as quench_get.
 */
int quench_contains(quench_transaction *transaction,
                    quench_table *table,
                    const void *key,
                    size_t key_bytes,
                    quench_error **error);

/**
 * Reads a row as quench_get and locks it, whether it exists or not, until the transaction ends:
 * against changes, or, with `exclusive` 1, against other writers' reads with a lock as well.
 * Threads: one at a time.
 */
int quench_get_locked(quench_transaction *transaction,
                      quench_table *table,
                      const void *key,
                      size_t key_bytes,
                      int exclusive,
                      void **value,
                      size_t *value_bytes,
                      quench_error **error);

/**
 * Counts the rows of a range, all of which it reads. `range` may be NULL for all rows.
 * Threads: as quench_get.
 */
int quench_count(quench_transaction *transaction,
                 quench_table *table,
                 const struct quench_range *range,
                 uint64_t *count,
                 quench_error **error);

/**
 * Brings the pages of rows that are about to be read or written into memory, many at once.
 * Threads: as quench_get.
 */
int quench_prefetch(quench_transaction *transaction,
                    quench_table *table,
                    const struct quench_bytes *keys,
                    size_t keys_count,
                    quench_error **error);

/**
 * Reads a row in a snapshot of its own, as quench_get.
 * Threads: any.
 */
int quench_database_get(quench_database *database,
                        quench_table *table,
                        const void *key,
                        size_t key_bytes,
                        void **value,
                        size_t *value_bytes,
                        quench_error **error);

/* ---- Changing rows, in a transaction ---- */

/**
 * Sets a row, whether it exists or not.
 * Threads: one at a time; so for each change of a transaction.
 */
int quench_put(quench_transaction *transaction,
               quench_table *table,
               const void *key,
               size_t key_bytes,
               const void *value,
               size_t value_bytes,
               quench_error **error);

/**
 * Sets a row if the key does not exist. Returns 1 if it did not.
 * Threads: one at a time.
 */
int quench_put_new(quench_transaction *transaction,
                   quench_table *table,
                   const void *key,
                   size_t key_bytes,
                   const void *value,
                   size_t value_bytes,
                   quench_error **error);

/**
 * Sets a row. Returns 1 and the value before, for quench_free, or 0 and NULL if there was none.
 * Threads: one at a time.
 */
int quench_replace(quench_transaction *transaction,
                   quench_table *table,
                   const void *key,
                   size_t key_bytes,
                   const void *value,
                   size_t value_bytes,
                   void **before,
                   size_t *before_bytes,
                   quench_error **error);

/**
 * Deletes a row. Returns 1 if it existed.
 * Threads: one at a time.
 */
int quench_delete(quench_transaction *transaction,
                  quench_table *table,
                  const void *key,
                  size_t key_bytes,
                  quench_error **error);

/**
 * Deletes a row. Returns 1 and its value, for quench_free, or 0 and NULL if it did not exist.
 * Threads: one at a time.
 */
int quench_pop(quench_transaction *transaction,
               quench_table *table,
               const void *key,
               size_t key_bytes,
               void **value,
               size_t *value_bytes,
               quench_error **error);

/**
 * Deletes the row with the lowest key, or with the highest key if `last` is 1. Returns 1, the key
 * and the value, both for quench_free; 0 and NULL if the table is empty.
 * Threads: one at a time.
 */
int quench_pop_end(quench_transaction *transaction,
                   quench_table *table,
                   int last,
                   void **key,
                   size_t *key_bytes,
                   void **value,
                   size_t *value_bytes,
                   quench_error **error);

/**
 * Sets a row to what `update` makes of its value. No other transaction changes the row in between.
 * `update` is called once, by the calling thread. Returns what it returned.
 * Threads: one at a time.
 */
int quench_update(quench_transaction *transaction,
                  quench_table *table,
                  const void *key,
                  size_t key_bytes,
                  quench_update_function update,
                  void *context,
                  quench_error **error);

/**
 * Sets a row to `after` if its value is `expected`. NULL stands for no row. Returns 1 if it was.
 * Threads: one at a time.
 */
int quench_compare_and_set(quench_transaction *transaction,
                           quench_table *table,
                           const void *key,
                           size_t key_bytes,
                           const void *expected,
                           size_t expected_bytes,
                           const void *after,
                           size_t after_bytes,
                           quench_error **error);

/**
 * Adds to a counter, a big-endian number of 64 bits that is 0 if the row does not exist, and gives
 * the sum.
 * Threads: one at a time.
 */
int quench_add(quench_transaction *transaction,
               quench_table *table,
               const void *key,
               size_t key_bytes,
               int64_t delta,
               int64_t *sum,
               quench_error **error);

/**
 * Deletes the rows of a range and gives their number. `range` may be NULL for all rows.
 * Threads: one at a time.
 */
int quench_delete_range(quench_transaction *transaction,
                        quench_table *table,
                        const struct quench_range *range,
                        uint64_t *count,
                        quench_error **error);

/**
 * Sets a row in a transaction of its own, which is durable on return and is repeated after
 * conflicts.
 * Threads: any.
 */
int quench_database_put(quench_database *database,
                        quench_table *table,
                        const void *key,
                        size_t key_bytes,
                        const void *value,
                        size_t value_bytes,
                        quench_error **error);

/**
 * Deletes a row in a transaction of its own, as quench_database_put. Returns 1 if it existed.
 * Threads: any.
 */
int quench_database_delete(quench_database *database,
                           quench_table *table,
                           const void *key,
                           size_t key_bytes,
                           quench_error **error);

/* ---- Cursors: rows of a range, in both directions ---- */

/**
 * Opens a cursor, which reads nothing yet. `range` may be NULL for all rows. It returns what its
 * transaction writes ahead of it, and rows may be changed and deleted in its loop. After the end
 * of its transaction its steps are errors; a snapshot stays until its cursors are freed.
 * Threads: as quench_get. One thread at a time may use the cursor.
 */
int quench_open_cursor(quench_transaction *transaction,
                       quench_table *table,
                       const struct quench_range *range,
                       quench_cursor **cursor,
                       quench_error **error);

/**
 * Moves to the next row; a new cursor, to the first row. Returns 1 and the row, whose key and
 * value are valid until the next call with the cursor; 0 behind the last row, where
 * quench_cursor_prev continues with the last row.
 * Threads: one at a time; so for all functions of cursors.
 */
int quench_cursor_next(quench_cursor *cursor,
                       const void **key,
                       size_t *key_bytes,
                       const void **value,
                       size_t *value_bytes,
                       quench_error **error);

/**
 * Moves to the row before; a new cursor, to the last row. Returns as quench_cursor_next.
 * Threads: one at a time.
 */
int quench_cursor_prev(quench_cursor *cursor,
                       const void **key,
                       size_t *key_bytes,
                       const void **value,
                       size_t *value_bytes,
                       quench_error **error);

/**
 * Moves between two rows: quench_cursor_next goes to the first row whose key is `key` or higher,
 * quench_cursor_prev to the last row whose key is lower. Reads nothing.
 * Threads: one at a time.
 */
int quench_cursor_seek(quench_cursor *cursor,
                       const void *key,
                       size_t key_bytes,
                       quench_error **error);

/**
 * Frees a cursor. NULL is allowed.
 * Threads: any; not while another call uses the handle.
 */
void quench_cursor_free(quench_cursor *cursor);

/* ---- Tickets: commits that no thread waits for ---- */

/**
 * Returns the commit sequence number; 0 if the transaction changed nothing.
 * Threads: any; so for all functions of tickets.
 */
int quench_ticket_csn(quench_ticket *ticket,
                      uint64_t *csn,
                      quench_error **error);

/**
 * Returns 1 if the transaction is durable, 0 if it is not yet, and an error if the device failed.
 * Threads: any.
 */
int quench_ticket_poll(quench_ticket *ticket, quench_error **error);

/**
 * Waits until the transaction is durable, at most so many microseconds; without limit if the
 * number is negative. Returns 1 if it is durable. Causes the device writes that this needs.
 * Threads: any.
 */
int quench_ticket_wait(quench_ticket *ticket,
                       int64_t timeout_us,
                       quench_error **error);

/**
 * Has `outcome` called once, when the outcome of the commit is known. The ticket may be freed
 * before.
 * Threads: any.
 */
int quench_ticket_notify(quench_ticket *ticket,
                         quench_outcome_function outcome,
                         void *context,
                         quench_error **error);

/**
 * Frees a ticket. NULL is allowed. The commit continues.
 * Threads: any; not while another call uses the handle.
 */
void quench_ticket_free(quench_ticket *ticket);

/* ---- Change feeds: the committed transactions of a database, in order ---- */

/**
 * Opens a feed of the transactions that committed after the CSN `after`; 0: from the first one on.
 * Threads: any. One thread at a time may use the feed. It does not keep the database open.
 */
int quench_open_changes(quench_database *database,
                        uint64_t after,
                        quench_changes **changes,
                        quench_error **error);

/**
 * Opens a feed of the changes, from now on, of rows whose keys begin with `prefix`, one at a time.
 * Threads: as quench_open_changes.
 */
int quench_open_watch(quench_database *database,
                      quench_table *table,
                      const void *prefix,
                      size_t prefix_bytes,
                      quench_changes **changes,
                      quench_error **error);

/**
 * Waits for the next transaction, at most so many microseconds; without limit if the number is
 * negative. Returns 1, its CSN and the number of its changes; 0 if there was none in this time, or
 * if the database was closed.
 * Threads: one at a time; so for all functions of feeds.
 */
int quench_changes_next(quench_changes *changes,
                        int64_t timeout_us,
                        uint64_t *csn,
                        size_t *count,
                        quench_error **error);

/**
 * Gives one of the changes of the transaction; the first one is 0.
 * Threads: one at a time.
 */
int quench_changes_get(quench_changes *changes,
                       size_t index,
                       struct quench_change *change,
                       quench_error **error);

/**
 * Returns the CSN after which a later feed continues, for quench_open_changes. Kept with what was
 * made of the changes, it brings each transaction once, also after a crash. 0 for a feed of rows.
 * Threads: one at a time.
 */
int quench_changes_csn(quench_changes *changes,
                       uint64_t *csn,
                       quench_error **error);

/**
 * Frees a feed. NULL is allowed.
 * Threads: any; not while another call uses the handle.
 */
void quench_changes_free(quench_changes *changes);

/* ---- Backups, checks and numbers ---- */

/**
 * Makes everything committed so far durable, of all levels and threads.
 * Threads: any; so for all functions of this section.
 */
int quench_flush(quench_database *database, quench_error **error);

/**
 * Makes a checkpoint now: the next recovery starts there. Report: csn, pages_written,
 * bytes_written, pages_rewritten, seconds.
 * Threads: any.
 */
int quench_checkpoint(quench_database *database,
                      char **report,
                      quench_error **error);

/**
 * Gives space of the file of pages back. Report: bytes_before, bytes_after, bytes_used,
 * pages_moved, seconds.
 * Threads: any.
 */
int quench_compact(quench_database *database,
                   quench_progress_function progress,
                   void *context,
                   char **report,
                   quench_error **error);

/**
 * Copies the database to an empty directory while transactions continue. With `base`, an earlier
 * backup, copies only what has changed since; it may be NULL. Report: csn, pages, pages_copied,
 * bytes, base_csn, seconds.
 * Threads: any.
 */
int quench_backup(quench_database *database,
                  const char *target,
                  size_t target_bytes,
                  const char *base,
                  size_t base_bytes,
                  quench_progress_function progress,
                  void *context,
                  char **report,
                  quench_error **error);

/**
 * Makes a database of a full backup and the increments that follow it. With `log`, the directory
 * of the original, what came after the last backup is replayed, up to the CSN `to` if it is not 0;
 * `log` may be NULL. Report: csn, pages, bytes, replayed, seconds.
 * Threads: any.
 */
int quench_restore(const struct quench_bytes *backups,
                   size_t backups_count,
                   const char *target,
                   size_t target_bytes,
                   const char *log,
                   size_t log_bytes,
                   uint64_t to,
                   const struct quench_setting *settings,
                   size_t settings_count,
                   char **report,
                   quench_error **error);

/**
 * Checks the whole database while transactions continue. Returns 1 if nothing is wrong. Report:
 * result, advice, problems, weaknesses, and numbers of what was checked.
 * Threads: any.
 */
int quench_verify(quench_database *database,
                  quench_progress_function progress,
                  void *context,
                  char **report,
                  quench_error **error);

/**
 * Checks a database that no process has open for writing, as quench_verify. Damage because of
 * which an open is refused is part of the report.
 * Threads: any.
 */
int quench_verify_path(const char *path,
                       size_t path_bytes,
                       const struct quench_setting *settings,
                       size_t settings_count,
                       char **report,
                       quench_error **error);

/**
 * Returns the statistics in JSON, for quench_free.
 * Threads: any.
 */
int quench_statistics(quench_database *database,
                      char **json,
                      quench_error **error);

/**
 * Returns the statistics in the format of Prometheus, for quench_free.
 * Threads: any.
 */
int quench_prometheus(quench_database *database,
                      char **text,
                      quench_error **error);

/**
 * Resets latencies and some counters, between a warm-up and a measurement.
 * Threads: any.
 */
int quench_reset_statistics(quench_database *database, quench_error **error);

/**
 * Returns whether the database works, in JSON, for quench_free: state, reasons, seconds.
 * Threads: any.
 */
int quench_health(quench_database *database, char **json, quench_error **error);

/**
 * Returns limits and numbers of the open database in JSON, for quench_free: max_key_bytes,
 * max_value_bytes, checkpoint_csn, open_line.
 * Threads: any.
 */
int quench_facts(quench_database *database, char **json, quench_error **error);

/**
 * Asks the process that has a database open for its statistics, in JSON, for quench_free.
 * Threads: any.
 */
int quench_ask_statistics(const char *path,
                          size_t path_bytes,
                          char **json,
                          quench_error **error);

/* ---- Standbys: copies that follow another process, for reading and for taking over ---- */

/**
 * Opens a standby of the database in a directory, at the URL of a store of objects, or in several
 * of them: a copy for reading that follows the log of the process that writes, and that can take
 * its place. The settings are those of the copy and of quench_standby_promote, which fails with
 * QUENCH_BUSY while another process has the directory open.
 * Threads: any; so for all functions of standbys, also while others use the standby.
 */
int quench_open_standby(const char *path,
                        size_t path_bytes,
                        const struct quench_setting *settings,
                        size_t settings_count,
                        quench_standby **standby,
                        quench_error **error);

/**
 * Takes a snapshot of everything that the standby has applied. Its tables are those of
 * quench_standby_table. It may outlive the standby.
 * Threads: any.
 */
int quench_standby_snapshot(quench_standby *standby,
                            quench_transaction **snapshot,
                            quench_error **error);

/**
 * Opens a table of a snapshot of a standby. The handle is for this snapshot only.
 * Threads: any.
 */
int quench_standby_table(quench_transaction *snapshot,
                         const char *name,
                         size_t name_bytes,
                         quench_table **table,
                         quench_error **error);

/**
 * Gives the CSN up to which new snapshots show every transaction.
 * Threads: any.
 */
int quench_standby_csn(quench_standby *standby,
                       uint64_t *csn,
                       quench_error **error);

/**
 * Waits until new snapshots show every transaction up to a CSN, at most so many microseconds.
 * Returns 1 if they do, and the reason if the standby cannot follow.
 * Threads: any.
 */
int quench_standby_wait_for(quench_standby *standby,
                            uint64_t csn,
                            uint64_t timeout_us,
                            quench_error **error);

/**
 * Returns how far the standby is, in JSON, for quench_free: csn, newest_csn, lag_csns, lag in
 * seconds, transactions, new_bases, base_csn, failure.
 * Threads: any.
 */
int quench_standby_statistics(quench_standby *standby,
                              char **json,
                              quench_error **error);

/**
 * Ends the standby, and opens the database for writing. The writer before is ended: its next
 * commit fails. Everything that it has acknowledged is there. After an error the standby has
 * ended, too. The handle has to be freed still.
 * Threads: any.
 */
int quench_standby_promote(quench_standby *standby,
                           quench_database **database,
                           quench_error **error);

/**
 * Frees a standby, which ends it. NULL is allowed. Its snapshots can still be read.
 * Threads: any; not while another call uses the handle.
 */
void quench_standby_free(quench_standby *standby);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* QUENCHDB_H */
