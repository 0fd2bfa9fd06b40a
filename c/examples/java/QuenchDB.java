import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.function.BiConsumer;
import java.util.function.Function;

/**
 * Shows that the C interface is enough for Java: an example with tests, not a product. Needs Java 22; the property
 * {@code quenchdb} is the path of the shared library. What is opened is closed by {@code close}.
 */
public final class QuenchDB implements AutoCloseable {
    /** What a call failed with: a code, a word, one line of text, advice. */
    public static final class Failure extends RuntimeException {
        private static final long serialVersionUID = 1;
        public final int code;
        public final String name, advice;

        Failure(int code, String name, String message, String advice) {
            super(message);
            this.code = code;
            this.name = name;
            this.advice = advice;
        }

        /** Whether running the whole transaction again may succeed. */
        public boolean isRetryable() {
            return answer("quench_is_retryable", code) == 1;
        }
    }

    private static final Linker LINKER = Linker.nativeLinker();
    private static final SymbolLookup LIBRARY =
            SymbolLookup.libraryLookup(java.nio.file.Path.of(System.getProperty("quenchdb")), Arena.global());
    private static final java.lang.foreign.AddressLayout POINTER =
            ADDRESS.withTargetLayout(MemoryLayout.sequenceLayout(Long.MAX_VALUE, java.lang.foreign.ValueLayout.JAVA_BYTE));
    private static final Map<String, MethodHandle> FUNCTIONS = new HashMap<>();
    private static final MemorySegment TRANSACT;

    static {
        var type = MethodType.methodType(int.class, MemorySegment.class, MemorySegment.class, MemorySegment.class);
        try {
            var transact = MethodHandles.lookup().findStatic(QuenchDB.class, "runTransact", type);
            TRANSACT = LINKER.upcallStub(transact, FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, ADDRESS), Arena.global());
        } catch (ReflectiveOperationException error) {
            throw new ExceptionInInitializerError(error);
        }
    }

    /** Returns a function of the library, whose arguments are addresses, lengths (long) and numbers (int). */
    private static synchronized MethodHandle function(String name, MemoryLayout result, Object... arguments) {
        return FUNCTIONS.computeIfAbsent(name, missing -> {
            var layouts = new MemoryLayout[arguments.length];
            for (int at = 0; at < layouts.length; at++) {
                layouts[at] = arguments[at] instanceof Long ? JAVA_LONG : arguments[at] instanceof Integer ? JAVA_INT : ADDRESS;
            }
            var type = result == null ? FunctionDescriptor.ofVoid(layouts) : FunctionDescriptor.of(result, layouts);
            return LINKER.downcallHandle(LIBRARY.find(name).orElseThrow(), type);
        });
    }

    private static Object invoke(String name, MemoryLayout result, Object... arguments) {
        try {
            return function(name, result, arguments).invokeWithArguments(arguments);
        } catch (RuntimeException | Error error) {
            throw error;
        } catch (Throwable error) {
            throw new IllegalStateException(error);
        }
    }

    private static int answer(String name, Object... arguments) { return (int) invoke(name, JAVA_INT, arguments); }

    private static void free(String name, MemorySegment handle) { invoke(name, null, handle); }

    private static String text(String name, MemorySegment error) {
        return ((MemorySegment) invoke(name, POINTER, error)).getString(0);
    }

    /** Calls a function whose last argument is the error. Returns its answer, or throws. */
    private static int call(Arena arena, String name, Object... arguments) {
        var error = arena.allocate(ADDRESS);
        var all = java.util.Arrays.copyOf(arguments, arguments.length + 1);
        all[arguments.length] = error;
        int answer = answer(name, all);
        if (answer >= 0) return answer;
        var given = error.get(ADDRESS, 0);
        try {
            throw new Failure(answer, text("quench_error_name", given), text("quench_error_message", given),
                    text("quench_error_advice", given));
        } finally {
            free("quench_error_free", given);
        }
    }

    private static MemorySegment bytes(Arena arena, byte[] bytes) {
        return arena.allocateFrom(java.lang.foreign.ValueLayout.JAVA_BYTE, bytes);
    }

    private static byte[] copy(MemorySegment address, MemorySegment size) {
        return address.get(ADDRESS, 0).reinterpret(size.get(JAVA_LONG, 0)).toArray(java.lang.foreign.ValueLayout.JAVA_BYTE);
    }

    private final MemorySegment handle;

    private QuenchDB(MemorySegment handle) { this.handle = handle; }

    /** Opens a database; creates it if it is missing. Settings have the names of the guide. */
    public static QuenchDB open(String path, Map<String, String> settings) {
        try (var arena = Arena.ofConfined()) {
            var place = bytes(arena, path.getBytes(StandardCharsets.UTF_8));
            var list = arena.allocate(ADDRESS, 2L * settings.size());
            int at = 0;
            for (var setting : settings.entrySet()) {
                list.setAtIndex(ADDRESS, at++, arena.allocateFrom(setting.getKey()));
                list.setAtIndex(ADDRESS, at++, arena.allocateFrom(setting.getValue()));
            }
            var database = arena.allocate(ADDRESS);
            call(arena, "quench_open", place, place.byteSize(), list, (long) settings.size(), MemorySegment.NULL,
                    MemorySegment.NULL, database);
            return new QuenchDB(database.get(ADDRESS, 0));
        }
    }

    /** Makes everything durable, closes the database and frees it. */
    @Override
    public void close() {
        try (var arena = Arena.ofConfined()) {
            call(arena, "quench_close", handle);
        } finally {
            free("quench_database_free", handle);
        }
    }

    /** A table, for any thread. */
    public static final class Table implements AutoCloseable {
        private final MemorySegment handle;

        private Table(MemorySegment handle) { this.handle = handle; }

        @Override
        public void close() {
            free("quench_table_free", handle);
        }
    }

    /** Opens a table; creates it, durably, if it is missing. */
    public Table table(String name) {
        try (var arena = Arena.ofConfined()) {
            var text = bytes(arena, name.getBytes(StandardCharsets.UTF_8));
            var table = arena.allocate(ADDRESS);
            call(arena, "quench_open_table", handle, text, text.byteSize(), 1, table);
            return new Table(table.get(ADDRESS, 0));
        }
    }

    /** A transaction, for one thread at a time, or a snapshot, for any. Closed before its commit, it takes everything back. */
    public static final class Transaction implements AutoCloseable {
        private final MemorySegment handle;

        private Transaction(MemorySegment handle) { this.handle = handle; }

        /** Returns the value of a key, if there is one. */
        public Optional<byte[]> get(Table table, byte[] key) {
            try (var arena = Arena.ofConfined()) {
                MemorySegment bytes = bytes(arena, key), value = arena.allocate(ADDRESS), size = arena.allocate(JAVA_LONG);
                if (call(arena, "quench_get", handle, table.handle, bytes, bytes.byteSize(), value, size) == 0) {
                    return Optional.empty();
                }
                var found = copy(value, size);
                free("quench_free", value.get(ADDRESS, 0));
                return Optional.of(found);
            }
        }

        /** Sets a row. */
        public void put(Table table, byte[] key, byte[] value) {
            try (var arena = Arena.ofConfined()) {
                MemorySegment bytes = bytes(arena, key), content = bytes(arena, value);
                call(arena, "quench_put", handle, table.handle, bytes, bytes.byteSize(), content, content.byteSize());
            }
        }

        /** Deletes a row, and returns whether it existed. */
        public boolean delete(Table table, byte[] key) {
            try (var arena = Arena.ofConfined()) {
                var bytes = bytes(arena, key);
                return call(arena, "quench_delete", handle, table.handle, bytes, bytes.byteSize()) == 1;
            }
        }

        /** Adds to a counter, and returns the sum. */
        public long add(Table table, byte[] key, long delta) {
            try (var arena = Arena.ofConfined()) {
                MemorySegment bytes = bytes(arena, key), sum = arena.allocate(JAVA_LONG);
                call(arena, "quench_add", handle, table.handle, bytes, bytes.byteSize(), delta, sum);
                return sum.get(JAVA_LONG, 0);
            }
        }

        /** Calls {@code each} with the rows of a table, in order. */
        public void rows(Table table, BiConsumer<byte[], byte[]> each) {
            try (var arena = Arena.ofConfined()) {
                var opened = arena.allocate(ADDRESS);
                call(arena, "quench_open_cursor", handle, table.handle, MemorySegment.NULL, opened);
                var cursor = opened.get(ADDRESS, 0);
                MemorySegment key = arena.allocate(ADDRESS), value = arena.allocate(ADDRESS);
                MemorySegment keySize = arena.allocate(JAVA_LONG), valueSize = arena.allocate(JAVA_LONG);
                try {
                    while (call(Arena.ofAuto(), "quench_cursor_next", cursor, key, keySize, value, valueSize) == 1) {
                        each.accept(copy(key, keySize), copy(value, valueSize));
                    }
                } finally {
                    free("quench_cursor_free", cursor);
                }
            }
        }

        /** Commits, durably. The transaction has ended then, and has to be closed still. */
        public void commit() {
            try (var arena = Arena.ofConfined()) {
                call(arena, "quench_commit", handle, MemorySegment.NULL);
            }
        }

        @Override
        public void close() {
            free("quench_transaction_free", handle);
        }
    }

    /** Begins a transaction. */
    public Transaction begin() {
        try (var arena = Arena.ofConfined()) {
            var transaction = arena.allocate(ADDRESS);
            call(arena, "quench_begin", handle, MemorySegment.NULL, transaction);
            return new Transaction(transaction.get(ADDRESS, 0));
        }
    }

    /** Returns a view of this moment. */
    public Transaction snapshot() {
        try (var arena = Arena.ofConfined()) {
            var snapshot = arena.allocate(ADDRESS);
            call(arena, "quench_begin_read", handle, snapshot);
            return new Transaction(snapshot.get(ADDRESS, 0));
        }
    }

    /** The calls of {@code transact} of this thread: its function, and then what it returned or threw. */
    private static final ThreadLocal<Function<Transaction, ?>> CHANGE = new ThreadLocal<>();
    private static final ThreadLocal<Object> MADE = new ThreadLocal<>();

    private static int runTransact(MemorySegment context, MemorySegment transaction, MemorySegment error) {
        // An exception must not run through the frames of C.
        try {
            MADE.set(CHANGE.get().apply(new Transaction(transaction)));
            return 0;
        } catch (Throwable thrown) {
            MADE.set(thrown);
            return -1000;
        }
    }

    /** Runs {@code change} in a transaction, commits it, and returns what it returned; again after a conflict. */
    @SuppressWarnings("unchecked")
    public <T> T transact(Function<Transaction, T> change) {
        var outer = CHANGE.get();
        CHANGE.set(change);
        try (var arena = Arena.ofConfined()) {
            call(arena, "quench_transact", handle, MemorySegment.NULL, TRANSACT, MemorySegment.NULL);
            return (T) MADE.get();
        } catch (Failure failure) {
            if (failure.code == -1000 && MADE.get() instanceof RuntimeException thrown) throw thrown;
            if (failure.code == -1000 && MADE.get() instanceof Error thrown) throw thrown;
            throw failure;
        } finally {
            CHANGE.set(outer);
            MADE.remove();
        }
    }
}
