//! Bytes to packets and each protocol's conversation rules, without IO or a clock
