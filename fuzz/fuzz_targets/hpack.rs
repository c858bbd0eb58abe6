//! Any header blocks decode to fields or an error. The fields are encoded again and decoded by another
//! decoder, with tables that evict and change their sizes: both tables must stay equal. The first byte
//! chooses the table sizes; a length byte precedes each block.

#![no_main]

use libfuzzer_sys::fuzz_target;
use noroshi_protocol::http2::hpack::{Decoder, Encoder, TABLE_BYTES};

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn read(decoder: &mut Decoder, block: &[u8]) -> Option<Fields> {
    let mut fields = Vec::new();
    decoder.decode(block, &mut |name, value| fields.push((name.to_vec(), value.to_vec()))).ok()?;
    Some(fields)
}

fuzz_target!(|bytes: &[u8]| {
    let Some((first, mut rest)) = bytes.split_first() else { return };
    let mut strange = Decoder::new(usize::from(*first) * 8);
    let (mut encoder, mut ours) = (Encoder::new(), Decoder::new(TABLE_BYTES));
    while let Some((len, after)) = rest.split_first() {
        let (block, after) = after.split_at(after.len().min(usize::from(*len)));
        rest = after;
        let Some(fields) = read(&mut strange, block) else { return };
        // Indexed fields of up to the table's size each.
        if fields.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > 1 << 16 {
            return;
        }
        if len % 5 == 0 {
            encoder.set_size_max(usize::from(*first) * usize::from(*len));
        }
        let mut out = Vec::new();
        encoder.begin(&mut out);
        for (i, (name, value)) in fields.iter().enumerate() {
            encoder.field(name, value, (i + usize::from(*len)) % 3 != 0, &mut out);
        }
        assert_eq!(read(&mut ours, &out), Some(fields));
    }
});
