//! The cases of the specification's own suite (`test/test.py` of github.com/w3c/trace-context), under their
//! original names.

use super::*;

const TRACE: &str = "12345678901234567890123456789012";
const PARENT: &str = "1234567890123456";

fn parse(value: &str) -> Option<TraceContext> {
    TraceContext::parse(value.as_bytes())
}

/// `true`: the trace continues.
fn check(value: &str, continues: bool) {
    let found = parse(value);
    assert_eq!(found.is_some(), continues, "{value:?}");
    if let Some(found) = found {
        assert_eq!((found.trace.to_string().as_str(), found.parent.to_string().as_str()), (TRACE, PARENT));
    }
}

#[test]
fn traceparent_version() {
    // test_traceparent_version_0x00
    check(&format!("00-{TRACE}-{PARENT}-01"), true);
    check(&format!("00-{TRACE}-{PARENT}-01."), false);
    check(&format!("00-{TRACE}-{PARENT}-01-what-the-future-will-be-like"), false);
    // test_traceparent_version_0xcc
    check(&format!("cc-{TRACE}-{PARENT}-01"), true);
    check(&format!("cc-{TRACE}-{PARENT}-01-what-the-future-will-be-like"), true);
    check(&format!("cc-{TRACE}-{PARENT}-01.what-the-future-will-be-like"), false);
    // test_traceparent_version_0xff
    check(&format!("ff-{TRACE}-{PARENT}-01"), false);
    // test_traceparent_version_illegal_characters, _too_long, _too_short
    for version in [".0", "0.", "000", "0000", "0", "", "0A", "CC"] {
        check(&format!("{version}-{TRACE}-{PARENT}-01"), false);
    }
}

#[test]
fn traceparent_ids() {
    // test_traceparent_trace_id_all_zero, _illegal_characters, _too_long, _too_short
    for trace in [
        "00000000000000000000000000000000",
        ".2345678901234567890123456789012",
        "1234567890123456789012345678901.",
        "1234567890123456789012345678901A",
        "123456789012345678901234567890123",
        "1234567890123456789012345678901",
    ] {
        check(&format!("00-{trace}-{PARENT}-01"), false);
    }
    // test_traceparent_parent_id_all_zero, _illegal_characters, _too_long, _too_short
    for parent in
        ["0000000000000000", ".234567890123456", "123456789012345.", "12345678901234567", "123456789012345"]
    {
        check(&format!("00-{TRACE}-{parent}-01"), false);
    }
}

#[test]
fn traceparent_trace_flags() {
    // test_traceparent_trace_flags_illegal_characters, _too_long, _too_short
    for flags in [".0", "0.", "001", "1", "", "0G"] {
        check(&format!("00-{TRACE}-{PARENT}-{flags}"), false);
    }
    // §3.2.2.5: only the lowest bit is defined.
    for (flags, sampled) in [("00", false), ("01", true), ("02", false), ("ff", true), ("fe", false)] {
        let found = parse(&format!("00-{TRACE}-{PARENT}-{flags}")).expect("a context");
        assert_eq!(found.sampled, sampled, "{flags}");
        // Undefined bits are not propagated.
        assert!(matches!((found.to_string().split_off(53).as_str(), sampled), ("00", false) | ("01", true)));
    }
}

#[test]
fn traceparent_ows_handling() {
    for (before, after) in [(" ", ""), ("\t", ""), ("", " "), ("", "\t"), ("\t ", " \t")] {
        check(&format!("{before}00-{TRACE}-{PARENT}-01{after}"), true);
    }
    check(&format!("00- {TRACE}-{PARENT}-01"), false);
    check("", false);
}

#[test]
fn multiple_traceparent() {
    let one = format!("00-{TRACE}-{PARENT}-01");
    let of = |values: &[&str]| TraceContext::of_headers(values.iter().map(|value| value.as_bytes()));
    assert_eq!(of(&[&one]), parse(&one));
    assert_eq!(of(&[&one, &one]), None);
    assert_eq!(of(&[]), None);
}

#[test]
fn displayed_and_stored_forms_round_trip() {
    for sampled in [false, true] {
        let context = TraceContext { sampled, ..parse(&format!("00-{TRACE}-{PARENT}-01")).expect("one") };
        assert_eq!(parse(&context.to_string()), Some(context));
        assert_eq!(TraceContext::from_stored(&context.to_stored()), Some(context));
    }
    assert_eq!(TraceContext::from_stored(&[0; 25]), None);
    assert_eq!(TraceContext::from_stored(&[1; 24]), None);
}

proptest::proptest! {
    #[test]
    fn any_value_parses_or_fails(value in proptest::collection::vec(0_u8.., 0..80)) {
        if let Some(found) = TraceContext::parse(&value) {
            proptest::prop_assert_eq!(TraceContext::parse(found.to_string().as_bytes()), Some(found));
        }
        let _ = TraceState::of_headers([&value[..]].into_iter());
    }
}
