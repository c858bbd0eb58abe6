//! `noroshi dev-push`: the commands it prints make a node push to it, and it prints accepted pushes.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::node::{Node, noroshi, until};

struct DevPush {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl DevPush {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        let ports = [
            "--apns",
            "--apns-sandbox",
            "--apns-channels",
            "--apns-sandbox-channels",
            "--fcm",
            "--oauth",
            "--webpush",
            "--webhook",
            "--hms",
            "--wns",
            "--wns-login",
            "--control",
        ];
        let mut child = noroshi()
            .args(["dev-push", "--folder"])
            .arg(folder)
            .args(ports.iter().flat_map(|port| [*port, "0"]))
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary");
        let lines = BufReader::new(child.stdout.take().expect("standard output")).lines();
        Self { child, lines }
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("another line").expect("UTF-8")
    }

    fn stop(mut self) -> Option<i32> {
        let kill = Command::new("kill").arg("-TERM").arg(self.child.id().to_string()).status();
        assert!(kill.expect("kill").success());
        until("dev-push to end", || self.child.try_wait().expect("the child")).code()
    }
}

impl Drop for DevPush {
    fn drop(&mut self) {
        // After a failed test; it may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Splits a line as a shell would; only `'` quotes.
fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(|word| word.trim_matches('\'').to_owned()).collect()
}

/// The fake services, and a node that follows the printed guide; the devices of the guide.
fn guided(folder: &Path) -> (DevPush, Node, Value) {
    let mut push = DevPush::start(&folder.join("push"), &[]);
    let (mut serve, mut credentials) = (Vec::new(), Vec::new());
    loop {
        let line = push.line();
        match line.trim() {
            line if line.starts_with("noroshi serve") => serve = words(line),
            line if line.starts_with("noroshi push add") => credentials.push(words(line)),
            line if line.contains("Ctrl-C") => break,
            _ => {}
        }
    }
    let setting = serve.last().expect("a setting").clone();
    let node = Node::start_with(&folder.join("data"), |command| {
        command.args(["--dev", "--set", &setting]);
    });
    assert_eq!(credentials.len(), 7);
    for words in &credentials {
        let words: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        node.run(&words);
    }
    let devices = std::fs::read_to_string(folder.join("push/devices.json")).expect("devices");
    (push, node, serde_json::from_str(&devices).expect("JSON"))
}

#[test]
fn the_printed_guide_is_sufficient() {
    let folder = tempfile::tempdir().expect("folder");
    let (mut push, node, devices) = guided(folder.path());
    for (service, verdict) in [
        ("apns", "200"),
        ("apns-sandbox", "200"),
        ("fcm", "200"),
        ("webpush", "201"),
        ("webhook", "204"),
        ("hms", "200"),
        ("wns", "200"),
    ] {
        node.run(&["push", "test", "--token", &devices[service].to_string()]);
        let line = loop {
            // The first push to FCM and to WNS follows a request to a token endpoint.
            let line = push.line();
            if line.starts_with(&format!("{service} ")) {
                break line;
            }
            assert!(line.starts_with("oauth") || line.starts_with("wns-login") || line.is_empty(), "{line}");
        };
        assert!(line.contains(verdict), "{line}");
    }
    assert_eq!(push.stop(), Some(0));
}

#[test]
fn a_credential_is_rotated_if_the_push_service_accepts_the_new_secret() {
    let folder = tempfile::tempdir().expect("folder");
    let (mut push, node, devices) = guided(folder.path());
    let apns = || {
        let list = node.json(&["push", "list"])["credentials"].take();
        let of_production = |it: &&Value| it["service"] == "apns" && it["environment"] == "production";
        list.as_array().expect("credentials").iter().find(of_production).expect("one of APNs").clone()
    };
    let (before, token) = (apns(), devices["apns"].to_string());
    let id = before["id"].as_str().expect("an id");
    let fields = folder.path().join("fields.json");
    let path = fields.to_str().expect("UTF-8");
    let rotate = ["push", "rotate", id, path, "--token", &token];
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect("a key");

    // A key that APNs does not know.
    node.run(&["apps", "create", "other"]);
    let other = folder.path().join("other.pem");
    let save = ["--save-key", other.to_str().expect("UTF-8"), "--app", "other"];
    node.run(&[&["push", "add", "webpush", "--subject", "mailto:ops@example.com"][..], &save].concat());
    std::fs::write(&fields, json!({"key": read("other.pem")}).to_string()).expect("written");
    let refused = node.fails(1, &rotate);
    assert!(refused.contains("InvalidProviderToken") && !refused.contains("PRIVATE"), "{refused}");
    assert_eq!(apns()["created_at"], before["created_at"], "the former secret stays");

    std::fs::write(&fields, json!({"key": read("push/AuthKey_DEVKEY0001.p8")}).to_string()).expect("written");
    let rotated = node.json(&rotate);
    assert_eq!((&rotated["id"], &rotated["settings"]), (&before["id"], &before["settings"]));
    assert_ne!(apns()["created_at"], before["created_at"]);
    // Each test is a push, also the rejected one.
    let verdict = |line: &str, status: &str| line.starts_with("apns ") && line.contains(status);
    let mut lines = (0..10).map(|_| push.line());
    assert!(lines.any(|line| verdict(&line, "403")), "the rejected one");
    assert!(lines.any(|line| verdict(&line, "200")), "the accepted one");

    std::fs::write(&fields, "{").expect("written");
    node.fails(2, &rotate);
    std::fs::write(&fields, "{}").expect("written");
    assert!(node.fails(1, &rotate).contains("the fields to change"));
    assert!(node.fails(2, &rotate[..4]).contains("--device"));
    std::fs::write(&fields, json!({"key": read("push/AuthKey_DEVKEY0001.p8")}).to_string()).expect("written");
    node.fails(1, &["push", "rotate", "999", path, "--token", &token]);
    node.fails(1, &["push", "rotate", id, path, "--device", "nobody"]);
    assert_eq!(push.stop(), Some(0));
}

#[test]
fn output_is_json_for_programs_and_errors_are_reported() {
    let folder = tempfile::tempdir().expect("folder");
    let mut push = DevPush::start(folder.path(), &["--json", "--light"]);
    let info: Value = serde_json::from_str(&push.line()).expect("JSON");
    assert_eq!(info["credentials"]["fcm"]["service"], json!("fcm"));
    let (status, counts) = crate::node::get(info["control"].as_str().expect("an address"), "/counts");
    assert!(status == 200 && counts.contains("apns-sandbox"), "{status} {counts}");
    let taken =
        info["origins"]["apns"].as_str().and_then(|origin| origin.rsplit(':').next()).expect("a port");
    let output = noroshi().args(["dev-push", "--folder"]).arg(folder.path()).args(["--apns", taken]).output();
    let output = output.expect("the binary");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("apns"), "{output:?}");
    assert_eq!(push.stop(), Some(0));
}
