package quenchdb

import (
	"errors"
	"strings"
	"sync"
	"testing"
)

func opened(t *testing.T, path string) (*Database, *Table) {
	t.Helper()
	db, err := Open(path, map[string]string{"memory_bytes": "33554432"})
	if err != nil {
		t.Fatal(err)
	}
	table, err := db.Table("users")
	if err != nil {
		t.Fatal(err)
	}
	return db, table
}

func TestRowsSurviveAClose(t *testing.T) {
	path := t.TempDir() + "/shop"
	db, users := opened(t, path)
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range [][2]string{{"alice", "Vienna"}, {"albert", "Graz"}, {"bob", ""}, {"nul\x00key", "nul\x00value"}} {
		if err := tx.Put(users, []byte(row[0]), []byte(row[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db, users = opened(t, path)
	defer db.Close()
	snapshot, err := db.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Close()
	if value, err := snapshot.Get(users, []byte("nul\x00key")); err != nil || string(value) != "nul\x00value" {
		t.Fatal(value, err)
	}
	if value, err := snapshot.Get(users, []byte("bob")); err != nil || value == nil || len(value) != 0 {
		t.Fatal(value, err)
	}
	if value, err := snapshot.Get(users, []byte("carol")); err != nil || value != nil {
		t.Fatal(value, err)
	}
	var names []string
	for key := range snapshot.Rows(users, []byte("al"), &err) {
		names = append(names, string(key))
	}
	if err != nil || strings.Join(names, " ") != "albert alice" {
		t.Fatal(names, err)
	}
}

func TestTransactRepeatsAfterConflicts(t *testing.T) {
	db, table := opened(t, "")
	defer db.Close()
	var group sync.WaitGroup
	for range 8 {
		group.Add(1)
		go func() {
			defer group.Done()
			for range 50 {
				err := db.Transact(func(tx *Transaction) error {
					_, err := tx.Add(table, []byte("n"), 1)
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		}()
	}
	group.Wait()
	tx, _ := db.Begin()
	defer tx.Close()
	if sum, err := tx.Add(table, []byte("n"), 0); err != nil || sum != 400 {
		t.Fatal(sum, err)
	}
}

func TestErrorsAndPanicsOfAFunctionTakeEverythingBack(t *testing.T) {
	db, table := opened(t, "")
	defer db.Close()
	mine := errors.New("mine")
	if err := db.Transact(func(tx *Transaction) error {
		_ = tx.Put(table, []byte("k"), []byte("v"))
		return mine
	}); err != mine {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() != "stop" {
				t.Error("the panic is lost")
			}
		}()
		_ = db.Transact(func(tx *Transaction) error {
			_ = tx.Put(table, []byte("k"), []byte("v"))
			panic("stop")
		})
	}()
	tx, _ := db.Begin()
	if existed, err := tx.Delete(table, []byte("k")); err != nil || existed {
		t.Fatal(existed, err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

func TestErrorsDescribeThemselves(t *testing.T) {
	_, err := Open(t.TempDir()+"/none", map[string]string{"create": "false"})
	var failed *Error
	if !errors.As(err, &failed) || failed.Name != "not-found" || failed.Advice == "" || failed.Retryable() {
		t.Fatal(err)
	}
	db, table := opened(t, "")
	one, _ := db.Begin()
	two, _ := db.Begin()
	_ = one.Put(table, []byte("k"), nil)
	if err := one.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := two.Put(table, []byte("k"), nil); !errors.As(err, &failed) || !failed.Retryable() {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := two.Put(table, []byte("k"), nil); !errors.As(err, &failed) || failed.Name != "invalid-argument" {
		t.Fatal(err)
	}
	two.Close()
}
