//! What goes wrong, and when.

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
    /// Setting the length.
    Length,
    /// Allocating space.
    Reserve,
}

/// An order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Trouble {
    #[default]
    None,
    /// Whoever makes the Nth request that is not a read is killed: before it is carried out, after
    /// half of it, or after all of it.
    Kill { nth: u64, carried_out: CarriedOut },
    /// The Nth request of a kind fails with EIO; all later ones of the kind, too.
    Fail { kind: Kind, nth: u64, for_ever: bool },
    /// Every so many-th request of a kind, with more than a sector, is carried out for half of its
    /// sectors, and says so.
    Short { kind: Kind, every: u64 },
    /// Files may grow by so many bytes together; then there is no space.
    Full { bytes: u64 },
    /// Every so many-th request takes so much longer.
    Slow { every: u64, by: Duration },
}

/// How much of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CarriedOut {
    Nothing,
    Half,
    All,
}

impl CarriedOut {
    pub const ALL: [CarriedOut; 3] = [CarriedOut::Nothing, CarriedOut::Half, CarriedOut::All];
}

/// What becomes of one request.
#[derive(Clone, Copy, Debug)]
pub struct Fate {
    /// So many of its bytes are carried out; of a request without bytes, which counts as one byte:
    /// whether it is.
    pub bytes: u64,
    /// The answer, if it is not the result.
    pub error: Option<Errno>,
    /// Whoever asked is killed before the answer.
    pub kills: bool,
    /// First a pause.
    pub pause: Duration,
}

/// An order with what it has seen.
#[derive(Debug, Default)]
pub struct Orders {
    trouble: Trouble,
    /// Requests that the order is about.
    seen: u64,
    fired: u64,
    grown: u64,
}

const SECTOR: u64 = 512;

/// At least a byte, and whole sectors of more than one.
fn half(bytes: u64) -> u64 {
    if bytes > SECTOR { (bytes / 2).next_multiple_of(SECTOR) } else { bytes.div_ceil(2) }
}

impl Orders {
    pub fn new(trouble: Trouble) -> Orders {
        Orders { trouble, ..Orders::default() }
    }

    /// How often there was trouble.
    pub fn fired(&self) -> u64 {
        self.fired
    }

    /// Counts a request of `bytes` bytes that makes files larger by `growth`.
    pub fn fate(&mut self, kind: Kind, bytes: u64, growth: u64) -> Fate {
        let whole = Fate { bytes, error: None, kills: false, pause: Duration::ZERO };
        let is_meant = match self.trouble {
            Trouble::None => false,
            Trouble::Kill { .. } => kind != Kind::Read,
            Trouble::Fail { kind: meant, .. } => kind == meant,
            Trouble::Short { kind: meant, .. } => kind == meant && bytes > SECTOR,
            Trouble::Full { .. } => growth > 0,
            Trouble::Slow { .. } => true,
        };
        if !is_meant {
            return whole;
        }
        self.seen += 1;
        let fate = self.fate_of_meant(kind, whole, growth);
        self.fired += u64::from(fate.is_some());
        fate.unwrap_or(whole)
    }

    fn fate_of_meant(&mut self, kind: Kind, whole: Fate, growth: u64) -> Option<Fate> {
        let failed = |errno| Fate { bytes: 0, error: Some(errno), ..whole };
        match self.trouble {
            Trouble::None => None,
            Trouble::Kill { nth, carried_out } => (self.seen == nth).then(|| match carried_out {
                CarriedOut::All => Fate { kills: true, ..whole },
                CarriedOut::Half if kind == Kind::Write => {
                    Fate { bytes: half(whole.bytes), kills: true, ..whole }
                }
                _ => Fate { kills: true, ..failed(Errno::IO) },
            }),
            Trouble::Fail { nth, for_ever, .. } => {
                (self.seen == nth || for_ever && self.seen > nth).then(|| failed(Errno::IO))
            }
            Trouble::Short { every, .. } => {
                self.seen.is_multiple_of(every).then(|| Fate { bytes: half(whole.bytes), ..whole })
            }
            Trouble::Full { bytes } => {
                let room = bytes.saturating_sub(self.grown);
                self.grown += growth.min(room);
                (growth > room).then(|| {
                    // What still fits is written, in whole sectors.
                    let fits = whole.bytes.saturating_sub(growth - room) / SECTOR * SECTOR;
                    let is_part = kind == Kind::Write && fits > 0;
                    if is_part { Fate { bytes: fits, ..whole } } else { failed(Errno::NOSPC) }
                })
            }
            Trouble::Slow { every, by } => {
                self.seen.is_multiple_of(every).then_some(Fate { pause: by, ..whole })
            }
        }
    }
}
