//! No descriptor of the database is 0, 1 or 2.
//!
//! A daemon may have closed its standard input and outputs. The system gives their numbers to what
//! is opened next, and whatever prints then (a panic, a library, a child) would write into a file
//! of the database, or to its socket.
//!
//! So `/dev/null`, to be read, takes the free ones of these numbers before anything is opened. For
//! what prints nothing changes: writing to it fails, as to a closed descriptor. It stays, because
//! closing it could close what the program has put in its place since.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};

/// The first number that no program uses as a standard input or output.
const FIRST: RawFd = 3;

/// Takes the standard descriptors that are closed. To be called before a descriptor is made; a
/// number stays free only if there is no `/dev/null`.
pub(crate) fn take_standard() {
    if cfg!(miri) {
        return;
    }
    for number in 0..FIRST {
        while is_closed(number) {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            match rustix::fs::open("/dev/null", flags, Mode::empty()) {
                Ok(null) if null.as_raw_fd() < FIRST => drop(null.into_raw_fd()),
                // Another thread has taken the number meanwhile, or there are no descriptors left.
                _ => break,
            }
        }
    }
}

fn is_closed(number: RawFd) -> bool {
    // SAFETY: only asks whether the descriptor exists.
    let standard = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_getfd(standard) == Err(Errno::BADF)
}

/// Returns the descriptor under a number above the standard ones: they may have been closed just
/// before it was made.
pub(super) fn above_standard(made: OwnedFd) -> rustix::io::Result<OwnedFd> {
    if made.as_raw_fd() >= FIRST { Ok(made) } else { rustix::io::fcntl_dupfd_cloexec(&made, FIRST) }
}

/// Opens a file: see the module's text.
pub(super) fn open(path: &std::path::Path, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
    take_standard();
    rustix::fs::open(path, flags | OFlags::CLOEXEC, mode).and_then(above_standard)
}

/// Opens a file with the options of the standard library.
pub(super) fn open_with(
    options: &std::fs::OpenOptions,
    path: &std::path::Path,
) -> std::io::Result<std::fs::File> {
    take_standard();
    Ok(above_standard(options.open(path)?.into())?.into())
}

/// Opens a file or a directory to read or to flush it.
pub(super) fn open_to_read(path: &std::path::Path) -> std::io::Result<std::fs::File> {
    open_with(std::fs::OpenOptions::new().read(true), path)
}
