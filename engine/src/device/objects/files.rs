//! Small files beside log and pages: the description of a backup, the mark of a restore.
//!
//! A file is one object that was written once. New content goes to a new object, and counts when
//! the manifest that names it is confirmed (O24). So a file changes in one step, together with all
//! else that the manifest says. An empty file needs no object.

use super::body::{Body, FileEntry};
use std::collections::BTreeMap;

/// The files as the next manifest will name them.
#[derive(Debug, Default)]
pub(super) struct Files {
    entries: BTreeMap<String, FileEntry>,
    /// Objects that the next manifest no longer names.
    dropped: Vec<String>,
    /// The newest manifest may name other files.
    is_changed: bool,
}

impl Files {
    /// Returns the files of a manifest.
    pub(super) fn of(body: &Body) -> Files {
        let entries = body.files.iter().map(|file| (file.path.clone(), file.clone())).collect();
        Files { entries, ..Files::default() }
    }

    /// Puts the files into a body, and returns the objects that it no longer names.
    pub(super) fn describe(&mut self, body: &mut Body) -> Vec<String> {
        body.files = self.entries.values().cloned().collect();
        self.is_changed = false;
        std::mem::take(&mut self.dropped)
    }

    /// Returns whether files were created, replaced or removed since [`Files::describe`].
    pub(super) fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// The manifest that was described last was not put.
    pub(super) fn mark_changed(&mut self) {
        self.is_changed = true;
    }

    pub(super) fn find(&self, path: &str) -> Option<FileEntry> {
        self.entries.get(path).cloned()
    }

    pub(super) fn paths(&self) -> Vec<String> {
        self.entries.keys().cloned().collect()
    }

    /// Creates a file without content, unless there is one.
    pub(super) fn create(&mut self, path: &str) {
        if !self.entries.contains_key(path) {
            self.replace(FileEntry { path: path.into(), ..FileEntry::default() });
        }
    }

    /// Gives a file another object.
    pub(super) fn replace(&mut self, entry: FileEntry) {
        let before = self.entries.insert(entry.path.clone(), entry);
        self.drop_object(before);
    }

    pub(super) fn remove(&mut self, path: &str) {
        let before = self.entries.remove(path);
        self.drop_object(before);
    }

    fn drop_object(&mut self, before: Option<FileEntry>) {
        let object = before.filter(|file| file.len > 0).map(|file| file.object.file_name());
        self.dropped.extend(object);
        self.is_changed = true;
    }
}
