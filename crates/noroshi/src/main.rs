//! The noroshi command.
fn main() {}
