//! The events of a tail between two flushes: at most [`EVENTS_MAX`], the first ones. When there is no room, a kind of which
//! the queue has fewer takes the place of a kind of which it has more, so that a flood of one kind hides no other. What
//! does not fit is counted by kind.

use noroshi_events::Kind;

/// 100 events a second, in a flush every 250 ms.
pub(crate) const EVENTS_MAX: usize = 25;

const KINDS: usize = Kind::ALL.len();

/// What is missing in a tail beside the counted events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Gaps(u8);

impl Gaps {
    /// Events were lost before a tail could read them, or a report of another node was.
    pub(crate) const LOST: Self = Self(1);
    /// Events were left out because the topic or campaign of their notification was not known in time.
    pub(crate) const UNRESOLVED: Self = Self(2);
    /// The user has more devices than a tail knows.
    pub(crate) const DEVICES: Self = Self(4);
    const ALL: [(Self, &'static str); 3] =
        [(Self::LOST, "lost"), (Self::UNRESOLVED, "unresolved"), (Self::DEVICES, "devices")];

    pub(crate) fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        Self::ALL.into_iter().filter(move |(gap, _)| self.0 & gap.0 != 0).map(|(_, name)| name)
    }

    /// Unknown names, of a newer version, are left out.
    pub(crate) fn of_names<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut gaps = Self::default();
        for name in names {
            if let Some((gap, _)) = Self::ALL.into_iter().find(|(_, known)| *known == name) {
                gaps.add(gap);
            }
        }
        gaps
    }
}

/// Counts by kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Counts([u64; KINDS]);

impl Counts {
    pub(crate) fn add(&mut self, kind: Kind, count: u64) {
        let sum = &mut self.0[kind as usize];
        *sum = sum.saturating_add(count);
    }

    pub(crate) fn add_all(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, count)| *sum = sum.saturating_add(count));
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Those above 0, by name.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = Kind::ALL.into_iter().map(|kind| (kind.as_str(), self.0[kind as usize]));
        all.filter(|(_, count)| *count > 0)
    }
}

#[derive(Debug)]
pub(crate) struct Queue<T> {
    events: Vec<(Kind, T)>,
    held: Counts,
    pub(crate) omitted: Counts,
    pub(crate) gaps: Gaps,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            events: Vec::new(),
            held: Counts::default(),
            omitted: Counts::default(),
            gaps: Gaps::default(),
        }
    }
}

impl<T> Queue<T> {
    /// Without events, and with what is missing already.
    pub(crate) fn after(omitted: Counts, gaps: Gaps) -> Self {
        Self { omitted, gaps, ..Self::default() }
    }

    /// Calls `event` only if there is room.
    pub(crate) fn push(&mut self, kind: Kind, event: impl FnOnce() -> T) {
        if self.events.len() >= EVENTS_MAX && !self.make_room(kind) {
            return self.omitted.add(kind, 1);
        }
        self.held.add(kind, 1);
        self.events.push((kind, event()));
    }

    /// Removes the last event of the most frequent kind, if there are more of it than there would be of this one.
    fn make_room(&mut self, kind: Kind) -> bool {
        let most = Kind::ALL.into_iter().max_by_key(|kind| self.held.0[*kind as usize]);
        let Some(most) = most.filter(|most| self.held.0[*most as usize] > self.held.0[kind as usize] + 1)
        else {
            return false;
        };
        let Some(last) = self.events.iter().rposition(|(kind, _)| *kind == most) else { return false };
        self.events.remove(last);
        self.held.0[most as usize] -= 1;
        self.omitted.add(most, 1);
        true
    }

    /// Counts events that were not kept.
    pub(crate) fn omit(&mut self, kind: Kind, count: u64) {
        self.omitted.add(kind, count);
    }

    pub(crate) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    pub(crate) fn into_events(self) -> Vec<(Kind, T)> {
        self.events
    }

    pub(crate) fn events(&self) -> &[(Kind, T)] {
        &self.events
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty() && self.omitted.sum() == 0 && self.gaps.is_empty()
    }

    /// How many events of each kind it holds.
    pub(crate) fn held(&self) -> &Counts {
        &self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted_and_a_flood_hides_no_other_kind() {
        let mut queue = Queue::default();
        for number in 0..1_000 {
            queue.push(Kind::Written, || number);
        }
        assert_eq!(queue.events().len(), EVENTS_MAX);
        for number in 0..3 {
            queue.push(Kind::PushAnswered, || number);
        }
        for _ in 0..500 {
            queue.push(Kind::Acked, || 0);
        }
        assert_eq!(queue.events().len(), EVENTS_MAX);
        let held =
            |queue: &Queue<u32>, kind: Kind| queue.events().iter().filter(|(of, _)| *of == kind).count();
        assert_eq!(
            [Kind::Written, Kind::Acked, Kind::PushAnswered].map(|kind| held(&queue, kind)),
            [11, 11, 3]
        );
        // The first ones of each kind, in order.
        let written: Vec<u32> =
            queue.events().iter().filter(|(kind, _)| *kind == Kind::Written).map(|(_, n)| *n).collect();
        assert_eq!(written, (0..11).collect::<Vec<_>>());
        let omitted: Vec<_> = queue.omitted.named().collect();
        assert_eq!(omitted, [("written", 989), ("acked", 489)]);
        let taken = queue.take();
        assert!(queue.is_empty() && !taken.is_empty());
        assert_eq!(taken.held().sum() + taken.omitted.sum(), 1_503);
    }

    #[test]
    fn gaps_have_names() {
        let mut gaps = Gaps::LOST;
        gaps.add(Gaps::DEVICES);
        assert!(gaps.names().eq(["lost", "devices"]));
        assert_eq!(Gaps::of_names(["devices", "newer", "lost"].into_iter()), gaps);
    }
}
