//! Push services and campaigns from the command line, against a node without reachable push services: delivery
//! is tested with the fakes.

use serde_json::{Value, json};

use crate::node::{Node, text};

fn node() -> (tempfile::TempDir, Node) {
    let folder = tempfile::tempdir().expect("folder");
    // Creates the key that encrypts credentials.
    let node = Node::start_with(&folder.path().join("data"), |command| {
        command.arg("--dev");
    });
    (folder, node)
}

fn path(folder: &tempfile::TempDir, name: &str) -> String {
    folder.path().join(name).to_str().expect("UTF-8").to_owned()
}

#[test]
fn a_web_push_key_is_generated_listed_and_removed() {
    let (folder, node) = node();
    let saved = path(&folder, "vapid.pem");
    let add = ["push", "add", "webpush", "--subject", "mailto:ops@example.com", "--save-key", &saved];
    let output = node.command(&[&add[..], &["--json"]].concat()).output().expect("the binary");
    assert!(output.status.success(), "{}", text(&output));
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    let public = printed.trim().strip_prefix("applicationServerKey: ").expect("the public key");
    assert_eq!(public.len(), 87, "65 bytes as base64url: {public}");
    let made: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let id = made["id"].as_str().expect("id");
    let pem = std::fs::read_to_string(&saved).expect("the saved key");
    let secret = pem.lines().nth(1).expect("the key").to_owned();

    let table = node.run(&["push", "list"]);
    assert!(table.contains("webpush") && table.contains("production"), "{table}");
    assert!(!text(&output).contains(&secret) && !table.contains(&secret), "a secret is never shown");
    assert!(!node.log().contains(&secret), "nor logged");
    assert!(node.json(&["push", "list"])["credentials"][0]["settings"].to_string().contains(public));

    let again = ["push", "add", "webpush", "--subject", "mailto:ops@example.com", "--private-key", &saved];
    assert!(node.fails(1, &again).contains("already_exists"));
    let replaced = node.json(&[&again[..], &["--replace", "--name", "second"]].concat());
    assert_eq!(replaced["name"], "second");
    assert_eq!(replaced["settings"]["fingerprint"], made["settings"]["fingerprint"], "the same key");
    // An existing key file is not overwritten.
    assert!(node.fails(1, &add).contains("vapid.pem"));
    node.run(&["push", "remove", id]);
    assert_eq!(node.json(&["push", "list"])["credentials"], json!([]));
}

#[test]
fn an_invalid_credential_is_rejected_with_its_field() {
    let (folder, node) = node();
    let file = path(&folder, "key");
    std::fs::write(&file, "not a key SECRET").expect("written");
    let apns = ["push", "add", "apns", "--key", &file, "--key-id", "ABC123DEFG", "--team-id", "DEF123GHIJ"];
    let refused = node.fails(1, &[&apns[..], &["--topic", "com.example.app"]].concat());
    assert!(refused.contains("key: ") && !refused.contains("SECRET"), "{refused}");
    assert!(node.fails(2, &["push", "add", "fcm", "--service-account", &file]).contains("not JSON"));
    node.fails(2, &["push", "add", "apns", "--topic", "com.example.app"]);
    node.fails(2, &["push", "add", "apns", "--key", &file, "--topic", "com.example.app"]);
    node.fails(2, &["push", "add", "apns", "--certificate", &file, "--topic", "com.example.app"]);
    node.fails(1, &["push", "add", "fcm", "--service-account", "nowhere"]);
    node.fails(1, &["push", "remove", "7"]);
    node.fails(77, &["push", "list", "--operator-token", "wrong"]);
}

#[test]
fn a_test_reports_the_push_services_answer() {
    let (_folder, node) = node();
    let p256dh = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
    let token = json!({"service": "webpush", "endpoint": "https://127.0.0.1:9/x",
        "keys": {"p256dh": p256dh, "auth": "BTBZMqHH6r4Tts7J_aSIgg"}})
    .to_string();
    assert!(node.fails(1, &["push", "test", "--token", &token]).contains("push add"));
    node.run(&["push", "add", "webpush", "--subject", "mailto:ops@example.com"]);
    let output = node.command(&["push", "test", "--token", &token, "--json"]).output().expect("the binary");
    assert_eq!(output.status.code(), Some(1), "local addresses are not pushed to: {}", text(&output));
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(answer["answer"] != "accepted" && answer["explain"].is_string(), "{answer}");
    node.run(&["devices", "register", "--device", "d1"]);
    assert!(node.fails(1, &["push", "test", "--device", "d1"]).contains("no push token"));
    node.fails(2, &["push", "test"]);
    assert_eq!(node.json(&["push", "invalidations"])["invalidations"], json!([]));
}

#[test]
fn typed_fields_are_flags_and_warnings_go_to_standard_error() {
    let (_folder, node) = node();
    node.run(&["push", "add", "webpush", "--subject", "mailto:ops@example.com"]);
    let shown = ["--title", "T", "--url", "https://a.example/", "--badge", "0", "--action", "y=Yes"];
    let send = |flags: &[&str]| {
        let arguments = [&["send", "--user", "u1", "--push", "always"], &shown[..], flags].concat();
        let output = node.command(&arguments).output().expect("the binary");
        assert!(output.status.success(), "{}", text(&output));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert_eq!(send(&[]), "");
    let warned = send(&["--sound", "default", "--level", "passive", "--mutable"]);
    assert!(
        warned.starts_with("warning: webpush: notification.sound: ") && warned.lines().count() == 1,
        "{warned}"
    );
    let refused = node.fails(1, &["send", "--user", "u1", "--title", "T", "--relevance", "2"]);
    assert!(refused.contains("notification.relevance"), "{refused}");
    let draft =
        [&["campaign", "create", "--everyone", "--draft", "--thread", "t", "--json"], &shown[..]].concat();
    let made: Value = serde_json::from_str(&node.run(&draft)).expect("JSON");
    assert_eq!(made["message"]["notification"]["actions"], json!([{"id": "y", "title": "Yes"}]));
    assert_eq!(made["warnings"][0]["field"], "message.notification.thread");
}

#[test]
fn a_notification_shows_whether_push_services_are_used() {
    let (_folder, node) = node();
    node.run(&["devices", "register", "--device", "d1", "--user", "u1"]);
    let send = ["send", "--user", "u1", "--title", "T", "--push", "always"];
    let id = node.json(&send)["id"].as_str().expect("id").to_owned();
    let explained = node.run(&["explain", &id, "d1"]);
    assert!(explained.contains("the device has no push token"), "{explained}");
    node.run(&["send", "--user", "u1", "--title", "T", "--push", "fallback", "--push-after", "1m"]);
    node.fails(2, &["send", "--user", "u1", "--title", "T", "--push", "sometimes"]);
    node.fails(2, &["send", "--user", "u1", "--title", "T", "--push", "fallback", "--push-after", "60"]);
    node.fails(1, &["send", "--user", "u1", "--title", "T", "--push", "always", "--push-after", "1m"]);
}

#[test]
fn a_campaign_is_created_watched_and_shown() {
    let (_folder, node) = node();
    node.run(&["devices", "register", "--device", "d1", "--user", "u1", "--platform", "web"]);
    let audience = ["campaign", "create", "--platform", "web", "--title", "Hello"];
    let count = node.json(&[&audience[..], &["--dry-run"]].concat());
    assert_eq!((&count["devices"], &count["no_push_token"]), (&json!(1), &json!(1)));
    assert_eq!(node.json(&["campaign", "list"])["campaigns"], json!([]), "a dry run creates nothing");

    let ended = node.json(&[&audience[..], &["--name", "first", "--watch"]].concat());
    assert_eq!((&ended["state"], &ended["counts"]), (&json!("done"), &json!({"no_push_token": 1})));
    let id = ended["id"].as_str().expect("id");
    let shown = node.run(&["campaign", "show", id]);
    assert!(shown.contains("first") && shown.contains("no_push_token"), "{shown}");
    let table = node.run(&["campaign", "list"]);
    assert!(table.contains(id) && table.contains("done"), "{table}");
    let plain = node.command(&["campaign", "watch", id]).output().expect("the binary");
    assert!(plain.status.success(), "{}", text(&plain));

    let draft = node.json(&["campaign", "create", "--everyone", "--title", "T", "--draft"]);
    let id = draft["id"].as_str().expect("id");
    assert_eq!(draft["state"], "draft");
    assert!(node.fails(1, &["campaign", "pause", id]).contains("draft"));
    assert!(node.fails(2, &["campaign", "abort", id]).contains("--yes"));
    assert_eq!(node.json(&["campaign", "abort", id, "--yes"])["state"], "aborted");
    let watched = node.command(&["campaign", "watch", id]).output().expect("the binary");
    assert_eq!(watched.status.code(), Some(1), "aborted: {}", text(&watched));
    node.run(&["campaign", "delete", id]);
    node.fails(1, &["campaign", "show", id]);
    node.fails(2, &["campaign", "create", "--title", "for nobody"]);
    assert!(node.fails(1, &["campaign", "create", "--everyone", "--title", "{{who}}"]).contains("who"));
}

#[test]
fn a_campaign_to_uploaded_users_requires_every_line_to_be_accepted() {
    let (folder, node) = node();
    node.run(&["devices", "register", "--device", "d1", "--user", "u1"]);
    let (file, users) = (path(&folder, "campaign.json"), path(&folder, "users.ndjson"));
    std::fs::write(&file, r#"{"message": {"notification": {"title": "Hello {{name}}"}}}"#).expect("written");
    std::fs::write(&users, "{\"user\":\"u1\",\"variables\":{\"name\":\"Ana\"}}\n\n{\"usr\":\"u2\"}\n")
        .expect("written");
    let create = ["campaign", "create", "--file", &file, "--upload", &users];
    let refused = node.fails(1, &create);
    assert!(refused.contains("line 3: ") && refused.contains("remains a draft"), "{refused}");
    let listed = node.json(&["campaign", "list"]);
    assert_eq!(
        (&listed["campaigns"][0]["state"], &listed["campaigns"][0]["uploaded"]),
        (&json!("draft"), &json!(1))
    );

    let draft = listed["campaigns"][0]["id"].as_str().expect("id");
    let again = node.fails(1, &["campaign", "upload", draft, &users]);
    assert!(again.contains("line 3: ") && again.contains("the other lines are stored"), "{again}");
    std::fs::write(&users, "{\"user\":\"u1\",\"variables\":{\"name\":\"Ana\"}}\n{\"user\":\"u2\"}\n")
        .expect("written");
    let uploaded = node.json(&["campaign", "upload", draft, &users]);
    assert_eq!((&uploaded["state"], &uploaded["uploaded"]), (&json!("draft"), &json!(2)));
    let started = node.json(&["campaign", "start", draft, "--watch"]);
    assert_eq!(started["state"], "done");
    assert!(node.fails(1, &["campaign", "upload", draft, &users]).contains("done"), "it has ended");
    let everyone =
        node.json(&["campaign", "create", "--everyone", "--title", "T", "--draft", "--rate", "50"]);
    let everyone = everyone["id"].as_str().expect("id");
    assert!(node.fails(1, &["campaign", "upload", everyone, &users]).contains("not uploaded"));
    let shown = node.run(&["campaign", "show", everyone]);
    assert!(shown.contains("0.0 (at most 50)"), "{shown}");
    let explained = node.run(&["explain", draft, "d1"]);
    assert!(explained.contains("targeted_by: upload") && explained.contains("no push token"), "{explained}");

    let ended = node.json(&[&create[..], &["--watch"]].concat());
    assert_eq!((&ended["state"], &ended["uploaded"]), (&json!("done"), &json!(2)));
}
