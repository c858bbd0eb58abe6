//! Stanza routing (RFC 6121 §8.5.2, §8.5.3) for each type of message and request and each combination of
//! priorities.

use super::*;
use crate::xmpp::xml::{Limits, Scope, parse_element};

const SENDER: u8 = 100;
/// Priorities of the resources `r0`, `r1`, ….
const PRIORITIES: [&[i8]; 12] =
    [&[], &[1], &[0], &[-1], &[1, 1], &[1, -1], &[3, 1], &[0, 0], &[0, -1], &[3, 0], &[3, 0, -1], &[-1, -1]];

fn relayed(name: &'static str, kind: &str, inside: &str) -> Relayed {
    let text = format!("<{name} type='{kind}' id='i'>{inside}</{name}>");
    let text = text.replace(" type=''", "");
    let (scope, limits) = (Scope::default(), Limits::default());
    let tree = parse_element(&text, Some(&scope), &limits).unwrap();
    Relayed::new(name, tree.root(), 10_000).unwrap()
}

/// Returns the resources that receive the stanza, and whether its sender gets an error.
fn send(priorities: &[i8], resource: Option<&str>, stanza: &Relayed) -> (Vec<usize>, bool) {
    let mut outbox = Outbox::new();
    let mut accounts = Accounts::new("x", 0, [("a", "p"), ("b", "p")]);
    accounts.attach("a", SENDER, "r", false, &mut outbox);
    for (session, priority) in priorities.iter().enumerate() {
        accounts.attach("b", session as u8, &format!("r{session}"), false, &mut outbox);
        let presence = relayed("presence", "", &format!("<priority>{priority}</priority>"));
        accounts.announce("b", session as u8, presence, &mut outbox);
    }
    outbox.clear();
    let to = Recipient { asked: "b@x".into(), bare: "b@x".into(), resource: resource.map(Into::into) };
    let outcome = match stanza.is_presence() {
        true => {
            accounts.direct("a", SENDER, &to, stanza, &mut outbox);
            Outcome::Done
        }
        false => accounts.route("a", SENDER, &to, stanza, Timestamp(0), &mut outbox),
    };
    let mut got: Vec<usize> = outbox.iter().map(|(session, _)| usize::from(*session)).collect();
    got.sort_unstable();
    (got, outcome == Outcome::Refused)
}

#[test]
fn messages_are_routed_by_type_and_priorities() {
    for priorities in PRIORITIES {
        let highest = priorities.iter().max().copied().unwrap_or(-1);
        let at_least = |least: i8| -> Vec<usize> {
            let meant = priorities.iter().enumerate().filter(|(_, priority)| **priority >= least);
            meant.map(|(at, _)| at).collect()
        };
        let most_available = if highest < 0 { Vec::new() } else { at_least(highest) };
        for kind in ["normal", "chat", "groupchat", "headline", "error"] {
            let message = relayed("message", kind, "<body>x</body>");
            let expected = match kind {
                "normal" | "chat" => (most_available.clone(), false),
                "headline" => (at_least(0), false),
                "groupchat" => (Vec::new(), true),
                _ => (Vec::new(), false),
            };
            assert_eq!(send(priorities, None, &message), expected, "{kind} {priorities:?}");
            // §8.5.3.2.1
            let expected = match kind {
                "chat" => (most_available.clone(), false),
                "normal" | "groupchat" => (Vec::new(), true),
                _ => (Vec::new(), false),
            };
            assert_eq!(send(priorities, Some("nobody"), &message), expected, "{kind} {priorities:?}");
            // §8.5.3.1
            for at in 0..priorities.len() {
                assert_eq!(send(priorities, Some(&format!("r{at}")), &message), (vec![at], false), "{kind}");
            }
        }
    }
}

#[test]
fn requests_and_presence_reach_the_addressed_resource() {
    for priorities in PRIORITIES {
        for kind in ["get", "set", "result", "error"] {
            let request = relayed("iq", kind, "<x xmlns='x'/>");
            let is_refused = matches!(kind, "get" | "set");
            let nobody = send(priorities, Some("nobody"), &request);
            assert_eq!(nobody, (Vec::new(), is_refused), "§8.5.3.2.3: {kind} {priorities:?}");
            for at in 0..priorities.len() {
                assert_eq!(send(priorities, Some(&format!("r{at}")), &request), (vec![at], false), "{kind}");
            }
        }
        for kind in ["", "unavailable"] {
            let presence = relayed("presence", kind, "");
            let all: Vec<usize> = (0..priorities.len()).collect();
            assert_eq!(send(priorities, None, &presence), (all, false), "{kind} {priorities:?}");
            assert_eq!(send(priorities, Some("nobody"), &presence), (Vec::new(), false), "{kind}");
        }
    }
}
