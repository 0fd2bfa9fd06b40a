//! Where the image of each page is: in the last checkpoint, in the open one, and for the next one.

pub mod table;
pub mod overlay;
pub mod load;
pub mod images;

pub use images::Images;
