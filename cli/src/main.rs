//! The quench program.
fn main() {}
