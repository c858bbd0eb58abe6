//! As in [`crate::sqlite`].
