//! Results do not depend on how the transport splits the bytes.

use super::*;

/// All kinds of server frames, as one sequence of bytes.
fn dialogue() -> (Pair, Vec<u8>) {
    let mut pair = Pair::silent();
    for key in 1..=6 {
        pair.request(key, b"body");
    }
    let mut out = Vec::new();
    frame::push_settings(&mut out, &[(id::MAX_CONCURRENT_STREAMS, 50), (id::INITIAL_WINDOW_SIZE, 3)]);
    let headers = |pair: &mut Pair, out: &mut Vec<u8>, stream, flags, fields: &[(&str, &str)]| {
        let block = pair.block(fields);
        out.extend(frame(kind::HEADERS, flags | flag::END_HEADERS, stream, &block));
    };
    headers(&mut pair, &mut out, 1, 0, &[(":status", "100")]);
    headers(&mut pair, &mut out, 1, 0, &[(":status", "200"), ("apns-id", "a"), ("content-length", "5")]);
    headers(&mut pair, &mut out, 3, flag::END_STREAM, &[(":status", "410"), ("apns-id", "b")]);
    out.extend(frame(kind::DATA, flag::PADDED, 1, b"\x02hel\0\0"));
    out.extend(frame(kind::PING, 0, 0, b"12345678"));
    out.extend(frame(kind::DATA, flag::END_STREAM, 1, b"lo"));
    out.extend(frame(kind::RST_STREAM, 0, 5, &7u32.to_be_bytes()));
    out.extend(frame(kind::WINDOW_UPDATE, 0, 0, &9u32.to_be_bytes()));
    let block = pair.block(&[(":status", "503"), ("retry-after", "30")]);
    out.extend(frame(kind::HEADERS, flag::END_STREAM, 7, &block[..5]));
    out.extend(frame(kind::CONTINUATION, flag::END_HEADERS, 7, &block[5..]));
    out.extend(frame(kind::GOAWAY, 0, 0, b"\0\0\0\x09\0\0\0\0bye"));
    headers(&mut pair, &mut out, 9, flag::END_STREAM, &[(":status", "200"), ("apns-id", "a")]);
    pair.client.output().clear();
    (pair, out)
}

fn outcome(pieces: impl Iterator<Item = usize>) -> (Vec<Event>, Vec<u8>) {
    let (mut pair, bytes) = dialogue();
    let mut rest = &bytes[..];
    let mut events = Vec::new();
    for len in pieces {
        let (piece, after) = rest.split_at(len.min(rest.len()));
        assert_eq!(pair.client.receive(piece), Ok(()));
        events.extend(pair.events());
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    assert!(pair.client.partial.is_empty());
    (events, std::mem::take(pair.client.output()))
}

#[test]
fn every_split_gives_the_same_result() {
    let whole = outcome([usize::MAX].into_iter());
    assert_eq!(whole.0.len(), 8, "{:?}", whole.0);
    let len = dialogue().1.len();
    for at in 1..len {
        assert_eq!(outcome([at, len].into_iter()), whole, "cut at {at}");
    }
    for size in 1..30 {
        assert_eq!(outcome(std::iter::repeat(size)), whole, "pieces of {size}");
    }
}

proptest! {
    #[test]
    fn random_splits_give_the_same_result(pieces in proptest::collection::vec(0usize..60, 1..60)) {
        prop_assert_eq!(outcome(pieces.into_iter().chain([usize::MAX])), outcome([usize::MAX].into_iter()));
    }
}
