//! The standard library's primitives, each operation a place where the scheduler may let another
//! thread run.
//!
//! A thread that takes part in no simulation finds the standard library's behaviour.

use super::scheduler::{self, is_simulated, point, wait, wake};
use std::sync::atomic::Ordering;
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

/// As `std::sync`.
pub mod sync {
    pub use super::{Mutex, MutexGuard};
    pub use std::sync::Arc;

    /// As `std::sync::atomic`.
    pub mod atomic {
        pub use super::super::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};
        pub use std::sync::atomic::{Ordering, fence};
    }
}

/// As `std::thread`.
pub mod thread {
    pub use super::{Builder, JoinHandle};

    /// Lets another thread run.
    pub fn yield_now() {
        if super::is_simulated() {
            super::scheduler::yield_now();
        } else {
            std::thread::yield_now();
        }
    }
}

pub use std::hint;

macro_rules! atomic {
    ($name:ident, $of:ty, $doc:literal) => {
        #[doc = $doc]
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(std::sync::atomic::$name);

        impl $name {
            /// Holds `value`.
            #[must_use]
            pub const fn new(value: $of) -> Self {
                $name(std::sync::atomic::$name::new(value))
            }

            /// The standard library's, without a place to let others run.
            #[must_use]
            pub fn real(&self) -> &std::sync::atomic::$name {
                &self.0
            }

            /// What it held.
            #[must_use]
            pub fn into_inner(self) -> $of {
                self.0.into_inner()
            }

            /// The value, of which there is no other user.
            pub fn get_mut(&mut self) -> &mut $of {
                self.0.get_mut()
            }
        }
    };
}

/// Methods of an atomic that are those of the standard library's, after a place where another
/// thread may run.
macro_rules! operations {
    ($name:ident, $of:ty: $($method:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        impl $name {$(
            #[doc = concat!("As `std::sync::atomic::", stringify!($name), "::", stringify!($method), "`.")]
            #[inline]
            #[allow(clippy::missing_errors_doc, reason = "said there")]
            pub fn $method(&self, $($argument: $type),*) -> $result {
                point();
                self.0.$method($($argument),*)
            }
        )*}
    };
}

macro_rules! operations_of_all {
    ($($name:ident, $of:ty;)*) => {$(
        operations! { $name, $of:
            load(order: Ordering) -> $of;
            store(value: $of, order: Ordering) -> ();
            swap(value: $of, order: Ordering) -> $of;
            compare_exchange(old: $of, new: $of, success: Ordering, failure: Ordering) -> Result<$of, $of>;
            compare_exchange_weak(old: $of, new: $of, success: Ordering, failure: Ordering) -> Result<$of, $of>;
            fetch_or(value: $of, order: Ordering) -> $of;
            fetch_and(value: $of, order: Ordering) -> $of;
        }
    )*};
}

macro_rules! operations_of_numbers {
    ($($name:ident, $of:ty;)*) => {$(
        operations_of_all! { $name, $of; }
        operations! { $name, $of:
            fetch_add(value: $of, order: Ordering) -> $of;
            fetch_sub(value: $of, order: Ordering) -> $of;
            fetch_max(value: $of, order: Ordering) -> $of;
            fetch_min(value: $of, order: Ordering) -> $of;
        }

        impl $name {
            /// As that of the standard library; each attempt is a place where another thread may
            /// run.
            #[allow(clippy::missing_errors_doc, reason = "said there")]
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                f: impl Fn($of) -> Option<$of>,
            ) -> Result<$of, $of> {
                let mut old = self.load(fetch);
                while let Some(new) = f(old) {
                    match self.compare_exchange(old, new, set, fetch) {
                        Ok(_) => return Ok(old),
                        Err(other) => old = other,
                    }
                }
                Err(old)
            }
        }
    )*};
}

atomic!(AtomicBool, bool, "As `std::sync::atomic::AtomicBool`.");
atomic!(AtomicU8, u8, "As `std::sync::atomic::AtomicU8`.");
atomic!(AtomicU32, u32, "As `std::sync::atomic::AtomicU32`.");
atomic!(AtomicU64, u64, "As `std::sync::atomic::AtomicU64`.");
atomic!(AtomicUsize, usize, "As `std::sync::atomic::AtomicUsize`.");

operations_of_all! { AtomicBool, bool; }
operations_of_numbers! { AtomicU8, u8; AtomicU32, u32; AtomicU64, u64; AtomicUsize, usize; }

/// As `std::sync::Mutex`.
#[derive(Debug, Default)]
pub struct Mutex<T> {
    inner: std::sync::Mutex<T>,
}

/// As `std::sync::MutexGuard`.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    /// None while it is being dropped.
    inner: Option<std::sync::MutexGuard<'a, T>>,
    address: usize,
}

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> Self {
        Mutex { inner: std::sync::Mutex::new(value) }
    }

    fn guard<'a>(&'a self, inner: std::sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard { inner: Some(inner), address: self.address() }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(&self.inner) as usize
    }

    /// Waits for the lock.
    ///
    /// # Errors
    /// With the lock, if a holder has panicked.
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        if !is_simulated() {
            let locked = self.inner.lock();
            return locked
                .map(|inner| self.guard(inner))
                .map_err(|poisoned| PoisonError::new(self.guard(poisoned.into_inner())));
        }
        scheduler::may_strike();
        point();
        loop {
            match self.inner.try_lock() {
                Ok(inner) => return Ok(self.guard(inner)),
                Err(TryLockError::Poisoned(poisoned)) => {
                    return Err(PoisonError::new(self.guard(poisoned.into_inner())));
                }
                Err(TryLockError::WouldBlock) => wait(self.address(), None),
            }
        }
    }

    /// Returns the lock if it is free.
    ///
    /// # Errors
    /// As the standard library's.
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        point();
        match self.inner.try_lock() {
            Ok(inner) => Ok(self.guard(inner)),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
            Err(TryLockError::Poisoned(poisoned)) => {
                Err(TryLockError::Poisoned(PoisonError::new(self.guard(poisoned.into_inner()))))
            }
        }
    }

    /// What it guards.
    ///
    /// # Errors
    /// As the standard library's.
    pub fn into_inner(self) -> LockResult<T> {
        self.inner.into_inner()
    }
}

impl<T> std::ops::Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect("held until dropped")
    }
}

impl<T> std::ops::DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("held until dropped")
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.inner = None;
        if is_simulated() {
            wake(self.address);
            point();
        }
    }
}

/// As `std::thread::JoinHandle`.
#[derive(Debug)]
pub struct JoinHandle<T>(Handle<T>);

#[derive(Debug)]
enum Handle<T> {
    Real(std::thread::JoinHandle<T>),
    Simulated(scheduler::SimulatedJoinHandle<T>),
}

impl<T> JoinHandle<T> {
    /// Waits for the thread.
    ///
    /// # Errors
    /// What it panicked with.
    pub fn join(self) -> std::thread::Result<T> {
        match self.0 {
            Handle::Real(handle) => handle.join(),
            Handle::Simulated(handle) => handle.join(),
        }
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Handle::Real(handle) => handle.is_finished(),
            Handle::Simulated(handle) => handle.is_finished(),
        }
    }
}

/// As `std::thread::Builder`.
#[derive(Debug, Default)]
pub struct Builder {
    name: String,
}

impl Builder {
    /// A thread without a name.
    #[must_use]
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Gives it a name.
    #[must_use]
    pub fn name(self, name: String) -> Builder {
        Builder { name }
    }

    /// Starts it. In a simulation it takes part.
    ///
    /// # Errors
    /// The operating system's, if it has no thread left.
    pub fn spawn<T, F>(self, f: F) -> std::io::Result<JoinHandle<T>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        if is_simulated() {
            return scheduler::spawn(&self.name, f).map(|handle| JoinHandle(Handle::Simulated(handle)));
        }
        let started = std::thread::Builder::new().name(self.name).spawn(f);
        started.map(|handle| JoinHandle(Handle::Real(handle)))
    }
}
