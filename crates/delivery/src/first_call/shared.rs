//! Experiments and maintenance notices of all apps, in memory: read in the background, compiled once, and divided into
//! those that are current and those that are not.
//!
//! A caller gets what is current for the app at a moment without a look at the rest. The division is repeated only when
//! a definition begins, ends or changes. Time is an argument.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use noroshi_store::{Definition, DefinitionKind, Device};
use noroshi_types::{AppId, Invalid, Label, Timestamp};
use parking_lot::Mutex;

use crate::definition::{Experiment, ExperimentVariant, Group, Notice, NoticeState};

/// The current definitions of an app.
#[derive(Debug, Default)]
pub struct Current {
    /// Differs whenever the definitions differ; 0 without any.
    pub version: u64,
    /// Running experiments, by name.
    groups: Vec<Arc<Group>>,
    /// Shown notices, by the start of their windows.
    pub notices: Vec<ShownNotice>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ShownNotice {
    pub name: Label,
    pub notice: Arc<Notice>,
    pub state: NoticeState,
}

#[derive(Debug, Clone)]
enum Compiled {
    Experiment(Arc<Group>),
    Notice(Label, Arc<Notice>),
    /// Another version wrote it.
    Unreadable,
}

type Key = (AppId, DefinitionKind, Label);

/// The definitions that were read last.
#[derive(Default)]
struct Definitions(HashMap<Key, (Definition, Compiled)>);

/// The current definitions of all apps.
struct Snapshot {
    /// Valid for `from <= now < until`.
    from: Timestamp,
    until: Timestamp,
    apps: HashMap<AppId, Arc<Current>>,
}

impl Default for Snapshot {
    /// Never valid: the first caller divides.
    fn default() -> Self {
        Self { from: Timestamp(0), until: Timestamp(0), apps: HashMap::new() }
    }
}

#[derive(Default)]
pub(crate) struct Shared {
    /// Guards the definitions, and the creation of a snapshot from them.
    known: Mutex<Definitions>,
    snapshot: ArcSwap<Snapshot>,
    versions: AtomicU64,
    pub(crate) tickets: ReadTickets,
    /// Held from the read of definitions until they are in place: an earlier read must not replace a later one.
    pub(crate) reloading: tokio::sync::Mutex<()>,
}

/// Lets one of many concurrent callers read for all of them.
#[derive(Default)]
pub(crate) struct ReadTickets {
    wanted: AtomicU64,
    /// Callers up to this number have been served.
    read: AtomicU64,
}

impl ReadTickets {
    pub(crate) fn want(&self) -> u64 {
        self.wanted.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The number of the last caller that a read serves if it starts now; `None` if a read started after `wanted`. One
    /// caller at a time.
    pub(crate) fn begin(&self, wanted: u64) -> Option<u64> {
        (self.read.load(Ordering::SeqCst) < wanted).then(|| self.wanted.load(Ordering::SeqCst))
    }

    pub(crate) fn end(&self, ticket: u64) {
        self.read.fetch_max(ticket, Ordering::SeqCst);
    }
}

impl Current {
    /// The experiments that a device takes part in, by name, with its variants.
    pub fn variants_of<'a>(
        &'a self,
        device: &'a Device,
    ) -> impl Iterator<Item = (&'a Label, &'a ExperimentVariant)> {
        self.groups.iter().filter_map(|group| Some((&group.name, group.variant_of(device)?)))
    }

    /// The variant of one experiment; `None` if it does not run or the device does not take part.
    pub fn variant_of(&self, experiment: &Label, device: &Device) -> Option<&ExperimentVariant> {
        self.group(experiment)?.variant_of(device)
    }

    pub fn group(&self, experiment: &Label) -> Option<&Arc<Group>> {
        let found = self.groups.binary_search_by(|group| group.name.cmp(experiment));
        found.ok().and_then(|at| self.groups.get(at))
    }
}

impl Shared {
    pub(crate) fn current(&self, app: AppId, now: Timestamp) -> Arc<Current> {
        let snapshot = self.snapshot.load();
        if snapshot.from <= now && now < snapshot.until {
            return snapshot.apps.get(&app).cloned().unwrap_or_default();
        }
        drop(snapshot);
        let known = self.known.lock();
        self.divide(&known, now);
        self.snapshot.load().apps.get(&app).cloned().unwrap_or_default()
    }

    /// Replaces the definitions. Returns false if nothing changed.
    pub(crate) fn replace(&self, live: Vec<Definition>, now: Timestamp) -> bool {
        let mut known = self.known.lock();
        let mut before = std::mem::take(&mut *known).0;
        let count = before.len();
        let mut changed = 0;
        for definition in live {
            let key = (definition.app, definition.kind, definition.name.clone());
            let compiled = match before.remove(&key) {
                Some((same, compiled)) if same == definition => compiled,
                _ => {
                    changed += 1;
                    compile(&definition)
                }
            };
            known.0.insert(key, (definition, compiled));
        }
        let changed = changed > 0 || known.0.len() != count;
        if changed {
            self.divide(&known, now);
        }
        changed
    }

    /// Whether a definition of the kind is over and not archived.
    pub(crate) fn has_ended(&self, kind: DefinitionKind, now: Timestamp) -> bool {
        let known = self.known.lock();
        let ended = |one: &Definition| one.kind == kind && one.ends_at.is_some_and(|ends_at| ends_at <= now);
        known.0.values().any(|(definition, _)| ended(definition))
    }

    /// Apps that have notices, including notices that are over.
    pub(crate) fn apps_with_notices(&self) -> Vec<AppId> {
        let known = self.known.lock();
        let notices = known.0.keys().filter(|(_, kind, _)| *kind == DefinitionKind::Notice);
        let mut apps: Vec<AppId> = notices.map(|(app, ..)| *app).collect();
        apps.sort_unstable();
        apps.dedup();
        apps
    }

    fn divide(&self, known: &Definitions, now: Timestamp) {
        let before = self.snapshot.load();
        let mut snapshot = Snapshot { from: now, until: Timestamp(u64::MAX), apps: HashMap::new() };
        let mut apps: HashMap<AppId, Current> = HashMap::new();
        for ((app, ..), (_, compiled)) in &known.0 {
            let current = apps.entry(*app).or_default();
            compiled.divide(now, current, &mut snapshot.until);
        }
        for (app, mut current) in apps {
            current.groups.sort_unstable_by(|a, b| a.name.cmp(&b.name));
            current.notices.sort_by(|a, b| (a.notice.starts_at, &a.name).cmp(&(b.notice.starts_at, &b.name)));
            let same = before.apps.get(&app).filter(|same| same.is_like(&current)).cloned();
            let current = same.unwrap_or_else(|| {
                current.version = self.versions.fetch_add(1, Ordering::Relaxed) + 1;
                Arc::new(current)
            });
            snapshot.apps.insert(app, current);
        }
        self.snapshot.store(Arc::new(snapshot));
    }
}

impl Current {
    fn is_like(&self, other: &Self) -> bool {
        let same_groups = self.groups.len() == other.groups.len()
            && self.groups.iter().zip(&other.groups).all(|(a, b)| Arc::ptr_eq(a, b));
        same_groups && self.notices == other.notices
    }
}

impl Compiled {
    /// Adds itself to `current` if it is, and lowers `until` to its next change.
    fn divide(&self, now: Timestamp, current: &mut Current, until: &mut Timestamp) {
        let mut changes = |moments: [Option<Timestamp>; 3]| {
            let next = moments.into_iter().flatten().filter(|moment| *moment > now).min();
            *until = next.map_or(*until, |next| next.min(*until));
        };
        match self {
            Compiled::Experiment(group) => {
                let Experiment { starts_at, ends_at, .. } = &group.experiment;
                changes([*starts_at, *ends_at, None]);
                if group.experiment.is_running(now) {
                    current.groups.push(group.clone());
                }
            }
            Compiled::Notice(name, notice) => {
                changes([notice.announced_at, Some(notice.starts_at), Some(notice.ends_at)]);
                if let Some(state) = notice.state(now) {
                    current.notices.push(ShownNotice { name: name.clone(), notice: notice.clone(), state });
                }
            }
            Compiled::Unreadable => {}
        }
    }
}

fn compile(definition: &Definition) -> Compiled {
    let name = definition.name.clone();
    let compiled: Result<Compiled, Invalid> = match definition.kind {
        DefinitionKind::Experiment => Experiment::from_json(&definition.spec)
            .map(|experiment| Compiled::Experiment(Arc::new(Group::new(name, experiment)))),
        DefinitionKind::Notice => {
            Notice::from_json(&definition.spec).map(|notice| Compiled::Notice(name, Arc::new(notice)))
        }
    };
    compiled.unwrap_or_else(|invalid| {
        tracing::warn!(app = definition.app.0, name = %definition.name, %invalid, "skipped an unreadable definition");
        Compiled::Unreadable
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use noroshi_types::JsonText;

    use super::*;
    use crate::definition::experiment::tests::{experiment, label};
    use crate::texts::Texts;

    fn kept(kind: DefinitionKind, name: &str, spec: JsonText, ends_at: Option<u64>) -> Definition {
        Definition {
            num: 1,
            app: AppId(1),
            kind,
            name: label(name),
            spec,
            ends_at: ends_at.map(Timestamp),
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
            archived_at: None,
        }
    }

    fn lasting(name: &str, from: u64, to: u64) -> Definition {
        let it =
            Experiment { starts_at: Some(Timestamp(from)), ends_at: Some(Timestamp(to)), ..experiment() };
        kept(DefinitionKind::Experiment, name, it.to_json(), Some(to))
    }

    fn notice(name: &str, from: u64, to: u64) -> Definition {
        let data = Some(JsonText::from_valid("1"));
        let it = Notice {
            announced_at: Some(Timestamp(from - 5)),
            starts_at: Timestamp(from),
            ends_at: Timestamp(to),
            text: Texts { notification: None, data },
            locales: BTreeMap::new(),
        };
        kept(DefinitionKind::Notice, name, it.to_json(), Some(to))
    }

    fn names(current: &Current) -> Vec<&str> {
        current.groups.iter().map(|group| group.name.as_str()).collect()
    }

    #[test]
    fn one_caller_reads_for_all_earlier_ones() {
        let tickets = ReadTickets::default();
        let (first, second) = (tickets.want(), tickets.want());
        let ticket = tickets.begin(first).expect("no read started");
        let third = tickets.want();
        tickets.end(ticket);
        assert_eq!((tickets.begin(second), tickets.begin(third)), (None, Some(third)));
    }

    #[test]
    fn the_current_definitions_change_only_with_time() {
        let shared = Shared::default();
        assert_eq!(shared.current(AppId(1), Timestamp(5)).version, 0);
        assert!(shared.replace(vec![lasting("a", 10, 30), lasting("b", 20, 40)], Timestamp(5)));
        let at = |now| shared.current(AppId(1), Timestamp(now));
        let expected: [(u64, &[&str]); 6] =
            [(9, &[]), (10, &["a"]), (19, &["a"]), (20, &["a", "b"]), (30, &["b"]), (40, &[])];
        for (now, expected) in expected {
            assert_eq!(names(&at(now)), expected, "at {now}");
        }
        // Also if the clock is set back.
        assert_eq!(names(&at(25)), ["a", "b"]);
        assert!(Arc::ptr_eq(&at(20), &at(29)) && at(20).version != at(30).version);
        assert_eq!(names(&shared.current(AppId(2), Timestamp(20))), [""; 0]);
        assert!(shared.has_ended(DefinitionKind::Experiment, Timestamp(30)));
        assert!(!shared.has_ended(DefinitionKind::Experiment, Timestamp(29)));
        assert!(!shared.has_ended(DefinitionKind::Notice, Timestamp(99)));
    }

    #[test]
    fn reading_unchanged_definitions_changes_nothing() {
        let shared = Shared::default();
        let live = vec![lasting("a", 0, 30), lasting("b", 0, 40)];
        shared.replace(live.clone(), Timestamp(5));
        let before = shared.current(AppId(1), Timestamp(5));
        assert!(!shared.replace(live.clone(), Timestamp(6)));
        assert!(Arc::ptr_eq(&before, &shared.current(AppId(1), Timestamp(6))));
        assert!(shared.replace(live[..1].to_vec(), Timestamp(6)), "one was archived");
        assert_eq!(names(&shared.current(AppId(1), Timestamp(6))), ["a"]);
        let changed = Definition { updated_at: Timestamp(7), ..lasting("a", 0, 8) };
        assert!(shared.replace(vec![changed], Timestamp(7)));
        assert_eq!(names(&shared.current(AppId(1), Timestamp(8))), [""; 0]);
        // An unreadable definition is skipped.
        let unreadable = kept(DefinitionKind::Notice, "n", JsonText::from_valid("7"), None);
        assert!(shared.replace(vec![unreadable], Timestamp(8)));
    }

    #[test]
    fn notices_are_shown_by_their_windows() {
        let shared = Shared::default();
        shared.replace(vec![notice("late", 30, 40), notice("early", 20, 50)], Timestamp(0));
        let shown = |now| -> Vec<(String, &str)> {
            let current = shared.current(AppId(1), Timestamp(now));
            current.notices.iter().map(|one| (one.name.to_string(), one.state.as_str())).collect()
        };
        assert_eq!(shown(14), []);
        assert_eq!(shown(15), [("early".to_owned(), "announced")]);
        assert_eq!(shown(25), [("early".to_owned(), "active"), ("late".to_owned(), "announced")]);
        assert_eq!(shown(40), [("early".to_owned(), "active")]);
        assert_eq!(shown(50), []);
        assert_eq!(shared.apps_with_notices(), [AppId(1)]);
    }
}
