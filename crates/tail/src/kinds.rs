//! Which kinds of events a tail may show. The others concern the node, or need more than the permission to read.

use noroshi_events::Kind;

/// In the order in which a notification meets them.
pub const SHOWN: [Kind; 18] = [
    Kind::Accepted,
    Kind::Routed,
    Kind::Kept,
    Kind::Written,
    Kind::Acked,
    Kind::Opened,
    Kind::Dropped,
    Kind::Expired,
    Kind::PushSkipped,
    Kind::PushSent,
    Kind::PushAnswered,
    Kind::TokenInvalidated,
    Kind::Registered,
    Kind::Connected,
    Kind::Closed,
    Kind::Rejected,
    Kind::Campaign,
    Kind::Exposed,
];

const _: () = assert!(Kind::ALL.len() <= u32::BITS as usize);

/// A set of kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Kinds(u32);

impl Kinds {
    /// All of [`SHOWN`].
    pub fn all() -> Self {
        SHOWN.into_iter().collect()
    }

    pub fn contains(self, kind: Kind) -> bool {
        self.0 & (1 << kind as u32) != 0
    }

    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// A list of names, separated by commas. `None`: an unknown one.
    pub fn parse(names: &str) -> Option<Self> {
        names.split(',').map(named).collect()
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = Kind> {
        SHOWN.into_iter().filter(move |kind| self.contains(*kind))
    }
}

impl FromIterator<Kind> for Kinds {
    /// Leaves out what a tail does not show.
    fn from_iter<I: IntoIterator<Item = Kind>>(kinds: I) -> Self {
        let shown = kinds.into_iter().filter(|kind| SHOWN.contains(kind));
        Self(shown.fold(0, |bits, kind| bits | 1 << kind as u32))
    }
}

/// A kind that a tail shows, by its name.
pub(crate) fn named(name: &str) -> Option<Kind> {
    SHOWN.into_iter().find(|kind| kind.as_str() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_more_than_reading_is_never_shown() {
        for kind in [Kind::Audited, Kind::Configured, Kind::Started, Kind::Lost] {
            assert!(!Kinds::all().contains(kind) && named(kind.as_str()).is_none());
            assert!([kind].into_iter().collect::<Kinds>().is_empty());
        }
        assert_eq!(Kinds::all().iter().count(), SHOWN.len());
        assert_eq!(Kinds::parse("written,acked"), Some([Kind::Acked, Kind::Written].into_iter().collect()));
        assert_eq!((Kinds::parse("written,audit"), Kinds::parse("")), (None, None));
    }
}
