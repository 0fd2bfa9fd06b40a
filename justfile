# Commands that take long or have many words. Each is one line of the documentation, too: `just` is not needed for anything.

# Every test, each at a small part of its depth: minutes.
test:
    cargo test --workspace --no-fail-fast

# Every test at its whole depth, then one round of the scorecard.
deep:
    QUENCH_DEEP=1 cargo test --workspace --no-fail-fast
    cargo run --release -p quench-sim -- scorecard

# The reliability scorecard, one round.
scorecard:
    cargo run --release -p quench-sim -- scorecard

# Two hours of rounds. The sums are kept in docs/soak.json, and a later call goes on with them.
soak minutes="120":
    cargo run --release -p quench-sim -- scorecard --minutes {{minutes}} --record docs/soak.json

# A minute of coverage-guided fuzzing for each target.
fuzz seconds="60":
    fuzz/run.sh --seconds {{seconds}}

# Counts the instructions of single operations again, and renews the file and the table of them. `--peers`: of other engines, too.
instructions *arguments:
    scripts/instructions {{arguments}}

# The same workload on QuenchDB and on other engines; see docs/guide/benchmark.md. Builds RocksDB: 20 to 30 minutes, once.
compare *arguments:
    cargo run --release --manifest-path peers/Cargo.toml -- compare {{arguments}}
