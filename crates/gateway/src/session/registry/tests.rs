//! Attaching and detaching in every order leaves no entry behind.

use super::*;

fn session(registry: &Registry, device: &str, user: Option<&str>, generation: u64) -> Arc<Session> {
    let user = user.map(|user| UserId::parse(user).expect("user"));
    let address = Address { shard: 0, slot: 0, generation };
    let device = DeviceId::parse(device).expect("device");
    Arc::new(Session::new(
        registry,
        AppId(1),
        device,
        user.as_ref(),
        DeviceNum(generation),
        address,
        Versions { token_version: 1, revision: 1, ..Versions::default() },
    ))
}

fn generations(registry: &Registry, user: &str) -> Vec<u64> {
    let mut generations = Vec::new();
    let key = registry.user_key(AppId(1), &UserId::parse(user).expect("user"));
    registry.each_of_user(key, |session| generations.push(session.address.generation));
    generations.sort_unstable();
    generations
}

#[test]
fn an_old_end_never_erases_a_new_session() {
    let registry = Registry::new(None);
    let (old, new) = (session(&registry, "d", Some("u"), 1), session(&registry, "d", Some("u"), 2));
    assert!(matches!(registry.attach(&old), Attached::Now(None)));
    assert!(matches!(registry.attach(&new), Attached::Now(Some(displaced)) if Arc::ptr_eq(&displaced, &old)));
    registry.detach(&old);
    assert_eq!(registry.device(new.device_key).map(|s| s.address.generation), Some(2));
    assert_eq!(generations(&registry, "u"), [2]);
}

#[test]
fn a_late_older_session_does_not_displace() {
    let registry = Registry::new(None);
    let (old, new) = (session(&registry, "d", Some("u"), 1), session(&registry, "d", Some("u"), 2));
    assert!(matches!(registry.attach(&new), Attached::Now(None)));
    assert!(matches!(registry.attach(&old), Attached::Displaced));
    assert_eq!(generations(&registry, "u"), [2]);
}

#[test]
fn two_threads_that_reconnect_one_device_leave_the_newest() {
    let registry = Registry::new(None);
    let generation = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last: Option<Arc<Session>> = None;
                for _ in 0..2_000 {
                    let next = generation.fetch_add(1, Ordering::SeqCst) + 1;
                    let session = session(&registry, "d", Some("u"), next);
                    let attached = matches!(registry.attach(&session), Attached::Now(_));
                    if let Some(last) = last.take() {
                        registry.detach(&last);
                    }
                    last = attached.then_some(session);
                }
            });
        }
    });
    let newest = generation.load(Ordering::SeqCst);
    assert_eq!(generations(&registry, "u"), [newest]);
    assert_eq!(registry.sessions_count(), 1);
}

#[test]
fn a_user_has_all_devices_and_tenants_are_separate() {
    let registry = Registry::new(None);
    for (device, generation) in [("a", 1), ("b", 2)] {
        registry.attach(&session(&registry, device, Some("u"), generation));
    }
    assert_eq!(generations(&registry, "u"), [1, 2]);
    let user = UserId::parse("u").expect("user");
    assert!(!registry.each_of_user(registry.user_key(AppId(2), &user), |_| {}));
    let device = registry.device_key(AppId(1), &DeviceId::parse("a").expect("device"));
    assert!(registry.detach_if(device, |_| true).is_some());
    assert_eq!(generations(&registry, "u"), [2]);
}

#[test]
fn a_user_may_have_very_many_devices() {
    let registry = Registry::new(None);
    let sessions: Vec<_> = (1..=500).map(|n| session(&registry, &format!("d{n}"), Some("u"), n)).collect();
    for session in &sessions {
        registry.attach(session);
    }
    assert_eq!(generations(&registry, "u"), (1..=500).collect::<Vec<_>>());
    for session in &sessions[1..] {
        registry.detach(session);
    }
    assert_eq!(generations(&registry, "u"), [1]);
    registry.detach(&sessions[1]);
    assert_eq!(generations(&registry, "u"), [1], "one that is gone takes nothing along");
    registry.detach(&sessions[0]);
    assert!(registry.devices.iter().all(|part| part.lock().is_empty()));
    assert!(registry.users.iter().all(|part| part.lock().is_empty()));
}

#[test]
fn a_topic_counter_lives_while_a_shard_holds_it() {
    let registry = Registry::new(None);
    let (one, two) = (registry.topic_counter(7), registry.topic_counter(7));
    one.fetch_add(2, Ordering::Relaxed);
    assert_eq!(registry.topic_sessions(7), 2);
    registry.release_topic_counter(7, one);
    assert_eq!(registry.topic_sessions(7), 2);
    registry.release_topic_counter(7, two);
    assert!(registry.topics.iter().all(|part| part.lock().is_empty()));
}

#[test]
fn a_session_is_ended_by_a_newer_one_of_another_node_only() {
    let registry = Registry::new(Some(noroshi_cluster::Keys::new(&[1; 16])));
    let present = session(&registry, "d", Some("u"), 5);
    assert!(matches!(registry.attach(&present), Attached::Now(None)));
    assert!(registry.detach_if(present.device_key, |it| it.address.generation < 5).is_none());
    assert_eq!(generations(&registry, "u"), [5]);
    assert!(registry.detach_if(present.device_key, |it| it.address.generation < 6).is_some());
    assert!(registry.device(present.device_key).is_none() && generations(&registry, "u").is_empty());
}

#[test]
fn pages_hold_every_session_once_under_the_keys_of_the_directory() {
    let keys = noroshi_cluster::Keys::new(&[1; 16]);
    let registry = Registry::new(Some(keys.clone()));
    let sessions: Vec<_> = (1..=200).map(|n| session(&registry, &format!("d{n}"), Some("u"), n)).collect();
    sessions.iter().for_each(|session| drop(registry.attach(session)));
    let mut paged: Vec<_> = (0..SESSION_PAGES).flat_map(|page| registry.page(page)).collect();
    paged.sort_by_key(|session| session.generation);
    let generations: Vec<u64> = paged.iter().map(|session| session.generation).collect();
    assert_eq!(generations, (1..=200).collect::<Vec<u64>>());
    assert_eq!(paged[0].device_key, keys.device(AppId(1), &paged[0].device));
    assert_eq!(paged[0].user_key, Some(keys.user(AppId(1), &UserId::parse("u").expect("user"))));
    assert!(registry.page(SESSION_PAGES).is_empty());
}
