//! The examples of RFC 7541 appendix C, and that what the encoder writes the decoder reads.
