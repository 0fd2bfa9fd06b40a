# Steps of `.ci/run` and `.ci/nightly`. Sourced by both; the current directory is the repository's root.
# Each step is a function. `step NAME` runs it and prints its time; `finish` prints all times and the sum.
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
target=${CARGO_TARGET_DIR:-target}
# What makes the next builds faster makes the first one slower.
[ -d "$target/debug" ] || export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}
times=()

step() {
    local begun=$SECONDS
    printf -- '--- %s\n' "$1"
    # Not in an `if` or `||`: there `set -e` has no effect inside the function.
    "$1"
    times+=("$(printf '%6d s  %s' $((SECONDS - begun)) "$1")")
    printf -- '--- %s: %d s\n' "$1" $((SECONDS - begun))
}

finish() {
    printf '%s\n' "${times[@]}"
    printf '%6d s  in all\n' "$SECONDS"
}

# True if a commit of the last day changed a file below one of the paths. Without history: true.
changed() {
    local commits
    commits=$(git log --since='24 hours ago' --format=%H -- "$@" 2>/dev/null) || return 0
    [ "$(git rev-parse --is-shallow-repository 2>/dev/null)" = false ] || return 0
    [ -n "$commits" ]
}

format() { cargo fmt --all --check; }

# The simulated engine has the same sources: it is looked at as what the simulation needs, not with its unit tests.
clippy() { cargo clippy --workspace --exclude quenchdb-simulated --all-targets -- -D warnings; }

documentation() { RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet; }

# As users build it: without the features that other packages of the workspace choose.
documentation_of_the_engine() { RUSTDOCFLAGS="-D warnings" cargo doc -p quenchdb --no-deps --quiet; }

# The list of the public API, which rustdoc describes.
public_api() { cargo test -p quench-book --features public-api; }

# The guide as a book, with the crates of mdBook.
book() {
    cargo clippy -p quench-book --all-targets --all-features -- -D warnings
    cargo test -p quench-book --features mdbook
}

# What users have: the engine without features, with one of stores, and the program without stores.
clippy_of_features() {
    cargo clippy -p quenchdb -- -D warnings
    cargo clippy -p quenchdb --features s3 -- -D warnings
    cargo clippy -p quenchdb --features azure,gcs -- -D warnings
    cargo clippy -p quenchdb --features gcs-rapid -- -D warnings
    # The unit tests with one client only: the workspace builds them with all.
    cargo clippy -p quenchdb --lib --profile test --features gcs-rapid,internals -- -D warnings
    cargo clippy -p quench-cli -- -D warnings
}

# The packages as they are published, built by the oldest compiler that the engine supports. A toolchain that cannot be
# installed is said, and does not fail the run. A package of an earlier run would be taken for the new one.
packages() {
    local package=(package --quiet --allow-dirty -p quenchdb-derive -p quenchdb)
    package+=(--features quenchdb/derive,quenchdb/postcard,quenchdb/zerocopy,quenchdb/uuid,quenchdb/object-storage)
    rm -rf "$target/package" "$target/oldest/package"
    if timeout 120 rustup toolchain install 1.92 --profile minimal > /dev/null 2>&1; then
        CARGO_TARGET_DIR=$target/oldest cargo +1.92 "${package[@]}"
    else
        echo "skipped: Rust 1.92 cannot be installed here"
        cargo "${package[@]}"
    fi
    # The program's packages; the workspace builds the same sources.
    cargo package --quiet --allow-dirty --no-verify -p quenchdb-derive -p quenchdb -p quench-bench -p quench-emulator -p quench-cli
}

another_processor() {
    if timeout 120 rustup target add aarch64-unknown-linux-gnu > /dev/null 2>&1; then
        cargo check --quiet -p quenchdb --target aarch64-unknown-linux-gnu
    else
        echo "skipped: the target aarch64-unknown-linux-gnu cannot be installed here"
    fi
}

# Servers that others wrote, if they come in time; the tests find them. Their versions are fixed, and Go's checksum database
# may be out of reach.
servers() { GOSUMDB=off scripts/servers --seconds 60 toxiproxy azurite s3mock s3proxy || true; }

# The README's command. A test that lacks strace, root, FUSE, a cgroup or a server is skipped. The list of those comes last, so
# that a green run is not taken for all of it.
tests() { cargo test --workspace; }

# The Python package: its format and lints, its wheel, its tests. `python_and_judges` runs the tests of lmdb and plyvel, too.
python_package() {
    cargo fmt --manifest-path python/Cargo.toml --check
    scripts/python-tests "$@"
}

python_and_judges() {
    cargo clippy --manifest-path python/Cargo.toml --all-targets -- -D warnings
    python_package --judges
}

# The C interface: its format, its header, its tests. `c_and_judges` lints it, runs tests of other engines, and counts instructions.
c_package() {
    cargo fmt --manifest-path c/Cargo.toml --all --check
    scripts/c-tests "$@"
}

c_and_judges() {
    cargo clippy --manifest-path c/Cargo.toml --workspace --all-targets -- -D warnings
    c_package --measure --judges
}

# Instructions of single operations: none may be more than 3 % above docs/instructions.json, which scripts/instructions renews.
instructions() {
    if ! valgrind --version > /dev/null 2>&1; then
        echo "skipped: valgrind is not installed"
        return
    fi
    cargo build --quiet --release -p quench-cli
    "$target/release/quench" bench instructions --recorded docs/instructions.json
}

# All orders in which threads may meet in the small parts that have no lock, and many orders in the commit path.
loom() {
    RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="$target/loom" cargo test -p quenchdb --lib --release -- \
        buffer:: watermark queue::ring parking event exact::undecided clocks mapped consolidation
}

shuttle() { CARGO_TARGET_DIR="$target/shuttle" cargo test -p quenchdb --lib --features shuttle --release commit::; }

# Every test at its whole depth. One that fails stops no other.
deep_tests() { QUENCH_DEEP=1 cargo test --workspace --no-fail-fast; }

# Figures of the papers, with points too short to mean anything: none may fail. The first argument names those of one half, and
# so the second; they run side by side.
run_figures() {
    local figures=("$target/debug/quench" bench figures --seconds 0.1)
    # shellcheck disable=SC2086
    "${figures[@]}" $1 --out "$target/figures/1" &
    # shellcheck disable=SC2086
    "${figures[@]}" $2 --out "$target/figures/2"
    wait $!
}

# One figure of each family.
a_figure_of_each_family() { run_figures "AC-F2 NVM-F4 Q-T3" "MS-F13 ELR-F21 GC-F1"; }

all_figures() { run_figures "AC NVM Q" "MS ELR GC"; }

# From fixed seeds: rounds of the simulation, and crashes of every protocol. The whole workspace, so that nothing is built again.
deep_simulation() { QUENCH_SEEDS=1000 QUENCH_SEED=1 cargo test --workspace --test sim -- scorecard::; }

deep_crashes() { QUENCH_CRASHES=30000 QUENCH_SEED=1 cargo test --workspace --test engine -- crash::; }

# Kills on file systems that others wrote, made in files; skipped where they cannot be mounted.
file_systems() { scripts/file-systems "$target/debug/quench"; }

# Prints the skipped tests at the end, however the run ends.
list_skipped_at_end() {
    QUENCH_SKIPPED=$(mktemp)
    export QUENCH_SKIPPED
    trap 'sort -u "$QUENCH_SKIPPED" || true; rm -f "$QUENCH_SKIPPED"' EXIT
}
