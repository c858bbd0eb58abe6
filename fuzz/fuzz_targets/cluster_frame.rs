//! Any bytes are a frame of another node as far as they can be read: nothing panics, nothing is allocated
//! that the bytes do not hold, and what was read says the same when it is written and read again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use noroshi_delivery::cluster::wire::{self, Frame, VERSION};

fuzz_target!(|bytes: &[u8]| {
    let mut frame = vec![VERSION];
    frame.extend_from_slice(bytes);
    let decoded = wire::decode(&frame);
    // A record takes five bytes at least.
    assert!(decoded.records.len() + decoded.unknown + decoded.malformed <= bytes.len() / 5 + 1);
    for record in decoded.records {
        let again = wire::decode(&Frame::from(&record).into_bytes());
        assert_eq!(again.records, [record]);
    }
});
