//! The load generator behind noroshi bench
