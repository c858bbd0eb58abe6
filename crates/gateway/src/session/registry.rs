//! The sessions of this node: device to session, user to sessions, and how many connections subscribe to a topic.
//!
//! Attaching puts a session in its device's place and returns the one it displaced; of two sessions the one with the
//! higher generation stays, in whatever order they attach. Detaching removes a session only if its generation is still
//! there, in one step under one lock. This decides a race: a device reconnects, its new connection attaches on one
//! shard, and only then another shard finds the old socket broken. If the old session were removed by its device, it
//! would remove the new one's entry, and the device would be offline while connected.
//! `tests::an_old_end_never_erases_a_new_session` proves it.
//!
//! Keys are SipHash-128 of (app, id) under a key drawn at the start: tenants cannot collide, ids are not stored twice,
//! and no client can choose ids that collide. Several nodes use the same keys for devices and users, those of the
//! directory that they share.
//!
//! Locks: one part at a time; nothing else is locked or awaited under it.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use hashbrown::hash_table::Entry;
use hashbrown::{HashMap, HashTable};
use noroshi_cluster::{Keys, SessionKey};
use noroshi_delivery::LocalSession;
use noroshi_delivery::edge::SESSION_PAGES;
use noroshi_delivery::rules::Known;
use noroshi_types::{
    AppId, DeviceId, DeviceNum, Message, NotificationId, Presence, Timestamp, Topic, UserId, When,
};
use parking_lot::Mutex;
use siphasher::sip128::{Hasher128, SipHasher13};

/// Lock parts of each map: more than there are threads.
const PARTS: usize = SESSION_PAGES;

/// A hashed (app, id).
pub(crate) type Key = u128;

/// Keys are hashes already.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KeyHasher(u64);

impl std::hash::Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let mut low = [0; 8];
        let len = bytes.len().min(8);
        low[..len].copy_from_slice(&bytes[..len]);
        self.0 = u64::from_ne_bytes(low);
    }
}

pub(crate) type KeyMap<V> = HashMap<Key, V, std::hash::BuildHasherDefault<KeyHasher>>;

/// The location of a session's connection. The generation distinguishes it from a later one in the same slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) shard: u16,
    pub(crate) slot: u32,
    pub(crate) generation: u64,
}

/// Whose session it is: the device's record, its user and the version of its tokens. They differ as soon as the device
/// was deleted and created again, was given to another user, or had its tokens revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) num: DeviceNum,
    /// 0 if the device has no user.
    pub(crate) user_key: Key,
    pub(crate) token_version: u32,
}

/// What the node knows about a session. Its connection and the maps share it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) device: DeviceId,
    pub(crate) device_key: Key,
    /// 0 if the device has no user.
    pub(crate) user_key: Key,
    pub(crate) app: AppId,
    pub(crate) num: DeviceNum,
    pub(crate) address: Address,
    /// The device's at its log-in: tokens below it are revoked.
    pub(crate) token_version: u32,
    /// When app JWTs of the device or its user were last revoked: the second plus one; 0 for never.
    revoked_s: u32,
    presence: AtomicU8,
    /// The milliseconds of the first message id that was held back because the device was idle; 0 for none.
    held_from: AtomicU64,
    /// The device's at its log-in: grows with changes of its user, tokens and subscriptions.
    pub(crate) revision: u64,
    /// What topic rules need to know. None if the app had no rules when the session began.
    pub(crate) known: ArcSwapOption<Known>,
    /// Its current token is an app JWT, which has claims.
    is_of_jwt: AtomicBool,
}

/// What a log-in read of its device, to compare later changes with.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Versions {
    pub(crate) token_version: u32,
    pub(crate) revision: u64,
    pub(crate) revoked_at: Option<Timestamp>,
}

impl Session {
    /// To the second, as app JWTs count.
    pub(crate) fn revoked_at(&self) -> Option<Timestamp> {
        self.revoked_s.checked_sub(1).map(|second| Timestamp(u64::from(second) * 1_000))
    }

    pub(crate) fn holder(&self) -> Holder {
        Holder { num: self.num, user_key: self.user_key, token_version: self.token_version }
    }

    pub(crate) fn presence(&self) -> Presence {
        match self.presence.load(Ordering::Relaxed) {
            0 => Presence::Idle,
            _ => Presence::Active,
        }
    }

    /// True if the device is active now and messages were held back before: the caller must read its inbox.
    pub(crate) fn set_presence(&self, presence: Presence) -> bool {
        self.presence.store(u8::from(presence == Presence::Active), Ordering::SeqCst);
        presence == Presence::Active && self.held_from.load(Ordering::SeqCst) != 0
    }

    /// Whether a kept message stays in the inbox until the device is active (RFC 8030 §5.3). `is_quiet`: it is in its
    /// quiet hours. Presence may change on another thread: either that thread finds the mark, or this one (the
    /// connection's) finds the device active.
    pub(crate) fn holds_back(&self, message: &Message, is_quiet: bool) -> bool {
        let waits =
            (message.waits_for_use || is_quiet) && message.when == When::Stored && message.topic.is_none();
        if !waits || self.presence() == Presence::Active {
            return false;
        }
        // RFC 9562 §5.7: the time is in the upper 48 bits. The first one stays, except for an older one of another
        // node.
        let from = (u128::from_be_bytes(*message.id.as_bytes()) >> 80).max(1) as u64;
        let earlier = |held: u64| if held == 0 { from } else { held.min(from) };
        let _ = self.held_from.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |held| Some(earlier(held)));
        self.presence.load(Ordering::SeqCst) == 0 || self.take_held().is_none()
    }

    /// Takes the id behind which messages were held back.
    pub(crate) fn take_held(&self) -> Option<NotificationId> {
        let from = self.held_from.swap(0, Ordering::SeqCst);
        // The greatest id (version 7) of the millisecond before.
        let before = (u128::from(from.checked_sub(1)?) << 80) | (0x7fff << 64) | u128::from(u64::MAX);
        Some(NotificationId::from_bytes(before.to_be_bytes()))
    }
}

/// What becomes of a session that attaches.
pub(crate) enum Attached {
    /// It is attached; the caller must close the session it displaced.
    Now(Option<Arc<Session>>),
    /// A newer one is attached.
    Displaced,
}

/// The sessions of one user: nearly always one, which is only a pointer.
enum OfUser {
    One(Arc<Session>),
    /// Keyed by generation, so that a user with very many devices does not slow down their ends.
    Many(Box<HashMap<u64, Arc<Session>>>),
}

/// Sessions contain their keys: the tables hold pointers only.
type Devices = HashTable<Arc<Session>>;
type Users = HashTable<OfUser>;

pub(crate) struct Registry {
    hash_keys: (u64, u64),
    /// The keys of devices and users, if there are other nodes.
    session_keys: Option<Keys>,
    devices: Vec<Mutex<Devices>>,
    users: Vec<Mutex<Users>>,
    /// Connections that subscribe to a topic, over all shards. An entry exists while a shard holds it.
    topics: Vec<Mutex<KeyMap<Arc<AtomicU64>>>>,
}

impl Registry {
    pub(crate) fn new(session_keys: Option<Keys>) -> Self {
        fn parts<T: Default>() -> Vec<Mutex<T>> {
            (0..PARTS).map(|_| Mutex::default()).collect()
        }
        let random = RandomState::new();
        let hash_keys = (random.hash_one(0u8), random.hash_one(1u8));
        Self { hash_keys, session_keys, devices: parts(), users: parts(), topics: parts() }
    }

    /// `kind` separates a user, a device and a topic of the same name.
    fn key(&self, kind: u8, app: AppId, id: &str) -> Key {
        let mut hasher = SipHasher13::new_with_keys(self.hash_keys.0, self.hash_keys.1);
        (kind, app, id).hash(&mut hasher);
        // 0 means "no user".
        hasher.finish128().as_u128().max(1)
    }

    pub(crate) fn device_key(&self, app: AppId, device: &DeviceId) -> Key {
        match &self.session_keys {
            Some(keys) => keys.device(app, device).0.max(1),
            None => self.key(0, app, device.as_str()),
        }
    }

    pub(crate) fn user_key(&self, app: AppId, user: &UserId) -> Key {
        match &self.session_keys {
            Some(keys) => keys.user(app, user).0.max(1),
            None => self.key(1, app, user.as_str()),
        }
    }

    pub(crate) fn topic_key(&self, app: AppId, topic: &Topic) -> Key {
        self.key(2, app, topic.as_str())
    }

    /// For stamps of an app's conditions.
    pub(crate) fn conditions_key(&self, app: AppId) -> Key {
        self.key(3, app, "")
    }

    /// For stamps of changes to a device, or to a user.
    pub(crate) fn change_key(key: Key) -> Key {
        !key
    }

    pub(crate) fn attach(&self, session: &Arc<Session>) -> Attached {
        let displaced = {
            let mut devices = part(&self.devices, session.device_key).lock();
            match devices.entry(low(session.device_key), is_device(session.device_key), device_hash) {
                Entry::Occupied(present) if present.get().address.generation > session.address.generation => {
                    return Attached::Displaced;
                }
                Entry::Occupied(mut present) => Some(std::mem::replace(present.get_mut(), session.clone())),
                Entry::Vacant(vacant) => {
                    vacant.insert(session.clone());
                    None
                }
            }
        };
        if let Some(old) = &displaced {
            self.forget_user(old);
        }
        if session.user_key != 0 {
            let mut users = part(&self.users, session.user_key).lock();
            match users.entry(low(session.user_key), is_user(session.user_key), user_hash) {
                Entry::Occupied(mut user) => user.get_mut().add(session.clone()),
                Entry::Vacant(vacant) => drop(vacant.insert(OfUser::One(session.clone()))),
            }
        }
        Attached::Now(displaced)
    }

    /// Removes a session if it is still its device's.
    pub(crate) fn detach(&self, session: &Session) {
        let generation = session.address.generation;
        self.take(session.device_key, |present| present.address.generation == generation);
        self.forget_user(session);
    }

    /// Removes the session of a device if it is `this` one.
    pub(crate) fn detach_if(&self, device_key: Key, this: impl Fn(&Session) -> bool) -> Option<Arc<Session>> {
        self.take(device_key, this).inspect(|session| self.forget_user(session))
    }

    fn take(&self, device_key: Key, this: impl Fn(&Session) -> bool) -> Option<Arc<Session>> {
        let mut devices = part(&self.devices, device_key).lock();
        let is_this = |session: &Arc<Session>| session.device_key == device_key && this(session);
        let session = devices.find_entry(low(device_key), is_this).ok()?.remove().0;
        shrink_table(&mut devices, device_hash);
        Some(session)
    }

    fn forget_user(&self, session: &Session) {
        if session.user_key == 0 {
            return;
        }
        let mut users = part(&self.users, session.user_key).lock();
        if let Ok(mut user) = users.find_entry(low(session.user_key), is_user(session.user_key))
            && user.get_mut().remove(session.address.generation)
        {
            user.remove();
            shrink_table(&mut users, user_hash);
        }
    }

    pub(crate) fn device(&self, device_key: Key) -> Option<Arc<Session>> {
        part(&self.devices, device_key).lock().find(low(device_key), is_device(device_key)).cloned()
    }

    /// Calls `each` for every session of a user, under the lock. False if there is none.
    pub(crate) fn each_of_user(&self, user_key: Key, mut each: impl FnMut(&Session)) -> bool {
        let users = part(&self.users, user_key).lock();
        match users.find(low(user_key), is_user(user_key)) {
            None => return false,
            Some(OfUser::One(session)) => each(session),
            Some(OfUser::Many(sessions)) => sessions.values().for_each(|session| each(session)),
        }
        true
    }

    /// The counter of a topic's connections, for a shard that gets its first one.
    pub(crate) fn topic_counter(&self, topic_key: Key) -> Arc<AtomicU64> {
        part(&self.topics, topic_key).lock().entry(topic_key).or_default().clone()
    }

    /// A shard has no connection of a topic any more.
    pub(crate) fn release_topic_counter(&self, topic_key: Key, counter: Arc<AtomicU64>) {
        let mut topics = part(&self.topics, topic_key).lock();
        drop(counter);
        if topics.get(&topic_key).is_some_and(|counter| Arc::strong_count(counter) == 1) {
            topics.remove(&topic_key);
            shrink(&mut topics);
        }
    }

    pub(crate) fn topic_sessions(&self, topic_key: Key) -> u64 {
        part(&self.topics, topic_key).lock().get(&topic_key).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// The devices of an app that have a session; visits all sessions.
    pub(crate) fn devices_of(&self, app: AppId) -> Vec<DeviceId> {
        let mut devices = Vec::new();
        for part in &self.devices {
            let part = part.lock();
            let sessions = part.iter().filter(|session| session.app == app);
            devices.extend(sessions.map(|session| session.device.clone()));
        }
        devices
    }

    /// Whether there are other nodes.
    pub(crate) fn is_shared(&self) -> bool {
        self.session_keys.is_some()
    }

    /// The sessions of one lock part.
    pub(crate) fn page(&self, page: usize) -> Vec<LocalSession> {
        let Some(part) = self.devices.get(page) else { return Vec::new() };
        part.lock().iter().map(|session| session.described()).collect()
    }

    /// Devices with a session, for the gauge that shows leaks.
    pub(crate) fn sessions_count(&self) -> usize {
        self.devices.iter().map(|part| part.lock().len()).sum()
    }
}

impl OfUser {
    fn any(&self) -> Option<&Arc<Session>> {
        match self {
            OfUser::One(session) => Some(session),
            OfUser::Many(sessions) => sessions.values().next(),
        }
    }

    fn add(&mut self, session: Arc<Session>) {
        if let OfUser::One(first) = self {
            let first = (first.address.generation, first.clone());
            *self = OfUser::Many(Box::new(HashMap::from_iter([first])));
        }
        if let OfUser::Many(sessions) = self {
            sessions.insert(session.address.generation, session);
        }
    }

    /// True if that was the last one, which stays.
    fn remove(&mut self, generation: u64) -> bool {
        let sessions = match self {
            OfUser::One(session) => return session.address.generation == generation,
            OfUser::Many(sessions) => sessions,
        };
        sessions.remove(&generation);
        if sessions.len() == 1 {
            let last = sessions.drain().next();
            *self = OfUser::One(last.expect("there is one").1);
        }
        false
    }
}

/// The tables use the low half of a key, the parts the high one.
fn low(key: Key) -> u64 {
    (key & Key::from(u64::MAX)) as u64
}

fn is_device(key: Key) -> impl Fn(&Arc<Session>) -> bool {
    move |session| session.device_key == key
}

fn device_hash(session: &Arc<Session>) -> u64 {
    low(session.device_key)
}

fn is_user(key: Key) -> impl Fn(&OfUser) -> bool {
    move |user| user.any().is_some_and(|session| session.user_key == key)
}

fn user_hash(user: &OfUser) -> u64 {
    user.any().map_or(0, |session| low(session.user_key))
}

/// Capacity that a map keeps however few entries it has.
const PLACES_KEPT: usize = 8;

/// Gives memory back after a mass disconnect. At least seven eighths of the capacity was free each time, so the
/// removals pay for the moves.
pub(crate) fn shrink<V>(map: &mut KeyMap<V>) {
    if map.capacity() > PLACES_KEPT && map.len() * 8 < map.capacity() {
        map.shrink_to(map.len() * 2);
    }
}

fn shrink_table<T>(table: &mut HashTable<T>, hash: impl Fn(&T) -> u64) {
    if table.capacity() > PLACES_KEPT && table.len() * 8 < table.capacity() {
        table.shrink_to(table.len() * 2, hash);
    }
}

fn part<T>(parts: &[Mutex<T>], key: Key) -> &Mutex<T> {
    &parts[(key >> 64) as usize % PARTS]
}

impl Session {
    pub(crate) fn new(
        registry: &Registry,
        app: AppId,
        device: DeviceId,
        user: Option<&UserId>,
        num: DeviceNum,
        address: Address,
        versions: Versions,
    ) -> Self {
        let Versions { token_version, revision, revoked_at } = versions;
        Self {
            device_key: registry.device_key(app, &device),
            user_key: user.map_or(0, |user| registry.user_key(app, user)),
            device,
            app,
            num,
            address,
            token_version,
            revoked_s: revoked_at.map_or(0, |at| u32::try_from(at.0 / 1_000 + 1).unwrap_or(u32::MAX)),
            presence: AtomicU8::new(1),
            held_from: AtomicU64::new(0),
            revision,
            known: ArcSwapOption::empty(),
            is_of_jwt: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_of_jwt(&self) -> bool {
        self.is_of_jwt.load(Ordering::Relaxed)
    }

    /// Returns whether its token before was of the other kind.
    pub(crate) fn set_of_jwt(&self, is_of_jwt: bool) -> bool {
        self.is_of_jwt.swap(is_of_jwt, Ordering::Relaxed) != is_of_jwt
    }

    fn described(&self) -> LocalSession {
        LocalSession {
            app: self.app,
            device: self.device.clone(),
            num: self.num,
            device_key: SessionKey(self.device_key),
            user_key: (self.user_key != 0).then_some(SessionKey(self.user_key)),
            generation: self.address.generation,
            revision: Some(self.revision),
        }
    }
}

/// Removes duplicates.
pub(crate) fn distinct(topics: Vec<Topic>) -> Vec<Topic> {
    let mut seen = HashSet::with_capacity(topics.len());
    topics.into_iter().filter(|topic| seen.insert(topic.clone())).collect()
}

#[cfg(test)]
mod tests;
