//! The promises of the traits as tests.
