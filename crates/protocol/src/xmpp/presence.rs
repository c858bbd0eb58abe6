//! Maps presence (RFC 6121 §4.7) and client state (XEP-0352) to the session's presence: away or in the
//! background is idle; unavailable or a negative priority is offline for the device's own messages.

use noroshi_types::Presence;

use super::namespace as ns;
use super::xml::Element;

/// The client's last presence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Show {
    /// None yet, or unavailable.
    #[default]
    Unavailable,
    /// Without `<show/>`, or `chat`.
    Available,
    /// `away` or `xa`.
    Away,
    /// `dnd`
    DoNotDisturb,
    /// RFC 6121 §8.5.2: with negative priority, a resource receives no messages to the bare address.
    Negative,
}

impl Show {
    /// Parses `<presence/>` without type; `None` if it is invalid (RFC 6121 §4.7.2).
    pub(super) fn parse(stanza: Element<'_>) -> Option<Self> {
        // §4.7.2.3: -128 to 127.
        let negative = match stanza.child(ns::CLIENT, "priority") {
            Some(priority) => priority.text().trim().parse::<i8>().ok()? < 0,
            None => false,
        };
        let show = match stanza.child(ns::CLIENT, "show").map(|show| show.text()).as_deref() {
            None | Some("chat") => Show::Available,
            Some("away" | "xa") => Show::Away,
            Some("dnd") => Show::DoNotDisturb,
            Some(_) => return None,
        };
        Some(if negative { Show::Negative } else { show })
    }

    pub(super) fn presence(self, inactive: bool) -> Presence {
        match self {
            Show::Unavailable | Show::Negative => Presence::Offline,
            Show::Available if !inactive => Presence::Active,
            Show::Available | Show::Away | Show::DoNotDisturb => Presence::Idle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xmpp::xml::{Limits, Scope, parse_element};

    #[test]
    fn presence_maps_to_active_idle_or_offline() {
        let check = |inside: &str, inactive: bool, expected: Option<Presence>| {
            let text = format!("<presence>{inside}</presence>");
            let (scope, limits) = (Scope::default(), Limits::default());
            let tree = parse_element(&text, Some(&scope), &limits).unwrap();
            let show = Show::parse(tree.root());
            assert_eq!(show.map(|show| show.presence(inactive)), expected, "{inside}");
        };
        check("", false, Some(Presence::Active));
        check("<status>hi</status><priority>5</priority>", false, Some(Presence::Active));
        check("<show>chat</show>", false, Some(Presence::Active));
        check("<show>chat</show>", true, Some(Presence::Idle));
        for show in ["away", "xa", "dnd"] {
            check(&format!("<show>{show}</show>"), false, Some(Presence::Idle));
        }
        check("<priority>-1</priority>", false, Some(Presence::Offline));
        check("<show>away</show><priority>-128</priority>", false, Some(Presence::Offline));
        for bad in ["<show>busy</show>", "<show/>", "<priority>128</priority>", "<priority>x</priority>"] {
            check(bad, false, None);
        }
    }
}
