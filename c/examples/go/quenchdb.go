// Package quenchdb shows that the C interface is enough for Go: an example with tests, not a product.
//
// Keys and values are byte slices. An error is an *Error. What was opened is closed by its Close.
package quenchdb

/*
#cgo pkg-config: quenchdb
#include <quenchdb.h>
#include <stdint.h>
#include <stdlib.h>

int quenchdbGoTransact(uintptr_t, quench_transaction *);

static int transact_trampoline(void *context, quench_transaction *tx, quench_error **error) {
    (void)error;
    return quenchdbGoTransact((uintptr_t)context, tx);
}

static int go_transact(quench_database *db, uintptr_t handle, quench_error **error) {
    return quench_transact(db, NULL, transact_trampoline, (void *)handle, error);
}
*/
import "C"

import (
	"iter"
	"runtime"
	"runtime/cgo"
	"unsafe"
)

// Error is what a call failed with.
type Error struct {
	Code                            int
	Name, Message, Advice, Location string
}

func (e *Error) Error() string { return e.Message }

// Retryable says whether running the whole transaction again may succeed.
func (e *Error) Retryable() bool { return C.quench_is_retryable(C.int(e.Code)) == 1 }

// answer takes over the error of a call, or returns whether its answer is yes.
func answer(code C.int, given *C.quench_error) (bool, error) {
	if code >= 0 {
		return code > 0, nil
	}
	defer C.quench_error_free(given)
	return false, &Error{
		Code:     int(code),
		Name:     C.GoString(C.quench_error_name(given)),
		Message:  C.GoString(C.quench_error_message(given)),
		Advice:   C.GoString(C.quench_error_advice(given)),
		Location: C.GoString(C.quench_error_location(given)),
	}
}

// bytes returns the address and the length of a slice for the time of a call.
func bytes(b []byte) (unsafe.Pointer, C.size_t) {
	return unsafe.Pointer(unsafe.SliceData(b)), C.size_t(len(b))
}

// text is bytes for a string.
func text(s string) (*C.char, C.size_t) {
	return (*C.char)(unsafe.Pointer(unsafe.StringData(s))), C.size_t(len(s))
}

// owned copies what the library allocated, and frees it.
func owned(data unsafe.Pointer, size C.size_t) []byte {
	defer C.quench_free(data)
	return C.GoBytes(data, C.int(size))
}

// Database is an open database. All its methods may be called from any goroutine.
type Database struct{ handle *C.quench_database }

// Table is a table, for any goroutine.
type Table struct{ handle *C.quench_table }

// Reader is what transactions and snapshots have in common.
type Reader struct{ handle *C.quench_transaction }

// Snapshot is a view of one moment, for any goroutine.
type Snapshot struct{ Reader }

// Transaction is a read-write transaction, for one goroutine at a time.
type Transaction struct{ Reader }

// Open opens a database with settings; creates it if it is missing. An empty path is a database in memory.
func Open(path string, settings map[string]string) (*Database, error) {
	var db Database
	var given *C.quench_error
	list := make([]C.quench_setting, 0, len(settings))
	for name, value := range settings {
		setting := C.quench_setting{name: C.CString(name), value: C.CString(value)}
		defer C.free(unsafe.Pointer(setting.name))
		defer C.free(unsafe.Pointer(setting.value))
		list = append(list, setting)
	}
	// The settings contain addresses of C, so that they may be passed as they are.
	first, count := unsafe.SliceData(list), C.size_t(len(list))
	var code C.int
	if path == "" {
		code = C.quench_open_in_memory(first, count, &db.handle, &given)
	} else {
		data, size := text(path)
		code = C.quench_open(data, size, first, count, nil, nil, &db.handle, &given)
	}
	if _, err := answer(code, given); err != nil {
		return nil, err
	}
	return &db, nil
}

// Close makes everything durable, closes the database and frees it.
func (db *Database) Close() error {
	var given *C.quench_error
	_, err := answer(C.quench_close(db.handle, &given), given)
	C.quench_database_free(db.handle)
	db.handle = nil
	return err
}

// Table opens a table; creates it, durably, if it is missing.
func (db *Database) Table(name string) (*Table, error) {
	var table Table
	var given *C.quench_error
	data, size := text(name)
	_, err := answer(C.quench_open_table(db.handle, data, size, 1, &table.handle, &given), given)
	if err != nil {
		return nil, err
	}
	runtime.SetFinalizer(&table, func(table *Table) { C.quench_table_free(table.handle) })
	return &table, nil
}

// Begin begins a transaction, which ends with Commit or Close.
func (db *Database) Begin() (*Transaction, error) {
	var tx Transaction
	var given *C.quench_error
	_, err := answer(C.quench_begin(db.handle, nil, &tx.handle, &given), given)
	return &tx, err
}

// Snapshot returns a view of this moment, until Close.
func (db *Database) Snapshot() (*Snapshot, error) {
	var snapshot Snapshot
	var given *C.quench_error
	_, err := answer(C.quench_begin_read(db.handle, &snapshot.handle, &given), given)
	return &snapshot, err
}

// transacting is a call of Transact.
type transacting struct {
	change func(*Transaction) error
	err    error
	panics any
}

//export quenchdbGoTransact
func quenchdbGoTransact(handle C.uintptr_t, tx *C.quench_transaction) (code C.int) {
	call := cgo.Handle(handle).Value().(*transacting)
	// A panic must not run through the frames of C.
	defer func() {
		if call.panics = recover(); call.panics != nil {
			code = -1000
		}
	}()
	if call.err = call.change(&Transaction{Reader{tx}}); call.err != nil {
		return -1000
	}
	return 0
}

// Transact runs change in a transaction and commits it, durably. After a conflict it runs change again. An
// error of change takes everything back, and is returned.
func (db *Database) Transact(change func(*Transaction) error) error {
	call := &transacting{change: change}
	handle := cgo.NewHandle(call)
	defer handle.Delete()
	var given *C.quench_error
	_, err := answer(C.go_transact(db.handle, C.uintptr_t(handle), &given), given)
	switch failed, _ := err.(*Error); {
	case call.panics != nil:
		panic(call.panics)
	case failed != nil && failed.Code == -1000:
		return call.err
	}
	return err
}

// Statistics returns the numbers of this moment, in JSON.
func (db *Database) Statistics() (string, error) {
	var json *C.char
	var given *C.quench_error
	_, err := answer(C.quench_statistics(db.handle, &json, &given), given)
	defer C.quench_free(unsafe.Pointer(json))
	return C.GoString(json), err
}

// Get returns the value of a key; nil if there is none.
func (r *Reader) Get(table *Table, key []byte) ([]byte, error) {
	var given *C.quench_error
	var value unsafe.Pointer
	var size C.size_t
	data, bytes := bytes(key)
	found, err := answer(C.quench_get(r.handle, table.handle, data, bytes, &value, &size, &given), given)
	if !found {
		return nil, err
	}
	return owned(value, size), nil
}

// Rows returns the rows whose keys begin with a prefix. The loop ends at the first error, which is put in err.
func (r *Reader) Rows(table *Table, prefix []byte, err *error) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		var given *C.quench_error
		var cursor *C.quench_cursor
		// A structure of C, because it contains an address.
		limits := (*C.quench_range)(C.calloc(1, C.sizeof_quench_range))
		defer C.free(unsafe.Pointer(limits))
		limits.size, limits.prefix, limits.prefix_bytes = C.sizeof_quench_range, C.CBytes(prefix), C.size_t(len(prefix))
		defer C.free(unsafe.Pointer(limits.prefix))
		if _, *err = answer(C.quench_open_cursor(r.handle, table.handle, limits, &cursor, &given), given); *err != nil {
			return
		}
		defer C.quench_cursor_free(cursor)
		for {
			var key, value unsafe.Pointer
			var keySize, valueSize C.size_t
			var found bool
			found, *err = answer(C.quench_cursor_next(cursor, &key, &keySize, &value, &valueSize, &given), given)
			if !found || !yield(C.GoBytes(key, C.int(keySize)), C.GoBytes(value, C.int(valueSize))) {
				return
			}
		}
	}
}

// Close ends a snapshot; it rolls a transaction back that was not committed.
func (r *Reader) Close() {
	C.quench_transaction_free(r.handle)
	r.handle = nil
}

// Put sets a row.
func (tx *Transaction) Put(table *Table, key, value []byte) error {
	var given *C.quench_error
	data, size := bytes(key)
	valueData, valueSize := bytes(value)
	_, err := answer(C.quench_put(tx.handle, table.handle, data, size, valueData, valueSize, &given), given)
	return err
}

// Delete deletes a row, and returns whether it existed.
func (tx *Transaction) Delete(table *Table, key []byte) (bool, error) {
	var given *C.quench_error
	data, size := bytes(key)
	return answer(C.quench_delete(tx.handle, table.handle, data, size, &given), given)
}

// Add adds to a counter, and returns the sum.
func (tx *Transaction) Add(table *Table, key []byte, delta int64) (int64, error) {
	var given *C.quench_error
	var sum C.int64_t
	data, size := bytes(key)
	_, err := answer(C.quench_add(tx.handle, table.handle, data, size, C.int64_t(delta), &sum, &given), given)
	return int64(sum), err
}

// Commit commits, durably, and ends the transaction.
func (tx *Transaction) Commit() error {
	var given *C.quench_error
	_, err := answer(C.quench_commit(tx.handle, nil, &given), given)
	tx.Close()
	return err
}
