//! TLS on both addresses, and reloading certificates.

use std::path::{Path, PathBuf};

use crate::node::{Node, noroshi, text, until};

/// Writes a self-signed certificate for `localhost` and its key.
fn certificate(folder: &Path) -> (PathBuf, PathBuf) {
    certificate_with(folder, |_| {})
}

fn certificate_with(folder: &Path, change: impl FnOnce(&mut rcgen::CertificateParams)) -> (PathBuf, PathBuf) {
    let (cert, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    let mut parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    change(&mut parameters);
    let signing_key = rcgen::KeyPair::generate().expect("a key");
    std::fs::write(&cert, parameters.self_signed(&signing_key).expect("a certificate").pem())
        .expect("cert.pem");
    std::fs::write(&key, signing_key.serialize_pem()).expect("key.pem");
    (cert, key)
}

fn tls_node(folder: &Path) -> Node {
    tls_node_with(folder, |_| {})
}

fn tls_node_with(folder: &Path, change: impl FnOnce(&mut rcgen::CertificateParams)) -> Node {
    let (cert, key) = certificate_with(folder, change);
    Node::start_with(&folder.join("data"), |command| {
        for (flag, path) in [
            ("--tls-cert", &cert),
            ("--tls-key", &key),
            ("--admin-tls-cert", &cert),
            ("--admin-tls-key", &key),
        ] {
            command.arg(flag).arg(path);
        }
    })
}

#[test]
fn everything_works_over_tls() {
    let folder = tempfile::tempdir().expect("folder");
    let node = tls_node(folder.path());
    assert!(node.http.starts_with("https://localhost:") && node.admin.starts_with("https://localhost:"));
    let trusted = folder.path().join("cert.pem");
    let trusted = trusted.to_str().expect("UTF-8");
    assert!(node.fails(69, &["presence", "u1"]).contains("pass --ca-file"));
    let data = folder.path().join("data");
    let examined = noroshi().args(["doctor", "--json", "--connections", "10", "--data"]).arg(&data).output();
    let examined = text(&examined.expect("the binary"));
    assert!(examined.contains("\"tls\":true"), "the running node has TLS: {examined}");
    node.run(&["devices", "register", "--device", "d1", "--user", "u1", "--ca-file", trusted]);
    node.run(&["send", "--user", "u1", "--title", "sealed", "--ca-file", trusted]);
    for transport in [&["--no-ack"][..], &["--sse"]] {
        let listen = [
            "listen",
            "--user",
            "u1",
            "--device",
            "d1",
            "--count",
            "1",
            "--timeout",
            "60s",
            "--ca-file",
            trusted,
        ];
        assert!(node.run(&[&listen[..], transport].concat()).contains("sealed"));
    }
    assert!(node.run(&["apps", "list", "--ca-file", trusted]).contains("dev"));
    assert_eq!(node.stop(), Some(0));
}

#[test]
fn an_unknown_ca_is_reported_with_a_hint() {
    let folder = tempfile::tempdir().expect("folder");
    let node = tls_node_with(folder.path(), |parameters| {
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    });
    let trusted = folder.path().join("cert.pem");
    let trusted = trusted.to_str().expect("UTF-8");
    for command in [&["presence", "u1"][..], &["listen", "--user", "u1", "--once", "--timeout", "60s"]] {
        let printed = node.fails(69, &[command, &["--ca-file", trusted]].concat());
        assert!(printed.contains("CA:FALSE") && !printed.contains("OtherError"), "{printed}");
    }
}

#[test]
fn unusable_certificates_are_configuration_problems() {
    let folder = tempfile::tempdir().expect("folder");
    let (cert, key) = certificate(folder.path());
    let other = folder.path().join("other");
    std::fs::create_dir(&other).expect("folder");
    let (_, other_key) = certificate(&other);
    let junk = folder.path().join("junk.pem");
    std::fs::write(&junk, "not PEM").expect("written");
    let data = folder.path().join("data");
    let printed = |command: &[&str], public: (&Path, &Path), admin: (&Path, &Path)| {
        let mut command_line = noroshi();
        command_line.args(command).arg("--data").arg(&data).args(["--log-format", "xml"]);
        command_line.arg("--tls-cert").arg(public.0).arg("--tls-key").arg(public.1);
        command_line.arg("--admin-tls-cert").arg(admin.0).arg("--admin-tls-key").arg(admin.1);
        let output = command_line.output().expect("the binary");
        assert_eq!(output.status.code(), Some(64), "{}", text(&output));
        assert!(!data.exists(), "the data folder was created");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let (nope, nope2) = (Path::new("/nope"), Path::new("/nope2"));
    for command in [&["config", "check"][..], &["serve"]] {
        let missing = printed(command, (nope, nope2), (&cert, &other_key));
        for part in [
            "log.format (--log-format)",
            "tls.cert (--tls-cert): the certificate file /nope cannot be read",
            "tls.key (--tls-key): the private key file /nope2 cannot be read",
            "admin.tls.cert (--admin-tls-cert): certificate and private key cannot be used together",
        ] {
            assert!(missing.contains(part), "{part} is not in {missing}");
        }
        let unparsable = printed(command, (&cert, &junk), (&junk, &key));
        for part in ["\n  tls.key (--tls-key): ", "admin.tls.cert (--admin-tls-cert): ", "3 problems"] {
            assert!(unparsable.contains(part), "{part} is not in {unparsable}");
        }
    }
}

#[test]
fn a_certificate_is_reloaded_and_an_invalid_one_is_ignored() {
    let folder = tempfile::tempdir().expect("folder");
    let node = tls_node(folder.path());
    let copy = |name: &str| {
        let to = folder.path().join(name);
        std::fs::copy(folder.path().join("cert.pem"), &to).expect("copied");
        to.to_str().expect("UTF-8").to_owned()
    };
    let first = copy("first.pem");
    node.run(&["presence", "u1", "--ca-file", &first]);

    std::fs::write(folder.path().join("key.pem"), "not a key").expect("written");
    node.signal("HUP");
    until("the log to say why", || {
        node.log().contains("certificate not reloaded; the current one stays in use").then_some(())
    });
    node.run(&["presence", "u1", "--ca-file", &first]);

    certificate(folder.path());
    node.signal("HUP");
    until("the log to say so", || node.log().contains("certificate reloaded").then_some(()));
    let second = copy("second.pem");
    node.run(&["presence", "u1", "--ca-file", &second]);
    node.fails(69, &["presence", "u1", "--ca-file", &first]);
    node.run(&["apps", "list", "--ca-file", &second]);
}
