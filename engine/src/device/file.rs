//! SKELETON.
#![allow(missing_docs, clippy::missing_errors_doc, unused_variables)]
use super::*;
use crate::base::settings::DeviceTrust;
use std::path::Path;

#[derive(Debug)]
pub struct FileStorage(());
impl FileStorage { pub fn open(directory: &Path, trust: DeviceTrust, io_uring: bool, create: bool) -> Result<FileStorage> { unimplemented!() } }
impl Storage for FileStorage {
    fn open(&self, path: &str, mode: OpenMode) -> Result<Arc<dyn File>> { unimplemented!() }
    fn remove(&self, path: &str) -> Result<()> { unimplemented!() }
    fn list(&self, directory: &str) -> Result<Vec<String>> { unimplemented!() }
    fn create_directory(&self, path: &str) -> Result<()> { unimplemented!() }
    fn flush_directory(&self, directory: &str) -> Result<()> { unimplemented!() }
    fn lock(&self, exclusive: bool) -> Result<Box<dyn Send + Sync>> { unimplemented!() }
    fn facts(&self) -> DeviceFacts { unimplemented!() }
    fn durability(&self) -> DurabilityMethod { unimplemented!() }
    fn set_durability(&self, method: DurabilityMethod) { unimplemented!() }
    fn write_queue(&self, depth: usize) -> Result<Box<dyn WriteQueue>> { unimplemented!() }
}
