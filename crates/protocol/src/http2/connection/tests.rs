//! A scripted peer and what is said to it.
