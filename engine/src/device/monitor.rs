//! The socket in a database's directory on which its process answers others.
//!
//! A request and its answer are HTTP/1.0, so that programs of the system can ask, too:
//! `curl --unix-socket DIRECTORY/monitor.sock http://localhost/metrics`. Only users that may write
//! to the socket's file can connect: the file has the mode 600.

use super::descriptors::{above_standard, open_to_read, take_standard};
use crate::base::Result;
use crate::sync::NotInherited;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::thread;
use std::io::{Error, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The socket's file in the directory.
pub(crate) const MONITOR_PATH: &str = "monitor.sock";

/// How long a peer may take to send its request, or to read the answer.
const PATIENCE: Duration = Duration::from_millis(500);
/// A longer request is cut off.
const REQUEST_BYTES: usize = 4096;
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// A socket that listens. Its file is removed when it is dropped.
#[derive(Debug)]
pub struct MonitorSocket {
    _not_inherited: NotInherited,
    listener: UnixListener,
    path: PathBuf,
    stopped: AtomicBool,
}

/// An address of a socket has room for 107 bytes of path.
const PATH_BYTES_MAX: usize = 107;

/// Calls `f` with a path of the socket that is short enough for an address, however long the path
/// of the directory is.
fn with_short_path<T>(directory: &Path, f: impl FnOnce(&Path) -> std::io::Result<T>) -> std::io::Result<T> {
    take_standard();
    let path = directory.join(MONITOR_PATH);
    if path.as_os_str().len() <= PATH_BYTES_MAX {
        return f(&path);
    }
    let opened = open_to_read(directory)?;
    f(&PathBuf::from(format!("/proc/self/fd/{}/{MONITOR_PATH}", opened.as_raw_fd())))
}

impl MonitorSocket {
    /// Listens in a directory whose lock the caller has. Replaces the socket of a process that was
    /// killed, and nothing else.
    pub(super) fn bind(directory: &Path) -> std::io::Result<MonitorSocket> {
        let path = directory.join(MONITOR_PATH);
        remove_socket(&path)?;
        let listener = with_short_path(directory, |short| UnixListener::bind(short))?;
        let listener: UnixListener = above_standard(listener.into())?.into();
        let socket = MonitorSocket {
            _not_inherited: NotInherited::new(&listener),
            listener,
            path,
            stopped: AtomicBool::new(false),
        };
        std::fs::set_permissions(&socket.path, std::fs::Permissions::from_mode(0o600))?;
        Ok(socket)
    }

    /// Answers each request with the text that `answer` returns, until [`MonitorSocket::stop`], or
    /// until there is no answer.
    pub fn serve(&self, mut answer: impl FnMut() -> Option<String>) {
        loop {
            take_standard();
            match self.listener.accept() {
                Ok((peer, _)) => {
                    let Some(text) = answer() else { return };
                    if let Err(error) = reply(peer, &text) {
                        tracing::debug!(%error, "a request on the monitor socket was not answered");
                    }
                }
                Err(_) if self.stopped.load(Ordering::SeqCst) => return,
                // The process has no file descriptor left, for instance. This is checked before
                // whether the socket still listens.
                Err(_) => thread::sleep(PATIENCE),
            }
        }
    }

    /// Ends [`MonitorSocket::serve`] in another thread.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

impl Drop for MonitorSocket {
    fn drop(&mut self) {
        let _ = remove_socket(&self.path);
    }
}

/// Removes the socket at `path`, if there is one. Returns an error if something else is there.
fn remove_socket(path: &Path) -> std::io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path),
        Ok(_) => {
            let what = "something that is no socket has the name of the monitor's socket: move it away";
            Err(Error::new(ErrorKind::AlreadyExists, what))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn reply(mut peer: UnixStream, text: &str) -> std::io::Result<()> {
    peer.set_read_timeout(Some(PATIENCE))?;
    peer.set_write_timeout(Some(PATIENCE))?;
    let (mut request, mut len) = ([0; REQUEST_BYTES], 0);
    while len < request.len() && !request[..len].windows(4).any(|end| end == b"\r\n\r\n") {
        match peer.read(&mut request[len..])? {
            0 => break,
            read => len += read,
        }
    }
    let head = "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n";
    write!(peer, "{head}Content-Length: {}\r\nConnection: close\r\n\r\n{text}", text.len())
}

/// Asks the process that has the database in `directory` open for writing. Returns its answer.
///
/// # Errors
/// `NotFound` if no process listens; I/O.
pub fn ask(directory: &Path) -> Result<String> {
    let asked = with_short_path(directory, |short| UnixStream::connect(short)).and_then(|mut peer| {
        peer.set_read_timeout(Some(4 * PATIENCE))?;
        peer.set_write_timeout(Some(4 * PATIENCE))?;
        peer.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        peer.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_string());
        body.ok_or_else(|| Error::new(ErrorKind::UnexpectedEof, "the answer is cut off"))
    });
    asked.map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
            let what = format!(
                "no process answers for the database {}: none has it open for writing, or one with `monitor = false`",
                directory.display()
            );
            crate::base::Error::new(crate::base::ErrorKind::NotFound, what)
        }
        _ => {
            let what = format!("the process that has the database {} open does not answer", directory.display());
            crate::base::Error::io(what, error)
        }
    })
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::*;

    /// A directory of the test whose path is longer than an address of a socket.
    fn directory(name: &str) -> PathBuf {
        let unique = format!("quench-monitor-{}-{name}", std::process::id());
        let directory = std::env::temp_dir().join(unique).join("a".repeat(120));
        std::fs::create_dir_all(&directory).expect("writable");
        directory
    }

    #[test]
    fn monitor_answers_until_it_is_stopped() {
        let directory = directory("answers");
        let file = directory.join(MONITOR_PATH);
        // Left by a process that was killed.
        drop(with_short_path(&directory, |short| UnixListener::bind(short)).expect("free"));
        let socket = MonitorSocket::bind(&directory).expect("free");
        assert_eq!(std::fs::metadata(&file).expect("exists").permissions().mode() & 0o777, 0o600);
        let (mut asked, text) = (0, "x".repeat(1 << 20));
        std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                socket.serve(|| {
                    asked += 1;
                    Some(format!("{asked} {text}"))
                });
            });
            // A peer that says nothing holds up the others only for a while.
            let silent = with_short_path(&directory, |short| UnixStream::connect(short)).expect("listens");
            for number in 2..5 {
                assert_eq!(ask(&directory).expect("listens"), format!("{number} {text}"));
            }
            drop(silent);
            socket.stop();
            server.join().expect("no panic");
        });
        drop(socket);
        assert!(!file.exists());
        assert!(ask(&directory).is_err());
        std::fs::write(&file, "important").expect("writable");
        MonitorSocket::bind(&directory).expect_err("it is a file of others");
        assert_eq!(std::fs::read(&file).expect("there"), b"important");
        std::fs::remove_dir_all(directory.parent().expect("has one")).expect("ours");
    }
}
