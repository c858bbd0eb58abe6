//! SASL: RFC 6120 §6, XEP-0388.

use ::base64::Engine as _;
use ring::{digest, hmac};

use super::*;
use crate::native::Token;
use crate::xmpp::action::Credentials;
use crate::xmpp::scram::{Hash, Keys};

fn auth(mechanism: &str, message: &str) -> String {
    format!("<auth xmlns='{}' mechanism='{mechanism}'>{}</auth>", ns::SASL, base64(message))
}

#[test]
fn device_logs_in_with_its_token() {
    for (user, name) in
        [("d1", "d1"), ("D1", "d1"), ("d1@x.example", "d1"), ("a b", "a b"), ("a\\20b", "a b")]
    {
        let mut peer = Peer::secure();
        peer.say(HEADER);
        peer.say(&auth("PLAIN", &format!("\0{user}\0secret")));
        let [Action::Authenticate { user, token, .. }] = &peer.take()[..] else { panic!("no log-in") };
        assert_eq!((&**user, token.as_str()), (name, "secret"));
    }
    let mut peer = Peer::open();
    assert_eq!(peer.conversation.address(), Some("d1@x.example/r"));
    assert!(peer.take().is_empty());
}

#[test]
fn initial_response_may_be_sent_later() {
    let mut peer = Peer::secure();
    peer.say(HEADER);
    assert_eq!(
        peer.say("<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'/>"),
        "<challenge xmlns='urn:ietf:params:xml:ns:xmpp-sasl'></challenge>"
    );
    peer.say(&format!("<response xmlns='{}'>{}</response>", ns::SASL, base64("\0d1\0t")));
    assert!(matches!(peer.take()[..], [Action::Authenticate { .. }]));
}

#[test]
fn every_failure_has_its_condition() {
    let check = |text: &str, condition: &str| {
        let mut peer = Peer::secure();
        peer.say(HEADER);
        let said = peer.say(text);
        let expected =
            format!("<failure xmlns='urn:ietf:params:xml:ns:xmpp-sasl'><{condition}/><text xml:lang='en'>");
        assert!(said.starts_with(&expected) && said.ends_with("</text></failure>"), "{text}: {said}");
        assert!(peer.take().is_empty() && peer.conversation.failures() == 1);
        // The client may retry (§6.4.5).
        peer.prove();
    };
    check(&auth("X", ""), "invalid-mechanism");
    check("<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>", "invalid-mechanism");
    check(&auth("SCRAM-SHA-256-PLUS", "p=tls-exporter,,n=d1,r=x"), "invalid-mechanism");
    check(&auth("PLAIN", "d1"), "malformed-request");
    check(&auth("PLAIN", "other\0d1\0t"), "invalid-authzid");
    check(&auth("PLAIN", "other@x.example\0d1\0t"), "invalid-authzid");
    check("<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>=x</auth>", "incorrect-encoding");
    check(&auth("SCRAM-SHA-1", "n=d1"), "malformed-request");
    check("<response xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>", "malformed-request");
    check("<abort xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>", "aborted");
}

#[test]
fn authorization_identity_may_be_the_own_account() {
    let mut peer = Peer::secure();
    peer.say(HEADER);
    peer.say(&auth("PLAIN", "d1@x.example\0d1\0t"));
    assert!(matches!(peer.take()[..], [Action::Authenticate { .. }]));
}

#[test]
fn rejections_are_reported_and_counted() {
    let mut peer = Peer::secure();
    peer.say(HEADER);
    for (reason, condition) in [
        (CloseReason::Unauthorized, "not-authorized"),
        (CloseReason::Expired, "credentials-expired"),
        (CloseReason::Revoked, "account-disabled"),
    ] {
        peer.say(&auth("PLAIN", "\0d1\0t"));
        peer.take();
        let said = peer.tell(|conversation, cx, out| conversation.refused(cx, reason, out));
        let failure = format!("<failure xmlns='urn:ietf:params:xml:ns:xmpp-sasl'><{condition}/><text ");
        assert!(said.starts_with(&failure), "{said}");
        if condition == "account-disabled" {
            assert!(said.contains("<policy-violation") && said.ends_with("</stream:stream>"), "{said}");
        }
    }
    peer.assert_closed(CloseReason::Unauthorized);
}

#[test]
fn token_of_another_device_is_rejected() {
    let mut peer = Peer::secure();
    peer.say(HEADER);
    peer.say(&auth("PLAIN", "\0d2\0t"));
    peer.take();
    let said = peer.tell(|conversation, cx, out| conversation.authenticated(cx, device(), out));
    assert!(said.contains("<not-authorized/>"), "{said}");
    assert!(matches!(&peer.take()[..], [Action::Refused(why)] if why.contains("another device")));
}

/// The client side of SCRAM (RFC 5802 §3), from its password.
fn proof(hash: Hash, password: &str, first_bare: &str, challenge: &str, binding: &str) -> (String, String) {
    let (mac, sum) = match hash {
        Hash::Sha1 => (hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &digest::SHA1_FOR_LEGACY_USE_ONLY),
        Hash::Sha256 => (hmac::HMAC_SHA256, &digest::SHA256),
    };
    let sign = |key: &[u8], text: &[u8]| hmac::sign(&hmac::Key::new(mac, key), text).as_ref().to_vec();
    let engine = ::base64::engine::general_purpose::STANDARD;
    let nonce = between(challenge, "r=", ",");
    let salt = engine.decode(between(challenge, ",s=", ",")).unwrap();
    let rounds: u32 = challenge.split_once(",i=").unwrap().1.parse().unwrap();
    // Hi() by its definition, independent of the library's function.
    let mut block = sign(password.as_bytes(), &[&salt[..], &[0, 0, 0, 1]].concat());
    let mut salted = block.clone();
    for _ in 1..rounds {
        block = sign(password.as_bytes(), &block);
        salted.iter_mut().zip(&block).for_each(|(byte, other)| *byte ^= other);
    }
    let client_key = sign(&salted, b"Client Key");
    let stored_key = digest::digest(sum, &client_key);
    let without_proof = format!("c={},r={nonce}", base64(binding));
    let message = format!("{first_bare},{challenge},{without_proof}");
    let signature = sign(stored_key.as_ref(), message.as_bytes());
    let proof: Vec<u8> = client_key.iter().zip(signature).map(|(byte, mask)| byte ^ mask).collect();
    let server = engine.encode(sign(&sign(&salted, b"Server Key"), message.as_bytes()));
    (format!("{without_proof},p={}", engine.encode(proof)), format!("v={server}"))
}

#[test]
fn device_proves_its_token_with_scram() {
    for (mechanism, hash) in [("SCRAM-SHA-1", Hash::Sha1), ("SCRAM-SHA-256", Hash::Sha256)] {
        let keys = Keys::derive(hash, "secret", b"some salt", std::num::NonZeroU32::new(4_096).unwrap());
        for credentials in [
            Credentials::Keys { device: device(), keys },
            Credentials::Password { device: device(), password: Token::new("secret") },
        ] {
            let mut peer = Peer::secure();
            peer.say(HEADER);
            peer.say(&auth(mechanism, "n,,n=d1,r=abc"));
            assert!(
                matches!(&peer.take()[..], [Action::FindKeys { user, hash: it }] if &**user == "d1" && *it == hash)
            );
            let said = peer.tell(|conversation, cx, out| conversation.keys(cx, Some(credentials), out));
            let challenge = unbase64(between(&said, "xmpp-sasl'>", "<"));
            let (last, expected) = proof(hash, "secret", "n=d1,r=abc", &challenge, "n,,");
            let said = peer.say(&format!("<response xmlns='{}'>{}</response>", ns::SASL, base64(&last)));
            assert_eq!(
                unbase64(between(&said, "<success xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>", "<")),
                expected
            );
        }
    }
}

#[test]
fn scram_does_not_reveal_which_devices_exist() {
    let password = Credentials::Password { device: device(), password: Token::new("other") };
    for (wrong, why) in [(None, "the account does not exist"), (Some(password), "the password is wrong")] {
        let mut peer = Peer::secure();
        peer.say(HEADER);
        peer.say(&auth("SCRAM-SHA-256", "n,,n=d1,r=abc"));
        peer.take();
        let said = peer.tell(|conversation, cx, out| conversation.keys(cx, wrong, out));
        let challenge = unbase64(between(&said, "xmpp-sasl'>", "<"));
        assert!(challenge.ends_with(",i=4096"), "{challenge}");
        let (last, _) = proof(Hash::Sha256, "secret", "n=d1,r=abc", &challenge, "n,,");
        let said = peer.say(&format!("<response xmlns='{}'>{}</response>", ns::SASL, base64(&last)));
        assert!(said.contains("<not-authorized/>"), "{said}");
        let actions = &peer.take()[..];
        assert!(
            matches!(actions, [Action::Refused(it)] if *it == why),
            "the operator learns the reason: {actions:?}"
        );
    }
}

pub(super) fn authenticate(inside: &str) -> String {
    let initial = base64("\0d1\0t");
    format!(
        "<authenticate xmlns='urn:xmpp:sasl:2' mechanism='PLAIN'><initial-response>{initial}</initial-response>\
         <user-agent id='d4565fa7-4d72-4749-b3d3-740edbf87770'><software>S</software></user-agent>{inside}</authenticate>"
    )
}

#[test]
fn sasl2_logs_in_and_binds_in_one_round_trip() {
    let mut peer = Peer::secure();
    peer.say(HEADER);
    let bind = "<bind xmlns='urn:xmpp:bind:0'><tag>App</tag><enable xmlns='urn:xmpp:sm:3' resume='true'/>\
                <inactive xmlns='urn:xmpp:csi:0'/></bind>";
    assert_eq!(peer.say(&authenticate(bind)), "");
    assert!(matches!(peer.take()[..], [Action::Authenticate { .. }]));
    assert_eq!(peer.tell(|conversation, cx, out| conversation.authenticated(cx, device(), out)), "");
    assert!(matches!(peer.take()[..], [Action::LogIn { .. }]));
    let said = peer.tell(|conversation, cx, out| conversation.logged_in(cx, out));
    assert_eq!(
        said.replace(&capabilities(&said), ""),
        "<success xmlns='urn:xmpp:sasl:2'><authorization-identifier>d1@x.example/App~0707070707070707\
         </authorization-identifier><bound xmlns='urn:xmpp:bind:0'><enabled xmlns='urn:xmpp:sm:3' \
         id='07070707070707070707070707070707' resume='true' max='300'/></bound></success>\
         <stream:features><csi xmlns='urn:xmpp:csi:0'/><ver xmlns='urn:xmpp:features:rosterver'/></stream:features>"
    );
    peer.say("<presence/>");
    assert!(
        matches!(peer.take()[..], [Action::Presence(noroshi_types::Presence::Idle)]),
        "it began inactive"
    );
}

#[test]
fn sasl2_without_bind_continues_with_features() {
    let mut peer = Peer::secure();
    peer.say(HEADER);
    peer.say(&authenticate(""));
    let said = peer.tell(|conversation, cx, out| conversation.authenticated(cx, device(), out));
    assert!(said.starts_with(
        "<success xmlns='urn:xmpp:sasl:2'><authorization-identifier>d1@x.example</authorization-identifier></success>\
         <stream:features><bind xmlns="
    ), "{said}");
    peer.take();
    peer.say("<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>");
    assert!(matches!(peer.take()[..], [Action::LogIn { .. }]));
}

#[test]
fn rejection_after_the_proof_is_a_sasl2_failure() {
    let mut peer = Peer::secure();
    peer.say(HEADER);
    peer.say(&authenticate("<bind xmlns='urn:xmpp:bind:0'/>"));
    peer.tell(|conversation, cx, out| conversation.authenticated(cx, device(), out));
    let said = peer.tell(|conversation, cx, out| conversation.refused(cx, CloseReason::Revoked, out));
    assert_eq!(
        said,
        "<failure xmlns='urn:xmpp:sasl:2'><account-disabled xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>\
         <text xml:lang='en'>the device was deleted or its tokens were revoked</text></failure>"
    );
    assert_eq!(peer.conversation.address(), None);
}
