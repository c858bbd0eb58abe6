//! The queue of a pool: one bounded lane for each [`Lane`], the highest first.

use std::collections::VecDeque;
use std::time::Instant;

use noroshi_types::Lane;

use super::pending::Pending;

#[derive(Debug)]
pub(crate) struct Queue {
    lanes: [VecDeque<Waiting>; Lane::ALL.len()],
    lane_max: usize,
}

#[derive(Debug)]
struct Waiting {
    /// When it was queued, or returned.
    since: Instant,
    pending: Pending,
}

impl Queue {
    pub(crate) fn new(lane_max: usize) -> Self {
        Self { lanes: Default::default(), lane_max: lane_max.max(1) }
    }

    /// Returns the push if its lane is full.
    pub(crate) fn push(&mut self, pending: Pending) -> Result<(), Pending> {
        let lane = index(pending.lane());
        match self.lanes[lane].len() < self.lane_max {
            true => {
                self.lanes[lane].push_back(Waiting { since: Instant::now(), pending });
                Ok(())
            }
            false => Err(pending),
        }
    }

    /// Returns a push to the head of its lane, even if the lane is full: the number of pushes in flight is bounded.
    pub(crate) fn put_back(&mut self, pending: Pending) {
        self.lanes[index(pending.lane())].push_front(Waiting { since: Instant::now(), pending });
    }

    pub(crate) fn pop(&mut self) -> Option<Pending> {
        self.lanes.iter_mut().find_map(VecDeque::pop_front).map(|waiting| waiting.pending)
    }

    /// The first push of a lane that waited this long. Those after it came later, except returned ones, which go next.
    pub(crate) fn pop_waiting_since(&mut self, such: impl Fn(Instant) -> bool) -> Option<Pending> {
        let mut lanes = self.lanes.iter_mut();
        let popped = lanes.find_map(|lane| lane.pop_front_if(|waiting| such(waiting.since)));
        popped.map(|waiting| waiting.pending)
    }

    pub(crate) fn len(&self) -> usize {
        self.lanes.iter().map(VecDeque::len).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lanes.iter().all(VecDeque::is_empty)
    }

    pub(crate) fn is_full(&self, lane: Lane) -> bool {
        self.lanes[index(lane)].len() >= self.lane_max
    }

    /// Whether to notify waiting callers: not for each free place, but when half the lane is free.
    pub(crate) fn has_ample_room(&self, lane: Lane) -> bool {
        self.lanes[index(lane)].len() <= self.lane_max / 2
    }
}

/// Lane codes start at 1, the highest lane first.
fn index(lane: Lane) -> usize {
    lane as usize - 1
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use noroshi_types::{
        AppId, JsonText, OwnFields, PushEnvironment, PushService, PushToken, Timestamp, Urgency,
    };

    use super::*;
    use crate::{Answer, Answered, Content, Fields, Push, Reply};

    struct Nobody;

    impl Answered for Nobody {
        fn answered(&self, _: u32, _: Answer) {}
    }

    fn pending(lane: Lane, index: u32) -> Pending {
        let fields = Fields {
            unread: None,
            kind: None,
            notification_id: None,
            notification: None,
            data: None,
            urgency: Urgency::Normal,
            collapse_key: None,
            expires_at: Timestamp(1),
            own: OwnFields::default(),
        };
        let token = PushToken {
            service: PushService::Apns,
            environment: PushEnvironment::Production,
            json: JsonText::from_valid("{}"),
        };
        let push = Push {
            app: AppId(1),
            lane,
            token,
            content: Arc::new(Content::new(fields)),
            id: uuid::Uuid::nil(),
            details: None,
            record: crate::Record::Nothing,
            reply: Reply { to: Arc::new(Nobody), index },
        };
        Pending::new(push, Timestamp(0))
    }

    fn popped(queue: &mut Queue) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop()).map(|p| p.push().expect("unanswered").reply.index).collect()
    }

    #[test]
    fn higher_lanes_overtake_and_each_keeps_its_order() {
        let mut queue = Queue::new(10);
        let order = [Lane::Campaign, Lane::Direct, Lane::Campaign, Lane::Extra, Lane::Direct];
        for (lane, index) in order.into_iter().zip(0..) {
            queue.push(pending(lane, index)).expect("room");
        }
        assert_eq!(popped(&mut queue), [3, 1, 4, 0, 2]);
    }

    #[test]
    fn a_full_lane_does_not_affect_another() {
        let mut queue = Queue::new(2);
        for index in 0..2 {
            queue.push(pending(Lane::Campaign, index)).expect("room");
        }
        assert!(queue.push(pending(Lane::Campaign, 2)).is_err());
        assert!(queue.is_full(Lane::Campaign) && !queue.has_ample_room(Lane::Campaign));
        queue.push(pending(Lane::Extra, 3)).expect("room");
        queue.put_back(pending(Lane::Campaign, 4));
        assert_eq!(queue.len(), 4);
        assert_eq!(popped(&mut queue), [3, 4, 0, 1]);
        assert!(queue.is_empty() && queue.has_ample_room(Lane::Campaign));
    }
}
