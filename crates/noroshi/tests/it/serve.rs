//! Start and stop of a node: its output, its stored data, and one clear line on failure.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use crate::node::{Node, get, noroshi, text, until};

fn folder() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().expect("folder");
    let data = folder.path().join("data");
    (folder, data)
}

/// Exit code and standard error of a start that must fail.
fn refused(arguments: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = noroshi();
    command.arg("serve").args(arguments).envs(environment.iter().copied());
    let output = command.output().expect("the binary");
    assert!(!output.status.success(), "{arguments:?}: {}", text(&output));
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// One line naming the problem.
fn check_line(printed: &str, part: &str) {
    let complaints: Vec<&str> = printed.lines().filter(|line| line.starts_with("noroshi: ")).collect();
    assert_eq!(complaints.len(), 1, "{printed}");
    assert!(complaints[0].contains(part), "{part:?} is not in {printed}");
    assert!(!printed.contains("panicked"), "{printed}");
}

#[test]
fn a_new_node_becomes_ready_and_exits_cleanly() {
    let (_folder, data) = folder();
    let node = Node::start(&data);
    assert_eq!(get(&node.admin, "/healthz").0, 200);
    let (status, metrics) = get(&node.admin, "/metrics");
    assert_eq!(status, 200);
    for name in ["noroshi_build_info", "noroshi_process_resident_memory_bytes", "noroshi_http_requests_total"]
    {
        assert!(metrics.contains(name), "{name} is not in {metrics}");
    }
    assert!(!metrics.contains("noroshi_noroshi"), "duplicate prefix");
    assert_eq!(get(&node.http, "/docs").0, 200);
    assert_eq!(get(&node.http, "/metrics").0, 404, "metrics are on the admin address only");
    for file in ["dev.key", "dev.jwt-secret", "operator.token", "noroshi.db"] {
        let mode = std::fs::metadata(data.join(file)).expect(file).permissions().mode();
        assert_eq!(mode & 0o077, 0, "{file} can be read by others");
    }
    assert_eq!(node.stop(), Some(0));
    assert!(!data.join("addresses.json").exists());
}

#[test]
fn the_printed_commands_work_unchanged() {
    let (folder, data) = folder();
    let node = Node::start(&data);
    let screen = node.screen();
    let key = std::fs::read_to_string(data.join("dev.key")).expect("key");
    assert!(screen.contains(key.trim()), "the generated key is shown once it is needed: {screen}");
    let line = |part: &str| screen.lines().find(|line| line.contains(part)).expect(part).trim().to_owned();
    let shell = |line: &str| {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", line]).current_dir(folder.path());
        command
    };
    let received = folder.path().join("received");
    let listen = format!("{} --count 1 --timeout 60s > {}", line(" listen "), received.display());
    let mut listening = shell(&listen).spawn().expect("sh");
    until("the device to be there", || node.run(&["presence", "u1"]).contains("active").then_some(()));
    assert!(shell(&line(" send ")).status().expect("sh").success());
    assert!(listening.wait().expect("sh").success());
    let received = std::fs::read_to_string(received).expect("received messages");
    assert!(received.contains("Hello: from the backend"), "{received}");
    assert!(line("The whole API").ends_with(&format!("{}/docs", node.http)));
}

#[test]
fn secrets_survive_a_restart() {
    let (_folder, data) = folder();
    let read = |name: &str| std::fs::read_to_string(data.join(name)).expect(name);
    let names = ["dev.key", "dev.jwt-secret", "operator.token"];
    let node = Node::start(&data);
    let before = names.map(read);
    assert_eq!(node.stop(), Some(0));
    let node = Node::start(&data);
    assert_eq!(names.map(read), before);
    node.run(&["presence", "u1"]);
    assert_eq!(node.json(&["keys", "list"])["keys"].as_array().map(Vec::len), Some(1), "one key, not two");
}

#[test]
fn secrets_are_set_and_replaced_by_the_environment() {
    let (_folder, data) = folder();
    let with = |key: &'static str, secret: &'static str| {
        Node::start_with(&data, move |command| {
            command.env("NOROSHI_DEV_KEY", key).env("NOROSHI_DEV_JWT_SECRET", secret);
        })
    };
    let node = with("first-key-of-sixteen", "first-secret-of-thirty-two-bytes");
    assert!(!node.screen().contains("first-key-of-sixteen"), "a given key is not shown");
    assert!(!data.join("dev.key").exists(), "nor stored in cleartext");
    node.run(&["presence", "u1", "--key", "first-key-of-sixteen"]);
    assert_eq!(node.stop(), Some(0));
    let node = with("second-key-of-sixteen", "second-secret-of-thirty-two-byte");
    node.run(&["presence", "u1", "--key", "second-key-of-sixteen"]);
    assert!(node.fails(77, &["presence", "u1", "--key", "first-key-of-sixteen"]).contains("refused"));
    let log = node.log();
    for secret in ["first-key-of-sixteen", "second-key-of-sixteen", "first-secret", "second-secret"] {
        assert!(!log.contains(secret) && !node.screen().contains(secret), "{secret} was printed");
    }
}

#[test]
fn creating_an_app_does_not_recreate_the_development_app() {
    let (_folder, data) = folder();
    let node = Node::start(&data);
    node.run(&["apps", "create", "real"]);
    node.fails(2, &["apps", "delete", "dev"]);
    node.run(&["apps", "delete", "dev", "--yes"]);
    assert_eq!(node.stop(), Some(0));
    let names = |node: &Node| {
        let apps = node.json(&["apps", "list"]);
        apps["apps"]
            .as_array()
            .expect("apps")
            .iter()
            .map(|app| app["name"].to_string())
            .collect::<Vec<_>>()
            .join(" ")
    };
    let node = Node::start(&data);
    assert_eq!(names(&node), "\"real\"");
    assert!(!node.screen().contains("Development app"));
    assert_eq!(node.stop(), Some(0));
    let node = Node::start_with(&data, |command| {
        command.arg("--dev");
    });
    assert_eq!(names(&node), "\"real\" \"dev\"");
}

#[test]
fn a_port_in_use_is_named() {
    let (folder, data) = folder();
    let node = Node::start(&data);
    let other = folder.path().join("other");
    let other = other.to_str().expect("UTF-8");
    let http = node.http.strip_prefix("http://").expect("plain");
    let (code, printed) = refused(&["--data", other, "--http", http, "--admin", "127.0.0.1:0"], &[]);
    assert_eq!(code, Some(1));
    check_line(&printed, &format!("server.http: cannot listen on {http}: another process listens there"));
    let admin = node.admin.strip_prefix("http://").expect("plain");
    let (code, printed) = refused(&["--data", other, "--http", "127.0.0.1:0", "--admin", admin], &[]);
    assert_eq!(code, Some(1));
    check_line(&printed, &format!("server.admin: cannot listen on {admin}"));
}

#[test]
fn a_data_folder_in_use_is_named() {
    let (_folder, data) = folder();
    let node = Node::start(&data);
    let shown = data.to_str().expect("UTF-8");
    let (code, printed) = refused(&["--data", shown, "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"], &[]);
    assert_eq!(code, Some(1));
    check_line(&printed, "in use by another process");
    check_line(&printed, shown);
    assert_eq!(
        node.json(&["presence", "u"])["users"]["u"]["presence"],
        "offline",
        "the first node is unharmed"
    );
}

#[test]
fn a_data_folder_that_cannot_be_written_is_named() {
    let (folder, _) = folder();
    let file = folder.path().join("a-file");
    std::fs::write(&file, "in the way").expect("file");
    for path in [file.clone(), file.join("below")] {
        let shown = path.to_str().expect("UTF-8");
        let (code, printed) =
            refused(&["--data", shown, "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"], &[]);
        assert_eq!(code, Some(1));
        check_line(&printed, "a-file");
    }
}

#[test]
fn a_database_of_a_newer_version_is_unchanged() {
    let (_folder, data) = folder();
    assert_eq!(Node::start(&data).stop(), Some(0));
    let database = data.join("noroshi.db");
    set_user_version(&database, 9_999);
    let before = std::fs::read(&database).expect("database");
    let shown = data.to_str().expect("UTF-8");
    let (code, printed) = refused(&["--data", shown, "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"], &[]);
    assert_eq!(code, Some(1));
    check_line(&printed, "newer version");
    assert!(std::fs::read(&database).expect("database") == before, "the database was changed");
}

/// SQLite's file format §1.3: the user version is at byte 60, big-endian.
fn set_user_version(database: &Path, version: u32) {
    let mut bytes = std::fs::read(database).expect("database");
    bytes[60..64].copy_from_slice(&version.to_be_bytes());
    std::fs::write(database, bytes).expect("database");
}

#[test]
fn an_invalid_configuration_lists_every_problem_and_opens_nothing() {
    let (folder, data) = folder();
    let file = folder.path().join("noroshi.toml");
    std::fs::write(&file, "[gateway]\nping_interval = \"soon\"\nfoo = 1\n").expect("file");
    let arguments =
        ["--config", file.to_str().expect("UTF-8"), "--data", data.to_str().expect("UTF-8"), "--http", "x"];
    let environment = [("NOROSHI__LIMITS__BODY", "12"), ("NOROSHI_DEV_KEY", "with space")];
    let (code, printed) = refused(&arguments, &environment);
    assert_eq!(code, Some(64), "{printed}");
    for part in [
        "gateway.ping_interval",
        "noroshi.toml:2",
        "gateway.foo",
        "--http",
        "NOROSHI__LIMITS__BODY",
        "NOROSHI_DEV_KEY",
    ] {
        assert!(printed.contains(part), "{part} is not in {printed}");
    }
    assert!(!printed.contains("with space"), "a secret is not repeated: {printed}");
    assert!(!data.exists(), "the data folder was created");
    let (code, printed) = refused(
        &["--tls-cert", "absent.pem", "--tls-key", "absent.key", "--data", data.to_str().expect("UTF-8")],
        &[],
    );
    assert_eq!(code, Some(64), "{printed}");
    assert!(printed.contains("absent.pem"), "{printed}");
}

#[test]
fn invalid_flags_are_a_usage_error() {
    assert_eq!(refused(&["--no-such-flag"], &[]).0, Some(2));
}

#[test]
fn a_hangup_does_not_stop_the_node() {
    let (_folder, data) = folder();
    let node = Node::start(&data);
    node.signal("HUP");
    until("the log to say so", || node.log().contains("SIGHUP").then_some(()));
    assert_eq!(get(&node.admin, "/readyz").0, 200);
    assert_eq!(node.stop(), Some(0));
}

#[test]
fn a_second_signal_aborts_a_drain() {
    let (_folder, data) = folder();
    let mut node = Node::start_with(&data, |command| {
        command.args(["--set", "gateway.drain.rate=1", "--set", "gateway.drain.deadline=1h"]);
    });
    // Four devices at one per second: the drain takes a while and is not awaited.
    let listening: Vec<_> = ["a", "b", "c", "d"]
        .map(|user| {
            let mut command = node.command(&["listen", "--user", user, "--timeout", "60s", "--once"]);
            let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary");
            until("the device to be there", || {
                node.run(&["presence", user]).contains("active").then_some(())
            });
            child
        })
        .into();
    node.signal("TERM");
    until("the drain", || (get(&node.admin, "/readyz").0 == 503).then_some(()));
    assert_eq!(get(&node.admin, "/healthz").0, 200, "it is alive while it drains");
    node.signal("TERM");
    assert_eq!(node.wait(), Some(1));
    assert!(!data.join("addresses.json").exists());
    for mut child in listening {
        // It ended with the connection, or is stopped now.
        let _ = child.kill();
        let _ = child.wait();
    }
    assert_eq!(Node::start(&data).stop(), Some(0), "the folder is usable again");
}
