//! Retained messages for new filters with wildcards.
//!
//! A scan reads the topics of an app that the filters can match, in the order of their names: the literal prefix of a
//! filter is a range of the store's index. It goes page by page, each of a bounded number of topics, and ends with the
//! first [`MESSAGES_MAX`] messages or [`BYTES_MAX`].
//!
//! Bounds: an app has one scan at a time on each shard ([`crate::protocol::jobs::Scans`]), and the whole node reads
//! [`PAGES_AT_ONCE`] pages at a time. So an app with very many topics makes its own clients wait.

use std::sync::Arc;

use noroshi_delivery::Delivery;
use noroshi_protocol::mqtt::filter_matches;
use noroshi_store::{Error as StoreError, RetainedScan};
use noroshi_types::{Message, NotificationId};

use super::service;
use crate::protocol::services::Services;
use crate::session::registry::Session;

/// Pages that the node reads at once: two, so that a large app's page does not delay all others.
pub(crate) const PAGES_AT_ONCE: usize = 2;
/// Retained messages for one SUBSCRIBE.
const MESSAGES_MAX: usize = 1_000;
/// Bytes of their contents.
const BYTES_MAX: usize = 4 << 20;
/// Topics that one page looks at: about a millisecond of a reader.
const PAGE_TOPICS: usize = 1_000;
const PAGE_MESSAGES: usize = 256;

/// Reads the retained messages that filters match, in the order of the topics' names.
pub(super) async fn scan(
    services: &Services,
    delivery: &Delivery,
    session: &Session,
    filters: &[Box<str>],
    up_to: NotificationId,
) -> Result<Vec<Arc<Message>>, StoreError> {
    let (store, now) = (delivery.store(), delivery.clock().now());
    let wanted: Arc<[Box<str>]> = filters.into();
    let (mut found, mut bytes) = (Vec::new(), 0);
    for Range { from, until } in ranges(filters) {
        let mut next = Some(from);
        while let Some(from) = next {
            let page = RetainedScan {
                app: session.app,
                from,
                until: until.clone(),
                topics_max: PAGE_TOPICS,
                messages_max: PAGE_MESSAGES,
                now,
            };
            let any_of = wanted.clone();
            let matches = move |name: &str| any_of.iter().any(|filter| filter_matches(filter, name));
            // Never closed: it lives as long as the gateway.
            let turn = service(services).scan_pages.acquire().await;
            let page = store.retained_page(page, Arc::new(matches)).await?;
            drop(turn);
            services.metrics.retained_topics_scanned.inc_by(page.topics as u64);
            next = page.next;
            for message in page.messages.into_iter().filter(|message| message.id <= up_to) {
                bytes += content_bytes(&message);
                // Once for each subscription that it matches ([MQTT-3.3.1-9]).
                let name = message.topic.as_ref().map_or("", |place| place.topic.as_str());
                let copies = filters.iter().filter(|filter| filter_matches(filter, name)).count();
                if found.len() + copies > MESSAGES_MAX || bytes > BYTES_MAX {
                    return Ok(found);
                }
                found.extend(std::iter::repeat_n(message.clone(), copies));
            }
            let present = services.registry.device(session.device_key);
            if present.is_none_or(|present| present.address != session.address) {
                return Ok(found); // the client is gone
            }
        }
    }
    Ok(found)
}

fn content_bytes(message: &Message) -> usize {
    let parts = [&message.notification, &message.data];
    parts.into_iter().flatten().map(|part| part.as_str().len()).sum()
}

/// Names from `from` on, below `until`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Range {
    from: String,
    /// None: up to the last name.
    until: Option<String>,
}

impl Range {
    fn prefix(prefix: &str) -> Self {
        Self { from: prefix.to_owned(), until: successor(prefix) }
    }

    fn name(name: &str) -> Self {
        // No topic has a control character in its name.
        Self { from: name.to_owned(), until: Some(format!("{name}\u{1}")) }
    }
}

/// The least text above all texts with this prefix, if there is one. UTF-8 sorts by code points.
fn successor(prefix: &str) -> Option<String> {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        // Between U+D7FF and U+E000 there are no characters.
        let next = if last == '\u{D7FF}' { Some('\u{E000}') } else { char::from_u32(u32::from(last) + 1) };
        if let Some(next) = next {
            text.push(next);
            return Some(text);
        }
    }
    None
}

/// Disjoint ranges that contain every name which one of the filters matches.
fn ranges(filters: &[Box<str>]) -> Vec<Range> {
    let mut ranges = Vec::with_capacity(filters.len());
    for filter in filters {
        let literal = &filter[..filter.find(['+', '#']).unwrap_or(filter.len())];
        ranges.push(Range::prefix(literal));
        // `a/#` matches `a` too (§4.7.1.2).
        if let Some(parent) = filter.strip_suffix("/#").filter(|parent| !parent.contains(['+', '#'])) {
            ranges.push(Range::name(parent));
        }
    }
    // Sorted by `from`, the widest first.
    ranges.sort_by(|a, b| {
        let wider = || b.until.is_none().cmp(&a.until.is_none()).then_with(|| b.until.cmp(&a.until));
        a.from.cmp(&b.from).then_with(wider)
    });
    // Two ranges are disjoint, or one contains the other.
    ranges.dedup_by(|later, earlier| earlier.until.as_ref().is_none_or(|until| later.from < *until));
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(filters: &[&str], expected: &[(&str, Option<&str>)]) {
        let filters: Vec<Box<str>> = filters.iter().map(|filter| (*filter).into()).collect();
        let found = ranges(&filters);
        let found: Vec<_> = found.iter().map(|range| (&*range.from, range.until.as_deref())).collect();
        assert_eq!(found, expected, "{filters:?}");
    }

    #[test]
    fn a_filter_reads_the_range_of_its_literal_beginning() {
        check(&["a/+/c"], &[("a/", Some("a0"))]);
        check(&["sensor/#"], &[("sensor", Some("sensor\u{1}")), ("sensor/", Some("sensor0"))]);
        check(&["+/x"], &[("", None)]);
        check(&["a/#", "#", "b/+"], &[("", None)]);
        check(&["a/b/+", "a/+", "b/+"], &[("a/", Some("a0")), ("b/", Some("b0"))]);
        check(&["a/+", "a/+"], &[("a/", Some("a0"))]);
        check(&["a/+/#"], &[("a/", Some("a0"))]);
    }

    #[test]
    fn a_prefix_ends_before_its_successor() {
        assert_eq!(successor("a\u{D7FF}").as_deref(), Some("a\u{E000}"));
        assert_eq!(successor("a\u{10FFFF}").as_deref(), Some("b"));
        assert_eq!(successor("\u{10FFFF}"), None);
        assert_eq!(successor(""), None);
    }
}
