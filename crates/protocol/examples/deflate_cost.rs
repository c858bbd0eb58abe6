//! Measures the cost of compressed WebSocket messages (docs/performance.md): compression by level, inflation,
//! and the time that a message crafted to be expensive takes until it is rejected or inflated.
//!
//! ```sh
//! cargo run -p noroshi-protocol --release --example deflate_cost
//! ```

use std::hint::black_box;
use std::time::{Duration, Instant};

use miniz_oxide::deflate::core::{CompressorOxide, TDEFLFlush, compress, create_comp_flags_from_zip_params};
use noroshi_protocol::ws::deflate::FLUSH_END;
use noroshi_protocol::ws::{Deflated, Inflater, Opcode};

const ROUNDS: u32 = 200;
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// The JSON of a `msg` frame of the given size: a notification with data in which little but field names
/// repeats.
fn message(bytes: usize) -> Vec<u8> {
    let mut json = String::from(
        r#"{"t":"msg","id":"01890a5d-ac96-774b-bcce-b302099a8057","topic":"orders/eu/4711","epoch":"0000002a","offset":7,"ack":true,"sent_at":"2026-11-25T17:31:19.123Z","notification":{"title":"Your parcel is on its way","body":"It arrives tomorrow between 10:00 and 12:00. You can change the place of delivery until midnight."},"data":{"#,
    );
    for n in 1_u64.. {
        if json.len() >= bytes {
            break;
        }
        let drawn = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        json.push_str(&format!(r#""field_{n}":{},"note{n}":"{drawn:x}","#, n * 7_919 % 1_000));
    }
    json.truncate(bytes);
    json.into_bytes()
}

/// RFC 7692 §7.2.1.
fn deflate(compressor: &mut CompressorOxide, plain: &[u8], out: &mut Vec<u8>) {
    compressor.reset();
    out.resize(plain.len() + 64, 0);
    let (_, _, written) = compress(compressor, plain, out, TDEFLFlush::Sync);
    out.truncate(written - FLUSH_END.len());
}

/// The median time of a fixed number of rounds.
fn median(mut work: impl FnMut()) -> Duration {
    let mut took: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let begun = Instant::now();
            work();
            begun.elapsed()
        })
        .collect();
    took.sort_unstable();
    took[took.len() / 2]
}

fn main() {
    let mut inflater = Inflater::default();
    let mut out = Vec::new();
    println!("bytes  level  compressed  of all  compressing  inflating");
    for bytes in [128, 200, 256, 300, 500, 1_000, 2_000, 4_000, 16_000] {
        for level in [1, 6] {
            let plain = message(bytes);
            let mut compressor = CompressorOxide::new(create_comp_flags_from_zip_params(level, -15, 0));
            let compressing = median(|| deflate(&mut compressor, black_box(&plain), &mut out));
            let inflating = median(|| {
                let message = Deflated { opcode: Opcode::Text, payload: black_box(&out) };
                inflater.inflate(message, MESSAGE_BYTES_MAX).map(drop).expect("valid");
            });
            let share = 100 * out.len() / bytes;
            println!(
                "{bytes:5}  {level:5}  {:10}  {share:5}%  {compressing:>11.1?}  {inflating:>9.1?}",
                out.len()
            );
        }
    }
    // Empty blocks with the fixed code take 10 bits each.
    let empty = [0x02, 0x08, 0x20, 0x80, 0x00].repeat(MESSAGE_BYTES_MAX / 5);
    // A flush after every 254 bytes: two blocks each, close to the largest number that is accepted.
    let mut runs = Vec::new();
    let mut compressor = CompressorOxide::new(create_comp_flags_from_zip_params(1, -15, 0));
    for _ in 0..MESSAGE_BYTES_MAX / 254 {
        let mut block = [0; 64];
        let (_, _, written) = compress(&mut compressor, &[b'x'; 254], &mut block, TDEFLFlush::Sync);
        runs.extend_from_slice(&block[..written]);
    }
    runs.truncate(runs.len() - FLUSH_END.len());
    for (what, payload) in [("empty blocks only", &empty), ("a flush every 254 bytes", &runs)] {
        let mut result = String::new();
        let took = median(|| {
            let message = Deflated { opcode: Opcode::Binary, payload };
            let inflated = inflater.inflate(message, MESSAGE_BYTES_MAX).map(drop);
            result = inflated.map_or_else(|error| error.to_string(), |()| "done".to_owned());
        });
        println!("{what}, {} bytes: {result} after {took:.1?}", payload.len());
    }
}
