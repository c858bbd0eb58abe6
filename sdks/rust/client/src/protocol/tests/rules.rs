//! Rules of the contract that have no vector.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::limits::{at, connect, machine, stored, with_transports};
use crate::error::Code;
use crate::event::Event;
use crate::presence::PresenceMode;
use crate::protocol::{Acknowledge, Call, Effect, Ended, Machine, Outcome, Request, Response};
use crate::state::{Reason, State, Transport};
use crate::token::TokenError;

fn requests(machine: &mut Machine) -> Vec<Request> {
    let effects = machine.effects().into_iter();
    effects
        .filter_map(|effect| if let Effect::Request(request) = effect { Some(request) } else { None })
        .collect()
}

/// The body of the only request, and its number.
fn request(machine: &mut Machine) -> (u64, Value) {
    let mut all = requests(machine);
    assert_eq!(all.len(), 1, "{all:?}");
    let Request { n, body, .. } = all.remove(0);
    (n, body.map(|body| serde_json::from_str(&body).expect("JSON")).unwrap_or_default())
}

fn answer(status: u16, body: &Value) -> Response {
    Response { status, body: body.to_string().into_bytes(), ..Response::default() }
}

fn later(status: u16, seconds: u64) -> Response {
    Response { status, retry_after: Some(Duration::from_secs(seconds)), ..Response::default() }
}

fn passed(machine: &mut Machine) -> Vec<String> {
    let effects = machine.effects().into_iter();
    effects
        .filter_map(
            |effect| if let Effect::Pass(message) = effect { Some(message.id().to_owned()) } else { None },
        )
        .collect()
}

/// Frames of a kind.
fn sent(machine: &mut Machine, kind: &str) -> Vec<Value> {
    let effects = machine.effects().into_iter();
    effects
        .filter_map(|effect| match effect {
            Effect::Send { frame, .. } => Some(serde_json::from_str::<Value>(&frame).expect("JSON")),
            _ => None,
        })
        .filter(|frame| frame["t"] == kind)
        .collect()
}

fn errors(machine: &mut Machine) -> Vec<Code> {
    let effects = machine.effects().into_iter();
    effects
        .filter_map(|effect| match effect {
            Effect::Tell(Event::Error(error)) => Some(error.code().clone()),
            _ => None,
        })
        .collect()
}

/// The number of the attempt that begins now.
fn dialed(machine: &mut Machine) -> u64 {
    let effects = machine.effects().into_iter();
    let mut attempts =
        effects.filter_map(|effect| if let Effect::Dial(dial) = effect { Some(dial.attempt) } else { None });
    attempts.next_back().expect("a connection")
}

/// Begins a session of server-sent events.
fn stream(machine: &mut Machine, ms: u64) -> u64 {
    machine.connect(at(ms));
    machine.token_arrived(at(ms), 1, Ok("t1".to_owned()));
    let attempt = dialed(machine);
    machine.opened(at(ms), attempt);
    machine.effects();
    attempt
}

const READY: &str = r#"{"t":"ready","device":"d1","session":"s","ping_s":240}"#;

#[test]
fn a_variant_of_a_token_that_was_replaced_meanwhile_is_asked_for_again() {
    let mut machine = machine(Acknowledge::Handled);
    connect(&mut machine);
    let variant = machine.variant(at(1), "x", false);
    let of_variant = request(&mut machine).0;
    machine.call(at(1), Call::new(Method::GET, "/v1/me/preferences"));
    let other = request(&mut machine).0;
    machine.answered(at(2), other, Ok(answer(401, &json!({"code": "revoked"}))));
    machine.token_arrived(at(3), 2, Ok("t2".to_owned()));
    requests(&mut machine);
    // U5: this is the answer for t1.
    machine.answered(
        at(4),
        of_variant,
        Ok(answer(200, &json!({"experiments": {"x": {"variant": "of t1"}}}))),
    );
    let again = requests(&mut machine);
    assert_eq!((again.len(), again[0].n, again[0].token.as_str()), (1, variant, "t2"));
    machine.answered(at(5), variant, Ok(answer(200, &json!({"experiments": {"x": {"variant": "of t2"}}}))));
    let found = machine.effects().into_iter().find_map(|effect| match effect {
        Effect::Done { result: Ok(Outcome::Variant(found)), .. } => found,
        _ => None,
    });
    assert_eq!(found.expect("a variant").get(), r#"{"variant":"of t2"}"#);
}

#[test]
fn reads_are_repeated_each_at_its_time_unless_they_were_cancelled() {
    let mut machine = machine(Acknowledge::Handled);
    connect(&mut machine);
    let calls = [3, 1, 2].map(|seconds| {
        let n = machine.call(at(0), Call::new(Method::GET, format!("/{seconds}")));
        machine.effects();
        machine.answered(at(0), n, Ok(later(503, seconds)));
        assert!(machine.effects().is_empty());
        n
    });
    machine.cancel(calls[2]);
    let mut repeated = Vec::new();
    for ms in [999, 1_000, 2_000, 2_999, 3_000] {
        machine.advance(at(ms));
        repeated.extend(requests(&mut machine).into_iter().map(|request| (ms, request.path)));
    }
    assert_eq!(repeated, [(1_000, "/1".to_owned()), (3_000, "/3".to_owned())]);
}

#[test]
fn counts_that_no_call_waits_for_are_not_read_again_after_close() {
    let mut machine = machine(Acknowledge::Handled);
    connect(&mut machine);
    machine.want_unread(at(0), true);
    let n = request(&mut machine).0;
    machine.answered(at(0), n, Ok(later(503, 1)));
    machine.close(at(1));
    machine.effects();
    machine.advance(at(10_000));
    assert!(machine.effects().is_empty());
    assert_eq!(machine.timeout(), None);
}

#[test]
fn signing_out_drops_the_messages_that_wait() {
    let mut machine = machine(Acknowledge::Handled);
    let attempt = connect(&mut machine);
    for id in ["m1", "m2"] {
        machine.frame(at(1_000), attempt, Some(&stored(id, None, 1)));
    }
    assert_eq!(passed(&mut machine), ["m1"]);
    machine.frame(at(1_000), attempt, Some(r#"{"t":"close","reason":"expired","reconnect":false}"#));
    machine.ended(at(1_000), attempt, &Ended::default());
    machine.advance(at(1_000));
    machine.token_arrived(at(1_000), 2, Err(TokenError::SignedOut));
    assert_eq!(machine.state().reason(), Some(&Reason::SignedOut));
    assert_eq!(machine.waiting(), 1); // m1
    machine.effects();
    machine.settled(at(1_001), Ok(()));
    assert!(machine.effects().is_empty()); // S4
}

#[test]
fn a_message_that_the_application_did_not_take_arrives_again() {
    let mut machine = machine(Acknowledge::Handled);
    let attempt = connect(&mut machine);
    machine.frame(at(1_000), attempt, Some(&stored("m1", None, 1)));
    assert_eq!(passed(&mut machine), ["m1"]);
    machine.close(at(1_000));
    machine.returned(at(1_000));
    assert!(errors(&mut machine).is_empty());
    machine.connect(at(1_001));
    let attempt = dialed(&mut machine);
    machine.opened(at(1_001), attempt);
    machine.frame(at(1_001), attempt, Some(READY));
    assert!(sent(&mut machine, "ack").is_empty());
    machine.frame(at(1_001), attempt, Some(&stored("m1", None, 1)));
    assert_eq!(passed(&mut machine), ["m1"]);
}

#[test]
fn presence_of_an_earlier_stream_is_neither_repeated_nor_taken_for_that_of_the_next() {
    for status in [200, 400, 503] {
        let mut machine = with_transports(Acknowledge::Handled, &[Transport::Sse]);
        let attempt = stream(&mut machine, 0);
        machine.set_presence(at(200), PresenceMode::Idle);
        let (n, body) = request(&mut machine);
        assert_eq!(body, json!({"state": "idle"}));
        machine.ended(at(300), attempt, &Ended::default());
        machine.advance(at(10_000));
        let attempt = dialed(&mut machine);
        machine.opened(at(10_000), attempt);
        assert!(requests(&mut machine).is_empty()); // one at a time
        machine.answered(at(10_001), n, Ok(answer(status, &json!({"code": "overloaded"}))));
        // X7: the answer is for the other stream; this one reports its own presence.
        assert_eq!(request(&mut machine).1, json!({"state": "idle"}), "after {status}");
    }
}

#[test]
fn presence_that_cannot_succeed_is_dropped() {
    let mut machine = with_transports(Acknowledge::Handled, &[Transport::Sse]);
    stream(&mut machine, 0);
    machine.set_presence(at(200), PresenceMode::Idle);
    let n = request(&mut machine).0;
    machine.answered(at(201), n, Ok(answer(400, &json!({"code": "invalid_field"}))));
    assert_eq!(errors(&mut machine), [Code::InvalidField]);
    machine.advance(at(60_000));
    assert!(requests(&mut machine).is_empty());
}

#[test]
fn acknowledgements_over_a_stream_are_split_too() {
    let mut machine = with_transports(Acknowledge::Manual, &[Transport::Sse]);
    stream(&mut machine, 0);
    machine.ack(at(200), &["a", "b", "bad"]);
    let mut bodies = Vec::new();
    while let Some(Request { n, body, .. }) = requests(&mut machine).pop() {
        let body = body.unwrap_or_default();
        let status = if body.contains("bad") { 400 } else { 200 };
        bodies.push(serde_json::from_str::<Value>(&body).expect("JSON")["ids"].clone());
        machine.answered(at(201), n, Ok(answer(status, &json!({"code": "invalid_field"}))));
    }
    assert_eq!(json!(bodies), json!([["a", "b", "bad"], ["a"], ["b"], ["bad"]]));
}

#[test]
fn no_stream_begins_between_the_event_close_and_the_end() {
    let mut machine = with_transports(Acknowledge::Handled, &[Transport::Sse]);
    let attempt = stream(&mut machine, 0);
    machine.frame(at(200), attempt, Some(r#"{"t":"close","reason":"drain","reconnect":true}"#));
    machine.subscribe(at(400), "a", false);
    machine.advance(at(1_000));
    let effects = machine.effects();
    assert!(
        !effects.iter().any(|effect| matches!(effect, Effect::Dial(_) | Effect::Hangup { .. })),
        "{effects:?}"
    );
}

#[test]
fn the_position_of_a_recovery_does_not_count_between_two_sessions() {
    let mut machine = machine(Acknowledge::Handled);
    machine.subscribe(at(0), "news", true);
    let attempt = connect(&mut machine);
    machine.frame(at(1_000), attempt, Some(&stored("m1", None, 1)));
    let recovered = json!({"t": "recovered", "topic": "news", "complete": true, "epoch": "e", "offset": 9});
    machine.frame(at(1_000), attempt, Some(&recovered.to_string()));
    machine.ended(at(1_001), attempt, &Ended::default());
    machine.settled(at(1_002), Ok(()));
    machine.advance(at(10_000));
    let attempt = dialed(&mut machine);
    machine.opened(at(10_000), attempt);
    machine.frame(at(10_000), attempt, Some(READY));
    // R7
    assert_eq!(sent(&mut machine, "sub")[0]["since"], json!({"news": null}));
}

#[test]
fn the_cost_of_an_entry_counts_utf_16() {
    // 60 units of UTF-16, and 60, 160 or 110 bytes: each costs 424, so a frame has 141 of them.
    for letter in ["x", "通", "𝄞"] {
        let mut machine = machine(Acknowledge::Handled);
        connect(&mut machine);
        let name = letter.repeat(50 / letter.encode_utf16().count());
        for n in 0..200 {
            machine.subscribe(at(1_000), &format!("{n:010}{name}"), true);
        }
        machine.advance(at(1_100));
        let counts: Vec<usize> = sent(&mut machine, "sub")
            .iter()
            .map(|frame| frame["topics"].as_array().map(Vec::len).unwrap_or_default())
            .collect();
        assert_eq!(counts, [1, 141, 58], "{letter}"); // F7: the first one does not wait
    }
}

#[test]
fn a_refused_web_socket_is_tried_again_after_retry_after() {
    let mut machine = machine(Acknowledge::Handled);
    machine.connect(at(0));
    machine.token_arrived(at(0), 1, Ok("t1".to_owned()));
    let attempt = dialed(&mut machine);
    let retry_after = Some(Duration::from_secs(7));
    machine.ended(at(0), attempt, &Ended { retry_after, ..Ended::default() });
    assert!(matches!(machine.state(), State::Waiting { retry_in, .. } if *retry_in == retry_after)); // B3
    machine.network_returned(at(1_000));
    assert!(matches!(machine.state(), State::Waiting { .. })); // B5
}
