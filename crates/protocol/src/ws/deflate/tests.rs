//! The inflater against RFC 7692's examples, an independent compressor, and messages crafted to be expensive.

use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::deflate::core::{CompressorOxide, TDEFLFlush, compress, create_comp_flags_from_zip_params};
use proptest::prelude::*;

use super::*;

const MAX: usize = 64 << 10;

fn inflate(payload: &[u8], max: usize) -> Result<Vec<u8>, WsError> {
    let mut inflater = Inflater::default();
    match inflater.inflate(Deflated { opcode: Opcode::Binary, payload }, max)? {
        Input::Binary(bytes) => Ok(bytes.to_vec()),
        input => panic!("{input:?}"),
    }
}

/// Compresses as a sender does (§7.2.1).
fn deflate(plain: &[u8], level: i32) -> Vec<u8> {
    let mut compressor = CompressorOxide::new(create_comp_flags_from_zip_params(level, -15, 0));
    let mut out = vec![0; plain.len() * 2 + 256];
    let (_, read, written) = compress(&mut compressor, plain, &mut out, TDEFLFlush::Sync);
    assert_eq!(read, plain.len());
    out.truncate(written);
    assert!(out.ends_with(&FLUSH_END));
    out.truncate(written - FLUSH_END.len());
    out
}

/// Writes deflate bit by bit.
#[derive(Default)]
struct Bits {
    out: Vec<u8>,
    held: u64,
    count: u32,
}

impl Bits {
    fn push(&mut self, bits: u64, count: u32) {
        self.held |= bits << self.count;
        self.count += count;
        while self.count >= 8 {
            self.out.push(self.held as u8);
            self.held >>= 8;
            self.count -= 8;
        }
    }

    /// An empty block with the fixed code: 10 bits.
    fn push_empty_block(&mut self) {
        self.push(0, 1);
        self.push(1, 2);
        self.push(0, 7);
    }

    /// Appends the empty stored block of a flush, without its end.
    fn end(mut self) -> Vec<u8> {
        self.push(0, 3);
        if self.count > 0 {
            self.push(0, 8 - self.count);
        }
        self.out
    }
}

#[test]
fn examples_of_section_7_2_3() {
    let hello =
        |payload: &[u8]| assert_eq!(inflate(payload, MAX).as_deref(), Ok(&b"Hello"[..]), "{payload:x?}");
    // §7.2.3.1: one block with the fixed code.
    hello(&[0xF2, 0x48, 0xCD, 0xC9, 0xC9, 0x07, 0x00]);
    // §7.2.3.2 requires context takeover, which is never negotiated: a reference to an earlier message is
    // invalid.
    assert!(inflate(&[0xF2, 0x00, 0x11, 0x00, 0x00], MAX).is_err());
    // §7.2.3.3: stored.
    hello(&[0x00, 0x05, 0x00, 0xFA, 0xFF, 0x48, 0x65, 0x6C, 0x6C, 0x6F, 0x00]);
    // §7.2.3.4: a final block, and one byte of padding.
    hello(&[0xF3, 0x48, 0xCD, 0xC9, 0xC9, 0x07, 0x00, 0x00]);
    // §7.2.3.5: two blocks.
    hello(&[0xF2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xFF, 0xFF, 0xCA, 0xC9, 0xC9, 0x07, 0x00]);
    // §7.2.3.6: an empty message.
    assert_eq!(inflate(&[0x00], MAX).as_deref(), Ok(&b""[..]));
}

#[test]
fn invalid_deflate_data_is_a_protocol_error() {
    for payload in [
        &[][..],
        &[0x07],                                     // an invalid block type
        &[0x00, 0x05, 0x00, 0xFA, 0xFE, 0x48, 0x65], // a length that does not match its complement
        &[0xF2, 0x48, 0xCD, 0xC9, 0xC9],             // truncated
        &[0x02, 0x02, 0x00, 0x00],                   // a reference before the beginning
        &[0xFF; 40],
    ] {
        let result = inflate(payload, MAX);
        assert!(matches!(result, Err(WsError::Protocol(_))), "{payload:x?}: {result:?}");
    }
}

#[test]
fn inflated_text_must_be_utf_8() {
    let mut inflater = Inflater::default();
    let payload = &deflate("grüße".as_bytes(), 6)[..];
    let text = inflater.inflate(Deflated { opcode: Opcode::Text, payload }, MAX);
    assert_eq!(text, Ok(Input::Text("grüße")));
    let payload = &deflate(b"gr\xFC\xDFe", 6)[..];
    let text = inflater.inflate(Deflated { opcode: Opcode::Text, payload }, MAX);
    assert_eq!(text, Err(WsError::InvalidUtf8));
}

#[test]
fn limit_applies_to_the_inflated_size() {
    for bytes in [0, 1, 4_095, 4_096, 4_097, 100_000] {
        let payload = deflate(&vec![b'x'; bytes], 6);
        assert_eq!(inflate(&payload, bytes).map(|plain| plain.len()), Ok(bytes));
        if bytes > 0 {
            assert_eq!(inflate(&payload, bytes - 1), Err(WsError::TooBig), "{bytes}");
        }
    }
}

#[test]
fn compression_bomb_is_rejected_before_allocation() {
    let payload = deflate(&vec![0; 8 << 20], 9);
    assert!(payload.len() < 32 << 10);
    let mut inflater = Inflater::default();
    assert_eq!(
        inflater.inflate(Deflated { opcode: Opcode::Binary, payload: &payload }, MAX),
        Err(WsError::TooBig)
    );
    assert!(inflater.plain.capacity() <= MAX + 1, "{}", inflater.plain.capacity());
}

#[test]
fn large_buffer_is_released() {
    let mut inflater = Inflater::default();
    let large = deflate(&vec![7; 1 << 20], 6);
    for (payload, bytes) in [(&large, 1 << 20), (&deflate(b"small", 6), 5)] {
        match inflater.inflate(Deflated { opcode: Opcode::Binary, payload }, 2 << 20) {
            Ok(Input::Binary(plain)) => assert_eq!(plain.len(), bytes),
            other => panic!("{other:?}"),
        }
    }
    assert!(inflater.plain.capacity() <= KEPT_BYTES);
}

#[test]
fn too_many_empty_blocks_are_rejected() {
    let with = |blocks: usize| {
        let mut bits = Bits::default();
        (0..blocks).for_each(|_| bits.push_empty_block());
        inflate(&bits.end(), MAX)
    };
    // The flush block counts too.
    assert_eq!(with(BLOCKS_MIN - 1).as_deref(), Ok(&b""[..]));
    assert_eq!(with(BLOCKS_MIN), Err(WsError::Protocol("a compressed message has too many blocks")));
    assert_eq!(with(50_000), Err(WsError::Protocol("a compressed message has too many blocks")));
}

#[test]
fn frequent_flushes_are_accepted() {
    // As zlib does with `memLevel` 1: a block every 127 symbols.
    let plain: Vec<u8> = (0..60_000_u32).map(|at| ((at * at) >> 7) as u8).collect();
    let mut compressor = CompressorOxide::new(create_comp_flags_from_zip_params(1, -15, 0));
    let mut payload = Vec::new();
    for chunk in plain.chunks(254) {
        let mut out = [0; 1_024];
        let (_, _, written) = compress(&mut compressor, chunk, &mut out, TDEFLFlush::Sync);
        payload.extend_from_slice(&out[..written]);
    }
    payload.truncate(payload.len() - FLUSH_END.len());
    assert_eq!(inflate(&payload, MAX).as_deref(), Ok(&plain[..]));
}

#[test]
fn stored_prefix_may_precede_shared_payload() {
    let shared = deflate(br#"["notification",{"id":"1","data":"data data data"}]"#, 1);
    for own in [&b"42"[..], b"4217", &[7; 300], b""] {
        let mut payload = Vec::new();
        push_stored(&mut payload, own);
        assert_eq!(payload.len(), STORED_HEAD_BYTES + own.len());
        payload.extend_from_slice(&shared);
        let expected = [own, br#"["notification",{"id":"1","data":"data data data"}]"#].concat();
        assert_eq!(inflate(&payload, MAX), Ok(expected));
    }
}

proptest! {
    #[test]
    fn compressed_data_round_trips(
        plain in proptest::collection::vec(0u8..20, 0..20_000),
        level in 0i32..10,
    ) {
        prop_assert_eq!(inflate(&deflate(&plain, level), plain.len()), Ok(plain.clone()));
        // §7.2.3.4
        let mut last = compress_to_vec(&plain, level as u8);
        last.push(0);
        prop_assert_eq!(inflate(&last, plain.len()), Ok(plain));
    }

    #[test]
    fn any_bytes_terminate(payload in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(plain) = inflate(&payload, 1_000) {
            prop_assert!(plain.len() <= 1_000);
        }
    }
}
