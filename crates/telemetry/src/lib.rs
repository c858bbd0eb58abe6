//! Metrics registry and structured logs
