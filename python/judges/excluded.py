"""The tests of other packages that do not apply, by patterns, with the reasons."""

SPACE = "QuenchDB has no such property of the files of LevelDB"
ORDER = "QuenchDB orders keys by their bytes"

DUPLICATES = "a key of QuenchDB has one value; several values are keys of their own"
FORMAT = "numbers, texts or memory that only LMDB's own files have"
MAP = "QuenchDB has no map of a fixed size"
FILES = "the names, modes and places of LMDB's files"
FLAGS = "QuenchDB has no such flag of LMDB"
READERS = "QuenchDB has no table of readers in a file"
TABLES = "a table of QuenchDB is created in a durable transaction of its own"

EXCLUDED = {
    "lmdb": {
        "cursor_test::CursorTest2::*": DUPLICATES,
        "cursor_test::PutmultiTest::test_dupsort*": DUPLICATES,
        "getmulti_test::GetMultiTestDupsort*": DUPLICATES,
        "getmulti_test::GetMultiKeyfixedMixedKeySizes::*": DUPLICATES,
        "txn_test::GetTest::test_dup*": DUPLICATES,
        "txn_test::GetTest::test_integerdup": DUPLICATES,
        "txn_test::ReplaceTest::test_dupsort_*": DUPLICATES,
        "parity_test::ArgumentValidationTest::test_getmulti_invalid_arguments": DUPLICATES,
        "cursor_test::PreloadTest::*": FORMAT,
        "txn_test::IdTest::test_*new": FORMAT,
        "txn_test::IdTest::test_readonly_after_write": FORMAT,
        "txn_test::InitTest::test_child_deleting_transaction": FORMAT,
        "parity_test::ArgumentValidationTest::test_negative_lib_version": FORMAT,
        "parity_test::ExceptionAttributeTest::test_lmdb_error_attributes_and_hint": MAP,
        "crash_test::MultiputTest::*": DUPLICATES,
        "crash_test::BadCursorTest::*": DUPLICATES,
        "crash_test::CloseDuringCopyTest::*": DUPLICATES,
        "crash_test::TxnFullTest::*": MAP,
        "crash_test::MapResizeTest::*": MAP,
        "env_test::OpenTest::test_bad_paths": "an open creates the directories above, too",
        "env_test::OpenTest::test_bad_size": MAP,
        "env_test::OpenTest::test_tiny_size": MAP,
        "env_test::SetMapSize*::*": MAP,
        "env_test::OpenTest::test_bytes_path_nosubdir": FILES,
        "env_test::OpenTest::test_subdir_false_*": FILES,
        "env_test::OpenTest::test_ok_path": FILES,
        "env_test::OpenTest::test_mode_subdir_*": FILES,
        "env_test::OpenTest::test_open_same_lock_file_after_data_delete": FILES,
        "env_test::OpenTest::test_open_same_path_after_delete*": FILES,
        "env_test::OpenTest::test_lock": FLAGS,
        "env_test::OpenTest::test_map_async": FLAGS,
        "env_test::OpenTest::test_meminit": FLAGS,
        "env_test::OpenTest::test_metasync": FLAGS,
        "env_test::OpenTest::test_readahead": FLAGS,
        "env_test::OpenTest::test_sync": FLAGS,
        "env_test::OpenTest::test_writemap": FLAGS,
        "env_test::InfoMethodsTest::test_flags": FLAGS,
        "env_test::OpenDbTest::test_flags": FLAGS,
        "env_test::InfoMethodsTest::test_info": FORMAT,
        "env_test::OpenTest::test_max_dbs": "QuenchDB has no such limit",
        "env_test::OpenTest::test_max_readers": READERS,
        "env_test::InfoMethodsTest::test_max_readers": READERS,
        "env_test::InfoMethodsTest::test_readers": READERS,
        "env_test::OtherMethodsTest::test_reader_check": READERS,
        "env_test::SpareTxnTest::*": READERS,
        "env_test::OtherMethodsTest::test_copy*": "a backup of QuenchDB is a directory; `test_reports.py` tests it",
        "env_test::OpenDbTest::test_handle_from_aborted_txn_not_reused": TABLES,
        "env_test::OpenDbTest::test_sub_notxn": TABLES,
        "txn_test::InitTest::test_cached_txn_across_fork": "its child runs the rest of the suite",
    },
    "plyvel": {
        "test_plyvel::test_open_read_only_dir": "fails for root with LevelDB, too; and its directory holds no database",
        "test_plyvel::test_property": SPACE,
        "test_plyvel::test_compaction": SPACE,
        "test_plyvel::test_approximate_sizes": "its keys have up to 100 kB, and one has none",
        "test_plyvel::test_repair_db": "a database of ours repairs itself when it is opened",
        "test_plyvel::test_invalid_comparator": ORDER,
        "test_plyvel::test_comparator": ORDER,
    },
}
