//! The directory's entries and their rules, without IO: the Rust equivalent of the scripts on Redis.

use smallvec::SmallVec;

use super::Map;
use crate::{Epoch, Holder, Kept, SessionKey, Take, Taken};

#[derive(Default)]
pub(super) struct Entries {
    devices: Map<Holder>,
    users: Map<Vec<(SessionKey, Holder)>>,
}

impl Entries {
    pub(super) fn take(&mut self, epoch: Epoch, take: Take) -> Taken {
        let holder = Holder { epoch, generation: take.generation };
        let previous = self.devices.get(&take.device).copied();
        match previous {
            Some(previous) if previous == holder => return Taken::Now { previous: None },
            Some(previous) if previous.generation >= take.generation => {
                return Taken::Behind { generation: previous.generation };
            }
            _ => {}
        }
        self.put(take, holder);
        Taken::Now { previous }
    }

    pub(super) fn keep(&mut self, epoch: Epoch, take: Take) -> Kept {
        let holder = Holder { epoch, generation: take.generation };
        match self.devices.get(&take.device) {
            Some(present) if present.generation > take.generation => Kept::Superseded,
            _ => {
                self.put(take, holder);
                Kept::Mine
            }
        }
    }

    fn put(&mut self, take: Take, holder: Holder) {
        self.devices.insert(take.device, holder);
        let Some(user) = take.user else { return };
        let of_user = self.users.entry(user).or_default();
        match of_user.iter_mut().find(|(device, _)| *device == take.device) {
            Some((_, present)) if present.generation > holder.generation => {}
            Some((_, present)) => *present = holder,
            None => of_user.push((take.device, holder)),
        }
    }

    pub(super) fn forget(&mut self, epoch: Epoch, take: Take) {
        let holder = Holder { epoch, generation: take.generation };
        if self.devices.get(&take.device) == Some(&holder) {
            self.devices.remove(&take.device);
        }
        if let Some(user) = take.user {
            self.remove_of_user(user, |device, present| device == take.device && present == holder);
        }
    }

    pub(super) fn absent(&mut self, epoch: Epoch, key: SessionKey, before: u64) {
        let stale = |holder: Holder| holder.epoch == epoch && holder.generation < before;
        if self.devices.get(&key).is_some_and(|holder| stale(*holder)) {
            self.devices.remove(&key);
        }
        self.remove_of_user(key, |_, holder| stale(holder));
    }

    fn remove_of_user(&mut self, user: SessionKey, mut remove: impl FnMut(SessionKey, Holder) -> bool) {
        let Some(of_user) = self.users.get_mut(&user) else { return };
        of_user.retain(|(device, holder)| !remove(*device, *holder));
        if of_user.is_empty() {
            self.users.remove(&user);
        }
    }

    pub(super) fn locate(
        &self,
        key: SessionKey,
        mut is_live: impl FnMut(Epoch) -> bool,
    ) -> SmallVec<[Epoch; 2]> {
        let mut found = SmallVec::new();
        let of_user = self.users.get(&key).into_iter().flatten().map(|(_, holder)| holder.epoch);
        for epoch in self.devices.get(&key).map(|holder| holder.epoch).into_iter().chain(of_user) {
            if !found.contains(&epoch) && is_live(epoch) {
                found.push(epoch);
            }
        }
        found
    }
}
