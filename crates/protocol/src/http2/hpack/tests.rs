//! The examples of RFC 7541 appendix C, encoder errors, and round trips.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::{Decoder, Encoder, HpackError};

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

type Fields = Vec<(String, String)>;

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, HpackError> {
    let mut fields = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    decoder.decode(block, &mut |name, value| fields.push((text(name), text(value))))?;
    Ok(fields)
}

fn parsed(list: &str) -> Fields {
    let field = |line: &str| {
        let (name, value) = line[1..].split_once(": ").expect("name: value");
        (format!("{}{name}", &line[..1]), value.to_owned())
    };
    list.lines().map(str::trim).filter(|line| !line.is_empty()).map(field).collect()
}

#[track_caller]
fn check(decoder: &mut Decoder, hex: &str, list: &str) {
    assert_eq!(decode(decoder, &bytes(hex)), Ok(parsed(list)));
}

#[track_caller]
fn check_error(blocks: &[&str]) {
    let mut decoder = Decoder::new(4096);
    let (last, before) = blocks.split_last().expect("a block");
    for block in before {
        decode(&mut decoder, &bytes(block)).expect("a good block");
    }
    assert!(decode(&mut decoder, &bytes(last)).is_err());
}

/// C.2.1 to C.2.4.
#[test]
fn every_representation_is_decoded() {
    let mut decoder = Decoder::new(4096);
    check(
        &mut decoder,
        "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
        "custom-key: custom-header",
    );
    check(&mut decoder, "be", "custom-key: custom-header");
    check(&mut decoder, "040c 2f73 616d 706c 652f 7061 7468", ":path: /sample/path");
    check(&mut decoder, "1008 7061 7373 776f 7264 0673 6563 7265 74", "password: secret");
    check(&mut decoder, "82", ":method: GET");
    // Only the first representation was added to the table.
    check_error(&["400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572", "bf"]);
}

const REQUESTS: [&str; 3] = [
    ":method: GET
     :scheme: http
     :path: /
     :authority: www.example.com",
    ":method: GET
     :scheme: http
     :path: /
     :authority: www.example.com
     cache-control: no-cache",
    ":method: GET
     :scheme: https
     :path: /index.html
     :authority: www.example.com
     custom-key: custom-value",
];

const PLAIN_REQUESTS: [&str; 3] = [
    "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
    "8286 84be 5808 6e6f 2d63 6163 6865",
    "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
];

/// C.3.
#[test]
fn requests() {
    let mut decoder = Decoder::new(4096);
    for (block, list) in PLAIN_REQUESTS.into_iter().zip(REQUESTS) {
        check(&mut decoder, block, list);
    }
}

/// C.4.
#[test]
fn requests_with_huffman_codes() {
    let blocks = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    let mut decoder = Decoder::new(4096);
    for (block, list) in blocks.into_iter().zip(REQUESTS) {
        check(&mut decoder, block, list);
    }
}

/// C.3, encoded.
#[test]
fn requests_are_encoded_as_in_the_rfc() {
    let mut encoder = Encoder::new();
    let key = |i: usize| [("", ""), ("cache-control", "no-cache"), ("custom-key", "custom-value")][i];
    for (i, (known, block)) in [[2, 6, 4], [2, 6, 4], [2, 7, 5]].into_iter().zip(PLAIN_REQUESTS).enumerate() {
        let mut out = Vec::new();
        encoder.begin(&mut out);
        known.iter().for_each(|index| encoder.static_field(*index, &mut out));
        for (name, value) in
            [(":authority", "www.example.com"), key(i)].iter().filter(|(name, _)| !name.is_empty())
        {
            encoder.field(name.as_bytes(), value.as_bytes(), true, &mut out);
        }
        assert_eq!(out, bytes(block));
    }
}

const RESPONSES: [&str; 3] = [
    ":status: 302
     cache-control: private
     date: Mon, 21 Oct 2013 20:13:21 GMT
     location: https://www.example.com",
    ":status: 307
     cache-control: private
     date: Mon, 21 Oct 2013 20:13:21 GMT
     location: https://www.example.com",
    ":status: 200
     cache-control: private
     date: Mon, 21 Oct 2013 20:13:22 GMT
     location: https://www.example.com
     content-encoding: gzip
     set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
];

/// C.5: a table of 256 bytes, so entries are evicted.
#[test]
fn responses() {
    let blocks = [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32
         3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970
         7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61
         6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
    ];
    let mut decoder = Decoder::new(256);
    for (block, list) in blocks.into_iter().zip(RESPONSES) {
        check(&mut decoder, block, list);
    }
}

/// C.6.
#[test]
fn responses_with_huffman_codes() {
    let blocks = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad
         1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2
         e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ];
    let mut decoder = Decoder::new(256);
    for (block, list) in blocks.into_iter().zip(RESPONSES) {
        check(&mut decoder, block, list);
    }
}

#[test]
fn malformed_blocks_are_rejected() {
    // Index 0, and indexes beyond both tables.
    check_error(&["80"]);
    check_error(&["be"]);
    check_error(&["7e 01 61"]);
    check_error(&["ff ffff ff7f"]);
    check_error(&["ff ffff ffff 0f"]);
    // Truncated in an index, a name, a value.
    check_error(&["ff"]);
    check_error(&["40"]);
    check_error(&["40 0a 6375"]);
    check_error(&["40 01 61"]);
    check_error(&["40 01 61 02 62"]);
    // An announced length of 256 MiB reserves no memory.
    check_error(&["40 7f ffff ff7f 61"]);
    // Invalid Huffman codes in name and value.
    check_error(&["40 81 ff 01 61"]);
    check_error(&["40 01 61 81 18"]);
}

#[test]
fn table_sizes() {
    let added = "40 01 61 01 62";
    let mut decoder = Decoder::new(4096);
    check(&mut decoder, added, "a: b");
    // A smaller size, then the old one: the entries are gone (§4.2, §4.3).
    check(&mut decoder, "20 3fe1 1f 82", ":method: GET");
    assert!(decode(&mut decoder, &bytes("be")).is_err());
    // Above the announced maximum; after a field; more often than smallest and final.
    check_error(&["3fe2 1f"]);
    check_error(&["82 20"]);
    check_error(&["20 20 20"]);
    check_error(&[added, "20 be"]);
}

/// A name may be taken from an entry that the addition evicts (§4.4).
#[test]
fn name_of_an_evicted_entry_stays_valid() {
    let mut decoder = Decoder::new(40);
    check(&mut decoder, "40 04 6e61 6d65 01 61", "name: a");
    check(&mut decoder, "7e 02 6262", "name: bb");
    check(&mut decoder, "be", "name: bb");
}

#[test]
fn encoder_respects_the_peers_table_size() {
    let mut encoder = Encoder::new();
    let mut decoder = Decoder::new(4096);
    let mut send = |encoder: &mut Encoder, value: &str| {
        let mut out = Vec::new();
        encoder.begin(&mut out);
        encoder.field(b"name", value.as_bytes(), true, &mut out);
        assert_eq!(decode(&mut decoder, &out), Ok(vec![("name".to_owned(), value.to_owned())]));
        out
    };
    send(&mut encoder, "one");
    assert_eq!(send(&mut encoder, "one"), [0xbe]);
    // A size above our own limit has no effect.
    encoder.set_size_max(65_536);
    assert_eq!(send(&mut encoder, "one"), [0xbe]);
    // Down and up between two blocks: both sizes are announced, and the entry is gone.
    encoder.set_size_max(0);
    encoder.set_size_max(100);
    let block = send(&mut encoder, "one");
    assert_eq!(block[..3], [0x20, 0x3f, 69]);
    assert_eq!(send(&mut encoder, "one"), [0xbe]);
    // A field too large for the table is written out.
    let large = "x".repeat(60);
    assert_eq!(send(&mut encoder, &large)[0], 0x0f);
    assert_eq!(send(&mut encoder, "one"), [0xbe]);
    encoder.set_size_max(0);
    assert_eq!(send(&mut encoder, "one")[..2], [0x20, 0x00]);
    assert_eq!(send(&mut encoder, "one")[0], 0x00);
}

#[test]
fn unindexed_fields_do_not_change_the_table() {
    let mut encoder = Encoder::new();
    let mut out = Vec::new();
    encoder.field(b":authority", b"a", true, &mut out);
    for i in 0..1000 {
        encoder.field(b"apns-id", format!("id {i}").as_bytes(), false, &mut out);
    }
    out.clear();
    encoder.field(b":authority", b"a", true, &mut out);
    assert_eq!(out, [0xbe]);
}

#[derive(Debug, Clone)]
enum Step {
    Field { name: u8, value: u8, indexed: bool },
    SizeMax(usize),
}

fn steps() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let field = (0..30u8, 0..8u8, any::<bool>()).prop_map(|(name, value, indexed)| Step::Field {
        name,
        value,
        indexed,
    });
    let step = prop_oneof![12 => field, 1 => (0..600usize).prop_map(Step::SizeMax)];
    proptest::collection::vec(proptest::collection::vec(step, 0..12), 0..24)
}

proptest! {
    /// Both tables stay equal over many blocks, evictions and size changes.
    #[test]
    fn round_trip(blocks in steps()) {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4096));
        for steps in blocks {
            for step in &steps {
                if let Step::SizeMax(bytes) = step {
                    encoder.set_size_max(*bytes);
                }
            }
            let (mut out, mut expected) = (Vec::new(), VecDeque::new());
            encoder.begin(&mut out);
            for step in steps {
                let Step::Field { name, value, indexed } = step else { continue };
                let name = if name < 5 { "retry-after".to_owned() } else { "n".repeat(usize::from(name)) };
                let value = "v".repeat(usize::from(value) * 17);
                encoder.field(name.as_bytes(), value.as_bytes(), indexed, &mut out);
                expected.push_back((name, value));
            }
            prop_assert_eq!(decode(&mut decoder, &out), Ok(expected.into()));
        }
    }

    #[test]
    fn any_bytes_decode_or_fail(blocks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..8)) {
        let mut decoder = Decoder::new(128);
        for block in blocks {
            if decode(&mut decoder, &block).is_err() {
                break;
            }
        }
    }
}
