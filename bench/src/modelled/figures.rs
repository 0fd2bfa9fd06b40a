//! What is known of each modelled device. Sources and assumptions: the table in
//! `docs/guide/benchmark.md`.

/// Time of one access by its size: constant to a size, then proportional to what is beyond it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Curve {
    /// Nanoseconds of a small access.
    pub flat_ns: u64,
    /// Largest access that takes no longer, in bytes.
    pub flat_bytes: u64,
    /// Bytes per second beyond that size; [`UNLIMITED`] if they take no time.
    pub bytes_per_second: u64,
}

/// Bytes take no time.
pub const UNLIMITED: u64 = u64::MAX;

const fn curve(flat_ns: u64, flat_bytes: u64, bytes_per_second: u64) -> Curve {
    Curve { flat_ns, flat_bytes, bytes_per_second }
}

/// Nanoseconds that `bytes` take at a rate.
#[must_use]
pub fn transfer_ns(bytes: u64, bytes_per_second: u64) -> u64 {
    if bytes_per_second == UNLIMITED {
        return 0;
    }
    (u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_second)) as u64
}

impl Curve {
    /// Nanoseconds of an access to `bytes`, without noise.
    #[must_use]
    pub fn ns(&self, bytes: u64) -> u64 {
        self.flat_ns + transfer_ns(bytes.saturating_sub(self.flat_bytes), self.bytes_per_second)
    }
}

/// The tail of slow accesses: one in `one_in` takes longer by `u^-exponent`, with u uniform in (0,
/// 1].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tail {
    /// With 100 the tail begins at the 99th percentile.
    pub one_in: u64,
    /// With 0.5 the slowest tenth of the tail is at least 3.2 times slower than usual, the slowest
    /// hundredth 10 times.
    pub exponent: f64,
    /// Largest factor.
    pub factor_max: f64,
}

/// Requests that the device accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestLimit {
    /// Requests per second, of all accesses together.
    pub per_second: u64,
    /// Bytes of a request; a longer access counts as several.
    pub bytes: u64,
}

/// A device. Times are those of one access on an idle device.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figures {
    /// Name on the command line.
    pub name: &'static str,
    /// Description in one line.
    pub summary: &'static str,
    /// Reads.
    pub read: Curve,
    /// Writes; durable at completion, unless there are flushes.
    pub write: Curve,
    /// Shortest and longest flush in nanoseconds, of a device with a volatile cache. Spread evenly
    /// over the logarithm.
    pub flush_ns: Option<(u64, u64)>,
    /// Number of accesses served at the same time.
    pub slots: usize,
    /// Bytes per second of all reads together, without writes.
    pub read_bytes_per_second: u64,
    /// Bytes per second of all writes together, without reads.
    pub write_bytes_per_second: u64,
    /// Limit of requests, read or write.
    pub requests: Option<RequestLimit>,
    /// Largest deviation of a time to either side, as a share; uniformly distributed.
    pub jitter: f64,
    /// The tail of slow accesses.
    pub tail: Option<Tail>,
    /// True if an extension of a file writes zeros; otherwise it costs one small write.
    pub zeros_are_written: bool,
}

impl Figures {
    /// Returns the device with this name on the command line.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Figures> {
        FIGURES.iter().find(|figures| figures.name == name)
    }
}

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// 512 MiB in 87 ms, of which 64 KiB take 11 us.
const ENTERPRISE: u64 = 6_171_000_000;

/// The base of the other devices.
pub(super) const SILENT: Figures = Figures {
    name: "",
    summary: "",
    read: curve(0, 0, UNLIMITED),
    write: curve(0, 0, UNLIMITED),
    flush_ns: None,
    slots: 64,
    read_bytes_per_second: UNLIMITED,
    write_bytes_per_second: UNLIMITED,
    requests: None,
    jitter: 0.0,
    tail: None,
    zeros_are_written: true,
};

/// Ten gigabits.
const NETWORK: u64 = 1_250_000_000;
/// The tail of a volume: rare and short.
const VOLUME_TAIL: Tail = Tail { one_in: 100, exponent: 0.3, factor_max: 10.0 };
/// The tail of an object store.
const OBJECT_TAIL: Tail = Tail { one_in: 100, exponent: 0.5, factor_max: 30.0 };

const fn disk(name: &'static str, summary: &'static str, access_ns: u64) -> Figures {
    const RATE: u64 = 150_000_000;
    let access = curve(access_ns, 0, RATE);
    Figures {
        name,
        summary,
        read: access,
        write: access,
        slots: 1,
        read_bytes_per_second: RATE,
        write_bytes_per_second: RATE,
        jitter: 0.2,
        ..SILENT
    }
}

/// All modelled devices.
pub static FIGURES: [Figures; 10] = [
    Figures {
        name: "sim:nvme-enterprise",
        summary: "writes of 11 us up to 64 KiB, 6.2 GB/s, durable at completion",
        read: curve(92 * US, 4 * KIB, ENTERPRISE),
        write: curve(11 * US, 64 * KIB, ENTERPRISE),
        read_bytes_per_second: ENTERPRISE,
        write_bytes_per_second: ENTERPRISE,
        jitter: 0.05,
        ..SILENT
    },
    Figures {
        name: "sim:nvme-consumer",
        summary: "writes of 17 us into a volatile cache, flushes of 0.1 to 1 ms",
        read: curve(53 * US, 4 * KIB, 3_500_000_000),
        write: curve(17 * US, 16 * KIB, 3_300_000_000),
        flush_ns: Some((100 * US, MS)),
        slots: 32,
        read_bytes_per_second: 3_500_000_000,
        write_bytes_per_second: 3_300_000_000,
        jitter: 0.1,
        ..SILENT
    },
    disk(
        "sim:disk-170iops",
        "a disk of 170 accesses a second, one at a time, durable at completion",
        5_882_353,
    ),
    disk("sim:disk-10ms", "a disk of 10 ms an access, one at a time, durable at completion", 10 * MS),
    Figures {
        name: "sim:ebs-gp3",
        summary: "a volume behind a network: 1 ms, 3,000 requests and 125 MiB a second",
        read: curve(MS, 16 * KIB, 1_000 * MIB),
        write: curve(MS, 16 * KIB, 1_000 * MIB),
        read_bytes_per_second: 125 * MIB,
        write_bytes_per_second: 125 * MIB,
        requests: Some(RequestLimit { per_second: 3_000, bytes: 256 * KIB }),
        jitter: 0.2,
        tail: Some(VOLUME_TAIL),
        ..SILENT
    },
    Figures {
        name: "sim:ebs-io2",
        summary: "a volume behind a network: 0.5 ms, 64,000 requests and 4,000 MiB a second",
        read: curve(500 * US, 16 * KIB, 4_000 * MIB),
        write: curve(500 * US, 16 * KIB, 4_000 * MIB),
        read_bytes_per_second: 4_000 * MIB,
        write_bytes_per_second: 4_000 * MIB,
        requests: Some(RequestLimit { per_second: 64_000, bytes: 256 * KIB }),
        jitter: 0.1,
        tail: Some(Tail { one_in: 1000, ..VOLUME_TAIL }),
        ..SILENT
    },
    Figures {
        name: "sim:s3-express",
        summary: "an object store of one zone: 8 ms up to 1 MiB, 22 ms for 2 MiB, a tail from the 99th percentile",
        read: curve(5 * MS, MIB, 75_000_000),
        write: curve(8 * MS, MIB, 75_000_000),
        slots: 256,
        read_bytes_per_second: NETWORK,
        write_bytes_per_second: NETWORK,
        jitter: 0.1,
        tail: Some(OBJECT_TAIL),
        zeros_are_written: false,
        ..SILENT
    },
    Figures {
        name: "sim:s3-standard",
        summary: "an object store of a region: 77 ms up to 2 MiB, reads of 100 ms",
        read: curve(100 * MS, MIB, 85_000_000),
        write: curve(77 * MS, 2 * MIB, 85_000_000),
        slots: 256,
        read_bytes_per_second: NETWORK,
        write_bytes_per_second: NETWORK,
        jitter: 0.2,
        tail: Some(OBJECT_TAIL),
        zeros_are_written: false,
        ..SILENT
    },
    Figures {
        name: "sim:memory-0us",
        summary: "byte-addressable memory whose writes take no time beyond the copy",
        ..SILENT
    },
    Figures {
        name: "sim:memory-1.2us",
        summary: "byte-addressable memory with 1.2 us more for each write",
        write: curve(1_200, 0, UNLIMITED),
        ..SILENT
    },
];
