//! Sessions as dialogues on virtual time. They cover what the protocol's public test suite checks of a
//! server, with its numbers (300 and 200 ms).

use proptest::prelude::*;

use super::*;

const CONFIG: Config = Config {
    ping_interval_ms: 300,
    ping_timeout_ms: 200,
    payload_bytes_max: 1_000_000,
    queue_bytes_max: 100,
    queue_packets_max: 10,
};

/// A session and its outputs.
struct Peer {
    session: Session,
    now_ms: u64,
    out: Outputs,
}

impl Peer {
    fn new(session: Session) -> Self {
        Self { session, now_ms: 0, out: Vec::new() }
    }

    fn polling() -> Self {
        Self::new(Session::polling(CONFIG.ping_interval_ms))
    }

    fn websocket() -> Self {
        Self::new(Session::websocket(CONFIG.ping_interval_ms))
    }

    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        self.session.handle_time(self.now_ms, &CONFIG, &mut self.out);
    }

    fn get(&mut self) -> Result<(), RequestError> {
        self.session.handle_poll(self.now_ms, &CONFIG, &mut self.out)
    }

    fn post(&mut self, packets: &[&str]) -> Result<(), RequestError> {
        self.session.handle_post(self.now_ms, &CONFIG, &mut self.out)?;
        let mut result = Ok(());
        for packet in packets {
            match Packet::from_text(packet) {
                Ok(packet) => self.receive(packet),
                Err(error) => result = Err(error),
            }
        }
        self.session.end_post(result, &mut self.out)
    }

    fn send(&mut self, packet: &str) {
        self.receive(Packet::from_text(packet).unwrap());
    }

    /// The layer above echoes messages.
    fn receive(&mut self, packet: Packet<'_>) {
        let heard = self.session.handle_packet(packet, self.now_ms, &CONFIG, &mut self.out);
        if let Some(data) = heard {
            self.session.push(Outgoing::message(data), &CONFIG, &mut self.out);
            self.session.flush(&mut self.out);
        }
    }

    fn accept_probe(&mut self) -> bool {
        self.session.accept_probe(self.now_ms, &CONFIG, &mut self.out)
    }

    fn probe(&mut self, packet: &str) {
        let packet = Packet::from_text(packet).unwrap();
        self.session.handle_probe_packet(packet, self.now_ms, &CONFIG, &mut self.out);
    }

    /// Compares the outputs, rendered as one line.
    #[track_caller]
    fn expect(&mut self, expected: &str) {
        let outputs: Vec<String> = self.out.drain(..).map(|output| shown(&output)).collect();
        assert_eq!(outputs.join(" "), expected);
    }
}

fn shown(output: &Output) -> String {
    let text = |packet: &Outgoing| match packet {
        Outgoing::Text(text) => String::from_utf8_lossy(text).into_owned(),
        Outgoing::Binary(bytes) => format!("{bytes:?}"),
    };
    match output {
        Output::Answer(payload) => {
            let mut body = Vec::new();
            payload.write(&mut body);
            format!("answer:{}", String::from_utf8_lossy(&body).replace('\x1e', "|"))
        }
        Output::Frame(packet) => format!("frame:{}", text(packet)),
        Output::Probe(packet) => format!("probe:{}", text(packet)),
        Output::Upgraded => "upgraded".to_owned(),
        Output::EndProbe => "end-probe".to_owned(),
        Output::Ended(reason) => format!("ended:{}", reason.as_str()),
    }
}

#[test]
fn polls_wait_and_posts_are_processed_in_order() {
    let mut peer = Peer::polling();
    assert_eq!(peer.post(&["4test1", "4test2", "4test3"]), Ok(()));
    peer.expect("");
    assert_eq!(peer.get(), Ok(()));
    peer.expect("answer:4test1|4test2|4test3");
    assert_eq!(peer.get(), Ok(()));
    peer.expect("");
    assert!(peer.session.is_polled());
    assert_eq!(peer.post(&["4again"]), Ok(()));
    peer.expect("answer:4again");
    assert!(!peer.session.is_polled());
}

#[test]
fn pushes_of_one_turn_share_one_response() {
    let mut peer = Peer::polling();
    assert_eq!(peer.get(), Ok(()));
    peer.session.push(Outgoing::Text("4a".into()), &CONFIG, &mut peer.out);
    peer.session.push(Outgoing::Binary(vec![1, 2, 3].into()), &CONFIG, &mut peer.out);
    peer.expect("");
    assert_eq!(peer.session.queued_bytes(), "4a|bAQID".len());
    peer.session.flush(&mut peer.out);
    peer.expect("answer:4a|bAQID");
}

#[test]
fn malformed_packet_closes_a_polling_session() {
    let mut peer = Peer::polling();
    assert_eq!(peer.get(), Ok(()));
    assert_eq!(peer.post(&["4before", "abc"]), Err(RequestError::BadRequest));
    peer.expect("answer:4before ended:bad_message");
    assert!(peer.session.is_gone());
    assert_eq!(peer.get(), Err(RequestError::UnknownSid));
    assert_eq!(peer.post(&["4x"]), Err(RequestError::UnknownSid));
    assert!(!peer.accept_probe());

    let mut peer = Peer::polling();
    peer.session.handle_post(0, &CONFIG, &mut peer.out).unwrap();
    let answer = peer.session.end_post(Err(PacketError::TooBig), &mut peer.out);
    assert_eq!(answer, Err(RequestError::TooBig));
    peer.expect("ended:too_big");
}

#[test]
fn second_concurrent_poll_or_post_closes_the_session() {
    let mut peer = Peer::polling();
    assert_eq!(peer.get(), Ok(()));
    assert_eq!(peer.get(), Err(RequestError::BadRequest));
    peer.expect("answer:1 ended:bad_message");
    assert_eq!(peer.get(), Err(RequestError::UnknownSid));

    let mut peer = Peer::polling();
    peer.session.handle_post(0, &CONFIG, &mut peer.out).unwrap();
    let second = peer.session.handle_post(0, &CONFIG, &mut peer.out);
    assert_eq!(second, Err(RequestError::BadRequest));
    peer.expect("ended:bad_message");
    peer.send("4late");
    assert_eq!(peer.session.end_post(Ok(()), &mut peer.out), Err(RequestError::BadRequest));
    peer.expect("");
}

#[test]
fn abandoned_poll_closes_the_session() {
    let mut peer = Peer::polling();
    assert_eq!(peer.get(), Ok(()));
    peer.session.handle_poll_disconnect(&mut peer.out);
    peer.expect("ended:peer_reset");
    assert_eq!(peer.get(), Err(RequestError::UnknownSid));
    let mut peer = Peer::polling();
    peer.session.handle_post(0, &CONFIG, &mut peer.out).unwrap();
    peer.session.handle_post_disconnect(&mut peer.out);
    peer.expect("ended:peer_reset");
}

#[test]
fn websocket_carries_one_packet_per_frame() {
    let mut peer = Peer::websocket();
    peer.send("4hello");
    peer.expect("frame:4hello");
    peer.receive(Packet::from_binary(&[1, 2, 3, 4]));
    peer.expect(r#"frame:b"\x01\x02\x03\x04""#);
    peer.send("6");
    peer.expect("");
    peer.session.handle_websocket_disconnect(CloseReason::PeerReset, &mut peer.out);
    peer.expect("ended:peer_reset");
}

#[test]
fn missing_pong_closes_the_session() {
    let mut peer = Peer::websocket();
    for _ in 0..3 {
        assert_eq!(peer.session.deadline_ms(), Some(peer.now_ms + 300));
        peer.pass(299);
        peer.expect("");
        peer.pass(1);
        peer.expect("frame:2");
        peer.pass(199);
        peer.expect("");
        peer.send("3");
        peer.expect("");
    }
    peer.send("3"); // unsolicited: no effect
    assert_eq!(peer.session.deadline_ms(), Some(peer.now_ms + 300));
    peer.pass(300);
    peer.pass(200);
    peer.expect("frame:2 ended:ping_timeout");
    assert_eq!((peer.session.is_gone(), peer.session.deadline_ms()), (true, None));
}

#[test]
fn pings_reach_polling_clients() {
    let mut peer = Peer::polling();
    for _ in 0..3 {
        assert_eq!(peer.get(), Ok(()));
        peer.pass(300);
        peer.expect("answer:2");
        assert_eq!(peer.post(&["3"]), Ok(()));
    }
    assert_eq!(peer.get(), Ok(()));
    peer.pass(300);
    assert_eq!(peer.get(), Ok(()));
    peer.pass(200);
    peer.expect("answer:2 answer:1 ended:ping_timeout");
}

#[test]
fn late_client_is_detected_by_the_next_input() {
    let mut peer = Peer::polling();
    peer.now_ms = 500;
    assert_eq!(peer.get(), Err(RequestError::UnknownSid));
    peer.expect("ended:ping_timeout");
    // The ping was sent to a poll that came in time.
    let mut peer = Peer::polling();
    peer.now_ms = 499;
    assert_eq!(peer.get(), Ok(()));
    peer.expect("answer:2");
}

#[test]
fn delayed_ping_leaves_time_for_the_pong() {
    let mut peer = Peer::websocket();
    peer.pass(100_000);
    peer.expect("frame:2");
    peer.pass(99);
    peer.send("3");
    peer.expect("");
    assert!(!peer.session.is_gone());
}

#[test]
fn polling_client_closes_the_session() {
    let mut peer = Peer::polling();
    assert_eq!(peer.get(), Ok(()));
    assert_eq!(peer.post(&["1", "4ignored"]), Ok(()));
    peer.expect("answer:6 ended:peer_closed");
    assert_eq!(peer.get(), Err(RequestError::UnknownSid));
    // A poll sent at the same time arrives second.
    let mut peer = Peer::polling();
    assert_eq!(peer.post(&["4x", "1"]), Ok(()));
    peer.expect("ended:peer_closed");
    assert_eq!(peer.post(&["4x"]), Err(RequestError::UnknownSid));
    assert!(!peer.accept_probe() && !peer.session.is_gone());
    assert_eq!(peer.get(), Ok(()));
    peer.expect("answer:6");
    assert_eq!(peer.get(), Err(RequestError::UnknownSid));
    // The poll never comes.
    let mut peer = Peer::polling();
    assert_eq!(peer.post(&["1"]), Ok(()));
    peer.pass(200);
    peer.expect("ended:peer_closed");
    assert!(peer.session.is_gone());
    // Over a WebSocket.
    let mut peer = Peer::websocket();
    peer.send("1");
    peer.send("4late");
    peer.expect("ended:peer_closed");
    assert!(peer.session.is_gone());
}

#[test]
fn close_packet_waits_for_a_poll() {
    let close = |peer: &mut Peer| {
        peer.session.push(Outgoing::Text("4bye".into()), &CONFIG, &mut peer.out);
        peer.session.close(CloseReason::Drain, peer.now_ms, &CONFIG, &mut peer.out);
        peer.session.close(CloseReason::Internal, peer.now_ms, &CONFIG, &mut peer.out);
    };
    let mut peer = Peer::polling();
    assert_eq!(peer.get(), Ok(()));
    close(&mut peer);
    peer.expect("answer:4bye ended:drain");
    assert_eq!(peer.get(), Ok(()));
    peer.expect("answer:1");
    assert!(peer.session.is_gone());
    let mut peer = Peer::polling();
    close(&mut peer);
    peer.expect("ended:drain");
    peer.pass(199);
    assert_eq!(peer.get(), Ok(()));
    peer.expect("answer:4bye");
    assert!(!peer.session.is_polled() && !peer.session.is_gone());
    assert_eq!(peer.get(), Ok(()));
    peer.expect("answer:1");
    assert_eq!(peer.get(), Err(RequestError::UnknownSid));
    let mut peer = Peer::polling();
    assert_eq!(peer.get(), Ok(()));
    peer.session.close(CloseReason::Drain, 0, &CONFIG, &mut peer.out);
    peer.expect("answer:1 ended:drain");
    assert!(peer.session.is_gone());
    // The POST that caused the end is still unanswered.
    let mut peer = Peer::polling();
    peer.session.handle_post(0, &CONFIG, &mut peer.out).unwrap();
    close(&mut peer);
    assert_eq!(peer.session.end_post(Ok(()), &mut peer.out), Ok(()));
    peer.expect("ended:drain");
    let mut peer = Peer::websocket();
    close(&mut peer);
    peer.expect("frame:4bye ended:drain");
    assert!(peer.session.is_gone());
}

#[test]
fn session_upgrades_to_a_websocket() {
    let mut peer = Peer::polling();
    assert!(peer.accept_probe());
    peer.probe("2probe");
    peer.expect("probe:3probe");
    // Further polls of the client end at once.
    assert_eq!(peer.get(), Ok(()));
    peer.expect("answer:6");
    peer.probe("5");
    peer.expect("upgraded");
    assert!(peer.session.is_websocket());
    peer.send("4hello");
    peer.expect("frame:4hello");
    // Requests of the old transport and a second WebSocket have no effect.
    assert_eq!(peer.get(), Err(RequestError::BadRequest));
    assert_eq!(peer.post(&["4x"]), Err(RequestError::BadRequest));
    assert!(!peer.accept_probe());
    peer.session.handle_poll_disconnect(&mut peer.out);
    peer.session.handle_probe_disconnect();
    peer.send("4hello");
    peer.expect("frame:4hello");
    peer.pass(300);
    peer.expect("frame:2");
}

#[test]
fn probe_ends_the_pending_poll_without_loss() {
    let mut peer = Peer::polling();
    assert_eq!(peer.get(), Ok(()));
    assert!(peer.accept_probe());
    assert!(!peer.accept_probe(), "one at a time");
    peer.probe("2probe");
    peer.expect("probe:3probe answer:6");
    peer.session.push(Outgoing::Text("4a".into()), &CONFIG, &mut peer.out);
    peer.session.push(Outgoing::Binary(vec![7].into()), &CONFIG, &mut peer.out);
    peer.pass(300);
    peer.expect("");
    peer.probe("5");
    peer.expect("upgraded frame:4a frame:b\"\\x07\" frame:2");
    peer.send("3");
    assert_eq!(peer.session.deadline_ms(), Some(600));
}

#[test]
fn invalid_probe_is_closed_and_polling_continues() {
    for wrong in ["5", "2", "2x", "4hello", "3probe", "1", "6", "0"] {
        let mut peer = Peer::polling();
        assert!(peer.accept_probe());
        peer.probe(wrong);
        peer.expect("end-probe");
        peer.probe("2probe"); // from a socket that is closing
        peer.expect("");
        assert_eq!(peer.post(&["4x"]), Ok(()));
        assert!(peer.accept_probe());
        peer.probe("2probe");
        peer.session.handle_probe_disconnect();
        peer.expect("probe:3probe");
        assert_eq!(peer.get(), Ok(()));
        peer.expect("answer:4x");
        assert_eq!(peer.get(), Ok(()));
        peer.expect("");
    }
}

#[test]
fn session_end_closes_the_probe() {
    let mut peer = Peer::polling();
    assert!(peer.accept_probe());
    peer.session.close(CloseReason::Revoked, 0, &CONFIG, &mut peer.out);
    peer.expect("end-probe ended:revoked");
    peer.probe("2probe");
    peer.probe("5");
    peer.expect("");
}

#[test]
fn close_packet_reaches_the_transport_in_use() {
    let ended = || {
        let mut peer = Peer::polling();
        assert!(peer.accept_probe());
        peer.probe("2probe");
        peer.session.push(Outgoing::Text("4bye".into()), &CONFIG, &mut peer.out);
        peer.session.close(CloseReason::Replaced, 0, &CONFIG, &mut peer.out);
        peer.expect("probe:3probe ended:replaced");
        peer
    };
    // The client upgraded before it could learn of the end.
    let mut peer = ended();
    peer.probe("5");
    peer.expect("probe:4bye probe:1 end-probe");
    assert!(peer.session.is_gone());
    // It polls after all.
    let mut peer = ended();
    assert_eq!(peer.get(), Ok(()));
    peer.expect("answer:4bye");
    peer.probe("5");
    peer.expect("probe:1 end-probe");
    // It continues polling.
    let mut peer = ended();
    assert_eq!((peer.get(), peer.get()), (Ok(()), Ok(())));
    peer.expect("answer:4bye answer:1 end-probe");
    // It does neither.
    let mut peer = ended();
    peer.pass(CONFIG.ping_timeout_ms);
    peer.expect("end-probe");
    assert!(peer.session.is_gone());
}

#[test]
fn packets_only_servers_send_close_the_session() {
    for wrong in ["2", "2probe", "0{}", "5"] {
        let mut peer = Peer::websocket();
        peer.send(wrong);
        peer.expect("ended:bad_message");
    }
}

#[test]
fn poll_queue_is_bounded() {
    let long = Outgoing::Text(vec![b'4'; 60].into());
    let mut peer = Peer::polling();
    peer.session.push(long.clone(), &CONFIG, &mut peer.out);
    peer.session.push(long.clone(), &CONFIG, &mut peer.out);
    peer.expect("ended:slow_consumer");
    let mut peer = Peer::polling();
    for _ in 0..=CONFIG.queue_packets_max {
        peer.session.push(Outgoing::Text("4".into()), &CONFIG, &mut peer.out);
    }
    peer.expect("ended:slow_consumer");
    let mut peer = Peer::polling();
    for _ in 0..4 {
        peer.session.push_unbounded(long.clone(), &mut peer.out);
    }
    peer.expect("");
    assert_eq!(peer.session.queued_bytes(), 4 * 60 + 3);
}

proptest! {
    /// Whatever clients and timers do: one end, no response without a poll, nothing after the end except
    /// queued packets, and no probing WebSocket is left open.
    #[test]
    fn invariants_hold_for_any_order_of_inputs(
        polls: bool,
        steps in proptest::collection::vec((0u8..14, 0u64..250), 0..60),
    ) {
        let mut peer = if polls { Peer::polling() } else { Peer::websocket() };
        let (mut ended, mut waits, mut probing) = (0, false, false);
        for (step, ms) in steps {
            peer.out.clear();
            let was_waiting = waits;
            match step {
                0 => waits |= peer.get().is_ok(),
                1 => { let _ = peer.post(&["3"]); }
                2 => { let _ = peer.post(&["4hello", "6"]); }
                3 => { let _ = peer.post(&["1"]); }
                4 => probing |= peer.accept_probe(),
                5 => peer.probe("2probe"),
                6 => peer.probe("5"),
                7 => peer.probe("4x"),
                8 => { peer.session.handle_probe_disconnect(); probing = false; }
                9 => peer.send("3"),
                10 => peer.send("4hello"),
                11 if ms < 20 => { peer.session.handle_poll_disconnect(&mut peer.out); waits = false; }
                12 if ms < 20 => peer.session.close(CloseReason::Drain, peer.now_ms, &CONFIG, &mut peer.out),
                13 if ms < 10 => peer.send("2"),
                _ => peer.pass(ms),
            }
            for output in &peer.out {
                match output {
                    Output::Answer(payload) => {
                        prop_assert!(waits || was_waiting, "an answer that nobody waits for");
                        prop_assert!(!payload.is_empty());
                        waits = false;
                    }
                    Output::Ended(_) => ended += 1,
                    Output::Frame(_) | Output::Upgraded => prop_assert_eq!(ended, 0),
                    Output::Probe(_) => prop_assert!(probing),
                    Output::EndProbe => { prop_assert!(probing); probing = false; }
                }
                if *output == Output::Upgraded {
                    prop_assert!(probing);
                    probing = false;
                }
            }
            prop_assert_eq!(peer.session.is_polled(), waits);
            prop_assert!(ended <= 1 && (ended == 1 || !peer.session.is_gone()));
            prop_assert!(!(probing && peer.session.is_gone()));
            prop_assert!(peer.session.queued_bytes() <= CONFIG.queue_bytes_max + 20);
        }
    }
}
