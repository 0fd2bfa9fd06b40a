//! From C's arguments to Rust's, and back. The header demands of callers what is relied on here:
//! handles are those that the library made and has not freed, and pointers point to as many bytes
//! as their lengths say.

use crate::error::{Error, Failure};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The result of a call's body.
pub type Answer<T = ()> = Result<T, Failure>;

/// What a function returns if it works: 0, or an answer of 0 and 1, or a number.
pub trait Positive {
    /// Returns the number.
    fn number(self) -> c_int;
}

impl Positive for () {
    fn number(self) -> c_int {
        0
    }
}

impl Positive for bool {
    fn number(self) -> c_int {
        c_int::from(self)
    }
}

impl Positive for c_int {
    fn number(self) -> c_int {
        self
    }
}

/// Runs the body of a function. Returns its number, or that of its error.
#[inline]
pub fn call<T: Positive>(error: *mut *mut Error, body: impl FnOnce() -> Answer<T>) -> c_int {
    let body = || {
        #[cfg(test)]
        crate::tests::panic_if_planted();
        body()
    };
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(answer)) => {
            give(error, std::ptr::null_mut());
            return answer.number();
        }
        Ok(Err(failure)) => failure,
        Err(payload) => {
            let text = quenchdb_bindings::panic_text(&*payload);
            // Its drop could panic, too.
            std::mem::forget(payload);
            Failure::Panic(text)
        }
    };
    raise(error, failure)
}

#[cold]
fn raise(error: *mut *mut Error, failure: Failure) -> c_int {
    let code = failure.code();
    if !error.is_null() {
        give(error, Box::into_raw(failure.into_error()));
    }
    code
}

/// Drops what a program frees. A panic ends there.
pub fn discard<T>(value: Option<Box<T>>) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(value))).map_err(std::mem::forget);
}

fn invalid(what: impl Into<String>, advice: &'static str) -> Failure {
    quenchdb::Error::invalid(what).with_advice(advice).into()
}

#[cold]
fn is_null(name: &str) -> Failure {
    invalid(format!("the argument `{name}` is NULL"), "pass a handle, or the memory that the function needs")
}

/// Returns the object of a handle.
///
/// # Errors
/// `InvalidArgument` for NULL.
#[inline]
pub fn borrow<'a, T>(handle: Option<&'a T>, name: &str) -> Answer<&'a T> {
    handle.ok_or_else(|| is_null(name))
}

/// Returns bytes of the caller, which the caller keeps until the call returns. NULL is allowed for
/// no bytes.
///
/// # Errors
/// `InvalidArgument` for NULL with a length.
#[inline]
pub fn bytes<'a>(data: *const c_void, size: usize, name: &str) -> Answer<&'a [u8]> {
    if data.is_null() || size > isize::MAX as usize {
        return if size == 0 { Ok(&[]) } else { Err(no_bytes(size, name)) };
    }
    // SAFETY: the header says that `data` points to `size` bytes that do not change during the
    // call.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), size) })
}

#[cold]
fn no_bytes(size: usize, name: &str) -> Failure {
    invalid(
        format!("the argument `{name}` cannot have {size} bytes at its address"),
        "pass the address of the bytes and their number",
    )
}

/// Returns bytes of the caller; `None` for NULL.
///
/// # Errors
/// As [`bytes`].
pub fn optional<'a>(data: *const c_void, size: usize, name: &str) -> Answer<Option<&'a [u8]>> {
    if data.is_null() && size == 0 { Ok(None) } else { bytes(data, size, name).map(Some) }
}

/// Returns a text of the caller, such as the name of a table.
///
/// # Errors
/// `InvalidArgument` for NULL with a length, and for bytes that are no UTF-8.
pub fn text<'a>(data: *const c_char, size: usize, name: &str) -> Answer<&'a str> {
    std::str::from_utf8(bytes(data.cast(), size, name)?)
        .map_err(|error| invalid(format!("the argument `{name}` is not UTF-8: {error}"), "pass UTF-8"))
}

/// Returns a text of the caller that ends with NUL.
///
/// # Errors
/// `InvalidArgument` for NULL, and for bytes that are no UTF-8.
pub fn terminated<'a>(data: *const c_char, name: &str) -> Answer<&'a str> {
    if data.is_null() {
        return Err(is_null(name));
    }
    // SAFETY: the header says that the text ends with NUL and does not change during the call.
    let text = unsafe { CStr::from_ptr(data) };
    self::text(data, text.count_bytes(), name)
}

/// Returns the elements of an array of the caller.
///
/// # Errors
/// `InvalidArgument` for NULL with a number.
pub fn array<'a, T>(data: *const T, count: usize, name: &str) -> Answer<&'a [T]> {
    bytes(data.cast(), count.saturating_mul(size_of::<T>()), name)?;
    // SAFETY: the header says that `data` points to `count` elements.
    Ok(if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(data, count) } })
}

/// Returns a structure of the caller whose first field is its size in bytes: the fields that an
/// older caller does not have are zero. All zeros for NULL.
///
/// # Errors
/// `InvalidArgument` for a size that is too small; `Unsupported` for fields of a newer header that
/// are not zero.
pub fn sized<T: Copy>(from: *const T, name: &str) -> Answer<T> {
    let mut all = MaybeUninit::<T>::zeroed();
    if !from.is_null() {
        // SAFETY: each such structure begins with its size.
        let size = unsafe { from.cast::<usize>().read() };
        if !(size_of::<usize>()..=1 << 16).contains(&size) {
            return Err(invalid(
                format!("the field `size` of `{name}` is {size}"),
                "set it to sizeof the structure, and the other fields to 0",
            ));
        }
        let given = bytes(from.cast(), size, name)?;
        let known = size.min(size_of::<T>());
        if given[known..].iter().any(|byte| *byte != 0) {
            let what = format!("`{name}` has fields of a newer header than this library");
            return Err(quenchdb::Error::new(quenchdb::ErrorKind::Unsupported, what).into());
        }
        // SAFETY: both have `known` bytes.
        unsafe { std::ptr::copy_nonoverlapping(given.as_ptr(), all.as_mut_ptr().cast(), known) };
    }
    // SAFETY: the structures have numbers and pointers, which may be zero, and which the caller
    // set.
    Ok(unsafe { all.assume_init() })
}

/// Fills a structure of the caller, which may have fewer fields. The first field is the size.
///
/// # Errors
/// `InvalidArgument` for NULL.
pub fn fill_sized<T: Copy>(to: *mut T, mut value: T, name: &str) -> Answer {
    if to.is_null() {
        return Err(is_null(name));
    }
    // SAFETY: each such structure begins with its size, and the caller's has as many bytes.
    unsafe {
        let size = to.cast::<usize>().read();
        (&raw mut value).cast::<usize>().write(size);
        std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), to.cast(), size.min(size_of::<T>()));
    }
    Ok(())
}

/// Writes a result, if the caller wants it.
#[inline]
pub fn give<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: the header says that the address is that of a variable of this type.
        unsafe { to.write(value) };
    }
}

/// Makes a handle and hands it over. The handle is NULL if that fails.
///
/// # Errors
/// `InvalidArgument` if there is no place for it: then nothing is made; those of `make`.
pub fn hand_over<T>(to: *mut *mut T, name: &str, make: impl FnOnce() -> Answer<T>) -> Answer {
    if to.is_null() {
        return Err(is_null(name));
    }
    give(to, std::ptr::null_mut());
    give(to, Box::into_raw(Box::new(make()?)));
    Ok(())
}

/// Takes an error back that a callback was lent a place for.
pub fn take_error(error: &mut *mut Error) -> Option<Box<Error>> {
    let raised = std::mem::replace(error, std::ptr::null_mut());
    // SAFETY: only `raise` writes there, what it made with `Box::into_raw`.
    (!raised.is_null()).then(|| unsafe { Box::from_raw(raised) })
}

/// Copies a value to memory that the caller frees with `quench_free`. A NUL follows, so that texts
/// end. Without a place for the address, only the length is given.
///
/// # Errors
/// `OutOfMemory`.
pub fn give_copy(value: &[u8], to: *mut *mut c_void, size: *mut usize) -> Answer {
    give(size, value.len());
    if to.is_null() {
        return Ok(());
    }
    // SAFETY: any length may be asked for.
    let copy: *mut u8 = unsafe { libc::malloc(value.len() + 1) }.cast();
    if copy.is_null() {
        let what = format!("no memory for a value of {} bytes", value.len());
        return Err(quenchdb::Error::new(quenchdb::ErrorKind::OutOfMemory, what).into());
    }
    // SAFETY: the new memory has a byte more than the value.
    unsafe {
        std::ptr::copy_nonoverlapping(value.as_ptr(), copy, value.len());
        copy.add(value.len()).write(0);
    }
    give(to, copy.cast());
    Ok(())
}

/// Copies a value that may be missing, as [`give_copy`]. Returns whether there is one; without one,
/// the address is NULL.
///
/// # Errors
/// As [`give_copy`].
pub fn give_optional(value: Option<&[u8]>, to: *mut *mut c_void, size: *mut usize) -> Answer<bool> {
    let Some(value) = value else {
        give(to, std::ptr::null_mut());
        give(size, 0);
        return Ok(false);
    };
    give_copy(value, to, size).map(|()| true)
}

/// Copies as much of a value to a buffer of the caller as it has space for.
#[inline]
pub fn fill(buffer: *mut c_void, buffer_bytes: usize, value: &[u8]) {
    if !buffer.is_null() {
        // SAFETY: the header says that `buffer` has `buffer_bytes` bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(value.as_ptr(), buffer.cast(), value.len().min(buffer_bytes));
        }
    }
}

/// Frees what `give_copy` allocated.
pub fn free(memory: *mut c_void) {
    // SAFETY: the header says that it is NULL, or was returned by the library and not freed yet.
    unsafe { libc::free(memory) }
}

/// The context of a callback. The header says from which threads the callback is called.
#[derive(Clone, Copy)]
pub struct Context(pub *mut c_void);

// SAFETY: the library does not look at it; the header names the threads that use it.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}
