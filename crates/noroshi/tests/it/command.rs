//! Commands of operators and providers against a running node, as text and with `--json`.

use serde_json::{Value, json};

use crate::node::{Node, noroshi, text};

fn node() -> (tempfile::TempDir, Node) {
    let folder = tempfile::tempdir().expect("folder");
    let node = Node::start(&folder.path().join("data"));
    (folder, node)
}

#[test]
fn a_notification_is_sent_and_explained() {
    let (_folder, node) = node();
    node.run(&["devices", "register", "--device", "d1", "--user", "u1", "--platform", "web"]);
    let sent =
        node.json(&["send", "--user", "u1", "--user", "nobody", "--title", "Hello", "--data", "{\"n\":1}"]);
    assert_eq!(sent["targets"], 2);
    let id = sent["id"].as_str().expect("id");
    let whole = node.json(&["explain", id]);
    assert_eq!((&whole["counts"]["kept"], &whole["counts"]["unknown"]), (&json!(1), &json!(1)), "{whole}");
    let shown = node.run(&["explain", id]);
    assert!(shown.contains("stored in the device's inbox, to wait for its acknowledgement"), "{shown}");
    let trace = node.json(&["explain", id, "d1"]);
    assert_eq!(trace["steps"][0]["outcome"], "kept", "{trace}");
    assert!(node.run(&["explain", id, "d1"]).contains("kept"));
    node.fails(1, &["explain", "01890a5d-ac96-774b-bcce-b302099a8057"]);
    assert!(node.fails(1, &["explain", &id[..8]]).contains("is a whole UUID"));
}

#[test]
fn an_idempotency_key_returns_the_first_response() {
    let (_folder, node) = node();
    let send = |title: &'static str| ["send", "--everyone", "--title", title, "--idempotency-key", "k1"];
    let first = node.json(&send("once"));
    assert_eq!(node.json(&send("once")), first);
    assert!(node.fails(1, &send("another")).contains("409"));
}

#[test]
fn a_file_of_notifications_is_sent_line_by_line() {
    let (folder, node) = node();
    let file = folder.path().join("batch.ndjson");
    let lines =
        "{\"to\":{\"everyone\":true},\"data\":1}\n\n{\"to\":{}}\n{\"to\":{\"topic\":\"news\"},\"data\":2}\n";
    std::fs::write(&file, lines).expect("file");
    let output =
        node.command(&["send", "--file", file.to_str().expect("UTF-8")]).output().expect("the binary");
    assert_eq!(output.status.code(), Some(1), "one line is rejected");
    let printed = text(&output);
    assert!(printed.contains("2 accepted, 1 refused") && printed.contains("line 3:"), "{printed}");
}

#[test]
fn devices_get_the_configured_tcp_address() {
    let folder = tempfile::tempdir().expect("folder");
    let node = Node::start_with(&folder.path().join("data"), |command| {
        command.args(["--set", "mqtt.public_url=mqtts://push.example.com:443"]);
        command.args(["--set", "xmpp.public_url=xmpp://push.example.com:5222"]);
    });
    let connect = &node.json(&["devices", "register", "--device", "d1"])["connect"];
    assert_eq!(connect["mqtt_tcp"], "mqtts://push.example.com:443");
    assert_eq!(connect["xmpp_tcp"], "xmpp://push.example.com:5222");
}

#[test]
fn devices_are_listed_shown_revoked_and_deleted() {
    let (_folder, node) = node();
    for i in 0..3 {
        let (device, user) = (format!("d{i}"), format!("u{}", i % 2));
        node.run(&[
            "devices",
            "register",
            "--device",
            &device,
            "--user",
            &user,
            "--topic",
            "news",
            "--tag",
            "plan=paid",
        ]);
    }
    let devices = node.json(&["devices", "list"]);
    assert_eq!(devices["devices"].as_array().map(Vec::len), Some(3));
    assert!(devices["next"].is_null(), "{devices}");
    check_pages(&node, "devices", "device", &["d0", "d1", "d2"]);
    let table = node.run(&["devices", "list", "--user", "u0"]);
    assert!(table.starts_with(" DEVICE") || table.starts_with("DEVICE"), "{table}");
    assert!(table.contains("d0") && table.contains("d2") && !table.contains("d1"), "{table}");
    let shown = node.json(&["devices", "show", "d1"]);
    assert_eq!((&shown["tags"], &shown["topics"]), (&json!({"plan": "paid"}), &json!(["news"])));
    let token =
        node.json(&["devices", "register", "--device", "d1"])["token"].as_str().expect("token").to_owned();
    node.run(&["devices", "revoke", "d1"]);
    let refused = node.fails(77, &["listen", "--token", &token, "--once", "--timeout", "60s"]);
    assert!(!refused.contains(&token), "the token is not repeated");
    node.run(&["devices", "delete", "d1"]);
    assert!(node.fails(1, &["devices", "show", "d1"]).contains("device"));
}

/// Pages of one entry: each but the last names the next, also as a table.
fn check_pages(node: &Node, list: &str, id: &str, ids: &[&str]) {
    let mut after = Vec::new();
    for (i, expected) in ids.iter().enumerate() {
        let arguments = [
            &[list, "list", "--limit", "1"],
            after.iter().map(String::as_str).collect::<Vec<_>>().as_slice(),
        ]
        .concat();
        let part = node.json(&arguments);
        assert_eq!((&part[list][0][id], part[list].as_array().map(Vec::len)), (&json!(expected), Some(1)));
        let output = node.command(&arguments).output().expect("the binary");
        let remark = String::from_utf8_lossy(&output.stderr).into_owned();
        if i + 1 == ids.len() {
            assert!(part["next"].is_null() && remark.is_empty(), "{part} {remark}");
            continue;
        }
        let next = part["next"].as_str().expect("next").to_owned();
        assert!(remark.starts_with("more: --after ") && remark.contains(&next), "{remark}");
        after = vec!["--after".to_owned(), next];
    }
}

#[test]
fn topics_are_listed_shown_and_cleared() {
    let (_folder, node) = node();
    node.run(&["devices", "register", "--device", "d1", "--topic", "news/a b"]);
    node.run(&["send", "--topic", "news/a b", "--title", "Extra", "--retain"]);
    let topics = node.json(&["topics", "list"]);
    assert_eq!(topics["topics"][0]["topic"], "news/a b", "{topics}");
    assert!(node.run(&["topics", "list"]).contains("news/a b"));
    let topic = node.json(&["topics", "show", "news/a b"]);
    assert_eq!(
        (&topic["subscribers"], &topic["offset"], &topic["retained"]),
        (&json!(1), &json!(1), &json!(true))
    );
    node.run(&["send", "--topic", "news/b", "--title", "Second"]);
    check_pages(&node, "topics", "topic", &["news/a b", "news/b"]);
    assert_eq!(node.json(&["topics", "retained", "news/a b"])["notification"]["title"], "Extra");
    node.run(&["topics", "clear", "news/a b"]);
    node.fails(1, &["topics", "retained", "news/a b"]);
}

#[test]
fn devices_are_imported_and_rejected_lines_are_kept() {
    let (folder, node) = node();
    let file = folder.path().join("devices.ndjson");
    let mut lines: Vec<String> =
        (0..2_500).map(|i| json!({"device": format!("d{i}"), "user": "u"}).to_string()).collect();
    lines.insert(1_200, "{\"devise\":\"x\"}".to_owned());
    lines.insert(10, String::new());
    std::fs::write(&file, lines.join("\n")).expect("file");
    let (path, tokens) = (file.to_str().expect("UTF-8"), folder.path().join("tokens"));
    let arguments = ["import", "devices", path, "--json", "--tokens", tokens.to_str().expect("UTF-8")];
    let output = node.command(&arguments).output().expect("the binary");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&summary["imported"], &summary["refused"]), (&json!(2_500), &json!(1)));
    let rejects = std::fs::read_to_string(summary["rejects"].as_str().expect("a path")).expect("rejects");
    let reject: Value = serde_json::from_str(rejects.trim()).expect("one line of JSON");
    assert_eq!(reject["line"], 1_202);
    assert!(reject["error"].as_str().is_some_and(|error| error.contains("devise")), "{reject}");
    let tokens = std::fs::read_to_string(tokens).expect("tokens");
    assert_eq!(tokens.lines().count(), 2_500);
    let first: Value = serde_json::from_str(tokens.lines().next().expect("a line")).expect("JSON");
    assert!(first["token"].as_str().is_some_and(|token| token.starts_with("nd1.")), "{first}");
    assert_eq!(
        node.json(&["devices", "list", "--limit", "5000"])["devices"].as_array().map(Vec::len),
        Some(2_500)
    );
}

#[test]
fn an_import_from_standard_input_creates_no_unrequested_file() {
    let (folder, node) = node();
    let here = folder.path().join("here");
    std::fs::create_dir(&here).expect("folder");
    let import = |more: &[&str]| {
        let lines = folder.path().join("lines");
        std::fs::write(&lines, "{\"device\":\"d1\"}\n{\"devise\":\"x\"}\n").expect("file");
        let mut command = node.command(&[&["import", "devices", "-", "--json"], more].concat());
        let output = command
            .current_dir(&here)
            .stdin(std::fs::File::open(lines).expect("file"))
            .output()
            .expect("the binary");
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!((&summary["imported"], &summary["refused"]), (&json!(1), &json!(1)));
        (summary["rejects"].clone(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (rejects, printed) = import(&[]);
    assert_eq!(rejects, Value::Null);
    assert!(printed.contains("line 2: ") && printed.contains("devise"), "{printed}");
    assert_eq!(std::fs::read_dir(&here).expect("folder").count(), 0, "a file was left");
    let (rejects, _) = import(&["--rejects", "asked.ndjson"]);
    assert_eq!(rejects, "asked.ndjson");
    assert!(std::fs::read_to_string(here.join("asked.ndjson")).expect("file").contains("devise"));
}

#[test]
fn keys_grant_their_scopes_until_revoked() {
    let (_folder, node) = node();
    let made = node.json(&["keys", "create", "dashboard", "--scopes", "read"]);
    let (key, id) = (made["key"].as_str().expect("key"), made["id"].as_str().expect("id"));
    node.run(&["presence", "u1", "--key", key]);
    let refused = node.fails(77, &["send", "--everyone", "--title", "no", "--key", key]);
    assert!(!refused.contains(key), "{refused}");
    let table = node.run(&["keys", "list"]);
    assert!(table.contains("dashboard") && !table.contains(key), "{table}");
    node.run(&["keys", "revoke", id]);
    node.fails(77, &["presence", "u1", "--key", key]);
    node.fails(2, &["keys", "create", "x", "--scopes", "root"]);

    let made = node.json(&["keys", "create", "short", "--scopes", "read", "--expires", "10s"]);
    let short = made["key"].as_str().expect("key").to_owned();
    let expires_at = made["expires_at"].as_str().expect("a time").to_owned();
    assert!(node.run(&["keys", "list"]).contains(&expires_at));
    let refused = loop {
        let output = node.command(&["presence", "u1", "--key", &short]).output().expect("the binary");
        match output.status.success() {
            true => std::thread::sleep(std::time::Duration::from_millis(100)),
            false => break text(&output),
        }
    };
    assert!(refused.contains("expired"), "{refused}");
    let made = node.json(&["keys", "create", "long", "--expires", "90d"]);
    assert!(made["expires_at"].is_string() && made["expires_at"] != expires_at.as_str());
    let at = ["keys", "create", "at", "--expires", "2020-01-15T09:30:00Z"];
    assert!(node.fails(1, &at).contains("future"));
    node.fails(2, &["keys", "create", "x", "--expires", "soon"]);
    node.fails(2, &["keys", "create", "x", "--expires", "90"]);
}

#[test]
fn apps_are_isolated() {
    let (folder, node) = node();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "a-secret-of-at-least-thirty-two-bytes\n").expect("file");
    let made = node.json(&["apps", "create", "other", "--jwt-secret-file", secret.to_str().expect("UTF-8")]);
    assert_eq!(made["name"], "other");
    let shown = node.run(&["apps", "list"]);
    assert!(shown.contains("other") && !shown.contains("a-secret-of"), "{shown}");
    let key =
        node.json(&["keys", "create", "backend", "--app", "other"])["key"].as_str().expect("key").to_owned();
    node.run(&["devices", "register", "--device", "d1", "--user", "u1"]);
    node.fails(1, &["devices", "show", "d1", "--key", &key]);
    let id = node.json(&["send", "--user", "u1", "--title", "mine"])["id"].as_str().expect("id").to_owned();
    node.fails(1, &["explain", &id, "--key", &key]);
    assert_eq!(node.json(&["devices", "list", "--key", &key])["devices"], json!([]));
    node.run(&["apps", "delete", "other", "--yes"]);
    node.fails(77, &["devices", "list", "--key", &key]);
}

#[test]
fn exit_codes_distinguish_failures() {
    let (folder, node) = node();
    let code = |arguments: &[&str]| {
        let mut command = noroshi();
        command.args(arguments).env("NOROSHI_DATA", folder.path().join("nowhere"));
        command.output().expect("the binary").status.code()
    };
    assert_eq!(code(&["send", "--title", "to nobody"]), Some(2));
    assert_eq!(code(&["send", "--user", "u", "--topic", "t", "--title", "to two"]), Some(2));
    assert_eq!(code(&["presence", "u"]), Some(2), "no key");
    assert_eq!(code(&["presence", "u", "--key", "k", "--server", "nonsense"]), Some(2));
    assert_eq!(code(&["presence", "u", "--key", "k", "--server", "http://127.0.0.1:9"]), Some(69));
    assert_eq!(code(&["presence", "u", "--key", "k", "--server", &node.http]), Some(77));
    assert_eq!(code(&["apps", "list", "--operator-token", "wrong", "--admin-url", &node.admin]), Some(77));
    assert_eq!(code(&["config", "check"]), Some(0));
    assert_eq!(code(&["config", "check", "--set", "gateway.ping_interval=1"]), Some(64));
    assert_eq!(code(&["--help"]), Some(0));
}

#[test]
fn completions_and_configuration_are_printed() {
    for shell in ["bash", "zsh", "fish"] {
        let output = noroshi().args(["completions", shell]).output().expect("the binary");
        assert!(output.status.success() && text(&output).contains("noroshi"), "{shell}");
    }
    let output = noroshi()
        .args(["config", "print", "--json", "--set", "log.level=warn"])
        .output()
        .expect("the binary");
    let entries: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let level = entries
        .as_array()
        .expect("a list")
        .iter()
        .find(|entry| entry["key"] == "log.level")
        .expect("log.level");
    assert_eq!((&level["value"], &level["source"]), (&json!("\"warn\""), &json!("--set")));
}

#[test]
fn preferences_are_set_shown_and_cleared() {
    let (_folder, node) = node();
    let set = [
        "preferences",
        "set",
        "--user",
        "u1",
        "--mute",
        "promo",
        "--daily-max",
        "news=3",
        "--channels",
        "push",
    ];
    let stored =
        json!({"channels": ["push"], "categories": {"promo": {"muted": true}, "news": {"daily_max": 3}}});
    assert_eq!(node.json(&set), stored);
    assert_eq!(node.json(&["preferences", "show", "--user", "u1"]), stored);
    let shown = node.run(&["preferences", "show", "--user", "u1"]);
    assert!(shown.contains("category promo  muted\n"), "{shown}");
    assert_eq!(node.run(&["preferences", "clear", "--user", "u1"]), "cleared\n");
    assert_eq!(node.run(&["preferences", "show", "--user", "u1"]), "no preferences\n");
    assert_eq!(node.json(&["preferences", "clear", "--user", "u1"]), json!({}));
    assert_eq!(node.json(&["preferences", "show", "--user", "u1"]), json!({}));
    let neither = node.fails(2, &["preferences", "show"]);
    assert!(neither.contains("--user") && neither.contains("--device"), "{neither}");
    node.fails(2, &["preferences", "set", "--user", "u1", "--mute", "a", "--unmute", "a"]);
    node.fails(2, &["preferences", "show", "--user", "u1", "--device", "d1"]);
    node.fails(2, &["preferences", "set", "--user", "u1"]);
    node.fails(1, &["preferences", "show", "--device", "nobody"]);
    let essential = node.json(&["apps", "update", "dev", "--essential", "alarm", "--essential", "security"]);
    assert_eq!(essential["essential_categories"], json!(["alarm", "security"]));
    let sent = node.json(&["send", "--user", "u1", "--title", "t", "--category", "alarm"]);
    assert!(sent["id"].is_string(), "{sent}");
    let none = node.json(&["apps", "update", "dev", "--essential", ""]);
    assert_eq!(none["essential_categories"], json!([]));
}

#[test]
fn items_of_a_user_are_listed_counted_and_deleted() {
    let (_folder, node) = node();
    let send = |item: &'static str, title: &'static str| {
        node.json(&["send", "--user", "u1", "--title", title, item, "--badge", "unread"])
    };
    let orders = send("--item=orders", "first");
    send("--item", "second");
    node.fails(2, &["send", "--user", "u1", "--title", "t", "--item-retention", "1h"]);
    node.fails(2, &["send", "--user", "u1", "--title", "t", "--badge", "all"]);
    node.json(&["send", "--user", "u1", "--title", "short", "--item", "--item-retention", "90d"]);
    let listed = node.json(&["items", "list", "u1"]);
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(3), "{listed}");
    let of_orders = node.json(&["items", "list", "u1", "--state", "unread", "--category", "orders"]);
    assert_eq!(of_orders["items"][0]["id"], orders["id"]);
    let table = node.run(&["items", "list", "u1"]);
    assert!(table.contains("unread") && table.contains("title=second"), "{table}");
    assert_eq!(node.json(&["items", "counts", "u1"]), json!({"unread": 3, "categories": {"orders": 1}}));
    assert!(node.run(&["items", "delete", "u1"]).contains('3'));
    assert_eq!(node.json(&["items", "counts", "u1"])["unread"], 0);
}
