//! Any bytes parse as a frame of another node as far as possible: no panic, no allocation beyond the input,
//! and the parsed frame round-trips.

#![no_main]

use libfuzzer_sys::fuzz_target;
use noroshi_delivery::cluster::wire::{self, Frame, VERSION};

fuzz_target!(|bytes: &[u8]| {
    let mut frame = vec![VERSION];
    frame.extend_from_slice(bytes);
    let decoded = wire::decode(&frame);
    // A record takes at least five bytes.
    assert!(decoded.records.len() + decoded.unknown + decoded.malformed <= bytes.len() / 5 + 1);
    for record in decoded.records {
        let again = wire::decode(&Frame::from(&record).into_bytes());
        assert_eq!(again.records, [record]);
    }
});
