#!/usr/bin/env bash
# Fuzzes with cargo-fuzz: each target for so many seconds (60), or those that are named. Says so and fails if the tools are missing:
#   rustup toolchain install nightly && cargo install cargo-fuzz
# What is found goes to fuzz/corpus; --minimise reduces that to inputs that each reach something of their own, however often.
set -euo pipefail
cd "$(dirname "$0")"
seconds=60
minimise=
targets=()
while (($#)); do
    case "$1" in
    --seconds) seconds=$2; shift ;;
    --minimise) minimise=yes ;;
    *) targets+=("$1") ;;
    esac
    shift
done
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/../target/fuzz}
toolchain=${FUZZ_TOOLCHAIN:-nightly}
if ! cargo "+$toolchain" fuzz --version >/dev/null 2>&1; then
    echo "fuzz: needs cargo-fuzz and the toolchain '$toolchain' (FUZZ_TOOLCHAIN=...): not run. Install them with
  rustup toolchain install $toolchain && cargo install cargo-fuzz
The stable smoke run is in cargo test -p quench-fuzz." >&2
    exit 1
fi
if ((${#targets[@]} == 0)); then
    targets=(record segment manifest catalog memory load block description reader page mapping api)
fi
host=$(rustc "+$toolchain" -vV | sed -n 's/^host: //p')
for target in "${targets[@]}"; do
    echo "== $target"
    common=(--fuzz-dir runner --target "$host" --sanitizer none "$target")
    if [[ $minimise ]]; then
        # What has a name was made, or tells a story: it stays, and of the others what reaches more.
        kept=$(mktemp -d)
        find "corpus/$target" -type f -regextype posix-extended ! -regex '.*/[0-9a-f]{40}' -exec cp -t "$kept" {} +
        cargo "+$toolchain" fuzz run "${common[@]}" "$kept" "corpus/$target" -- -merge=1 -use_counters=0 -max_len=16384
        rm -r "corpus/$target"
        mkdir "corpus/$target"
        find "$kept" -type f -exec cp -t "corpus/$target" {} +
        rm -r "$kept"
    else
        cargo "+$toolchain" fuzz run "${common[@]}" "corpus/$target" -- -max_total_time="$seconds" -max_len=16384 -timeout=20 -rss_limit_mb=4096 -print_final_stats=1
    fi
done
