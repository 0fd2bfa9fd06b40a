//! Faults, and the requests at which they occur.

use rustix::io::Errno;
use std::time::Duration;

/// Kinds of requests that are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Read,
    Write,
    /// Of a file or of a directory.
    Flush,
    /// Of a file or of a directory.
    Create,
    Remove,
    /// Sets the length of a file.
    Length,
    /// Allocates space.
    Reserve,
}

/// A fault to inject.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fault {
    #[default]
    None,
    /// Kills the process that makes the Nth request other than a read: before the request is
    /// carried out, after half of it, or after all of it.
    Kill { nth: u64, carried_out: CarriedOut },
    /// The Nth request of a kind fails with EIO; with `for_ever` all later ones of the kind, too.
    Fail { kind: Kind, nth: u64, for_ever: bool },
    /// Of all requests of a kind for more than a sector, every `every`-th transfers half of its
    /// sectors, and reports that.
    Short { kind: Kind, every: u64 },
    /// After all files together have grown by `bytes`, there is no space.
    Full { bytes: u64 },
    /// Every `every`-th request takes `by` longer.
    Slow { every: u64, by: Duration },
}

/// How much of a request is carried out before a kill.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CarriedOut {
    Nothing,
    Half,
    All,
}

impl CarriedOut {
    pub const ALL: [CarriedOut; 3] = [CarriedOut::Nothing, CarriedOut::Half, CarriedOut::All];
}

/// How the file system handles one request.
#[derive(Clone, Copy, Debug)]
pub struct Handling {
    /// Bytes to carry out. A request without bytes counts as one byte.
    pub bytes: u64,
    /// The error to reply instead of the result.
    pub error: Option<Errno>,
    /// Whether the requesting process is killed before the reply.
    pub kills: bool,
    /// A pause before the request is carried out.
    pub pause: Duration,
}

/// A fault with its counters.
#[derive(Debug, Default)]
pub struct Injector {
    fault: Fault,
    /// Requests to which the fault applies, so far.
    seen: u64,
    fired: u64,
    grown: u64,
}

const SECTOR: u64 = 512;

/// Returns half of `bytes`, rounded up: to whole sectors if there is more than one.
fn half(bytes: u64) -> u64 {
    if bytes > SECTOR { (bytes / 2).next_multiple_of(SECTOR) } else { bytes.div_ceil(2) }
}

impl Injector {
    pub fn new(fault: Fault) -> Injector {
        Injector { fault, ..Injector::default() }
    }

    /// Returns how often the fault occurred.
    pub fn fired(&self) -> u64 {
        self.fired
    }

    /// Counts a request of `bytes` bytes that makes files larger by `growth`. Returns how to handle
    /// it.
    pub fn handling(&mut self, kind: Kind, bytes: u64, growth: u64) -> Handling {
        let whole = Handling { bytes, error: None, kills: false, pause: Duration::ZERO };
        let applies = match self.fault {
            Fault::None => false,
            Fault::Kill { .. } => kind != Kind::Read,
            Fault::Fail { kind: meant, .. } => kind == meant,
            Fault::Short { kind: meant, .. } => kind == meant && bytes > SECTOR,
            Fault::Full { .. } => growth > 0,
            Fault::Slow { .. } => true,
        };
        if !applies {
            return whole;
        }
        self.seen += 1;
        let handling = self.handling_of_counted(kind, whole, growth);
        self.fired += u64::from(handling.is_some());
        handling.unwrap_or(whole)
    }

    fn handling_of_counted(&mut self, kind: Kind, whole: Handling, growth: u64) -> Option<Handling> {
        let failed = |errno| Handling { bytes: 0, error: Some(errno), ..whole };
        match self.fault {
            Fault::None => None,
            Fault::Kill { nth, carried_out } => (self.seen == nth).then(|| match carried_out {
                CarriedOut::All => Handling { kills: true, ..whole },
                CarriedOut::Half if kind == Kind::Write => {
                    Handling { bytes: half(whole.bytes), kills: true, ..whole }
                }
                _ => Handling { kills: true, ..failed(Errno::IO) },
            }),
            Fault::Fail { nth, for_ever, .. } => {
                (self.seen == nth || for_ever && self.seen > nth).then(|| failed(Errno::IO))
            }
            Fault::Short { every, .. } => {
                self.seen.is_multiple_of(every).then(|| Handling { bytes: half(whole.bytes), ..whole })
            }
            Fault::Full { bytes } => {
                let room = bytes.saturating_sub(self.grown);
                self.grown += growth.min(room);
                (growth > room).then(|| {
                    // A write transfers the whole sectors that still fit.
                    let fits = whole.bytes.saturating_sub(growth - room) / SECTOR * SECTOR;
                    let is_part = kind == Kind::Write && fits > 0;
                    if is_part { Handling { bytes: fits, ..whole } } else { failed(Errno::NOSPC) }
                })
            }
            Fault::Slow { every, by } => {
                self.seen.is_multiple_of(every).then_some(Handling { pause: by, ..whole })
            }
        }
    }
}
