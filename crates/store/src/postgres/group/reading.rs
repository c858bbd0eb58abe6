//! What a group depends on, read in one round trip that also begins the transaction and takes the order lock. Reads
//! after the lock stay valid until the commit, as far as accepting depends on them.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use deadpool_postgres::ClientWrapper;
use noroshi_types::{AppId, CampaignId, Condition, DeviceNum, Message, PushMode, Target, Topic, UserId};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::form::Form;
use super::ranks::Ranks;
use crate::engine::accept::{TruthTable, is_stored};
use crate::engine::notification::{TO_CAMPAIGN, message_of_row};
use crate::engine::preferences::{JOINED, mutable, mutes, of_column, own_of_row, wants_item};
use crate::engine::push_token::main_service;
use crate::engine::topic::draw_epoch;
use crate::ids::{Ids, Num};
use crate::postgres::backlog::MESSAGE_COLUMNS;
use crate::{Accept, OfCampaign, statement_log};

/// A device that was found.
#[derive(Debug, Clone, Copy)]
pub(in crate::postgres) struct Found {
    pub num: i64,
    pub service: Option<i64>,
    pub suspect: bool,
    /// At least the rank of the newest row of its inbox; 0 for an empty inbox.
    pub rank: i64,
}

impl Found {
    /// A device whose push token does not matter.
    pub(in crate::postgres) fn of(num: i64, rank: Option<i64>) -> Self {
        Self { num, service: None, suspect: false, rank: rank.unwrap_or(0) }
    }
}

/// A topic's row.
#[derive(Debug, Clone, Copy)]
pub(super) struct TopicRow {
    pub num: i64,
    pub epoch: u32,
    pub head: i64,
}

/// The earlier use of an idempotency key.
pub(super) struct KeyUse {
    pub body_hash: Vec<u8>,
    /// `None`: the key belongs to a campaign.
    pub message: Option<Arc<Message>>,
}

/// Everything that was read; vectors have one element for each notification of the group.
#[derive(Default)]
pub(in crate::postgres) struct Reading {
    /// The last ordered number.
    pub(super) last: Num,
    /// The recipients of each notification, sorted.
    pub(super) devices: Vec<Vec<Found>>,
    /// How many named recipients do not exist.
    pub(super) unknown: Vec<u64>,
    pub(super) topics: HashMap<(AppId, String), TopicRow>,
    pub(super) earlier: HashMap<(AppId, String), KeyUse>,
    pub(super) campaigns: HashMap<(AppId, CampaignId), i64>,
    /// The users that get items, by the index of the notification.
    pub(super) item_users: HashMap<usize, Vec<UserId>>,
    /// Devices that mute the category of a notification that would be stored for them, sorted, by its index. They are not
    /// among `devices`.
    pub(super) muted: HashMap<usize, Vec<DeviceNum>>,
    /// Expansions that have not ended.
    pub(super) expanding: HashMap<Num, AppId>,
}

/// Number, app, and whether the lease has not ended.
const EXPANSIONS: &str = "SELECT num, app, until > (extract(epoch FROM clock_timestamp()) * 1000)::bigint
     FROM expansions WHERE state = 0 AND until > 0";
/// The writers of these expansions give up.
pub(in crate::postgres) const END_LEASES: &str = "UPDATE expansions SET until = 0
     WHERE state = 0 AND until > 0 AND until <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint";

const LAST: &str = "SELECT last FROM accept_order";

/// The common text of the statements that find devices by name, with or without the rank of their newest row.
macro_rules! named {
    ($column:literal, $rank:literal) => {
        concat!(
            "SELECT u.place, d.num, d.push_service, d.push_suspect_at IS NOT NULL, ",
            $rank,
            " FROM unnest($1::bigint[], $2::bigint[], $3::text[]) u (place, app, name)
             LEFT JOIN devices d ON d.app = u.app AND d.",
            $column,
            " = u.name"
        )
    };
}
const OF_USERS: &str = named!("\"user\"", "NULL::bigint");
const OF_DEVICES: &str = named!("id", "NULL::bigint");
const OF_USERS_WITH_RANKS: &str =
    named!("\"user\"", "(SELECT i.rank FROM inbox i WHERE i.device = d.num ORDER BY i.num DESC LIMIT 1)");
const OF_DEVICES_WITH_RANKS: &str =
    named!("id", "(SELECT i.rank FROM inbox i WHERE i.device = d.num ORDER BY i.num DESC LIMIT 1)");
const RANKS: &str = "SELECT u.device,
         (SELECT i.rank FROM inbox i WHERE i.device = u.device ORDER BY i.num DESC LIMIT 1)
     FROM unnest($1::bigint[]) u (device)";

/// The service of the token of a kind and name of each device, and whether the token is suspect.
const TOKENS: &str = "SELECT u.place, d.num,
         CASE WHEN d.push_service = u.main THEN d.push_service ELSE p.service END,
         CASE WHEN d.push_service = u.main THEN d.push_suspect_at ELSE p.suspect_at END IS NOT NULL
     FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[]) u (place, device, kind, name, main)
     JOIN devices d ON d.num = u.device
     LEFT JOIN push_tokens p ON p.device = u.device AND p.kind = u.kind AND p.name = u.name";

/// What devices prefer, of those that prefer anything.
static MUTED: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT asked.place, d.num, of_user.body, of_device.body
         FROM unnest($1::bigint[], $2::bigint[]) asked (place, device) JOIN devices d ON d.num = asked.device {JOINED}"
    )
});

/// The users of devices that get items.
const ITEM_USERS: &str = "SELECT u.place, d.\"user\"
     FROM unnest($1::bigint[], $2::bigint[], $3::text[]) u (place, app, name)
     JOIN devices d ON d.app = u.app AND d.id = u.name WHERE d.\"user\" IS NOT NULL";

/// What users prefer, of those that prefer anything.
const ITEM_PREFERENCES: &str = "SELECT u.place, p.\"user\", p.body
     FROM unnest($1::bigint[], $2::bigint[], $3::text[]) u (place, app, name)
     JOIN user_preferences p ON p.app = u.app AND p.\"user\" = u.name";

/// The bits name the condition's topics that a device subscribes to.
const SUBSCRIBERS: &str = "SELECT d.place, d.num, d.bits,
         (SELECT i.rank FROM inbox i WHERE i.device = d.num ORDER BY i.num DESC LIMIT 1)
     FROM (SELECT u.place, s.device AS num, bit_or(u.bit) AS bits
           FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[]) u (place, bit, app, name)
           JOIN topics t ON t.app = u.app AND t.name = u.name
           JOIN subscriptions s ON s.topic = t.num AND s.named = 1
           GROUP BY u.place, s.device) d";
const ALL_DEVICES: &str = "SELECT u.place, d.num,
         (SELECT i.rank FROM inbox i WHERE i.device = d.num ORDER BY i.num DESC LIMIT 1)
     FROM unnest($1::bigint[], $2::bigint[]) u (place, app) JOIN devices d ON d.app = u.app";

/// Avoids drawing sequence numbers for existing topics.
const MAKE_TOPICS: &str = "INSERT INTO topics (app, name, epoch)
     SELECT u.app, u.name, u.epoch FROM unnest($1::bigint[], $2::text[], $3::bigint[]) u (app, name, epoch)
     WHERE NOT EXISTS (SELECT 1 FROM topics t WHERE t.app = u.app AND t.name = u.name)
     ON CONFLICT DO NOTHING";
/// Locked in the order in which all calls lock topics.
const TOPICS: &str = "SELECT t.app, t.name, t.num, t.epoch, t.head
     FROM unnest($1::bigint[], $2::text[]) u (app, name) JOIN topics t ON t.app = u.app AND t.name = u.name
     ORDER BY t.num FOR NO KEY UPDATE OF t";

const CAMPAIGNS: &str = "SELECT c.app, c.id, c.num
     FROM unnest($1::bigint[], $2::bytea[]) u (app, id) JOIN campaigns c ON c.id = u.id AND c.app = u.app";

fn earlier_sql() -> String {
    format!(
        "SELECT {MESSAGE_COLUMNS}, i.app, i.key, i.body_hash, n.target
         FROM unnest($1::bigint[], $2::text[], $3::bigint[]) u (app, key, now)
         JOIN idempotency i ON i.app = u.app AND i.key = u.key AND i.expires_at > u.now
         JOIN notifications n ON n.num = i.num LEFT JOIN topics t ON t.num = n.topic"
    )
}

/// Prepared on a connection before groups run on it.
pub(in crate::postgres) fn statements() -> Vec<String> {
    let named = [
        OF_USERS,
        OF_DEVICES,
        OF_USERS_WITH_RANKS,
        OF_DEVICES_WITH_RANKS,
        RANKS,
        TOKENS,
        ITEM_USERS,
        ITEM_PREFERENCES,
    ];
    let fixed = [EXPANSIONS, END_LEASES, LAST, SUBSCRIBERS, ALL_DEVICES, MAKE_TOPICS, TOPICS, CAMPAIGNS];
    fixed.into_iter().chain(named).map(str::to_owned).chain([earlier_sql(), MUTED.clone()]).collect()
}

/// Values of the statements, as columns.
#[derive(Default)]
struct Inputs<'a> {
    users: NameColumns<'a>,
    devices: NameColumns<'a>,
    condition_topics: (Vec<i64>, Vec<i64>, Vec<i64>, Vec<&'a str>),
    all: (Vec<i64>, Vec<i64>),
    topics: (Vec<i64>, Vec<&'a str>, Vec<i64>),
    keys: (Vec<i64>, Vec<&'a str>, Vec<i64>),
    campaigns: (Vec<i64>, Vec<&'a [u8]>),
}

/// Index in the group, app, name.
type NameColumns<'a> = (Vec<i64>, Vec<i64>, Vec<&'a str>);

impl<'a> Inputs<'a> {
    fn of(group: &[&'a Accept], forms: &[&Form], everyone: &'a Topic) -> Self {
        let mut asked = Self::default();
        for (place, accept) in (0..).zip(group) {
            let app = i64::from(accept.app.0);
            let wanted = is_stored(accept) || accept.request.push.mode != PushMode::Never;
            match &accept.request.target {
                Target::Users(users) if wanted => {
                    asked.users.extend(users.iter().map(|user| (place, app, user.as_str())));
                }
                Target::Devices(devices) if wanted => {
                    asked.devices.extend(devices.iter().map(|device| (place, app, device.as_str())));
                }
                Target::Condition(condition) if is_stored(accept) => {
                    if let Some(Form::Whole) = forms.get(place as usize) {
                        asked.condition(place, app, condition);
                    }
                }
                Target::Topic(topic) => asked.topic(app, topic),
                Target::Everyone => asked.topic(app, everyone),
                Target::Users(_) | Target::Devices(_) | Target::Condition(_) => {}
            }
            if let Some(idempotency) = &accept.idempotency {
                asked.keys.extend([(app, &*idempotency.key, accept.now.0 as i64)]);
            }
            if let Some(OfCampaign { id, .. }) = &accept.campaign {
                asked.campaigns.extend([(app, id.as_bytes().as_slice())]);
            }
        }
        asked
    }

    fn topic(&mut self, app: i64, topic: &'a Topic) {
        let (apps, names, _) = &self.topics;
        // A group often names a hot topic several times in a row.
        if apps.last() != Some(&app) || names.last() != Some(&topic.as_str()) {
            self.topics.extend([(app, topic.as_str(), i64::from(draw_epoch()))]);
        }
    }

    fn condition(&mut self, place: i64, app: i64, condition: &'a Condition) {
        let topics = condition.topics().into_iter().enumerate();
        self.condition_topics.extend(topics.map(|(bit, topic)| (place, 1 << bit, app, topic.as_str())));
        if condition.matches_none() {
            self.all.extend([(place, app)]);
        }
    }
}

/// Index in the group, device, kind, name, and the service whose main token it may be.
type TokenColumns<'a> = (Vec<i64>, Vec<i64>, Vec<i64>, Vec<&'a str>, Vec<i64>);

/// The rows of a statement, which is skipped if it has no values.
pub(super) async fn rows<const N: usize>(
    session: &ClientWrapper,
    sql: &str,
    wanted: bool,
    values: [&(dyn ToSql + Sync); N],
) -> Result<Vec<Row>, Error> {
    if !wanted {
        return Ok(Vec::new());
    }
    statement_log::postgres(sql);
    let statement = session.prepare_cached(sql).await?;
    session.query(&statement, &values).await
}

/// Begins the transaction, takes the order lock (with the statement `lock`) and reads, in one round trip. A second one
/// reads ranks that should be known and are not.
pub(in crate::postgres) async fn read(
    session: &ClientWrapper,
    lock: &str,
    group: &[&Accept],
    forms: &[&Form],
    ids: &Ids,
    ranks: &mut Ranks,
) -> Result<Reading, Error> {
    let everyone = Topic::everyone();
    let asked = Inputs::of(group, forms, &everyone);
    let Inputs { users, devices, condition_topics: subscribed, all, topics, keys, campaigns } = &asked;
    let earlier_sql = earlier_sql();
    let with_ranks = !ranks.serve(users.0.len() + devices.0.len());
    let (of_users, of_devices) = match with_ranks {
        true => (OF_USERS_WITH_RANKS, OF_DEVICES_WITH_RANKS),
        false => (OF_USERS, OF_DEVICES),
    };
    // Statements go out in this order, in whatever order they are answered.
    let (_, expansions, last, of_users, of_devices, subscribers, all_devices, _, topics, earlier, campaigns) =
        tokio::try_join!(
            biased;
            session.batch_execute(lock),
            rows(session, EXPANSIONS, true, []),
            rows(session, LAST, true, []),
            rows(session, of_users, !users.0.is_empty(), [&users.0, &users.1, &users.2]),
            rows(session, of_devices, !devices.0.is_empty(), [&devices.0, &devices.1, &devices.2]),
            rows(session, SUBSCRIBERS, !subscribed.0.is_empty(), [&subscribed.0, &subscribed.1, &subscribed.2, &subscribed.3]),
            rows(session, ALL_DEVICES, !all.0.is_empty(), [&all.0, &all.1]),
            rows(session, MAKE_TOPICS, !topics.0.is_empty(), [&topics.0, &topics.1, &topics.2]),
            rows(session, TOPICS, !topics.0.is_empty(), [&topics.0, &topics.1]),
            rows(session, &earlier_sql, !keys.0.is_empty(), [&keys.0, &keys.1, &keys.2]),
            rows(session, CAMPAIGNS, !campaigns.0.is_empty(), [&campaigns.0, &campaigns.1]),
        )?;
    let mut reading = Reading {
        last: last.first().map_or(0, |row| row.get(0)),
        devices: vec![Vec::new(); group.len()],
        unknown: vec![0; group.len()],
        ..Reading::default()
    };
    for row in &expansions {
        if row.get(2) {
            reading.expanding.insert(row.get(0), app_of(row, 1));
        }
    }
    if reading.expanding.len() < expansions.len() {
        rows(session, END_LEASES, true, []).await?;
    }
    reading.add_named(&of_users);
    reading.add_named(&of_devices);
    ranks.check(reading.last);
    if !with_ranks {
        reading.add_ranks(session, ranks).await?;
    }
    reading.find_tokens(session, group).await?;
    reading.item_users = item_users(session, group).await?;
    reading.add_conditions(group, &subscribers, &all_devices);
    for devices in &mut reading.devices {
        devices.sort_unstable_by_key(|device| device.num);
    }
    reading.split_muted(session, group).await?;
    for row in &topics {
        let topic = TopicRow { num: row.get(2), epoch: row.get::<_, i64>(3) as u32, head: row.get(4) };
        reading.topics.insert((app_of(row, 0), row.get(1)), topic);
    }
    for row in &earlier {
        let is_campaign = row.get::<_, i64>(18) == i64::from(TO_CAMPAIGN);
        let message = if is_campaign { None } else { message_of_row(row, 0, ids).ok().map(Arc::new) };
        let earlier = KeyUse { body_hash: row.get(17), message };
        reading.earlier.insert((app_of(row, 15), row.get(16)), earlier);
    }
    for row in &campaigns {
        let id: &[u8] = row.get(1);
        if let Ok(id) = <[u8; 16]>::try_from(id) {
            reading.campaigns.insert((app_of(row, 0), CampaignId::from_bytes(id)), row.get(2));
        }
    }
    Ok(reading)
}

/// The users that get items, by the index of the notification in the group; sorted, each once. Most groups have none, and
/// skip the round trips.
async fn item_users(
    session: &ClientWrapper,
    group: &[&Accept],
) -> Result<HashMap<usize, Vec<UserId>>, Error> {
    let mut users = users_of_devices(session, group).await?;
    for (place, accept) in group.iter().enumerate() {
        if let (Some(_), Target::Users(named)) = (&accept.request.item, &accept.request.target) {
            users.insert(place, named.clone());
        }
    }
    let mut asked: (Vec<i64>, Vec<i64>, Vec<&str>) = Default::default();
    for (place, named) in &users {
        let app = group.get(*place).map_or(0, |accept| i64::from(accept.app.0));
        asked.extend(named.iter().map(|user| (*place as i64, app, user.as_str())));
    }
    let preferring =
        rows(session, ITEM_PREFERENCES, !asked.0.is_empty(), [&asked.0, &asked.1, &asked.2]).await?;
    for row in &preferring {
        let (place, user): (i64, &str) = (row.get(0), row.get(1));
        let category = group.get(place as usize).and_then(|accept| accept.request.category.as_ref());
        let own = of_column(row, 2).unwrap_or_default();
        if !wants_item(own.as_ref(), category)
            && let Some(users) = users.get_mut(&(place as usize))
        {
            users.retain(|one| one.as_str() != user);
        }
    }
    Ok(users)
}

/// The users of named devices that get items; sorted, each once.
async fn users_of_devices(
    session: &ClientWrapper,
    group: &[&Accept],
) -> Result<HashMap<usize, Vec<UserId>>, Error> {
    let mut asked: (Vec<i64>, Vec<i64>, Vec<&str>) = Default::default();
    for (place, accept) in (0_i64..).zip(group) {
        if let (Some(_), Target::Devices(devices)) = (&accept.request.item, &accept.request.target) {
            let app = i64::from(accept.app.0);
            asked.extend(devices.iter().map(|device| (place, app, device.as_str())));
        }
    }
    let mut users: HashMap<usize, Vec<UserId>> = HashMap::new();
    for row in &rows(session, ITEM_USERS, !asked.0.is_empty(), [&asked.0, &asked.1, &asked.2]).await? {
        let place = row.get::<_, i64>(0) as usize;
        users.entry(place).or_default().extend(UserId::parse(row.get(1)).ok());
    }
    for users in users.values_mut() {
        users.sort_unstable();
        users.dedup();
    }
    Ok(users)
}

pub(super) fn app_of(row: &Row, column: usize) -> AppId {
    AppId(row.get::<_, i64>(column) as u32)
}

impl Reading {
    /// Sets the ranks of devices that were read without them.
    async fn add_ranks(&mut self, session: &ClientWrapper, ranks: &mut Ranks) -> Result<(), Error> {
        let devices = || self.devices.iter().flatten().map(|found| found.num);
        let mut unknown: Vec<i64> = devices().filter(|device| ranks.of(*device).is_none()).collect();
        unknown.sort_unstable();
        unknown.dedup();
        for row in &rows(session, RANKS, !unknown.is_empty(), [&unknown]).await? {
            ranks.set(row.get(0), row.get::<_, Option<i64>>(1).unwrap_or(0));
        }
        for found in self.devices.iter_mut().flatten() {
            found.rank = ranks.of(found.num).unwrap_or(0);
        }
        Ok(())
    }

    /// For notifications whose push goes to a token other than the main one. Most groups have none, and skip this round
    /// trip.
    async fn find_tokens(&mut self, session: &ClientWrapper, group: &[&Accept]) -> Result<(), Error> {
        let mut asked: TokenColumns<'_> = Default::default();
        for (place, accept) in group.iter().enumerate() {
            let Some(key) = &accept.request.push.token else { continue };
            let named = (key.kind() as i64, key.name(), i64::from(main_service(key)));
            for found in self.devices.get_mut(place).into_iter().flatten() {
                (found.service, found.suspect) = (None, false);
                asked.extend([(place as i64, found.num, named.0, named.1, named.2)]);
            }
        }
        let (places, devices, kinds, names, services) = &asked;
        let values: [&(dyn ToSql + Sync); 5] = [places, devices, kinds, names, services];
        let mut tokens: HashMap<(i64, i64), (Option<i64>, bool)> = HashMap::new();
        for row in &rows(session, TOKENS, !places.is_empty(), values).await? {
            tokens.insert((row.get(0), row.get(1)), (row.get(2), row.get(3)));
        }
        for (place, found) in self.devices.iter_mut().enumerate() {
            for found in found {
                if let Some(token) = tokens.get(&(place as i64, found.num)) {
                    (found.service, found.suspect) = *token;
                }
            }
        }
        Ok(())
    }

    /// Splits off the devices that mute the category of a notification that would be stored for them. Most groups have
    /// no category, and skip this round trip.
    async fn split_muted(&mut self, session: &ClientWrapper, group: &[&Accept]) -> Result<(), Error> {
        let mut asked: (Vec<i64>, Vec<i64>) = Default::default();
        for (place, accept) in group.iter().enumerate() {
            if !is_stored(accept) || mutable(accept.request.category.as_ref()).is_none() {
                continue;
            }
            let devices = self.devices.get(place).into_iter().flatten();
            asked.extend(devices.map(|found| (place as i64, found.num)));
        }
        for row in &rows(session, &MUTED, !asked.0.is_empty(), [&asked.0, &asked.1]).await? {
            let place = row.get::<_, i64>(0) as usize;
            let category = group.get(place).and_then(|accept| accept.request.category.as_ref());
            let own = own_of_row(row, 2).unwrap_or_default();
            if category.is_some_and(|category| mutes(own, category)) {
                self.muted.entry(place).or_default().push(DeviceNum(row.get::<_, i64>(1) as u64));
            }
        }
        for (place, muted) in &mut self.muted {
            muted.sort_unstable();
            if let Some(devices) = self.devices.get_mut(*place) {
                devices.retain(|found| muted.binary_search(&DeviceNum(found.num as u64)).is_err());
            }
        }
        Ok(())
    }

    /// Whether an expansion of the app has not ended, apart from that of the notification itself.
    pub(in crate::postgres) fn waits(&self, app: AppId, form: &Form) -> bool {
        let own = if let Form::Expanded(expanded) = form { Some(expanded.num) } else { None };
        self.expanding.iter().any(|(num, of)| *of == app && Some(*num) != own)
    }

    fn add_named(&mut self, rows: &[Row]) {
        for row in rows {
            let place = row.get::<_, i64>(0) as usize;
            let (Some(devices), Some(unknown)) = (self.devices.get_mut(place), self.unknown.get_mut(place))
            else {
                continue;
            };
            match row.get::<_, Option<i64>>(1) {
                Some(num) => devices.push(Found {
                    num,
                    service: row.get(2),
                    suspect: row.get(3),
                    rank: row.get::<_, Option<i64>>(4).unwrap_or(0),
                }),
                None => *unknown += 1,
            }
        }
    }

    /// Looks up the bits of every device in the condition's truth table. Where the condition holds without any
    /// subscription, it also selects devices without any of the topics.
    fn add_conditions(&mut self, group: &[&Accept], subscribers: &[Row], all: &[Row]) {
        let mut bits: HashMap<(i64, i64), i64> = HashMap::new();
        let table = |accept: &&Accept| match &accept.request.target {
            Target::Condition(condition) => Some(TruthTable::of(condition)),
            _ => None,
        };
        let tables: Vec<Option<TruthTable>> = group.iter().map(table).collect();
        let holds = |place: usize, bits: i64| {
            tables.get(place).and_then(Option::as_ref).is_some_and(|table| table.holds(bits as u32))
        };
        for row in subscribers {
            let (place, num): (i64, i64) = (row.get(0), row.get(1));
            let set: i64 = row.get(2);
            if holds(place as usize, set) {
                self.devices[place as usize].push(Found::of(num, row.get(3)));
            }
            bits.insert((place, num), set);
        }
        for row in all {
            let (place, num): (i64, i64) = (row.get(0), row.get(1));
            if !bits.contains_key(&(place, num)) && holds(place as usize, 0) {
                self.devices[place as usize].push(Found::of(num, row.get(2)));
            }
        }
    }
}
