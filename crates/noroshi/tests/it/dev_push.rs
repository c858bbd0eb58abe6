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

#[test]
fn the_printed_guide_is_sufficient() {
    let folder = tempfile::tempdir().expect("folder");
    let mut push = DevPush::start(&folder.path().join("push"), &[]);
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
    let node = Node::start_with(&folder.path().join("data"), |command| {
        command.args(["--dev", "--set", &setting]);
    });
    assert_eq!(credentials.len(), 7);
    for words in &credentials {
        let words: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        node.run(&words);
    }
    let devices = std::fs::read_to_string(folder.path().join("push/devices.json")).expect("devices");
    let devices: Value = serde_json::from_str(&devices).expect("JSON");
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
