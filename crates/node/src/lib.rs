//! Configuration, wiring, tasks and shutdown of one node
