#!/usr/bin/env bash
# Tests the program in a virtual machine, on devices of the device mapper. Run by hand or at night, not in CI.
#
#   scripts/virtual-machine/run.sh [--moments N] [--stride N] [--rounds N] [--seconds N] [--presets "A B"]
#
# 1. dm-log-writes records all writes to the disk below ext4, while `quench torture-child` works. Marks in the record contain the number
#    of acknowledged commits. The script replays the record to every mark, and to every Nth flush between marks. At each such point it
#    mounts the disk as after a power cut, and `quench torture-check` looks for every commit acknowledged before.
# 2. dm-flakey drops all writes, or makes them fail, from some moment on.
# 3. `quench torture` runs on the same disk.
#
# Needs qemu-system-x86_64, a static busybox, dmsetup, mkfs.ext4, depmod, rustc, and a kernel with dm-log-writes and dm-flakey as modules or built
# in: on Debian `apt-get install qemu-system-x86 busybox-static dmsetup e2fsprogs kmod linux-image-cloud-amd64`. The script looks for the
# kernel below $KERNEL_ROOT (default /): boot/vmlinuz-VERSION and lib/modules/VERSION. An unpacked package (dpkg -x) is enough.
# Set ACCELERATION=kvm where /dev/kvm works: without it the run takes ten times as long.
set -euo pipefail
cd "$(dirname "$0")/../.."

moments=40 stride=100 rounds=5 seconds=10 presets="auto autonomous per-transaction"
while [ $# -gt 0 ]; do
    case $1 in
    --moments) moments=$2 ;;
    --stride) stride=$2 ;;
    --rounds) rounds=$2 ;;
    --seconds) seconds=$2 ;;
    --presets) presets=$2 ;;
    *) sed -n '2,5p' "$0"; exit 2 ;;
    esac
    shift 2
done

missing=()
for tool in qemu-system-x86_64 busybox dmsetup mkfs.ext4 depmod rustc ldd; do
    command -v $tool >/dev/null || missing+=("$tool")
done
root=${KERNEL_ROOT:-/}
version=
for modules in "$root"/lib/modules/*; do
    candidate=$(basename "$modules")
    if [ -f "$root/boot/vmlinuz-$candidate" ] && find "$modules" -name 'dm-log-writes.ko*' | grep -q .; then
        version=$candidate
    fi
done
[ -n "$version" ] || missing+=("a kernel with dm-log-writes below $root (KERNEL_ROOT=...)")
if [ ${#missing[@]} -gt 0 ]; then
    printf 'missing: %s\n' "${missing[@]}" >&2
    echo "nothing was run; install what the first lines of $0 name" >&2
    exit 3
fi

quench=${QUENCH:-target/release/quench}
[ -n "${QUENCH:-}" ] || cargo build --release -p quench-cli

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
stage=$work/stage
mkdir -p "$stage"/{bin,lib/modules/"$version"/kernel}
rustc --edition 2024 -O -o "$stage/bin/replay" scripts/virtual-machine/replay.rs
cp "$(command -v busybox)" "$stage/bin/busybox"
cp "$quench" "$stage/bin/quench"
cp "$(command -v dmsetup)" "$(command -v mkfs.ext4)" "$stage/bin/"
for program in quench dmsetup mkfs.ext4 replay; do
    for library in $(ldd "$stage/bin/$program" | grep -o '/[^ ]*'); do
        mkdir -p "$stage$(dirname "$library")"
        cp -L "$library" "$stage$library"
    done
done
find "$root/lib/modules/$version/kernel/drivers" \
    \( -path '*/virtio/*' -o -path '*/md/dm-*' -o -name 'virtio_blk.ko*' \) -name '*.ko*' \
    -exec cp {} "$stage/lib/modules/$version/kernel/" \;
cp "$root/lib/modules/$version/modules.builtin" "$root/lib/modules/$version/modules.order" "$stage/lib/modules/$version/"
depmod -b "$stage" "$version" 2>/dev/null
cp scripts/virtual-machine/init "$stage/init"
chmod +x "$stage/init"
cat >"$stage/settings" <<END
MOMENTS=$moments
STRIDE=$stride
ROUNDS=$rounds
SECONDS_OF_TORTURE=$seconds
PRESETS="$presets"
END
(cd "$stage" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$work/initramfs"
truncate -s 64M "$work/a" "$work/c" "$work/d"
truncate -s 4G "$work/b"

acceleration=${ACCELERATION:-tcg}
echo "kernel $version, $acceleration"
drives=()
for disk in a b c d; do
    drives+=(-drive "file=$work/$disk,format=raw,if=virtio,cache=unsafe")
done
qemu-system-x86_64 -accel $acceleration -cpu max -m 2G -smp 2 -nographic -no-reboot -net none \
    -kernel "$root/boot/vmlinuz-$version" -initrd "$work/initramfs" -append "console=ttyS0 quiet panic=-1" \
    "${drives[@]}" </dev/null | tee "$work/output" | grep --line-buffered -aE 'GUEST|figures:|^\{' || true
grep -aq 'GUEST DONE' "$work/output" || { tail -n 20 "$work/output" >&2; exit 1; }
