import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Map;

/** Tests of the example, without a framework: {@code java -ea QuenchDBTest DIRECTORY}, a directory that does not exist. */
final class QuenchDBTest {
    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static void check(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }

    private static void rowsSurviveAClose(String directory) {
        try (var db = QuenchDB.open(directory, Map.of("memory_bytes", "33554432")); var users = db.table("users")) {
            try (var tx = db.begin()) {
                tx.put(users, bytes("alice"), bytes("Vienna"));
                tx.put(users, bytes("bob"), bytes(""));
                tx.put(users, bytes("nul\0key"), bytes("nul\0value"));
                tx.commit();
            }
            try (var tx = db.begin()) {
                tx.put(users, bytes("carol"), bytes("Linz"));
            }
        }
        try (var db = QuenchDB.open(directory, Map.of()); var users = db.table("users"); var snapshot = db.snapshot()) {
            var keys = new ArrayList<String>();
            snapshot.rows(users, (key, value) -> keys.add(new String(key, StandardCharsets.UTF_8)));
            check(String.join(" ", keys).equals("alice bob nul\0key"), keys.toString());
            check(snapshot.get(users, bytes("bob")).orElseThrow().length == 0, "an empty value");
            check(snapshot.get(users, bytes("carol")).isEmpty(), "what was not committed");
        }
    }

    private static void transactRepeats(String directory) throws InterruptedException {
        try (var db = QuenchDB.open(directory, Map.of()); var table = db.table("counters")) {
            var threads = new ArrayList<Thread>();
            for (int n = 0; n < 4; n++) {
                threads.add(Thread.ofPlatform().start(() -> {
                    for (int turn = 0; turn < 25; turn++) db.transact(tx -> tx.add(table, bytes("n"), 1));
                }));
            }
            for (var thread : threads) thread.join();
            check(db.transact(tx -> tx.add(table, bytes("n"), 0)) == 100, "the sum");
            try {
                db.transact(tx -> {
                    tx.delete(table, bytes("n"));
                    throw new IllegalStateException("mine");
                });
                check(false, "an exception is lost");
            } catch (IllegalStateException mine) {
                check(mine.getMessage().equals("mine"), "the exception");
            }
            check(db.transact(tx -> tx.add(table, bytes("n"), 0)) == 100, "everything is taken back");
        }
    }

    private static void errorsDescribeThemselves(String directory) {
        try {
            QuenchDB.open(directory, Map.of("no_setting", "1"));
            check(false, "a wrong setting");
        } catch (QuenchDB.Failure failure) {
            check(failure.name.equals("invalid-argument") && !failure.advice.isEmpty() && !failure.isRetryable(), failure.name);
        }
        try (var db = QuenchDB.open(directory, Map.of()); var table = db.table("t"); var one = db.begin(); var two = db.begin()) {
            one.put(table, bytes("k"), bytes("1"));
            one.commit();
            two.put(table, bytes("k"), bytes("2"));
            check(false, "a conflict");
        } catch (QuenchDB.Failure failure) {
            check(failure.isRetryable(), failure.getMessage());
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        rowsSurviveAClose(arguments[0]);
        transactRepeats(arguments[0]);
        errorsDescribeThemselves(arguments[0]);
        System.out.println("3 passed, 0 failed");
    }
}
