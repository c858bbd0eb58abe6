//! The devices that a search selects: a walk over the app's devices in the order of their numbers, a bounded number of rows
//! for a page. A search by the day when devices were last seen walks the narrow table of these days in the same order, which
//! does not change while devices are seen.

use noroshi_types::{AppId, DeviceNum, Timestamp, Topic};

use super::device::{COLUMN_COUNT, COLUMNS, device_of};
use super::device_seen::DAY;
use super::record::Record;
use super::session::{Session, Value, values};
use crate::listing::DAYS_PER_ROW;
use crate::{Device, DevicePage, DeviceSearch, SeenFilter, TokenFilter};

/// Rows of one statement.
const CHUNK: usize = 2_000;
/// Entries of the table of days of the first statement and of later ones. Most searches by day find what they want at once.
const DAYS_FIRST: usize = 500;
const DAYS_CHUNK: usize = 20_000;

/// The statement that reads the rows after a number.
struct Walk<'a> {
    /// Of a number, and whether the search wants it. $1 the app, $2 the number, $3 how many.
    sql: String,
    /// From $4 on.
    fixed: Vec<Value<'a>>,
    /// It reads the table of days only.
    is_by_day: bool,
}

pub(crate) async fn search<S: Session>(
    session: &S,
    app: AppId,
    search: &DeviceSearch,
    now: Timestamp,
) -> Result<DevicePage, S::Error> {
    let Walk { sql, fixed, is_by_day } = walk(search, now);
    let (mut size, size_max, mut left) = match is_by_day {
        true => (DAYS_FIRST, DAYS_CHUNK, search.rows_max.saturating_mul(DAYS_PER_ROW)),
        false => (CHUNK, CHUNK, search.rows_max),
    };
    let (mut after, mut found) = (search.after.map_or(0, |num| num.0), Vec::new());
    let next = loop {
        let chunk = left.min(size);
        size = size.saturating_mul(4).min(size_max);
        let mut values: Vec<Value<'_>> = values![app, after, chunk].to_vec();
        values.extend(&fixed);
        let rows = session.query(&sql, &values, |row| Ok((row.device(0)?, row.flag(1)?))).await?;
        for (num, is_wanted) in &rows {
            after = num.0;
            if *is_wanted {
                found.push(*num);
                if found.len() == search.limit {
                    break;
                }
            }
        }
        left -= rows.len();
        if found.len() == search.limit || (left == 0 && rows.len() == chunk) {
            break Some(DeviceNum(after));
        }
        if rows.len() < chunk {
            break None;
        }
    };
    Ok(DevicePage { devices: devices(session, app, &found).await?, next })
}

/// The walk of a search. A condition stands in the text only if it is asked for, so that the planner sees which index
/// serves. The filter is a column: the walk must learn how far it came.
fn walk(search: &DeviceSearch, now: Timestamp) -> Walk<'_> {
    let DeviceSearch { user, platform, token, seen, after: _, limit: _, rows_max: _ } = search;
    let mut fixed: Vec<Value<'_>> = Vec::new();
    // Neither engine may turn this into a read of the whole table.
    let has_row = |conditions: &str| {
        format!(
            "(SELECT count(*) FROM (SELECT 1 FROM push_tokens p WHERE p.device = d.num AND {conditions} LIMIT 1) AS one)"
        )
    };
    let mut by_user = String::new();
    if let Some(user) = user {
        fixed.push(Value::from(user.as_str()));
        by_user = format!(" AND d.\"user\" = ${}", fixed.len() + 3);
    }
    let mut wanted: Vec<String> = Vec::new();
    if let Some(platform) = platform {
        fixed.push(Value::from(platform));
        wanted.push(format!("d.platform = ${}", fixed.len() + 3));
    }
    match token {
        None => {}
        Some(TokenFilter::None) => {
            fixed.push(Value::from(now));
            let live = live(fixed.len() + 3);
            wanted.push(format!("d.push_service IS NULL AND {} = 0", has_row(&live)));
        }
        Some(TokenFilter::Some { service, kind, suspended }) => {
            fixed.push(Value::from(now));
            let mut of_row = vec![live(fixed.len() + 3)];
            let mut of_main = vec!["d.push_service IS NOT NULL".to_owned()];
            if let Some(service) = service {
                fixed.push(Value::from(*service as u8));
                of_row.push(format!("p.service = ${}", fixed.len() + 3));
                of_main.push(format!("d.push_service = ${}", fixed.len() + 3));
            }
            if let Some(kind) = kind {
                fixed.push(Value::from(*kind as u8));
                of_row.push(format!("p.kind = ${}", fixed.len() + 3));
                // Only tokens of message kinds are main tokens.
                fixed.push(Value::from(if kind.is_message() { kind.service() as u8 } else { 0 }));
                of_main.push(format!("d.push_service = ${}", fixed.len() + 3));
            }
            if let Some(suspended) = suspended {
                let not = if *suspended { "NOT " } else { "" };
                of_row.push(format!("p.suspect_at IS {not}NULL"));
                of_main.push(format!("d.push_suspect_at IS {not}NULL"));
            }
            let (of_main, of_row) = (of_main.join(" AND "), of_row.join(" AND "));
            wanted.push(format!("({of_main} OR {} > 0)", has_row(&of_row)));
        }
    }
    let between = match seen {
        None => None,
        Some(SeenFilter::Never) => {
            wanted.push(format!("{DAY} IS NULL"));
            None
        }
        Some(SeenFilter::Days { from, before }) => {
            fixed.extend(values![from.0, i64::from(before.0) - 1]);
            Some(format!("BETWEEN ${} AND ${}", fixed.len() + 2, fixed.len() + 3))
        }
    };
    // A user has few devices. All devices are many: those of other days are not read.
    let sql = match (&between, user) {
        (Some(between), None) => {
            let is_wanted = match wanted.is_empty() {
                true => format!("s.day {between}"),
                false => format!(
                    "CASE WHEN s.day {between}
                     THEN coalesce((SELECT {} FROM devices d WHERE d.num = s.device), 1 = 0) ELSE 1 = 0 END",
                    wanted.join(" AND ")
                ),
            };
            format!(
                "SELECT s.device, {is_wanted} FROM device_seen s WHERE s.app = $1 AND s.device > $2
                 ORDER BY s.device LIMIT $3"
            )
        }
        _ => {
            wanted.extend(between.as_ref().map(|between| format!("{DAY} {between}")));
            let wanted = if wanted.is_empty() { "1 = 1".to_owned() } else { wanted.join(" AND ") };
            format!(
                "SELECT d.num, coalesce({wanted}, 1 = 0) FROM devices d WHERE d.app = $1 AND d.num > $2{by_user}
                 ORDER BY d.num LIMIT $3"
            )
        }
    };
    let is_by_day = between.is_some() && user.is_none() && platform.is_none() && token.is_none();
    Walk { sql, fixed, is_by_day }
}

/// That a token `p` has not expired at the time of a value.
fn live(value: usize) -> String {
    format!("(p.expires_at IS NULL OR p.expires_at > ${value})")
}

/// The topics of a device `d` in one column. Names have no control characters.
const TOPICS: &str = "(SELECT string_agg(t.name, '\u{1f}') FROM subscriptions s JOIN topics t ON t.num = s.topic \
     WHERE s.device = d.num AND s.named = 1)";

/// The devices with their topics, in the order of their numbers.
async fn devices<S: Session>(session: &S, app: AppId, nums: &[DeviceNum]) -> Result<Vec<Device>, S::Error> {
    if nums.is_empty() {
        return Ok(Vec::new());
    }
    let sql = format!(
        "SELECT {}, {TOPICS} FROM {} AS k {} devices d ON d.num = k.num WHERE d.app = $2",
        *COLUMNS,
        S::numbers("$1"),
        S::ORDERED_JOIN
    );
    let of_row = |row: &dyn Record| {
        let names = row.text_or_null(COLUMN_COUNT)?.into_iter().flat_map(|names| names.split('\u{1f}'));
        let mut topics: Vec<Topic> = names.map(Topic::from_trusted).collect();
        topics.sort_unstable();
        Ok(Device { topics, ..device_of(row)? })
    };
    let list = super::listing::list(nums.iter().map(|num| num.0 as i64));
    let mut devices = session.query(&sql, &values![&list, app], of_row).await?;
    devices.sort_unstable_by_key(|device| device.num);
    Ok(devices)
}
