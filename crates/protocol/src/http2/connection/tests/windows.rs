//! Flow control in both directions (RFC 9113 §5.2, §6.9).

use super::*;

/// Bytes of DATA by stream, and whether the stream ended, in the order written.
fn sent(pair: &mut Pair) -> Vec<(u32, usize, bool)> {
    let data = |frame: Frame| {
        let ended = frame.flags & flag::END_STREAM != 0;
        (frame.kind == kind::DATA).then_some((frame.stream, frame.payload.len(), ended))
    };
    pair.written().into_iter().filter_map(data).collect()
}

fn widen(pair: &mut Pair, stream: u32, bytes: u32) {
    pair.send(kind::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
}

const BODY: &[u8] = &[b'b'; 40_000];

#[test]
fn body_is_split_into_frames() {
    let mut pair = Pair::new();
    pair.request(1, BODY);
    assert_eq!(sent(&mut pair), [(1, 16_384, false), (1, 16_384, false), (1, 7232, true)]);
}

#[test]
fn bodies_wait_for_the_connection_window_in_order() {
    let mut pair = Pair::new();
    for key in 1..=3 {
        pair.request(key, BODY);
    }
    // 65,535 bytes: all of the first, the rest for the second, nothing for the third.
    let first = sent(&mut pair);
    assert_eq!(first.iter().map(|(_, len, _)| len).sum::<usize>(), 65_535);
    assert_eq!(first.last(), Some(&(3, 9151, false)));
    widen(&mut pair, 0, 1);
    assert_eq!(sent(&mut pair), [(3, 1, false)]);
    widen(&mut pair, 0, 20_000);
    assert_eq!(sent(&mut pair), [(3, 14_464, true), (5, 5536, false)]);
    // A window of its own does not help the third stream; a response frees the second stream's place.
    widen(&mut pair, 5, 1000);
    assert_eq!(sent(&mut pair), []);
    pair.request(4, b"tiny");
    pair.request(5, b"");
    assert_eq!(sent(&mut pair), []);
    pair.client.cancel(Key(3));
    assert_eq!(pair.client.queue, [7]);
    widen(&mut pair, 0, 100);
    assert_eq!(sent(&mut pair), [(7, 4, true)]);
    assert!(pair.client.queue.is_empty());
}

#[test]
fn body_waits_for_the_stream_window() {
    let mut pair = Pair::with_settings(&[(id::INITIAL_WINDOW_SIZE, 10)]);
    pair.request(1, b"0123456789");
    pair.request(2, b"0123456789abc");
    assert_eq!(sent(&mut pair), [(1, 10, true), (3, 10, false)]);
    widen(&mut pair, 0, 1000);
    assert_eq!(sent(&mut pair), []);
    widen(&mut pair, 3, 2);
    assert_eq!(sent(&mut pair), [(3, 2, false)]);
    widen(&mut pair, 3, 2);
    assert_eq!(sent(&mut pair), [(3, 1, true)]);
}

#[test]
fn changed_initial_window_applies_to_open_streams() {
    let mut pair = Pair::silent();
    pair.request(1, &BODY[..100]);
    pair.request(2, BODY);
    pair.request(3, BODY);
    assert_eq!(pair.client.send_window, 0);
    sent(&mut pair);
    // 40,000 bytes of the second stream are sent; it sends nothing until its window is positive again.
    pair.settings(&[(id::INITIAL_WINDOW_SIZE, 100)]);
    let windows: Vec<i32> = [1, 3, 5].iter().map(|id| pair.client.streams[id].send_window).collect();
    assert_eq!(windows, [0, 100 - 40_000, 100 - 25_435]);
    widen(&mut pair, 0, 100_000);
    assert_eq!(sent(&mut pair), []);
    widen(&mut pair, 5, 25_335);
    assert_eq!(sent(&mut pair), []);
    widen(&mut pair, 5, 1);
    assert_eq!(sent(&mut pair), [(5, 1, false)]);
    // New streams start with the new window; a larger one lets the old streams continue.
    pair.request(4, &BODY[..150]);
    assert_eq!(sent(&mut pair), [(7, 100, false)]);
    pair.settings(&[(id::INITIAL_WINDOW_SIZE, 65_535)]);
    assert_eq!(sent(&mut pair), [(5, 14_564, true), (7, 50, true)]);
}

#[test]
fn last_initial_window_of_a_frame_applies() {
    let mut pair = Pair::new();
    pair.settings(&[(id::INITIAL_WINDOW_SIZE, MAX_31_BITS), (id::INITIAL_WINDOW_SIZE, 5)]);
    pair.request(1, b"0123456789");
    assert_eq!(sent(&mut pair), [(1, 5, false)]);
}

#[test]
fn windows_do_not_overflow() {
    let mut pair = Pair::new();
    pair.request(1, BODY);
    pair.request(2, b"");
    pair.written();
    widen(&mut pair, 1, MAX_31_BITS - 65_535 + 40_000);
    assert_eq!(pair.written(), []);
    widen(&mut pair, 1, 1);
    assert_eq!(pair.written(), [rst_stream(1, code::FLOW_CONTROL_ERROR)]);
    widen(&mut pair, 3, 0);
    assert_eq!(pair.written(), [rst_stream(3, code::PROTOCOL_ERROR)]);
    assert_eq!(
        pair.events(),
        [reset(1, code::FLOW_CONTROL_ERROR, true), reset(2, code::PROTOCOL_ERROR, true)]
    );
    // Closed now: late updates have no effect.
    widen(&mut pair, 1, 5);
    widen(&mut pair, 3, 0);
    let most = frame(kind::WINDOW_UPDATE, 0, 0, &MAX_31_BITS.to_be_bytes());
    assert_eq!(pair.refused(&most), code::FLOW_CONTROL_ERROR);
}

#[test]
fn initial_window_overflow_ends_the_connection() {
    let mut pair = Pair::new();
    pair.request(1, b"");
    widen(&mut pair, 1, MAX_31_BITS - 65_535);
    let mut settings = Vec::new();
    frame::push_settings(&mut settings, &[(id::INITIAL_WINDOW_SIZE, 65_536)]);
    assert_eq!(pair.refused(&settings), code::FLOW_CONTROL_ERROR);
}

/// The peer's view: what it may still send under the announced windows.
#[test]
fn windows_are_restored_before_they_are_exhausted() {
    let mut pair = Pair::new();
    let (mut connection, mut stream_window) = (1i64 << 20, 65_535i64);
    for key in 0..40 {
        let stream = 2 * key as u32 + 1;
        pair.request(key, b"");
        pair.written();
        pair.headers(stream, false, &[(":status", "200")]);
        for _ in 0..9 {
            let flags = flag::PADDED;
            // 10,000 bytes of data, 200 of padding and the pad length all count.
            let mut payload = vec![0; 10_201];
            payload[0] = 200;
            assert!(connection >= 10_201 && stream_window >= 10_201);
            pair.send(kind::DATA, flags, stream, &payload);
            connection -= 10_201;
            stream_window -= 10_201;
            for frame in pair.written() {
                assert_eq!(frame.kind, kind::WINDOW_UPDATE);
                let increment = i64::from(frame::number(&frame.payload).expect("a number"));
                match frame.stream {
                    0 => connection += increment,
                    _ => stream_window += increment,
                }
            }
        }
        pair.data(stream, true, b"");
        stream_window = 65_535;
    }
    assert_eq!(pair.events().len(), 40);
}

#[test]
fn data_of_closed_streams_counts_against_the_connection_window() {
    let mut pair = Pair::new();
    pair.request(1, b"");
    pair.client.cancel(Key(1));
    pair.written();
    for _ in 0..32 {
        pair.data(1, false, &[0; 16_384]);
    }
    assert_eq!(pair.written(), []);
    pair.data(1, false, &[0; 16_384]);
    let [update] = &pair.written()[..] else { panic!("a window update") };
    assert_eq!((update.kind, update.stream), (kind::WINDOW_UPDATE, 0));
    assert_eq!(update.payload, (33u32 * 16_384).to_be_bytes());
}

#[test]
fn data_beyond_a_window_is_rejected() {
    let mut pair = Pair::new();
    pair.client.receive_window = 10;
    pair.client.config.connection_window = 10;
    pair.request(1, b"");
    pair.headers(1, false, &[(":status", "200")]);
    assert_eq!(pair.refused(&frame(kind::DATA, 0, 1, b"0123456789a")), code::FLOW_CONTROL_ERROR);

    let mut pair = Pair::new();
    pair.request(1, b"");
    pair.headers(1, false, &[(":status", "200")]);
    pair.written();
    pair.client.streams.get_mut(&1).expect("open").receive_window = 10;
    pair.data(1, false, b"0123456789a");
    assert_eq!(pair.written(), [rst_stream(1, code::FLOW_CONTROL_ERROR)]);
    assert_eq!(pair.events(), [reset(1, code::FLOW_CONTROL_ERROR, true)]);
}

proptest! {
    /// Whatever the peer does with its windows, we never exceed them, and with sufficient windows every body
    /// arrives complete.
    #[test]
    fn peer_windows_are_never_exceeded(steps in proptest::collection::vec((0u8..6, 0u32..8, 0u32..30_000), 1..60)) {
        let mut pair = Pair::new();
        let (mut initial, mut connection) = (65_535i64, 65_535i64);
        let mut streams: Vec<(i64, usize, bool)> = Vec::new();
        let mut sizes = Vec::new();
        let take = |pair: &mut Pair, connection: &mut i64, streams: &mut Vec<(i64, usize, bool)>| {
            for (id, len, ended) in sent(pair) {
                let (window, total, end) = &mut streams[(id as usize - 1) / 2];
                *connection -= len as i64;
                *window -= len as i64;
                assert!(!*end && *connection >= 0 && *window >= 0);
                *total += len;
                *end = ended;
            }
        };
        for (step, which, bytes) in steps {
            match step {
                0 | 1 => {
                    sizes.push(bytes as usize);
                    streams.push((initial, 0, bytes == 0));
                    pair.request(streams.len() as u64, &BODY[..bytes as usize]);
                }
                2 => {
                    widen(&mut pair, 0, bytes + 1);
                    connection += i64::from(bytes) + 1;
                }
                3 => {
                    for (window, ..) in &mut streams {
                        *window += i64::from(bytes) - initial;
                    }
                    initial = i64::from(bytes);
                    pair.settings(&[(id::INITIAL_WINDOW_SIZE, bytes)]);
                }
                _ => {
                    let which = which as usize;
                    if let Some((window, ..)) = streams.get_mut(which) {
                        *window += i64::from(bytes) + 1;
                        widen(&mut pair, 2 * which as u32 + 1, bytes + 1);
                    }
                }
            }
            take(&mut pair, &mut connection, &mut streams);
        }
        for (window, ..) in &mut streams {
            *window += 1_000_000 - initial;
        }
        pair.settings(&[(id::INITIAL_WINDOW_SIZE, 1_000_000)]);
        connection += 10_000_000;
        widen(&mut pair, 0, 10_000_000);
        take(&mut pair, &mut connection, &mut streams);
        for ((_, total, ended), size) in streams.iter().zip(&sizes) {
            prop_assert!(*ended);
            prop_assert_eq!(total, size);
        }
        prop_assert!(pair.client.queue.is_empty());
    }
}
