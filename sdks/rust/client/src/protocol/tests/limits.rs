//! What the vectors do not test: outdated reports, bounded memory, and any order of inputs.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::json;

use crate::error::{Code, Error};
use crate::presence::PresenceMode;
use crate::protocol::{Acknowledge, Call, Config, Effect, Ended, Machine, Moment, QUEUE_MAX, Response};
use crate::state::{State, Transport};
use crate::tests::vectors::START;
use crate::token::TokenError;

pub(super) fn machine(acknowledge: Acknowledge) -> Machine {
    with_transports(acknowledge, &[Transport::WebSocket, Transport::Sse])
}

pub(super) fn with_transports(acknowledge: Acknowledge, transports: &[Transport]) -> Machine {
    Machine::new(Config {
        acknowledge,
        ping_interval: Duration::from_secs(60),
        transports: transports.to_vec(),
        kept: Vec::new(),
        keeps: true,
        listens: true,
        random: Box::new(|| 0.5),
    })
}

pub(super) fn at(ms: u64) -> Moment {
    let at = Duration::from_millis(ms);
    Moment { at, unix: START + at }
}

pub(super) fn stored(id: &str, topic: Option<&str>, offset: u64) -> String {
    json!({"t": "msg", "id": id, "topic": topic, "epoch": "e", "offset": offset, "ack": true, "data": 1})
        .to_string()
}

/// Connects, and returns the number of the attempt.
pub(super) fn connect(machine: &mut Machine) -> u64 {
    machine.connect(at(0));
    let n = machine.effects().into_iter().find_map(|effect| match effect {
        Effect::AskToken { n, .. } => Some(n),
        _ => None,
    });
    machine.token_arrived(at(0), n.expect("a request for a token"), Ok("t1".to_owned()));
    let attempt = machine.effects().into_iter().find_map(|effect| match effect {
        Effect::Dial(dial) => Some(dial.attempt),
        _ => None,
    });
    let attempt = attempt.expect("a connection");
    machine.opened(at(0), attempt);
    machine.frame(at(0), attempt, Some(r#"{"t":"ready","device":"d1","session":"s","ping_s":240}"#));
    machine.effects();
    attempt
}

#[test]
fn reports_about_earlier_connections_are_ignored() {
    let mut machine = machine(Acknowledge::Handled);
    let attempt = connect(&mut machine);
    machine.ended(at(10), attempt, &Ended::default());
    assert!(matches!(machine.state(), State::Waiting { .. }));
    machine.effects();
    machine.frame(at(11), attempt, Some(&stored("m1", None, 1)));
    machine.heard(at(11), attempt);
    machine.opened(at(11), attempt);
    machine.ended(at(11), attempt, &Ended { code: Some(4001), ..Ended::default() });
    machine.token_arrived(at(11), 1, Err(TokenError::SignedOut));
    machine.answered(at(11), 99, Err(Error::new(Code::Network, "late")));
    machine.settled(at(11), Ok(()));
    assert!(machine.effects().is_empty());
}

#[test]
fn the_memory_of_handled_messages_is_bounded() {
    let mut machine = machine(Acknowledge::Handled);
    let attempt = connect(&mut machine);
    let receive = |machine: &mut Machine, n: u64| {
        machine.frame(at(1_000 + n), attempt, Some(&stored(&format!("m{n}"), None, n)));
        let is_passed = machine.effects().iter().any(|effect| matches!(effect, Effect::Pass(_)));
        if is_passed {
            machine.settled(at(1_000 + n), Ok(()));
            machine.effects();
        }
        is_passed
    };
    for n in 0..10_000 {
        assert!(receive(&mut machine, n));
    }
    // D4: the last 2,048 at least, and 4,096 at most.
    for n in 10_000 - 2_048..10_000 {
        assert!(!receive(&mut machine, n), "{n}");
    }
    assert!(receive(&mut machine, 10_000 - 4_097));
}

#[test]
fn a_call_that_was_cancelled_has_no_result() {
    let mut machine = machine(Acknowledge::Handled);
    connect(&mut machine);
    let n = machine.call(at(1), Call::new(http::Method::GET, "/v1/me/preferences"));
    assert!(machine.effects().iter().any(|effect| matches!(effect, Effect::Request(_))));
    machine.cancel(n);
    machine.answered(at(2), n, Ok(Response { status: 200, ..Response::default() }));
    assert!(machine.effects().is_empty());
}

/// `SplitMix64`.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

fn pick<T: Copy, const N: usize>(n: u64, list: [T; N]) -> T {
    list[usize::try_from(n % N as u64).unwrap_or_default()]
}

/// What the caller of a machine has in hand.
#[derive(Default)]
struct World {
    link: Option<(u64, bool)>,
    asks: HashSet<u64>,
    requests: Vec<u64>,
    is_passed: bool,
    now: u64,
}

impl World {
    fn carry_out(&mut self, machine: &mut Machine) {
        for effect in machine.effects() {
            match effect {
                Effect::Dial(dial) => {
                    assert!(self.link.replace((dial.attempt, false)).is_none(), "two connections");
                }
                Effect::Send { attempt, frame } => {
                    assert_eq!(self.link, Some((attempt, true)), "{frame} on a connection that is not open");
                    assert!(frame.len() <= 64 << 10, "a frame of {} bytes", frame.len());
                }
                Effect::Hangup { attempt } => {
                    assert!(self.link.take().is_none_or(|(known, _)| known == attempt), "another connection");
                }
                Effect::AskToken { n, .. } => {
                    assert!(self.asks.is_empty(), "two requests for a token"); // T2
                    self.asks.insert(n);
                }
                Effect::CancelToken { n } => assert!(self.asks.remove(&n)),
                Effect::Request(request) => self.requests.push(request.n),
                Effect::Pass(_) => {
                    assert!(!std::mem::replace(&mut self.is_passed, true), "two messages at once");
                }
                Effect::Keep(ids) => assert!(ids.len() <= 1_000),
                Effect::Done { .. } | Effect::Tell(_) => {}
            }
        }
        assert!(machine.waiting() <= QUEUE_MAX + 1);
    }

    fn service(&mut self, machine: &mut Machine, random: &mut Random) {
        let now = at(self.now);
        let Some((attempt, is_open)) = self.link else { return };
        let n = random.below(400);
        let topic = pick(random.below(3), ["a", "b", "c,d"]);
        let frame = match random.below(12) {
            0 if !is_open => {
                self.link = Some((attempt, true));
                return machine.opened(now, attempt);
            }
            0 | 1 => json!({"t": "ready", "device": "d1", "ping_s": 240}).to_string(),
            2..=5 => stored(&format!("m{n}"), pick(n, [None, Some(topic)]), n),
            6 => json!({"t": "recovered", "topic": topic, "complete": n % 2 == 0, "epoch": "e", "offset": n}).to_string(),
            7 => {
                let reason = pick(n, ["drain", "expired", "revoked", "overloaded", "new"]);
                json!({"t": "close", "reason": reason, "reconnect": n % 3 > 0, "after_ms": n}).to_string()
            }
            8 => json!({"t": "error", "code": pick(n, ["topic_forbidden", "expired", "rate_limited"]), "topic": topic}).to_string(),
            9 => json!({"t": "items", "event": "added", "ids": [], "unread": n, "categories": {}}).to_string(),
            10 => "{".repeat(usize::try_from(n % 7).unwrap_or_default()),
            _ => {
                let code = u16::try_from(4_000 + n % 20).ok().filter(|_| n % 2 == 0);
                let status = Some(401).filter(|_| n % 5 == 0);
                self.link = None;
                return machine.ended(now, attempt, &Ended { code, status, ..Ended::default() });
            }
        };
        machine.frame(now, attempt, Some(&frame));
    }

    fn application(&mut self, machine: &mut Machine, random: &mut Random) {
        let now = at(self.now);
        let n = random.below(400);
        let topic = pick(random.below(3), ["a", "b", "c,d"]);
        match random.below(14) {
            0 | 1 => machine.connect(now),
            2 if n % 10 == 0 => machine.close(now),
            3 => machine.subscribe(now, topic, n % 2 == 0),
            4 => machine.unsubscribe(now, topic),
            5 => machine.ack(now, &[&format!("m{n}")]),
            6 => machine.report_opened(now, &[format!("m{n}")]),
            7 => machine.set_hidden(now, n % 2 == 0),
            8 => machine.network_returned(now),
            9 => machine.set_presence(now, pick(n, [PresenceMode::Auto, PresenceMode::Idle])),
            10 => drop(machine.me(now)),
            11 => drop(machine.variant(now, "x", true)),
            12 => machine.want_unread(now, n % 2 == 0),
            _ => drop(machine.read_counts(now)),
        }
    }

    fn step(&mut self, machine: &mut Machine, random: &mut Random) {
        match random.below(8) {
            0 => {
                self.now += random.below(20_000);
                machine.advance(at(self.now));
            }
            1 => self.application(machine, random),
            2 if self.is_passed => {
                self.is_passed = false;
                let result = if random.below(5) == 0 { Err("failed".into()) } else { Ok(()) };
                machine.settled(at(self.now), result);
            }
            3 => {
                let Some(n) = self.asks.iter().next().copied() else { return };
                self.asks.remove(&n);
                let result = match random.below(20) {
                    0 => Err(TokenError::SignedOut),
                    1 | 2 => Err(TokenError::failed("away")),
                    token => Ok(format!("t{token}")),
                };
                machine.token_arrived(at(self.now), n, result);
            }
            4 if !self.requests.is_empty() => {
                let n = self.requests.remove(0);
                let result = match random.below(7) {
                    0 => Err(Error::new(Code::Network, "lost")),
                    status => Ok(Response {
                        status: pick(status, [200, 304, 400, 401, 429, 503]),
                        body: br#"{"experiments": {"x": {"variant": "v"}}, "unread": 1, "changed": 1}"#
                            .to_vec(),
                        retry_after: pick(random.below(4), [None, Some(Duration::from_secs(2))]),
                        ..Response::default()
                    }),
                };
                machine.answered(at(self.now), n, result);
            }
            _ => self.service(machine, random),
        }
    }
}

#[test]
fn any_order_of_inputs_keeps_the_rules() {
    for seed in 0..60 {
        let mut random = Random(seed);
        let modes = [Acknowledge::Handled, Acknowledge::Received, Acknowledge::Manual];
        let transports = pick(seed / 3, [&[Transport::WebSocket, Transport::Sse][..], &[Transport::Sse]]);
        let mut machine = with_transports(pick(seed, modes), transports);
        let mut world = World::default();
        for _ in 0..1_500 {
            world.step(&mut machine, &mut random);
            world.carry_out(&mut machine);
            let due = machine.timeout().filter(|at| *at <= Duration::from_millis(world.now));
            if due.is_some() {
                machine.advance(at(world.now));
                world.carry_out(&mut machine);
            }
        }
    }
}
