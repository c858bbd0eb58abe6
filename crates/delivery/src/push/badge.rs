//! Badges that count unread items: each user of a batch gets the number at the moment when the batch is rendered. Pure:
//! `batch` reads the numbers.

use std::collections::HashMap;
use std::sync::Arc;

use noroshi_push::Content;
use noroshi_types::UserId;

use super::recipient::DuePush;

/// The users whose unread items the pushes count, each once.
pub(super) fn users(due: &[DuePush]) -> Vec<UserId> {
    let mut users: Vec<UserId> = due.iter().filter_map(|push| push.badge_of.clone()).collect();
    users.sort_unstable();
    users.dedup();
    users
}

/// Sets the badges. Recipients that share a content and have the same number share the result.
pub(super) fn render(due: &mut [DuePush], counts: &HashMap<&UserId, u64>) {
    // Keeps the originals, so that no other content gets the address of one.
    let mut originals: Vec<Arc<Content>> = Vec::new();
    let mut rendered: HashMap<(*const Content, u32), Arc<Content>> = HashMap::new();
    for push in due {
        let Some(unread) = push.badge_of.as_ref().and_then(|user| counts.get(user)) else { continue };
        let unread = u32::try_from(*unread).unwrap_or(u32::MAX);
        let original = push.content.clone();
        let content = rendered.entry((Arc::as_ptr(&original), unread));
        push.content = content.or_insert_with(|| Arc::new(original.with_unread(Some(unread)))).clone();
        originals.push(original);
    }
}

#[cfg(test)]
mod tests {
    use noroshi_push::Fields;
    use noroshi_types::{JsonText, PushEnvironment, PushService, PushToken, Timestamp, Urgency};

    use super::*;

    fn content(notification: &str) -> Arc<Content> {
        Arc::new(Content::new(Fields {
            notification_id: None,
            notification: Some(JsonText::from_valid(notification)),
            data: None,
            urgency: Urgency::Normal,
            collapse_key: None,
            expires_at: Timestamp(1),
            unread: None,
            kind: None,
            own: noroshi_types::OwnFields::default(),
        }))
    }

    fn push(content: &Arc<Content>, user: Option<&str>) -> DuePush {
        let badge_of = user.and_then(|user| UserId::parse(user).ok()).filter(|_| content.counts_unread());
        let json = JsonText::from_valid("{}");
        let token = PushToken { service: PushService::Fcm, environment: PushEnvironment::Production, json };
        DuePush { token, recipient: None, content: content.clone(), badge_of, trace: None, cap: None }
    }

    #[test]
    fn each_user_gets_the_own_number() {
        let counting = content(r#"{"title":"t","badge":"unread"}"#);
        let fixed = content(r#"{"title":"unread","badge":4}"#);
        let mut due = [
            push(&counting, Some("u1")),
            push(&counting, Some("u2")),
            push(&counting, Some("u3")),
            push(&counting, None),
            push(&fixed, Some("u1")),
        ];
        let users = ["u1", "u2", "u3"].map(|user| UserId::parse(user).expect(user));
        render(&mut due, &users.iter().zip([3, 0, 3]).collect());
        let unread = due.each_ref().map(|push| push.content.fields().unread);
        assert_eq!(unread, [Some(3), Some(0), Some(3), None, None]);
        assert!(Arc::ptr_eq(&due[0].content, &due[2].content), "shared");
        assert!(Arc::ptr_eq(&due[4].content, &fixed), "a fixed badge is left alone");
    }
}
