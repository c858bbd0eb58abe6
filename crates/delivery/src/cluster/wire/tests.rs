//! Frames round trip for every kind of record; hostile frames; frames of another version.

use super::*;
use noroshi_types::{
    Category, Condition, Epoch, JsonText, Label, NotificationId, Position, Timestamp, TopicPosition, Urgency,
    When,
};
use proptest::prelude::*;

fn message() -> Message {
    Message {
        id: NotificationId::from_bytes([7; 16]),
        app: AppId(3),
        when: When::Stored,
        urgency: Urgency::High,
        topic: Some(TopicPosition {
            topic: Topic::everyone(),
            position: Position { epoch: Epoch(9), offset: 1 << 40 },
        }),
        notification: Some(JsonText::from_valid(r#"{"title":"日本"}"#)),
        data: Some(JsonText::from_valid("x".repeat(70_000))),
        sent_at: Timestamp(1),
        expires_at: Timestamp(u64::MAX),
        push_waits: true,
        waits_for_use: true,
        category: None,
    }
}

fn user_id(name: &str) -> UserId {
    UserId::parse(name).expect("an id")
}

fn unverified_device(name: &str) -> DeviceId {
    DeviceId::parse(name).expect("an id")
}

fn one_of_each() -> Vec<Record> {
    let (app, device, topic) = (AppId(5), unverified_device("d"), Topic::from_trusted("a/b"));
    let users = vec![user_id("u1"), user_id("日本")];
    let condition = Condition::parse("'a' in topics && !('b' in topics)").expect("a condition");
    let plain = Message {
        topic: None,
        notification: None,
        data: None,
        push_waits: false,
        waits_for_use: false,
        category: None,
        ..message()
    };
    let parts = [
        Part::Users { users: users.clone(), sole: 1 },
        Part::Devices { devices: vec![device.clone()], sole: 0 },
        Part::Topic(topic.clone()),
        Part::Condition(condition),
        Part::Everyone,
    ];
    let mut records: Vec<Record> = Vec::new();
    for part in parts {
        for message in [message(), plain.clone()] {
            records.push(Record::Deliver(Addressed { message: Arc::new(message), part: part.clone() }));
        }
    }
    let topics = vec![topic, Topic::everyone()];
    let session = |presence| Session { device: unverified_device("x"), presence };
    let sessions = vec![vec![], vec![session(Presence::Idle), session(Presence::Active)]];
    records.extend([
        Record::Marker { number: 4 },
        Record::Replaced { app, device: device.clone(), below: u64::MAX },
        Record::CloseApp { app, reason: CloseReason::Revoked },
        Record::Subscribe { app, device: device.clone(), topics: topics.clone() },
        Record::Unsubscribe { app, device: device.clone(), topics: topics.clone() },
        Record::Question { number: 1, question: Question::Sessions { app, users } },
        Record::Question { number: 2, question: Question::Devices { app, devices: vec![device.clone()] } },
        Record::Question { number: 3, question: Question::TopicSessions { app, topics } },
        Record::Question {
            number: 4,
            question: Question::SetPresence { app, device: device.clone(), presence: Presence::Idle },
        },
        Record::Question {
            number: 5,
            question: Question::Generations { app, devices: vec![device.clone()] },
        },
        Record::Answer { number: 1, answer: Answer::Sessions(sessions) },
        Record::Answer { number: 2, answer: Answer::Counts(vec![0, u64::MAX]) },
        Record::Answer { number: 3, answer: Answer::Done(true) },
        Record::AppsChanged,
        Record::CredentialsChanged { app },
        Record::SharesChanged { app },
        Record::WakePush,
        Record::Sweep { since: -1 },
        Record::DefinitionsChanged,
        Record::Stale { tags: vec![1, u64::MAX], all: false },
        Record::Stale { tags: Vec::new(), all: true },
        Record::Load { named_us: u64::MAX, topics_us: 1 },
        Record::Items(ItemReport {
            app,
            users: vec![UserId::parse("u1").expect("an id"), UserId::parse("u2").expect("an id")],
            event: noroshi_types::ItemEvent::Archived,
            ids: vec![NotificationId::from_bytes([3; 16])],
            more: true,
        }),
        Record::Items(ItemReport {
            app,
            users: Vec::new(),
            event: noroshi_types::ItemEvent::Deleted,
            ids: Vec::new(),
            more: false,
        }),
        Record::PreferencesChanged {
            app,
            users: vec![user_id("u1")],
            devices: vec![device.clone(), unverified_device("e")],
        },
        Record::AskFigures { apps: vec![app] },
        Record::Figures { report: Bytes::from_static(&[1, 2, 3]) },
        Record::AskTail { tail: Bytes::from_static(b"{}") },
        Record::Tail { report: Bytes::from_static(b"[]") },
    ]);
    for reason in CloseReason::ALL {
        records.push(Record::Close { app, device: device.clone(), reason });
    }
    records
}

fn frame_of(records: &[Record]) -> Bytes {
    let mut frame = Frame::default();
    for record in records {
        let mut bytes = Vec::new();
        encode(record, &mut bytes);
        frame.push(&bytes);
    }
    frame.into_bytes()
}

#[test]
fn every_record_reads_back() {
    let records = one_of_each();
    let decoded = decode(&frame_of(&records));
    assert_eq!(decoded.records, records);
    assert_eq!((decoded.unknown, decoded.malformed), (0, 0));
}

/// Behind everything that an older node reads.
#[test]
fn a_category_is_read_back() {
    for is_essential in [true, false] {
        let category = Some(Category { name: Label::parse("news").expect("a name"), is_essential });
        let message = Message { category, ..message() };
        let users = vec![user_id("u1")];
        for part in [Part::Everyone, Part::Users { users: users.clone(), sole: 1 }] {
            let record = Record::Deliver(Addressed { message: Arc::new(message.clone()), part });
            assert_eq!(decode(&frame_of(std::slice::from_ref(&record))).records, [record]);
        }
        let mut named = Vec::new();
        encode_named(&message, true, users.iter().map(UserId::as_str), 1, &mut named);
        let mut frame = Frame::default();
        frame.push(&named);
        let part = Part::Users { users, sole: 1 };
        let expected = Record::Deliver(Addressed { message: Arc::new(message), part });
        assert_eq!(decode(&frame.into_bytes()).records, [expected]);
    }
}

/// Nodes of two versions talk to each other during an upgrade.
#[test]
fn the_bytes_of_a_record_never_change() {
    let frame = frame_of(&one_of_each());
    let hash = ring::digest::digest(&ring::digest::SHA256, &frame);
    let hash: String = hash.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    assert_eq!((frame.len(), hash.as_str()), (351_883, "3df2532e35333324"));
}

#[test]
fn too_many_names_of_changed_devices_are_refused() {
    let stale = |count| Record::Stale { tags: vec![1; count], all: false };
    let decoded = decode(&frame_of(&[stale(STALE_TAGS_MAX), stale(STALE_TAGS_MAX + 1)]));
    assert_eq!((decoded.records.len(), decoded.malformed), (1, 1));
}

#[test]
fn some_named_targets_are_encoded_by_index() {
    let message = message();
    let mut bytes = Vec::new();
    encode_named(&message, true, ["a", "b"].into_iter(), 1, &mut bytes);
    let part = Part::Users { users: vec![user_id("a"), user_id("b")], sole: 1 };
    let mut whole = Vec::new();
    encode(&Record::Deliver(Addressed { message: Arc::new(message), part }), &mut whole);
    assert_eq!(bytes, whole);
}

#[test]
fn a_newer_version_adds_kinds_and_fields() {
    let mut frame = frame_of(&[Record::Marker { number: 1 }]).to_vec();
    frame.extend([200, 3, 0, 0, 0, 1, 2, 3]);
    // A `Marker` with one more byte.
    frame.extend([2, 9, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 99]);
    let decoded = decode(&frame);
    assert_eq!(decoded.records, [Record::Marker { number: 1 }, Record::Marker { number: 7 }]);
    assert_eq!((decoded.unknown, decoded.malformed), (1, 0));
    frame[0] = VERSION + 1;
    let decoded = decode(&frame);
    assert_eq!((decoded.records.len(), decoded.malformed), (0, 1));
}

#[test]
fn a_broken_record_does_not_affect_others() {
    let mut frame = frame_of(&[]).to_vec();
    frame.extend([2, 1, 0, 0, 0, 7]); // a `Turn` of one byte
    frame.extend([12, 0, 0, 0, 0]); // a `WakePush`
    let decoded = decode(&frame);
    assert_eq!((decoded.records, decoded.malformed), (vec![Record::WakePush], 1));
    // More users than the bytes can hold: refused before anything is allocated.
    let mut lie = Vec::new();
    encode(
        &Record::Question { number: 1, question: Question::Sessions { app: AppId(1), users: vec![] } },
        &mut lie,
    );
    let end = lie.len();
    lie[end - 4..].copy_from_slice(&9_999u32.to_le_bytes());
    frame.extend(lie);
    assert_eq!(decode(&frame).malformed, 2);
}

#[test]
fn a_cut_frame_is_read_up_to_the_cut() {
    let records = [Record::Marker { number: 1 }, Record::Sweep { since: 5 }];
    let whole = frame_of(&records);
    let first = frame_of(&records[..1]).len();
    for cut in 0..whole.len() {
        let decoded = decode(&whole[..cut]);
        let expected = usize::from(cut >= first);
        assert_eq!(decoded.records, records[..expected], "cut at {cut}");
        assert_eq!(decoded.malformed, usize::from(cut != first && cut != 1), "cut at {cut}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut frame = vec![VERSION];
        frame.extend(bytes);
        decode(&frame);
    }

    #[test]
    fn a_changed_byte_is_read_without_a_panic(at in 0usize..2_000, byte: u8) {
        let records: Vec<Record> =
            one_of_each().into_iter().filter(|r| !matches!(r, Record::Deliver { .. })).collect();
        let mut frame = frame_of(&records).to_vec();
        let at = at % frame.len();
        frame[at] = byte;
        decode(&frame);
    }

    #[test]
    fn users_survive(names in proptest::collection::vec("[a-z\u{65e5}]{1,20}", 0..50), sole in 0usize..50) {
        let users: Vec<UserId> = names.iter().map(|name| user_id(name)).collect();
        let record = Record::Deliver(Addressed { message: Arc::new(message()), part: Part::Users { users, sole } });
        prop_assert_eq!(decode(&frame_of(std::slice::from_ref(&record))).records, vec![record]);
    }
}
