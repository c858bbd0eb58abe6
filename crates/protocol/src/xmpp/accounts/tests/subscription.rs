//! Presence subscriptions, and presence itself.

use super::*;

#[test]
fn subscription_is_requested_approved_and_ended() {
    let mut world = World::present();
    world.subscription("a", A, "b@x", "subscribe");
    assert_eq!(world.received(A), ["b@x none subscribe"]);
    assert_eq!(world.received(B), ["presence subscribe a@x"], "no push: it is not listed");
    assert_eq!((world.state("a", "b@x"), world.state("b", "a@x")), ("listed out".into(), "in".into()));
    // Only once.
    world.subscription("a", A, "b@x", "subscribe");
    assert_eq!(world.received(B), [""; 0]);
    world.subscription("b", B, "a@x", "subscribed");
    assert_eq!(world.received(B), ["a@x from"]);
    assert_eq!(world.received(A), ["presence subscribed b@x", "b@x to", "presence b@x/r"]);
    // It is subscribed already: the server responds.
    world.subscription("a", A, "b@x", "subscribe");
    assert_eq!(world.received(B), [""; 0]);
    world.outbox.clear();
    world.subscription("b", B, "a@x", "unsubscribed");
    assert_eq!(world.received(B), ["a@x none"]);
    assert_eq!(world.received(A), ["presence unsubscribed b@x", "b@x none", "presence unavailable b@x/r"]);
}

#[test]
fn either_side_ends_a_subscription() {
    let mut world = World::friends();
    world.subscription("a", A, "b@x", "unsubscribe");
    assert_eq!(world.received(B), ["presence unsubscribe a@x", "a@x to"]);
    assert_eq!(world.received(A), ["b@x from", "presence unavailable b@x/r"]);
    assert_eq!(
        (world.state("a", "b@x"), world.state("b", "a@x")),
        ("listed from".into(), "listed to".into())
    );

    let mut world = World::friends();
    let remove = RosterChange { bare: "b@x".into(), put: None };
    world.accounts.change_roster("a", remove, &mut world.outbox).unwrap();
    assert_eq!(world.received(A), ["b@x remove", "presence unavailable b@x/r"]);
    let received = world.received(B);
    assert_eq!(
        received,
        [
            "presence unsubscribe a@x",
            "a@x to",
            "presence unsubscribed a@x",
            "a@x none",
            "presence unavailable a@x/r"
        ]
    );
    assert_eq!((world.state("a", "b@x"), world.state("b", "a@x")), ("-".into(), "listed".into()));
    let again = RosterChange { bare: "b@x".into(), put: None };
    assert_eq!(world.accounts.change_roster("a", again, &mut world.outbox), Err(Refusal::NotFound));
}

#[test]
fn pre_approval_is_answered_by_the_server() {
    let mut world = World::present();
    world.subscription("b", B, "a@x", "subscribed");
    assert_eq!(world.received(B), ["a@x none true"]);
    world.subscription("a", A, "b@x", "subscribe");
    assert_eq!(world.received(B), ["a@x from true"], "it is not asked");
    let received = world.received(A);
    assert_eq!(received, ["b@x none subscribe", "presence subscribed b@x", "b@x to", "presence b@x/r"]);
}

#[test]
fn pending_request_is_sent_at_each_log_in() {
    let mut world = World::new();
    world.announce("a", A, "<presence/>");
    world.subscription("a", A, "b@x", "subscribe");
    assert_eq!(world.received(B), [""; 0], "it is not there");
    world.announce("b", B, "<presence/>");
    assert_eq!(world.received(B), ["presence b@x/r", "presence subscribe a@x"]);
    world.announce("b", B, "<presence><show>away</show></presence>");
    assert_eq!(world.received(B), ["presence b@x/r"], "an update");
    world.announce("b", B, "<presence type='unavailable'/>");
    world.announce("b", B, "<presence/>");
    assert_eq!(world.received(B), ["presence b@x/r", "presence subscribe a@x"]);
}

#[test]
fn presence_is_sent_to_contacts_and_own_resources() {
    let mut world = World::friends();
    world.come("a", 3, "phone");
    world.announce("a", 3, "<presence><priority>5</priority></presence>");
    assert_eq!(world.received(A), ["presence a@x/phone"]);
    assert_eq!(world.received(B), ["presence a@x/phone"]);
    // Itself, the other resource, and the contact.
    assert_eq!(world.received(3), ["presence a@x/phone", "presence a@x/r", "presence b@x/r"]);
    world.announce("a", 3, "<presence type='unavailable' id='u'/>");
    assert_eq!(world.received(B), ["presence unavailable a@x/phone u"]);
    assert_eq!(world.received(A), ["presence unavailable a@x/phone u"]);
    // An abnormal end of the stream.
    world.accounts.detach("a", A, &mut world.outbox);
    assert_eq!(world.received(B), ["presence unavailable a@x/r"]);
    assert_eq!(world.received(3), [""; 0]);
    // The session is resumed and available again.
    world.accounts.attach("a", 7, "r", true, &mut world.outbox);
    assert_eq!(world.received(B), ["presence a@x/r"]);
    // The same resource connects again.
    world.accounts.attach("a", 8, "r", false, &mut world.outbox);
    assert_eq!(world.received(B), ["presence unavailable a@x/r"]);
    world.accounts.detach("a", 7, &mut world.outbox);
    assert_eq!(world.received(B), [""; 0], "it was replaced");
}

#[test]
fn directed_presence_ends_with_the_session() {
    let mut world = World::present();
    world.say("a", A, "b@x", "<presence/>");
    world.say("a", A, "b@x/nobody", "<presence/>");
    assert_eq!(world.received(B), ["presence a@x/r"]);
    world.announce("a", A, "<presence><show>away</show></presence>");
    assert_eq!(world.received(B), [""; 0], "no contact");
    world.announce("a", A, "<presence type='unavailable'/>");
    assert_eq!(world.received(B), ["presence unavailable a@x/r"]);
    // Already withdrawn by the sender.
    world.say("a", A, "b@x/r", "<presence/>");
    world.say("a", A, "b@x/r", "<presence type='unavailable'/>");
    assert_eq!(world.received(B).len(), 2);
    world.accounts.detach("a", A, &mut world.outbox);
    assert_eq!(world.received(B), [""; 0]);
}

#[test]
fn probe_returns_visible_presence_only() {
    let mut world = World::friends();
    world.say("a", A, "b@x", "<presence type='probe'/>");
    assert_eq!(world.received(A), ["presence b@x/r"]);
    world.say("a", A, "b@x/gone", "<presence type='probe'/>");
    assert_eq!(world.received(A), ["presence unavailable b@x"]);
    for stranger in ["c@x", "nobody@x"] {
        world.say("a", A, stranger, "<presence type='probe'/>");
        assert_eq!(world.received(A), [format!("presence unsubscribed {stranger}")]);
    }
}
