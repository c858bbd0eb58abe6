//! What browsers do not show of a notification, and why it is not a declarative push message. Pure.

use noroshi_types::PushService;

use crate::fields::Fields;
use crate::shown::{Level, Shown};

use super::payload::{Undeclared, declares};

/// Chromium's `Notification.maxActions`; Firefox and Safari show none or fewer.
const ACTIONS_MAX: usize = 2;

pub(super) fn warnings(fields: &Fields, shown: &Shown) -> Vec<(&'static str, &'static str)> {
    let own = fields
        .own
        .get(PushService::WebPush)
        .map(|own| serde_json::from_str::<serde_json::Value>(own.as_str()));
    if own.is_some_and(|own| own.is_ok_and(|own| own.get("payload").is_some())) {
        // It replaces the derived payload.
        return Vec::new();
    }
    let mut found = Vec::new();
    match declares(fields, shown) {
        Ok(()) => {}
        Err(Undeclared::Title) => found.push((
            "notification.title",
            "browsers show the notification only with a service worker: the declarative form requires a title",
        )),
        Err(Undeclared::Url) => found.push((
            "notification.url",
            "browsers show the notification only with a service worker: the declarative form requires an http or https URL",
        )),
        Err(Undeclared::TooLarge) => found.push((
            "notification",
            "browsers show the notification only with a service worker: the declarative form is too large",
        )),
    }
    if matches!(shown.level, Some(Level::TimeSensitive | Level::Critical)) {
        found.push(("notification.level", "browsers know no such level: set `urgency`"));
    }
    if shown.relevance.is_some() {
        found.push(("notification.relevance", "browsers do not sort notifications by relevance"));
    }
    if shown.sound.is_some() {
        found.push(("notification.sound", "browsers choose the sound"));
    }
    if shown.thread.is_some() {
        found.push(("notification.thread", "browsers do not group notifications"));
    }
    if shown.category.is_some() {
        found.push(("notification.category", "browsers have no categories"));
    }
    if shown.content_available.is_some() {
        found.push(("notification.content_available", "browsers have no background notifications"));
    }
    if shown.actions.len() > ACTIONS_MAX {
        found.push(("notification.actions", "browsers show at most two buttons"));
    }
    found
}
