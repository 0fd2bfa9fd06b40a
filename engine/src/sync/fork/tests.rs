//! Unit tests of `fork`.

use super::*;
use std::io::PipeReader;

/// Runs `f` in a forked child, made by `fork` or by the bare system call. Returns whether `f`
/// returned true.
fn child_says(by_libc: bool, f: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child takes no lock and allocates nothing, and ends without destructors.
    let child = unsafe {
        match by_libc {
            true => libc::fork(),
            false => libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32,
        }
    };
    assert!(child >= 0, "no process left");
    if child == 0 {
        let code = i32::from(!f());
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(code) }
    }
    let mut status = 0;
    // SAFETY: a child of ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

#[test]
fn a_child_knows_that_it_was_forked_however_it_was_made() {
    let process = Process::current();
    assert!(!process.is_forked());
    for by_libc in [true, false] {
        assert!(child_says(by_libc, || {
            let own = Process::current();
            let forked_again = child_says(by_libc, || own.is_forked() && process.is_forked());
            process.is_forked() && !own.is_forked() && forked_again
        }));
        assert!(!process.is_forked(), "the parent is what it was");
    }
    assert!(process.check().is_ok());
}

#[test]
fn a_child_drops_only_what_it_made_itself() {
    /// Notes in its cell that it was dropped.
    struct Noted<'a>(&'a AtomicBool);
    impl Drop for Noted<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let (parents, childs, taken) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
    let (value, other) = (Ours::new(Noted(&parents)), Ours::new(Noted(&taken)));
    let mut values = Some((value, other));
    assert!(child_says(true, || {
        let (value, other) = values.take().expect("there");
        drop(value);
        drop(Ours::new(Noted(&childs)));
        let is_refused = other.process().is_forked();
        std::mem::forget(other);
        is_refused && !parents.load(Ordering::Relaxed) && childs.load(Ordering::Relaxed)
    }));
    let (value, other) = values.expect("there");
    drop(value);
    drop(other.into_inner().expect("the same process"));
    assert!(parents.load(Ordering::Relaxed) && taken.load(Ordering::Relaxed));
}

#[test]
fn a_child_has_no_copy_of_a_descriptor_that_is_kept_from_it() {
    let pipe = || std::io::pipe().expect("descriptors");
    let is_pipe = |fd: &PipeReader| {
        let stat = rustix::fs::fstat(fd).expect("open");
        rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Fifo
    };
    let ((kept, _kept), (shared, _shared)) = (pipe(), pipe());
    let not_inherited = NotInherited::new(&kept);
    assert!(child_says(true, || !is_pipe(&kept) && is_pipe(&shared)));
    assert!(is_pipe(&kept));
    drop(not_inherited);
    assert!(child_says(true, || is_pipe(&kept)), "not any more");
}

#[test]
fn a_child_has_static_values_of_its_own() {
    static COUNT: PerProcess<AtomicU64> = PerProcess::new();
    let count = || COUNT.get(|| AtomicU64::new(1)).fetch_add(1, Ordering::Relaxed);
    assert_eq!((count(), count()), (1, 2));
    assert!(child_says(true, || (count(), count()) == (1, 2)));
    assert_eq!(count(), 3);
}
