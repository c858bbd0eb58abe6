//! What the vectors do not test.
