//! Attachments: joined in order, bounded, and dropped after an error.

use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits { namespace_bytes: 20, attachments: 3, binary_bytes: 100 };
const TWO: &str = r#"52-/admin,7["baz",{"_placeholder":true,"num":0},{"_placeholder":true,"num":1}]"#;

fn feed_all<'a>(data: &[Data<'a>]) -> Vec<Result<Option<Whole<'a>>, PacketError>> {
    let mut assembler = Assembler::new();
    data.iter().map(|data| assembler.feed(*data, &LIMITS)).collect()
}

#[track_caller]
fn check_error(data: &[Data<'_>], error: PacketError) {
    let mut assembler = Assembler::new();
    let (last, before) = data.split_last().unwrap();
    for data in before {
        assert!(assembler.feed(*data, &LIMITS).is_ok());
    }
    assert_eq!(assembler.feed(*last, &LIMITS), Err(error));
    assert!(assembler.is_idle());
    assert_eq!(assembler.held_bytes(), 0);
}

#[test]
fn packet_without_attachments_is_borrowed() {
    let mut assembler = Assembler::new();
    let whole = assembler.feed(Data::Text(r#"2["a",1]"#), &LIMITS).unwrap().unwrap();
    assert!(matches!(whole, Whole::Text(_)) && whole.attachments().is_empty());
    assert!(assembler.is_idle());
}

#[test]
fn attachments_are_joined_in_order() {
    let results = feed_all(&[Data::Text(TWO), Data::Binary(&[1, 2]), Data::Binary(&[]), Data::Text("1")]);
    assert!(matches!(results[..2], [Ok(None), Ok(None)]));
    let whole = results[2].as_ref().unwrap().as_ref().unwrap();
    assert_eq!(whole.attachments(), [Bytes::from_static(&[1, 2]), Bytes::new()]);
    assert_eq!(whole.packet(), Packet::parse(TWO, &LIMITS).unwrap());
    assert_eq!(whole.packet().event().unwrap().name, "baz");
    assert!(results[3].is_ok(), "the next packet");
}

#[test]
fn misplaced_messages_are_errors() {
    check_error(&[Data::Binary(&[1])], PacketError::UnexpectedBinary);
    check_error(&[Data::Text(TWO), Data::Text("1")], PacketError::UnexpectedText);
    check_error(&[Data::Text(TWO), Data::Binary(&[1]), Data::Text("1")], PacketError::UnexpectedText);
    let beyond = r#"51-["a",{"_placeholder":true,"num":1}]"#;
    check_error(&[Data::Text(beyond)], PacketError::BadPlaceholder);
    check_error(&[Data::Text(r#"50-["a",{"_placeholder":true,"num":0}]"#)], PacketError::BadAttachments);
    check_error(&[Data::Text(r#"54-["a"]"#)], PacketError::TooManyAttachments);
}

#[test]
fn buffers_are_bounded() {
    check_error(&[Data::Text(TWO), Data::Binary(&[0; 40])], PacketError::TooBig);
    check_error(&[Data::Text(TWO), Data::Binary(&[0; 15]), Data::Binary(&[0; 20])], PacketError::TooBig);
    let long = format!(r#"51-["a","{}"]"#, "x".repeat(100));
    check_error(&[Data::Text(&long)], PacketError::TooBig);
    // Without attachments, the transport limits the size.
    let long = format!(r#"2["a","{}"]"#, "x".repeat(1000));
    assert!(feed_all(&[Data::Text(&long)])[0].is_ok());
}

proptest! {
    #[test]
    fn buffers_respect_limits_for_any_messages(
        messages in proptest::collection::vec(prop_oneof![
            r#"[0-6][0-3]?-?[0-9]?(\["a"\])?"#.prop_map(Ok),
            Just(Ok(TWO.to_owned())),
            proptest::collection::vec(any::<u8>(), 0..50).prop_map(Err),
        ], 0..20),
    ) {
        let mut assembler = Assembler::new();
        for message in &messages {
            let data = match message {
                Ok(text) => Data::Text(text),
                Err(bytes) => Data::Binary(bytes),
            };
            let result = assembler.feed(data, &LIMITS);
            if let Ok(Some(whole)) = &result {
                prop_assert_eq!(whole.packet().attachments, whole.attachments().len());
            }
            prop_assert!(assembler.held_bytes() <= size_of::<Partial>() + LIMITS.binary_bytes + 4 * size_of::<Bytes>());
            prop_assert_eq!(assembler.is_idle(), assembler.held_bytes() == 0);
            if result.is_err() {
                prop_assert!(assembler.is_idle());
            }
        }
    }
}
