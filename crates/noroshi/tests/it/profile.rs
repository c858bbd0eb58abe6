//! Profiles of a running node: pulled by the command, pushed to a strict fake of Pyroscope, and the errors of
//! builds without support.

use crate::node::Node;

fn wrong(node: &Node, arguments: &[&str], words: &str) {
    let output = node.command(arguments).output().expect("the binary");
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && printed.contains(words), "{arguments:?}: {printed}");
}

#[cfg(not(feature = "profiling"))]
#[test]
fn a_build_without_profiles_is_reported_everywhere() {
    let folder = tempfile::tempdir().expect("folder");
    let node = Node::start(&folder.path().join("data"));
    let file = folder.path().join("p.pb.gz");
    let file = file.to_str().expect("text");
    wrong(&node, &["profile", "--seconds", "1", "--out", file], "feature `profiling`");
    wrong(&node, &["profile", "--seconds", "1", "--out", "p.svg"], "feature `profiling`");
    let set = "profiling.server=http://127.0.0.1:4040";
    let output = crate::node::noroshi().args(["serve", "--set", set]).current_dir(folder.path()).output();
    let output = output.expect("the binary");
    assert_eq!(output.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&output.stderr).contains("feature `profiling`"));
}

#[cfg(feature = "profiling")]
#[test]
fn the_command_saves_or_renders_a_profile() {
    use noroshi_testkit::pyroscope::pprof;

    let folder = tempfile::tempdir().expect("folder");
    let node = Node::start(&folder.path().join("data"));
    wrong(&node, &["profile", "--seconds", "1", "--out", "p.txt"], ".svg");
    wrong(&node, &["profile", "--seconds", "61"], "60");
    wrong(&node, &["profile", "--operator-token", "no_wrong", "--seconds", "1"], "refused");
    let (file, picture) = (folder.path().join("p.pb.gz"), folder.path().join("p.svg"));
    let (file_name, picture_name) = (file.to_str().expect("text"), picture.to_str().expect("text"));
    let stop = std::sync::atomic::AtomicBool::new(false);
    let profile = std::thread::scope(|scope| {
        // Work to sample.
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                node.run(&["devices", "list"]);
            }
        });
        let mut profile = Err("none".to_owned());
        for _ in 0..20 {
            node.run(&["profile", "--seconds", "2", "--hz", "250", "--out", file_name]);
            profile = pprof::read(&std::fs::read(&file).expect("written"));
            if profile.is_ok() {
                break;
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        profile
    });
    let profile = profile.expect("by the rules, with samples");
    let of_node = |name: &String| name.contains("noroshi");
    assert!(profile.samples.iter().any(|sample| sample.stack.iter().any(of_node)));
    node.run(&["profile", "--from", file_name, "--out", picture_name]);
    let svg = std::fs::read_to_string(&picture).expect("written");
    assert!(svg.starts_with("<?xml") && svg.contains("CPU time by thread and function"));
    std::fs::write(&file, b"\x1f\x8bnot a profile").expect("written");
    wrong(&node, &["profile", "--from", file_name, "--out", picture_name], "not a profile");
    if !noroshi_profiling::HEAP {
        wrong(&node, &["profile", "--heap", "--out", file_name], "heap-profiling");
    }
    assert_eq!(node.stop(), Some(0));
}

#[cfg(feature = "profiling")]
#[test]
fn a_node_pushes_to_a_server_on_a_private_address_and_stops_in_time() {
    use noroshi_testkit::pyroscope::{Expected, Pyroscope};

    let tenant = Some("team-7".to_owned());
    let server = Pyroscope::start(Expected { tenant, ..Expected::default() }).expect("a server");
    let folder = tempfile::tempdir().expect("folder");
    let node = Node::start_with(&folder.path().join("data"), |command| {
        command.args(["--set", &format!("profiling.server={}", server.origin())]);
        for set in [
            "profiling.interval=5s",
            "profiling.tenant=team-7",
            "profiling.labels=region=eu-1",
            "node.name=n1",
        ] {
            command.args(["--set", set]);
        }
    });
    let push = crate::node::until("a push", || {
        node.run(&["devices", "list"]);
        assert_eq!(server.violation(), None);
        server.pushes().into_iter().next()
    });
    let labels: Vec<_> = push.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let version = format!("version={}", env!("CARGO_PKG_VERSION"));
    assert_eq!(labels, ["node=n1", "region=eu-1", "role=api+gateway+sender", &version]);
    assert_eq!(push.application, "noroshi");
    let began = std::time::Instant::now();
    assert_eq!(node.stop(), Some(0));
    assert!(began.elapsed() < std::time::Duration::from_secs(40), "{:?}", began.elapsed());
    assert_eq!(server.violation(), None);
}
