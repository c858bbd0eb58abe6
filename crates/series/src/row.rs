//! A row: the figures of a node, or of several, in a step. Rows add up number by number, so a row of a minute needs no
//! knowledge of its figures, and a figure of a newer version is kept.
//!
//! ```text
//!   version, values, complete, apps: (id, values)*, nodes: (name, steps)*       values: (number, value)*
//! ```
//!
//! All numbers are variable-length integers; the numbers of figures are written as the difference from the one before.

use std::collections::{BTreeMap, BTreeSet};

use crate::figure::{Kind, ROWS, STEPS, TIME_BUCKETS, kind_of};
use noroshi_telemetry::histogram::BOUNDS_US;

const VERSION: u8 = 1;

/// The largest encoding of a row of one node: 4 fit a page of SQLite.
pub const NODE_ROW_BYTES_MAX: usize = 960;
/// The largest encoding of a row of all nodes: one fits a page of SQLite.
pub const TOTAL_ROW_BYTES_MAX: usize = 3_600;
/// The most values, apps and nodes that are read.
const ENTRIES_MAX: usize = 4_096;

/// Values by the number of their figure. Zeros are absent.
pub type Values = BTreeMap<u16, u64>;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Row {
    /// With [`STEPS`] and [`ROWS`].
    pub values: Values,
    /// The busiest apps, by number. With [`ROWS`]: in how many the app was known.
    pub apps: BTreeMap<u32, Values>,
    /// Further apps did something, and are left out.
    pub has_more_apps: bool,
    /// Of a row of all nodes: in how many steps each was there.
    pub nodes: BTreeMap<String, u64>,
}

/// The bytes are no row of a version that this program knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable;

pub fn add(values: &mut Values, number: u16, value: u64) {
    if value > 0 {
        let sum = values.entry(number).or_default();
        *sum = sum.saturating_add(value);
    }
}

fn add_all(values: &mut Values, others: &Values) {
    others.iter().for_each(|(number, value)| add(values, *number, *value));
}

impl Row {
    /// How many steps of 10 s it covers.
    pub fn steps(&self) -> u64 {
        self.values.get(&STEPS).copied().unwrap_or_default()
    }

    /// In how many rows of a node an app is known: one that is absent did nothing, unless apps were left out.
    fn known_rows(&self, app: u32) -> u64 {
        let of = |values: &Values| values.get(&ROWS).copied().unwrap_or_default();
        match self.apps.get(&app) {
            Some(values) => of(values),
            None if self.has_more_apps => 0,
            None => of(&self.values),
        }
    }

    /// Adds what happened later.
    pub fn add_later(&mut self, other: &Row) {
        self.add_apps(other);
        add_all(&mut self.values, &other.values);
        self.add_names(&other.nodes);
    }

    /// Adds what another node counted in the same step.
    pub fn add_node(&mut self, other: &Row) {
        let steps = self.steps().max(other.steps());
        self.add_later(other);
        if steps > 0 {
            self.values.insert(STEPS, steps);
        }
    }

    /// Before the values are added.
    fn add_apps(&mut self, other: &Row) {
        let both: BTreeSet<u32> = self.apps.keys().chain(other.apps.keys()).copied().collect();
        for app in both {
            let known = self.known_rows(app).saturating_add(other.known_rows(app));
            let sum = self.apps.entry(app).or_default();
            if let Some(values) = other.apps.get(&app) {
                add_all(sum, values);
            }
            sum.remove(&ROWS);
            add(sum, ROWS, known);
        }
        self.has_more_apps |= other.has_more_apps;
    }

    fn add_names(&mut self, nodes: &BTreeMap<String, u64>) {
        for (node, steps) in nodes {
            let sum = self.nodes.entry(node.clone()).or_default();
            *sum = sum.saturating_add(*steps);
        }
    }

    /// Sums the rows of several nodes and steps. The rows are ordered by time.
    pub fn sum<'a>(rows: impl IntoIterator<Item = (u64, &'a Row)>) -> Row {
        let mut sum = Row::default();
        let mut step: Option<(u64, Row)> = None;
        for (at, row) in rows {
            match &mut step {
                Some((begin, present)) if *begin == at => present.add_node(row),
                _ => {
                    if let Some((_, done)) = step.replace((at, row.clone())) {
                        sum.add_later(&done);
                    }
                }
            }
        }
        if let Some((_, done)) = step {
            sum.add_later(&done);
        }
        sum
    }

    /// The values of one app. `None`: unknown, because further apps are left out.
    pub fn of_app(&self, app: u32) -> Option<Values> {
        let rows = self.values.get(&ROWS).copied().unwrap_or_default();
        if self.has_more_apps && self.known_rows(app) < rows {
            return None;
        }
        let mut values = self.apps.get(&app).cloned().unwrap_or_default();
        values.insert(STEPS, self.steps());
        Some(values)
    }

    /// Leaves the least busy apps out, and then the names of nodes, until the encoding has at most this many bytes.
    pub fn encode_within(&mut self, bytes_max: usize) -> Vec<u8> {
        let mut idlest: Option<std::vec::IntoIter<(u64, u32)>> = None;
        loop {
            let bytes = self.encode();
            let Some(excess) = bytes.len().checked_sub(bytes_max).filter(|excess| *excess > 0) else {
                return bytes;
            };
            if self.apps.is_empty() && self.nodes.pop_last().is_none() {
                // About 100 numbers of a few bytes each: far from the limit.
                return bytes;
            }
            let idlest = idlest.get_or_insert_with(|| {
                let mut apps: Vec<_> =
                    self.apps.iter().map(|(app, values)| (activity(values), *app)).collect();
                apps.sort_unstable();
                apps.into_iter()
            });
            let mut left_out = Vec::new();
            while left_out.len() < excess {
                let Some((_, app)) = idlest.next() else { break };
                write(&mut left_out, u64::from(app));
                write_values(&mut left_out, &self.apps.remove(&app).unwrap_or_default());
                self.has_more_apps = true;
            }
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        write_values(&mut out, &self.values);
        out.push(u8::from(self.has_more_apps));
        write(&mut out, self.apps.len() as u64);
        for (app, values) in &self.apps {
            write(&mut out, u64::from(*app));
            write_values(&mut out, values);
        }
        write(&mut out, self.nodes.len() as u64);
        for (name, steps) in &self.nodes {
            write(&mut out, name.len() as u64);
            out.extend_from_slice(name.as_bytes());
            write(&mut out, *steps);
        }
        out
    }

    /// Ignores what a newer version appended.
    pub fn decode(bytes: &[u8]) -> Result<Row, Unreadable> {
        let Some((&VERSION, rest)) = bytes.split_first() else { return Err(Unreadable) };
        let mut rest = Rest(rest);
        let values = rest.values()?;
        let has_more_apps = rest.byte()? != 0;
        let mut apps = BTreeMap::new();
        for _ in 0..rest.count()? {
            let app = u32::try_from(rest.number()?).map_err(|_| Unreadable)?;
            apps.insert(app, rest.values()?);
        }
        let mut nodes = BTreeMap::new();
        for _ in 0..rest.count()? {
            let name = rest.text()?;
            nodes.insert(name, rest.number()?);
        }
        Ok(Row { values, apps, has_more_apps, nodes })
    }
}

/// How much an app does.
pub fn activity(values: &Values) -> u64 {
    values.iter().filter(|(number, _)| **number != ROWS).map(|(_, value)| *value).fold(0, u64::saturating_add)
}

/// The value of a figure in a step, as the API shows it. `None`: not measured.
pub fn shown(values: &Values, number: u16, quantile: f64) -> Option<f64> {
    let steps = values.get(&STEPS).copied().filter(|steps| *steps > 0)?;
    let value = values.get(&number).copied().unwrap_or_default() as f64;
    match kind_of(number)? {
        Kind::Gauge => Some(value / steps as f64),
        Kind::Count => Some(value),
        Kind::Time => quantile_of(values, number, quantile),
    }
}

/// Interpolates within a bucket. `None`: nothing was timed.
pub fn quantile_of(values: &Values, number: u16, quantile: f64) -> Option<f64> {
    let counts: [u64; TIME_BUCKETS] =
        std::array::from_fn(|bucket| values.get(&(number + bucket as u16)).copied().unwrap_or_default());
    let total: u64 = counts.iter().fold(0, |sum, count| sum.saturating_add(*count));
    let rank = quantile * total as f64;
    let mut below = 0.0;
    for (bucket, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let count = *count as f64;
        if below + count >= rank {
            let lower = if bucket == 0 { 0 } else { BOUNDS_US[bucket - 1] } as f64;
            // Nothing is known about times above the last bound.
            let upper = BOUNDS_US.get(bucket).map_or(lower, |bound| *bound as f64);
            return Some((upper - lower).mul_add(((rank - below) / count).clamp(0.0, 1.0), lower) / 1e6);
        }
        below += count;
    }
    None
}

fn write(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn write_values(out: &mut Vec<u8>, values: &Values) {
    write(out, values.len() as u64);
    let mut before = 0;
    for (number, value) in values {
        write(out, u64::from(number - before));
        write(out, *value);
        before = *number;
    }
}

/// The unread bytes.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn byte(&mut self) -> Result<u8, Unreadable> {
        let (byte, rest) = self.0.split_first().ok_or(Unreadable)?;
        self.0 = rest;
        Ok(*byte)
    }

    fn number(&mut self) -> Result<u64, Unreadable> {
        let mut number = 0_u64;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7F);
            if shift == 63 && part > 1 {
                return Err(Unreadable);
            }
            number |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Unreadable)
    }

    fn count(&mut self) -> Result<usize, Unreadable> {
        let count = usize::try_from(self.number()?).map_err(|_| Unreadable)?;
        if count > ENTRIES_MAX { Err(Unreadable) } else { Ok(count) }
    }

    fn values(&mut self) -> Result<Values, Unreadable> {
        let (mut values, mut number) = (Values::new(), 0_u64);
        for _ in 0..self.count()? {
            number = number.checked_add(self.number()?).ok_or(Unreadable)?;
            values.insert(u16::try_from(number).map_err(|_| Unreadable)?, self.number()?);
        }
        Ok(values)
    }

    fn text(&mut self) -> Result<String, Unreadable> {
        let length = usize::try_from(self.number()?).map_err(|_| Unreadable)?;
        let (text, rest) = self.0.split_at_checked(length).ok_or(Unreadable)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).map_err(|_| Unreadable)
    }
}

#[cfg(test)]
mod tests;
