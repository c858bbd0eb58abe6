//! The decisions: recipients, presence gate, live or inbox, receipts, traces
