//! Conformance accounts as their clients see them: rosters, subscriptions and presence between two, several
//! resources of one, and what becomes of all that when a stream ends or a session is resumed.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use noroshi_gateway::xmpp::Account;
use noroshi_types::DeviceId;

use crate::node::Node;
use crate::xmpp::{FEATURES, HEADER, Peer, auth, between, config, pubsub, resume};

const SASL: &str = "xmlns='urn:ietf:params:xml:ns:xmpp-sasl'";

async fn node() -> Node {
    let mut config = config();
    (config.xmpp.protocol.registration, config.xmpp.protocol.scram) = (true, true);
    let account = |name: &str| Account { name: name.into(), password: "p".into() };
    config.xmpp.accounts = vec![account("romeo"), account("juliet")];
    Node::start(config).await
}

fn bind(resource: &str) -> String {
    format!(
        "<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'>\
         <resource>{resource}</resource></bind></iq>"
    )
}

/// Bound and not there yet.
async fn bound(node: &Node, name: &str, resource: &str) -> Peer {
    let mut peer = Peer::dial(node, 1).await;
    peer.prove(name, "p").await;
    peer.ask(HEADER, FEATURES).await;
    peer.ask(&bind(resource), &format!("{name}@localhost/{resource}</jid></bind></iq>")).await;
    peer
}

/// There, with its roster.
async fn there(node: &Node, name: &str, resource: &str) -> Peer {
    let mut peer = bound(node, name, resource).await;
    peer.ask("<iq type='get' id='r'><query xmlns='jabber:iq:roster'/></iq>", "</iq>").await;
    peer.ask("<presence/>", "</presence>").await;
    peer
}

async fn befriend(romeo: &mut Peer, juliet: &mut Peer) {
    romeo.say("<presence type='subscribe' to='juliet@localhost'/>").await;
    juliet.until("type='subscribe'").await;
    juliet.say("<presence type='subscribed' to='romeo@localhost'/>").await;
    juliet.say("<presence type='subscribe' to='romeo@localhost'/>").await;
    romeo.until("type='subscribe'").await;
    romeo.say("<presence type='subscribed' to='juliet@localhost'/>").await;
    romeo.until("jid='juliet@localhost' subscription='both'").await;
    juliet.until("jid='romeo@localhost' subscription='both'").await;
    juliet.until("from='romeo@localhost/").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roster_is_kept_and_pushed() {
    let node = node().await;
    let mut one = there(&node, "romeo", "one").await;
    let mut two = there(&node, "romeo", "two").await;
    let set =
        |item: &str| format!("<iq type='set' id='s'><query xmlns='jabber:iq:roster'>{item}</query></iq>");
    let heard =
        one.ask(&set("<item jid='Nurse@localhost' name='N'><group>House</group></item>"), "id='s'").await;
    let item = "<item jid='nurse@localhost' name='N' subscription='none'><group>House</group></item>";
    assert!(heard.contains(item), "pushed to who changes it too: {heard}");
    assert!(two.until("</query>").await.contains(item));
    let refused = one.ask(&set("<item jid='nurse@localhost'><group/></item>"), "</error>").await;
    assert!(refused.contains("<not-acceptable"), "{refused}");
    let get = "<iq type='get' id='g'><query xmlns='jabber:iq:roster'/></iq>";
    assert!(two.ask(get, "id='g'").await.is_empty() || two.until("</iq>").await.contains(item));
    one.ask(&set("<item jid='nurse@localhost' subscription='remove'/>"), "id='s'").await;
    two.until("<item jid='nurse@localhost' subscription='remove'/>").await;
    let gone = one.ask(&set("<item jid='nurse@localhost' subscription='remove'/>"), "</error>").await;
    assert!(gone.contains("<item-not-found"), "{gone}");
    node.gateway.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn contacts_see_each_others_presence() {
    let node = node().await;
    let mut romeo = there(&node, "romeo", "r").await;
    let mut juliet = there(&node, "juliet", "r").await;
    befriend(&mut romeo, &mut juliet).await;
    juliet.say("<presence><show>away</show></presence>").await;
    romeo.until("<show>away</show>").await;
    // Her stream just ends.
    drop(juliet);
    let gone = romeo.until("type='unavailable'").await;
    assert!(gone.contains("from='juliet@localhost/r'"), "{gone}");
    // She is back, and learns that he is there.
    let mut juliet = bound(&node, "juliet", "r").await;
    juliet.say("<presence/>").await;
    juliet.until("from='romeo@localhost/r'").await;
    romeo.until("from='juliet@localhost/r'").await;
    romeo.say("</stream:stream>").await;
    assert!(romeo.ended().await.ends_with("</stream:stream>"));
    juliet.until("type='unavailable'").await;
    node.gateway.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_has_several_resources() {
    let node = node().await;
    let mut juliet = there(&node, "juliet", "r").await;
    let mut low = there(&node, "romeo", "low").await;
    let mut high = there(&node, "romeo", "high").await;
    high.say("<presence><priority>7</priority></presence>").await;
    low.until("<priority>7</priority>").await;
    juliet.say("<message to='romeo@localhost' type='chat'><body>to the account</body></message>").await;
    high.until("to the account").await;
    juliet.say("<message to='romeo@localhost/low' type='chat'><body>to one</body></message>").await;
    let heard = low.until("to one").await;
    assert!(!heard.contains("to the account"), "{heard}");
    // RFC 6120 §7.7.2.2: the same one again.
    let _again = there(&node, "romeo", "high").await;
    let end = high.ended().await;
    assert!(end.contains("<conflict xmlns='urn:ietf:params:xml:ns:xmpp-streams'/>"), "{end}");
    low.sync().await;
    // Ten, and no more.
    let mut more = Vec::new();
    for n in 2..10 {
        more.push(bound(&node, "romeo", &format!("n{n}")).await);
    }
    let mut over = Peer::dial(&node, 1).await;
    over.prove("romeo", "p").await;
    over.ask(HEADER, FEATURES).await;
    over.ask(&bind("eleven"), "<resource-constraint").await;
    node.gateway.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_account_is_counted() {
    let node = node().await;
    // A client that tries to log in gets the same answer whether or not the account exists.
    for (count, name) in [(1, "romeo"), (2, "nobody")] {
        let mut peer = Peer::dial(&node, 1).await;
        peer.ask(HEADER, FEATURES).await;
        let first = STANDARD.encode(format!("n,,n={name},r=abc"));
        let auth = format!("<auth {SASL} mechanism='SCRAM-SHA-256'>{first}</auth>");
        let challenge = peer.ask(&auth, "</challenge>").await;
        let challenge = STANDARD.decode(between(&challenge, ">", "<")).expect("a challenge");
        let challenge = String::from_utf8(challenge).expect("text");
        let proof = format!("c=biws,r={},p={}", between(&challenge, "r=", ","), STANDARD.encode([7; 32]));
        let response = format!("<response {SASL}>{}</response>", STANDARD.encode(proof));
        let refused = peer.ask(&response, "</failure>").await;
        assert!(refused.contains("<not-authorized/>"), "{refused}");
        node.until(name, |node| node.metric("noroshi_log_ins_refused_total") == count).await;
    }
    node.gateway.stop();
    let mut config = config();
    config.xmpp.accounts = vec![Account { name: "romeo".into(), password: "p".into() }];
    config.xmpp.accounts_app = "none".into();
    let node = Node::start(config).await;
    let mut peer = Peer::dial(&node, 1).await;
    peer.ask(HEADER, FEATURES).await;
    peer.ask(&auth("romeo", "p"), "<not-authorized/>").await;
    assert_eq!(node.metric("noroshi_log_ins_refused_total"), 1, "there is no app for accounts");
    node.gateway.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_resource_is_available_again() {
    let node = node().await;
    let mut romeo = there(&node, "romeo", "r").await;
    let mut other = there(&node, "romeo", "other").await;
    let mut juliet = there(&node, "juliet", "r").await;
    befriend(&mut romeo, &mut juliet).await;
    let enabled = romeo.ask("<enable xmlns='urn:xmpp:sm:3' resume='true'/>", "max='300'").await;
    let id = between(&enabled, "<enabled xmlns='urn:xmpp:sm:3' id='", "'").to_owned();
    // From a connection that seems to live, and only from that.
    let mut next = Peer::dial(&node, 1).await;
    next.prove("romeo", "p").await;
    next.ask(HEADER, FEATURES).await;
    next.ask(&resume(&id, 0), "<resumed").await;
    assert!(romeo.ended().await.contains("<conflict"));
    let heard = juliet.until("type='unavailable'").await + &juliet.until("</presence>").await;
    assert!(heard.contains("from='romeo@localhost/r'"), "{heard}");
    juliet.until("from='romeo@localhost/r'").await;
    other.sync().await;
    juliet.say("<message to='romeo@localhost/r' type='chat'><body>still there</body></message>").await;
    next.until("still there").await;
    node.gateway.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_goes_leaves_nothing() {
    let node = node().await;
    let mut romeo = there(&node, "romeo", "r").await;
    let other = there(&node, "romeo", "other").await;
    let mut juliet = there(&node, "juliet", "r").await;
    befriend(&mut romeo, &mut juliet).await;
    romeo.say("<iq type='set' id='x'><query xmlns='jabber:iq:register'><remove/></query></iq>").await;
    juliet.until("jid='romeo@localhost' subscription='none'").await;
    for peer in [romeo, other] {
        assert!(peer.ended().await.contains("<not-authorized"));
    }
    juliet.sync().await;
    let ask = "<iq type='get' id='n' to='romeo@localhost'><query xmlns='jabber:iq:version'/></iq>";
    let nobody = juliet.ask(ask, "</iq>").await;
    assert!(nobody.contains("<service-unavailable"), "{nobody}");
    node.gateway.stop();
}

/// RFC 6121 §8.5.1, XEP-0030 §8: neither silence nor an answer tells one from the other.
#[tokio::test(flavor = "multi_thread")]
async fn an_outsider_does_not_learn_which_accounts_exist() {
    let node = node().await;
    let mut romeo = there(&node, "romeo", "r").await;
    // She has something to ask for, and is not there.
    let mut juliet = there(&node, "juliet", "r").await;
    for inside in [
        "<vCard xmlns='vcard-temp'><FN>secret</FN></vCard>",
        "<pubsub xmlns='http://jabber.org/protocol/pubsub'>\
         <publish node='mood'><item><mood xmlns='m'>secret</mood></item></publish></pubsub>",
    ] {
        let done = juliet.ask(&format!("<iq type='set' id='s'>{inside}</iq>"), "</iq>").await;
        assert!(done.contains("type='result'"), "{done}");
    }
    juliet.say("<message to='juliet@localhost' type='chat'><body>secret</body></message>").await;
    juliet.until("</message>").await;
    juliet.say("</stream:stream>").await;
    juliet.ended().await;
    let mut answers = Vec::new();
    for to in ["juliet@localhost", "nobody@localhost"] {
        let mut said = String::new();
        for kind in ["subscribe", "subscribed", "unsubscribe", "unsubscribed", "probe", "unavailable"] {
            said += &format!("<presence type='{kind}' to='{to}'/>");
        }
        for kind in ["normal", "chat", "headline", "groupchat"] {
            said += &format!("<message type='{kind}' id='{kind}' to='{to}'><body>x</body></message>");
        }
        for (kind, id, place, inside) in [
            ("get", "version", "", "<query xmlns='jabber:iq:version'/>"),
            ("get", "info", "", "<query xmlns='http://jabber.org/protocol/disco#info'/>"),
            ("get", "items", "", "<query xmlns='http://jabber.org/protocol/disco#items'/>"),
            ("get", "roster", "", "<query xmlns='jabber:iq:roster' ver=''/>"),
            ("get", "gone", "/gone", "<query xmlns='jabber:iq:version'/>"),
            ("get", "card", "", "<vCard xmlns='vcard-temp'/>"),
            ("set", "put", "", "<vCard xmlns='vcard-temp'/>"),
            ("get", "form", "", "<query xmlns='urn:xmpp:mam:2'/>"),
            ("set", "archive", "", "<query xmlns='urn:xmpp:mam:2'/>"),
            ("get", "rules", "", "<prefs xmlns='urn:xmpp:mam:2'/>"),
            ("set", "copies", "", "<enable xmlns='urn:xmpp:carbons:2'/>"),
            (
                "get",
                "personal",
                "",
                "<pubsub xmlns='http://jabber.org/protocol/pubsub'><items node='mood'/></pubsub>",
            ),
        ] {
            said += &format!("<iq type='{kind}' id='{id}' to='{to}{place}'>{inside}</iq>");
        }
        romeo.say(&said).await;
        // The version of his own roster counts what he changed.
        let mut answer = romeo.sync().await.replace(to, "it");
        while let Some((before, version)) = answer.split_once(" ver='") {
            let after = version.split_once('\'').expect("its end").1;
            answer = before.to_owned() + after;
        }
        answers.push(answer);
    }
    assert_eq!(answers[0], answers[1]);
    let items = "type='result' id='items' from='it' to='romeo@localhost/r'>\
                 <query xmlns='http://jabber.org/protocol/disco#items'/>";
    assert!(answers[0].contains(items) && !answers[0].contains("secret"), "{}", answers[0]);
    let refused = |id: &str, condition: &str| {
        let answer = between(&answers[0], &format!(" id='{id}' "), "</iq>");
        assert!(answer.contains(&format!("<{condition} ")), "{answer}");
    };
    ["card", "form", "archive", "rules", "copies"].iter().for_each(|id| refused(id, "service-unavailable"));
    ["put", "personal", "roster"].iter().for_each(|id| refused(id, "forbidden"));
    node.gateway.stop();
}

const COPIES: &str = "<iq type='set' id='c'><enable xmlns='urn:xmpp:carbons:2'/></iq>";

/// XEP-0280: as long as a resource has a session.
#[tokio::test(flavor = "multi_thread")]
async fn a_resource_that_is_revoked_gets_no_copies() {
    let node = node().await;
    let mut juliet = there(&node, "juliet", "r").await;
    let mut one = there(&node, "romeo", "one").await;
    let mut two = there(&node, "romeo", "two").await;
    two.ask(COPIES, "type='result' id='c'").await;
    let enabled = two.ask("<enable xmlns='urn:xmpp:sm:3' resume='true'/>", "max='300'").await;
    let id = between(&enabled, "<enabled xmlns='urn:xmpp:sm:3' id='", "'").to_owned();
    let message =
        |text: &str| format!("<message to='romeo@localhost/one' type='chat'><body>{text}</body></message>");
    juliet.say(&message("first")).await;
    one.until("first").await;
    let copy = two.until("</forwarded>").await;
    assert!(copy.contains("<received xmlns='urn:xmpp:carbons:2'>") && copy.contains("first"), "{copy}");
    // The second resource of an account is the device of this name.
    let device = DeviceId::parse("romeo/1").expect("an id");
    node.delivery.devices.revoke(node.app, &device).await.expect("revoked");
    node.until_sessions(2).await;
    juliet.say(&message("second")).await;
    one.until("second").await;
    let rest = two.ended().await;
    assert!(rest.contains("<not-authorized") && !rest.contains("second"), "{rest}");
    // Its session is gone too.
    let mut next = Peer::dial(&node, 1).await;
    next.prove("romeo", "p").await;
    next.ask(HEADER, FEATURES).await;
    next.ask(&resume(&id, 0), "<failed ").await;
    node.gateway.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_that_are_not_taken_end_their_session_alone() {
    let mut config = config();
    let account = |name: &str| Account { name: name.into(), password: "p".into() };
    config.xmpp.accounts = vec![account("romeo"), account("juliet")];
    (config.frames_per_second, config.frames_burst) = (10_000, 100_000);
    let node = Node::start(config).await;
    let mut juliet = there(&node, "juliet", "r").await;
    let mut one = there(&node, "romeo", "one").await;
    let mut slow = Peer::dial_narrow(&node, 1).await;
    slow.prove("romeo", "p").await;
    slow.ask(HEADER, FEATURES).await;
    slow.ask(&bind("slow"), "romeo@localhost/slow</jid></bind></iq>").await;
    slow.ask(COPIES, "type='result' id='c'").await;
    assert_eq!(node.gateway.sessions_count(), 3);
    let body = "x".repeat(50_000);
    let mut sent = 0;
    while node.gateway.sessions_count() == 3 {
        sent += 1;
        assert!(sent < 2_000, "100 MB are more than the kernel and the gateway hold");
        let message =
            format!("<message to='romeo@localhost/one' type='chat'><body>{sent} {body}</body></message>");
        juliet.say(&message).await;
        assert!(one.until("</message>").await.contains(&format!("<body>{sent} x")));
    }
    assert_eq!(node.gateway.sessions_count(), 2);
    juliet.sync().await;
    one.sync().await;
    node.gateway.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conformance_suite_may_send_more_than_a_device() {
    let mut config = config();
    config.xmpp.accounts = vec![Account { name: "romeo".into(), password: "p".into() }];
    (config.conformance, config.frames_per_second, config.frames_burst) = (true, 1, 20);
    let node = Node::start(config).await;
    node.device("d1", "u1", &[]).await;
    let burst = "<presence type='probe' to='nobody@localhost'/>".repeat(500);
    let mut romeo = there(&node, "romeo", "r").await;
    romeo.say(&burst).await;
    romeo.sync().await;
    let mut device = Peer::log_in(&node, "d1").await;
    device.say(&burst).await;
    assert!(device.ended().await.contains("<policy-violation"), "a device has its own allowance");
    let mut romeo = there(&node, "romeo", "other").await;
    romeo.say(&burst.repeat(10)).await;
    assert!(romeo.ended().await.contains("<policy-violation"), "it has a limit too");
    node.gateway.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_talk_to_nobody() {
    let node = node().await;
    node.device("d1", "u1", &[]).await;
    let mut device = Peer::log_in(&node, "d1").await;
    let mut romeo = there(&node, "romeo", "r").await;
    device.say("<presence/><presence type='subscribe' to='romeo@localhost'/>").await;
    let refused =
        device.ask("<message id='n' to='romeo@localhost/r'><body>x</body></message>", "</message>").await;
    assert!(refused.contains("<service-unavailable"), "{refused}");
    let heard = romeo.sync().await;
    assert!(!heard.contains("d1@localhost"), "{heard}");
    // For accounts a device is an account that does not exist: a message gets no answer (RFC 6121 §8.5.1), a request
    // does.
    romeo.say("<message id='n' to='d1@localhost'><body>x</body></message>").await;
    let heard = romeo.sync().await;
    assert!(!heard.contains("<message"), "{heard}");
    let ask = "<iq type='get' id='n' to='d1@localhost/r'><query xmlns='jabber:iq:version'/></iq>";
    let refused = romeo.ask(ask, "</iq>").await;
    assert!(refused.contains("<service-unavailable"), "{refused}");
    let heard = device.sync().await;
    assert!(!heard.contains("romeo@localhost"), "{heard}");
    node.gateway.stop();
}

fn owner(kind: &str, inside: &str) -> String {
    pubsub(kind, inside)
        .replace("http://jabber.org/protocol/pubsub'", "http://jabber.org/protocol/pubsub#owner'")
}

/// XEP-0060 §8: nodes of accounts only.
#[tokio::test(flavor = "multi_thread")]
async fn an_account_makes_a_node_that_others_subscribe_to() {
    let node = node().await;
    node.device("d1", "u1", &[]).await;
    let mut romeo = there(&node, "romeo", "r").await;
    let mut juliet = there(&node, "juliet", "r").await;
    let mut device = Peer::log_in(&node, "d1").await;
    let made = romeo.ask(&pubsub("set", "<create node='news'/>"), "</iq>").await;
    assert!(made.contains("type='result'") && made.contains("<create node='news'/>"), "{made}");
    let again = juliet.ask(&pubsub("set", "<create node='news'/>"), "</iq>").await;
    assert!(again.contains("<conflict "), "{again}");
    for (peer, condition) in [(&mut juliet, "<forbidden "), (&mut device, "<forbidden ")] {
        for command in ["delete", "purge", "configure"] {
            let form = "<x xmlns='jabber:x:data' type='submit'/>";
            let request = owner("set", &format!("<{command} node='news'>{form}</{command}>"));
            let said = peer.ask(&request, "</iq>").await;
            assert!(said.contains(condition), "{command}: {said}");
        }
    }
    let subscribed =
        juliet.ask(&pubsub("set", "<subscribe node='news' jid='juliet@localhost'/>"), "</iq>").await;
    assert!(subscribed.contains("subscription='subscribed'"), "{subscribed}");
    // A topic is a node as it was, for devices and for accounts.
    for (peer, jid) in [(&mut device, "d1@localhost"), (&mut juliet, "juliet@localhost")] {
        let topic = if jid.starts_with('d') { "news" } else { "weather" };
        let subscribe = format!("<subscribe node='{topic}' jid='{jid}'/>");
        let subscribed = peer.ask(&pubsub("set", &subscribe), "</iq>").await;
        assert!(subscribed.contains("subscription='subscribed'"), "{subscribed}");
    }
    let held = juliet.ask(&pubsub("get", "<subscriptions/>"), "</iq>").await;
    for name in ["news", "weather"] {
        let one = format!("<subscription node='{name}' jid='juliet@localhost' subscription='subscribed'/>");
        assert!(held.contains(&one), "{held}");
    }
    let publish = "<publish node='news'><item id='1'><e xmlns='e'>hello</e></item></publish>";
    romeo.ask(&pubsub("set", publish), "<item id='1'/></publish>").await;
    juliet.until("<items node='news'><item id='1'><e xmlns='e'>hello</e></item></items>").await;
    juliet.until("</message>").await;
    let heard = device.sync().await;
    assert!(!heard.contains("hello"), "a device's topic is another one: {heard}");
    let gone = juliet.ask(&pubsub("set", "<unsubscribe node='none' jid='juliet@localhost'/>"), "</iq>").await;
    assert!(gone.contains("<item-not-found "), "{gone}");
    let info = "<iq type='get' id='i' to='pubsub.localhost'>\
                <query xmlns='http://jabber.org/protocol/disco#info' node='news'/></iq>";
    let told = juliet.ask(info, "</iq>").await;
    assert!(told.contains("pubsub#meta-data") && told.contains("romeo@localhost"), "{told}");
    let told = device.ask(info, "</iq>").await;
    assert!(!told.contains("romeo"), "{told}");
    // The node is deleted with its account.
    romeo.say("<iq type='set' id='x'><query xmlns='jabber:iq:register'><remove/></query></iq>").await;
    juliet.until("<delete node='news'/>").await;
    node.gateway.stop();
}

/// XEP-0357.
#[tokio::test(flavor = "multi_thread")]
async fn the_push_service_of_an_absent_account_is_notified() {
    let node = node().await;
    let mut service = there(&node, "romeo", "push").await;
    let mut sender = there(&node, "romeo", "r").await;
    let mut juliet = there(&node, "juliet", "r").await;
    let enable =
        |jid: &str| format!("<iq type='set' id='e'><enable xmlns='urn:xmpp:push:0' jid='{jid}'/></iq>");
    for (jid, refused) in
        [("push.example.com", "<remote-server-not-found "), ("romeo@localhost", "<not-acceptable ")]
    {
        let said = juliet.ask(&enable(jid), "</iq>").await;
        assert!(said.contains(refused), "{said}");
    }
    juliet.ask(&enable("romeo@localhost/push"), "type='result' id='e'").await;
    // A device has no use for it: it registers its push token over HTTP.
    node.device("d1", "u1", &[]).await;
    let mut device = Peer::log_in(&node, "d1").await;
    let refused = device.ask(&enable("romeo@localhost/push"), "</iq>").await;
    assert!(refused.contains("<service-unavailable "), "{refused}");
    juliet.say("</stream:stream>").await;
    juliet.ended().await;
    let message = "<message to='juliet@localhost' type='chat'><body>secret</body></message>";
    sender.say(message).await;
    let told = service.until("</iq>").await;
    let id = between(&told, "id='push-notification-", "'");
    assert!(told.contains("from='juliet@localhost'") && !told.contains("secret"), "{told}");
    assert!(told.contains("<field var='message-count'><value>1</value></field>"), "{told}");
    service
        .say(&format!(
            "<iq type='error' id='push-notification-{id}' to='juliet@localhost'><error type='cancel'>\
             <item-not-found xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>"
        ))
        .await;
    service.sync().await;
    sender.say(message).await;
    sender.sync().await;
    let heard = service.sync().await;
    assert!(!heard.contains("push-notification"), "{heard}");
    node.gateway.stop();
}

/// XEP-0060 §7.1.5: contacts would see what its publisher wants for itself.
#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_is_to_be_more_private_than_it_can_be_is_not_published() {
    let node = node().await;
    let mut romeo = there(&node, "romeo", "r").await;
    let publish = |model: &str| {
        format!(
            "<iq type='set' id='p'><pubsub xmlns='http://jabber.org/protocol/pubsub'>\
             <publish node='urn:xmpp:bookmarks:1'><item id='a'><b xmlns='b'/></item></publish><publish-options>\
             <x xmlns='jabber:x:data' type='submit'><field var='FORM_TYPE'>\
             <value>http://jabber.org/protocol/pubsub#publish-options</value></field>\
             <field var='pubsub#access_model'><value>{model}</value></field></x></publish-options></pubsub></iq>"
        )
    };
    let refused = romeo.ask(&publish("whitelist"), "</iq>").await;
    assert!(refused.contains("<conflict ") && refused.contains("<precondition-not-met "), "{refused}");
    let get = "<iq type='get' id='g'><pubsub xmlns='http://jabber.org/protocol/pubsub'>\
               <items node='urn:xmpp:bookmarks:1'/></pubsub></iq>";
    assert!(romeo.ask(get, "</iq>").await.contains("<item-not-found "));
    assert!(romeo.ask(&publish("presence"), "</iq>").await.contains("type='result'"));
    node.gateway.stop();
}
