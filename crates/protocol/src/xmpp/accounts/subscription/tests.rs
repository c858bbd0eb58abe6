//! The tables of RFC 6121 Appendix A, row by row.

use super::*;

fn item(state: &str) -> Item {
    let has = |word: &str| state.split(' ').any(|known| known == word);
    let pending = has("in").then(Bytes::new);
    let (listed, to, from, asked) = (has("listed"), has("to"), has("from"), has("out"));
    Item { listed, to, from, asked, pending, ..Item::default() }
}

fn state(item: &Item) -> String {
    let words = [
        (item.is_empty(), "-"),
        (item.listed, "listed"),
        (item.to, "to"),
        (item.from, "from"),
        (item.asked, "out"),
        (item.pending.is_some(), "in"),
        (item.approved, "approved"),
    ];
    words.into_iter().filter(|(is, _)| *is).map(|(_, word)| word).collect::<Vec<_>>().join(" ")
}

/// `>`: the stanza is forwarded, to the contact or to the account's resources.
fn check(before: &str, kind: Kind, expected: &str, is_outbound: bool) {
    let mut item = item(before);
    let effect = if is_outbound { item.outbound(kind) } else { item.inbound(kind, &Bytes::new()) };
    let mark = if effect.passes { "> " } else { "" };
    assert_eq!(format!("{mark}{}", state(&item)), expected, "{before:?} {kind:?} is said: {is_outbound}");
}

#[test]
fn subscription_state_tables() {
    let states = [
        "",
        "listed",
        "listed out",
        "in",
        "listed out in",
        "listed to",
        "listed to in",
        "listed from",
        "listed from out",
        "listed to from",
    ];
    // For each state: the new state, and whether the stanza is forwarded (`>`).
    let says: [(&str, [&str; 10]); 4] = [
        (
            "subscribe",
            [
                "> listed out",
                "> listed out",
                "> listed out",
                "> listed out in",
                "> listed out in",
                "> listed to",
                "> listed to in",
                "> listed from out",
                "> listed from out",
                "> listed to from",
            ],
        ),
        (
            "unsubscribe",
            [
                "> -",
                "> listed",
                "> listed",
                "> in",
                "> listed in",
                "> listed",
                "> listed in",
                "> listed from",
                "> listed from",
                "> listed from",
            ],
        ),
        (
            "subscribed",
            [
                "listed approved",
                "listed approved",
                "listed out approved",
                "> listed from",
                "> listed from out",
                "listed to approved",
                "> listed to from",
                "listed from",
                "listed from out",
                "listed to from",
            ],
        ),
        (
            "unsubscribed",
            [
                "-",
                "listed",
                "listed out",
                "> -",
                "> listed out",
                "listed to",
                "> listed to",
                "> listed",
                "> listed out",
                "> listed to",
            ],
        ),
    ];
    let hears: [(&str, [&str; 10]); 4] = [
        (
            "subscribe",
            [
                "> in",
                "> listed in",
                "> listed out in",
                "in",
                "listed out in",
                "> listed to in",
                "listed to in",
                "listed from",
                "listed from out",
                "listed to from",
            ],
        ),
        (
            "unsubscribe",
            [
                "-",
                "listed",
                "listed out",
                "> -",
                "> listed out",
                "listed to",
                "> listed to",
                "> listed",
                "> listed out",
                "> listed to",
            ],
        ),
        (
            "subscribed",
            [
                "-",
                "listed",
                "> listed to",
                "in",
                "> listed to in",
                "listed to",
                "listed to in",
                "listed from",
                "> listed to from",
                "listed to from",
            ],
        ),
        (
            "unsubscribed",
            [
                "-",
                "listed",
                "> listed",
                "in",
                "> listed in",
                "> listed",
                "> listed in",
                "listed from",
                "> listed from",
                "> listed from",
            ],
        ),
    ];
    for (is_outbound, table) in [(true, &says), (false, &hears)] {
        for (kind, row) in table {
            for (state, expected) in states.iter().zip(row) {
                check(state, Kind::named(kind).unwrap(), expected, is_outbound);
            }
        }
    }
}
