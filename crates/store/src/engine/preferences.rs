//! Preferences of users and devices: their stored form, and the counts of daily caps.
//!
//! The stored form is JSON with short names. A field that a newer program wrote is ignored; a value that this program does
//! not know counts as no preference.

use std::collections::{BTreeSet, HashMap};

use futures_util::future::try_join_all;
use noroshi_types::local_time::{LocalTime, QuietHours};
use noroshi_types::{
    AppId, Category, CategoryPreference, Channel, Channels, DeviceId, DeviceNum, Label, Preferences,
    QuietTime, Suppressed, Timestamp, Topic, UserId,
};
use serde_json::{Map, Value, json};

use super::record::Record;
use super::session::{self, Session, values};
use crate::{Counted, DayCount, Error, Followed, OwnPreferences, Preferring};

/// The stored form.
fn text_of(preferences: &Preferences) -> String {
    let mut fields = Map::new();
    if let Some(channels) = preferences.channels {
        fields.insert("channels".to_owned(), names_of(channels));
    }
    if !preferences.muted_topics.is_empty() {
        let topics = preferences.muted_topics.iter().map(Topic::as_str);
        fields.insert("muted".to_owned(), topics.collect());
    }
    let categories: Map<String, Value> =
        preferences.categories.iter().map(|(name, own)| (name.to_string(), category_value(own))).collect();
    if !categories.is_empty() {
        fields.insert("categories".to_owned(), categories.into());
    }
    if let Some(QuietTime { hours, timezone }) = &preferences.quiet_hours {
        let (from, to) = (hours.from.to_string(), hours.to.to_string());
        fields.insert("quiet".to_owned(), json!({"from": from, "to": to, "zone": timezone}));
    }
    Value::Object(fields).to_string()
}

fn names_of(channels: Channels) -> Value {
    channels.iter().map(Channel::as_str).collect()
}

fn category_value(own: &CategoryPreference) -> Value {
    let mut fields = Map::new();
    let CategoryPreference { muted, channels, daily_max } = own;
    fields.extend(muted.map(|muted| ("muted".to_owned(), muted.into())));
    fields.extend(channels.map(|channels| ("channels".to_owned(), names_of(channels))));
    fields.extend(daily_max.map(|max| ("max".to_owned(), max.into())));
    fields.into()
}

/// Reads the stored form.
fn preferences_of(text: &str) -> Result<Preferences, Error> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| super::record::invalid("preferences", error))?;
    let topics = value["muted"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let categories = value["categories"].as_object().into_iter().flatten();
    let quiet = &value["quiet"];
    let clock = |name: &str| quiet[name].as_str().and_then(|text| LocalTime::parse(text).ok());
    let hours = clock("from").zip(clock("to")).and_then(|(from, to)| QuietHours::new(from, to).ok());
    Ok(Preferences {
        channels: channels_of(&value["channels"]),
        muted_topics: topics.filter_map(|name| Topic::parse(name).ok()).collect(),
        categories: categories
            .filter_map(|(name, own)| Some((Label::parse(name).ok()?, category_of(own))))
            .collect(),
        quiet_hours: hours.map(|hours| QuietTime { hours, timezone: quiet["zone"].as_str().map(Box::from) }),
    })
}

fn channels_of(value: &Value) -> Option<Channels> {
    Some(value.as_array()?.iter().filter_map(Value::as_str).filter_map(Channel::named).collect())
}

fn category_of(value: &Value) -> CategoryPreference {
    CategoryPreference {
        muted: value["muted"].as_bool(),
        channels: channels_of(&value["channels"]),
        daily_max: value["max"].as_u64().and_then(|max| u32::try_from(max).ok()),
    }
}

/// The preferences of a column. What this program cannot read is logged, and counts as no preference: it must not keep
/// the notifications of others from being accepted.
pub(crate) fn of_column(row: &(impl Record + ?Sized), column: usize) -> Result<Option<Preferences>, Error> {
    let read = row.text_or_null(column)?.map(preferences_of);
    Ok(read.and_then(|read| {
        read.inspect_err(
            |error| tracing::error!(%error, "stored preferences are unreadable and have no effect"),
        )
        .ok()
    }))
}

/// The preferences of the user and of the device of `devices d`, as two columns for [`own_of_row`].
pub(crate) const OWN: &str = "(SELECT p.body FROM user_preferences p WHERE p.app = d.app AND p.\"user\" = d.\"user\"), \
     (SELECT p.body FROM device_preferences p WHERE p.device = d.num)";

pub(crate) fn own_of_row(row: &(impl Record + ?Sized), first: usize) -> Result<OwnPreferences, Error> {
    Ok(OwnPreferences { user: of_column(row, first)?, device: of_column(row, first + 1)? })
}

/// The joins that find the preferences of `devices d`, without devices that follow none. The columns of
/// [`own_of_row`] are `of_user.body, of_device.body`.
pub(crate) const JOINED: &str =
    "LEFT JOIN user_preferences of_user ON of_user.app = d.app AND of_user.\"user\" = d.\"user\"
     LEFT JOIN device_preferences of_device ON of_device.device = d.num
     WHERE (of_user.body IS NOT NULL OR of_device.body IS NOT NULL)";

/// The category of a request, if devices may mute it.
pub(crate) fn mutable(category: Option<&Category>) -> Option<&Category> {
    category.filter(|category| !category.is_essential)
}

/// Whether a device that follows these mutes the category.
pub(crate) fn mutes(own: OwnPreferences, category: &Category) -> bool {
    let followed = own.merged();
    let suppressed = followed.and_then(|it| it.suppresses(Channel::Live, Some(category), None));
    suppressed == Some(Suppressed::Muted)
}

/// Whether a user with these preferences gets an item of the category.
pub(crate) fn wants_item(preferences: Option<&Preferences>, category: Option<&Category>) -> bool {
    preferences.is_none_or(|own| own.suppresses(Channel::Inbox, category, None).is_none())
}

/// Splits off the devices that mute the category: those that do not, and those that do, in the same order.
pub(crate) async fn split_muted<S: Session>(
    session: &S,
    category: Option<&Category>,
    devices: Vec<DeviceNum>,
) -> Result<(Vec<DeviceNum>, Vec<DeviceNum>), S::Error> {
    let Some(category) = mutable(category).filter(|_| !devices.is_empty()) else {
        return Ok((devices, Vec::new()));
    };
    let sql = format!(
        "SELECT d.num, of_user.body, of_device.body FROM {} AS asked {} devices d ON d.num = asked.num {JOINED}",
        S::numbers("$1"),
        S::ORDERED_JOIN
    );
    let nums: Vec<u64> = devices.iter().map(|device| device.0).collect();
    let nums = serde_json::to_string(&nums).map_err(|error| Error::Engine(error.to_string()))?;
    let row = |row: &dyn Record| Ok((row.device(0)?, mutes(own_of_row(row, 1)?, category)));
    let found = session.query(&sql, &values![nums.as_str()], row).await?;
    let muting: BTreeSet<DeviceNum> =
        found.into_iter().filter(|(_, mutes)| *mutes).map(|(num, _)| num).collect();
    Ok(devices.into_iter().partition(|device| !muting.contains(device)))
}

/// Reads the time zone, and then [`OWN`]. The zone matters only with preferences. [`add_counts`] follows.
pub(crate) fn followed_of_row(row: &(impl Record + ?Sized), first: usize) -> Result<Followed, Error> {
    let preferences = own_of_row(row, first + 1)?.merged();
    let timezone = if preferences.is_some() { row.string_or_null(first)? } else { None };
    Ok(Followed { preferences, timezone, counts: Vec::new() })
}

pub(crate) async fn get<S: Session>(
    session: &S,
    app: AppId,
    of: &Preferring,
) -> Result<Option<Preferences>, S::Error> {
    let (sql, id) = match of {
        Preferring::User(user) => {
            ("SELECT body FROM user_preferences WHERE app = $1 AND \"user\" = $2", user.as_str())
        }
        Preferring::Device(device) => (
            "SELECT p.body FROM devices d JOIN device_preferences p ON p.device = d.num
             WHERE d.app = $1 AND d.id = $2",
            device.as_str(),
        ),
    };
    Ok(session::first(session, sql, &values![app, id], |row| of_column(row, 0)).await?.flatten())
}

pub(crate) async fn set<S: Session>(
    session: &S,
    app: AppId,
    of: &Preferring,
    preferences: Option<&Preferences>,
) -> Result<(), S::Error> {
    let body = preferences.map(text_of);
    match of {
        Preferring::User(user) => set_user(session, app, user, body.as_deref()).await,
        Preferring::Device(device) => set_device(session, app, device, body.as_deref()).await,
    }
}

async fn set_user<S: Session>(
    session: &S,
    app: AppId,
    user: &UserId,
    body: Option<&str>,
) -> Result<(), S::Error> {
    let values = values![app, user.as_str(), body];
    match body {
        Some(_) => {
            session::require_app(session, app, S::FOR_KEY_SHARE).await?;
            let sql = "INSERT INTO user_preferences (app, \"user\", body) VALUES ($1, $2, $3)
                       ON CONFLICT (app, \"user\") DO UPDATE SET body = excluded.body";
            session.execute(sql, &values).await?;
        }
        None => {
            let sql = "DELETE FROM user_preferences WHERE app = $1 AND \"user\" = $2";
            session.execute(sql, &values[..2]).await?;
        }
    }
    let sql = "UPDATE devices SET revision = revision + 1 WHERE app = $1 AND \"user\" = $2";
    session.execute(sql, &values[..2]).await?;
    Ok(())
}

async fn set_device<S: Session>(
    session: &S,
    app: AppId,
    device: &DeviceId,
    body: Option<&str>,
) -> Result<(), S::Error> {
    let revise = "UPDATE devices SET revision = revision + 1 WHERE app = $1 AND id = $2 RETURNING num";
    let num = session::first(session, revise, &values![app, device.as_str()], |row| row.device(0)).await?;
    let num = num.ok_or(Error::NotFound)?;
    match body {
        Some(_) => {
            let sql = "INSERT INTO device_preferences (device, body) VALUES ($1, $2)
                       ON CONFLICT (device) DO UPDATE SET body = excluded.body";
            session.execute(sql, &values![num.0, body]).await?;
        }
        None => {
            session.execute("DELETE FROM device_preferences WHERE device = $1", &values![num.0]).await?;
        }
    }
    Ok(())
}

pub(crate) async fn followed<S: Session>(
    session: &S,
    app: AppId,
    devices: &[DeviceId],
) -> Result<Vec<Followed>, S::Error> {
    let sql = format!("SELECT d.num, d.timezone, {OWN} FROM devices d WHERE d.app = $1 AND d.id = $2");
    let mut all = Vec::with_capacity(devices.len());
    for device in devices {
        let values = values![app, device.as_str()];
        let row = |row: &dyn Record| Ok((row.device(0)?, followed_of_row(row, 1)?));
        all.push(session::first(session, &sql, &values, row).await?);
    }
    let found = all.iter_mut().flatten().map(|(device, followed)| (*device, followed));
    add_counts(session, found).await?;
    Ok(all.into_iter().map(|found| found.map_or_else(Followed::default, |(_, followed)| followed)).collect())
}

/// Adds the counts of daily caps to what devices follow. Reads nothing if nothing is capped.
pub(crate) async fn add_counts<'f, S: Session>(
    session: &S,
    all: impl Iterator<Item = (DeviceNum, &'f mut Followed)>,
) -> Result<(), S::Error> {
    let has_caps = |followed: &Followed| followed.preferences.as_ref().is_some_and(Preferences::has_caps);
    let mut capped: Vec<_> = all.filter(|(_, followed)| has_caps(followed)).collect();
    if capped.is_empty() {
        return Ok(());
    }
    let mut nums: Vec<u64> = capped.iter().map(|(device, _)| device.0).collect();
    nums.sort_unstable();
    nums.dedup();
    let sql = format!(
        "SELECT c.device, c.category, c.day, c.ids FROM {} n {} preference_counts c ON c.device = n.num",
        S::numbers("$1"),
        S::ORDERED_JOIN
    );
    let nums = Value::from(nums).to_string();
    let row = |row: &dyn Record| Ok((row.device(0)?, count_of_row(row, 1)?));
    let counts = session.query(&sql, &values![nums.as_str()], row).await?;
    let mut by_device: HashMap<DeviceNum, Vec<DayCount>> = HashMap::new();
    for (device, count) in counts {
        by_device.entry(device).or_default().push(count);
    }
    for (device, followed) in &mut capped {
        followed.counts = by_device.get(device).cloned().unwrap_or_default();
    }
    Ok(())
}

fn count_of_row(row: &dyn Record, first: usize) -> Result<DayCount, Error> {
    let category =
        Label::parse(row.text(first)?).map_err(|error| super::record::invalid("category", error))?;
    let day = u32::try_from(row.count(first + 1)?).unwrap_or(u32::MAX);
    let (ids, _) = row.bytes(first + 2)?.as_chunks::<ID_BYTES>();
    Ok(DayCount { category, day, ids: ids.to_vec() })
}

const DAY_MS: u64 = 86_400_000;
/// The bytes of one id in `preference_counts.ids`.
const ID_BYTES: usize = 16;

/// See [`crate::PreferenceStore::count_for_caps`].
pub(crate) async fn count<S: Session>(session: &S, counted: &[Counted]) -> Result<Vec<bool>, S::Error> {
    let mut places: Vec<usize> = (0..counted.len()).collect();
    let key = |place: &usize| (&counted[*place].category, counted[*place].day);
    places.sort_by(|a, b| key(a).cmp(&key(b)));
    let mut answers = vec![false; counted.len()];
    for same in places.chunk_by(|a, b| key(a) == key(b)) {
        count_day(session, counted, same, &mut answers).await?;
    }
    Ok(answers)
}

/// Counts those at the places `same`, of one category and day.
async fn count_day<S: Session>(
    session: &S,
    counted: &[Counted],
    same: &[usize],
    answers: &mut [bool],
) -> Result<(), S::Error> {
    let Some(Counted { category, day, .. }) = same.first().map(|place| &counted[*place]) else {
        return Ok(());
    };
    let (category, day) = (category.as_str(), *day);
    let devices: BTreeSet<u64> = same.iter().map(|place| counted[*place].device.0).collect();
    let devices = Value::from(devices.into_iter().collect::<Vec<_>>()).to_string();
    // Makes the rows that are locked. A device that was deleted gets none.
    let make = format!(
        "INSERT INTO preference_counts (device, category, day, ids)
         SELECT d.num, $2, $3, $4 FROM {} n {} devices d ON d.num = n.num WHERE true {} ON CONFLICT DO NOTHING",
        S::numbers("$1"),
        S::ORDERED_JOIN,
        S::BY_DEVICE
    );
    session.execute(&make, &values![devices.as_str(), category, day, &[0_u8; 0]]).await?;
    let locked = format!(
        "SELECT device, ids FROM preference_counts
         WHERE device IN (SELECT num FROM {} n) AND category = $2 AND day = $3 ORDER BY device {}",
        S::numbers("$1"),
        S::FOR_NO_KEY_UPDATE
    );
    let row = |row: &dyn Record| Ok((row.device(0)?, (row.bytes(1)?.to_vec(), false)));
    let found = session.query(&locked, &values![devices.as_str(), category, day], row).await?;
    let mut found: HashMap<DeviceNum, (Vec<u8>, bool)> = found.into_iter().collect();
    for &place in same {
        let Counted { device, id, max, .. } = counted[place];
        let Some((ids, is_changed)) = found.get_mut(&device) else { continue };
        let is_known = ids.chunks_exact(ID_BYTES).any(|known| known == id);
        let has_room = ids.len() / ID_BYTES < max as usize;
        if !is_known && has_room {
            ids.extend(id);
            *is_changed = true;
        }
        answers[place] = is_known || has_room;
    }
    let sql = "UPDATE preference_counts SET ids = $4 WHERE device = $1 AND category = $2 AND day = $3";
    let changed = found.iter().filter(|(_, (_, is_changed))| *is_changed);
    // PostgreSQL gets all of them before it answers the first.
    let update = async |device: &DeviceNum, ids: &Vec<u8>| {
        session.execute(sql, &values![device.0, category, day, ids]).await
    };
    try_join_all(changed.map(|(device, (ids, _))| update(device, ids))).await?;
    Ok(())
}

/// How many days the counts of a day are kept: it is over in every time zone, and what was accepted on it has mostly
/// arrived.
const KEPT_DAYS: u64 = 3;

/// Removes the counts of former days, at most `rows_max`. Returns how many, and whether there may be more.
pub(crate) async fn prune<S: Session>(
    session: &S,
    now: Timestamp,
    rows_max: usize,
) -> Result<(u64, bool), S::Error> {
    let day = (now.0 / DAY_MS).saturating_sub(KEPT_DAYS);
    let sql = "DELETE FROM preference_counts WHERE day < $1 AND (device, category, day) IN (
                   SELECT device, category, day FROM preference_counts WHERE day < $1 ORDER BY day LIMIT $2)";
    let removed = session.execute(sql, &values![day, rows_max]).await?;
    Ok((removed, removed == rows_max as u64))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_stored_form_reads_back() {
        let clock = |text| LocalTime::parse(text).expect(text);
        let hours = QuietHours::new(clock("22:00"), clock("07:30")).expect("hours");
        let label = |name| Label::parse(name).expect(name);
        let own = |muted, daily_max| CategoryPreference { muted, channels: None, daily_max };
        let only = [Channel::Inbox].into_iter().collect::<Channels>();
        let all = Preferences {
            channels: Some([Channel::Live, Channel::Inbox].into_iter().collect()),
            muted_topics: [Topic::parse("a/b \"c\"").expect("a topic")].into(),
            categories: BTreeMap::from([
                (label("ads"), own(Some(true), None)),
                (label("news"), CategoryPreference { channels: Some(only), ..own(None, Some(3)) }),
            ]),
            quiet_hours: Some(QuietTime { hours, timezone: Some("Asia/Tokyo".into()) }),
        };
        let none = Preferences { channels: Some([].into_iter().collect()), ..Preferences::default() };
        for preferences in [Preferences::default(), none, all] {
            let text = text_of(&preferences);
            assert_eq!(preferences_of(&text).expect("it reads"), preferences, "{text}");
        }
    }

    #[test]
    fn values_of_a_newer_program_are_no_preferences() {
        let text = r#"{"channels":["live","smoke"],"new":1,"quiet":{"from":"sunset","to":"07:00"},
                       "categories":{"A B":{},"ads":{"muted":true,"mood":"bad"}}}"#;
        let read = preferences_of(text).expect("it reads");
        assert_eq!(read.channels, Some([Channel::Live].into_iter().collect()));
        assert_eq!((read.quiet_hours, read.categories.len()), (None, 1));
        assert!(preferences_of("no JSON").is_err());
    }
}
