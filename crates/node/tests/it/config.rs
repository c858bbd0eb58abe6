//! The configuration: precedence, units, and every problem at once.

use std::path::Path;
use std::time::Duration;

use noroshi_node::config::{Config, Flag, Inputs, Problems, Source, print};

fn inputs(folder: &Path, file: &str) -> Inputs {
    std::fs::write(folder.join("noroshi.toml"), file).expect("file");
    Inputs { folder: folder.to_owned(), ..Inputs::default() }
}

fn load(file: &str) -> Result<Config, Problems> {
    let folder = tempfile::tempdir().expect("folder");
    Config::load(&inputs(folder.path(), file))
}

/// Exactly one problem, which contains every part.
fn check(file: &str, parts: &[&str]) {
    let problems = load(file).expect_err(file);
    assert_eq!(problems.0.len(), 1, "{file}: {problems}");
    for part in parts {
        assert!(problems.to_string().contains(part), "{file}: {part} is not in {problems}");
    }
}

#[test]
fn the_defaults_are_a_complete_configuration() {
    let folder = tempfile::tempdir().expect("folder");
    let config =
        Config::load(&Inputs { folder: folder.path().to_owned(), ..Inputs::default() }).expect("defaults");
    assert_eq!(config.server.http.to_string(), "0.0.0.0:8080");
    assert_eq!(config.server.admin.to_string(), "127.0.0.1:9090");
    assert_eq!(config.gateway.ping_interval, Duration::from_secs(240));
    assert!(config.server.tls.is_none());
}

#[test]
fn a_development_node_listens_on_loopback_by_default() {
    assert_eq!(load("[server]\ndev = true").expect("ok").server.http.to_string(), "127.0.0.1:8080");
    let told = load("[server]\ndev = true\nhttp = \"0.0.0.0:80\"").expect("ok");
    assert_eq!(told.server.http.to_string(), "0.0.0.0:80");
}

#[test]
fn flags_override_the_environment_which_overrides_the_file() {
    let folder = tempfile::tempdir().expect("folder");
    let mut inputs = inputs(
        folder.path(),
        "[gateway]\nping_interval = \"1m\"\nping_timeout = \"1s\"\n[log]\nlevel = \"warn\"",
    );
    inputs.environment = vec![
        ("NOROSHI__GATEWAY__PING_INTERVAL".to_owned(), "2m".to_owned()),
        ("NOROSHI__GATEWAY__DRAIN__RATE".to_owned(), "7".to_owned()),
        ("NOROSHI__SERVER__HTTP".to_owned(), "127.0.0.1:1".to_owned()),
        ("NOROSHI_DEV_KEY".to_owned(), "not a configuration key".to_owned()),
    ];
    inputs.flags =
        vec![Flag { name: "--http", key: "server.http".to_owned(), value: "127.0.0.1:2".to_owned() }];
    let config = Config::load(&inputs).expect("configuration");
    assert_eq!(config.log.level, "warn");
    assert_eq!(config.gateway.ping_timeout, Duration::from_secs(1));
    assert_eq!(config.gateway.ping_interval, Duration::from_secs(120));
    assert_eq!(config.gateway.drain.rate, 7);
    assert_eq!(config.server.http.port(), 2);
    let http = config.entries.iter().find(|entry| entry.key == "server.http").expect("entry");
    assert_eq!(http.source, Source::Flag { name: "--http".to_owned() });
}

#[test]
fn all_problems_are_reported_with_key_source_and_unit() {
    let folder = tempfile::tempdir().expect("folder");
    let file =
        "[gateway]\nping_interval = 30\nfoo = 1\n\n[limits]\nbody = \"12 parsecs\"\n[log]\nformat = 'xml'\n";
    let mut inputs = inputs(folder.path(), file);
    inputs.environment = vec![("NOROSHI__STORE__INBOX_ROWS".to_owned(), "many".to_owned())];
    inputs.flags =
        vec![Flag { name: "--http", key: "server.http".to_owned(), value: "localhost".to_owned() }];
    let problems = Config::load(&inputs).expect_err("problems");
    let text = problems.to_string();
    for line in [
        "gateway.ping_interval (noroshi.toml:2): expected a duration with a unit (ms, s, m, h, d), such as \"30s\", got 30",
        "gateway.foo (noroshi.toml:3): unknown key",
        "limits.body (noroshi.toml:6): expected a size with a unit (B, KiB, MiB, GiB), such as \"256KiB\", got \"12 parsecs\"",
        "log.format (noroshi.toml:8): expected one of text, json, got \"xml\"",
        "store.inbox_rows (NOROSHI__STORE__INBOX_ROWS): expected a whole number (notifications), got \"many\"",
        "server.http (--http): expected an IP address with a port",
    ] {
        assert!(text.contains(line), "{line}\nis not in\n{text}");
    }
    assert_eq!(problems.0.len(), 6, "{text}");
}

#[test]
fn single_mistakes_are_named() {
    check("[gateway]\nping_intervall = \"1m\"", &["unknown key", "`gateway.ping_interval`"]);
    check("[gateway]\nping_interval = \"1ms\"", &["out of range", "1s to 1h"]);
    check("[limits]\nheaders = 1000", &["out of range", "16 to 64"]);
    check("[limits]\nheaders = 20.5", &["whole number", "float"]);
    check("[server]\nhttp = \"127.0.0.1:80\"\nadmin = \"127.0.0.1:80\"", &["server.admin", "its own port"]);
    check("[mqtt]\nlisten = \"localhost:1883\"", &["mqtt.listen", "127.0.0.1:1883"]);
    check("[xmpp]\nlisten = \"localhost:5222\"", &["xmpp.listen", "127.0.0.1:5222"]);
    let mqtt = |rest: &str| format!("[server]\nhttp = \"127.0.0.1:80\"\n[mqtt]\nlisten = {rest}");
    check(&mqtt("\"0.0.0.0:80\""), &["mqtt.listen", "the same address as server.http"]);
    check(&mqtt("\"[::]:80\""), &["mqtt.listen", "the same address as server.http"]);
    check(
        &mqtt("\"[::1]:9\"\n[xmpp]\nplaintext = true\nlisten = \"[::1]:9\""),
        &["xmpp.listen", "same address as mqtt.listen"],
    );
    for fine in [
        "\"127.0.0.2:80\"",
        "\"[::1]:80\"",
        "\"127.0.0.1:0\"\n[xmpp]\nplaintext = true\nlisten = \"127.0.0.1:0\"",
    ] {
        load(&mqtt(fine)).expect(fine);
    }
    check("[tls]\ncert = \"a.pem\"", &["tls.cert", "requires tls.key"]);
    check("[admin.tls]\nkey = \"a.pem\"", &["admin.tls.key", "requires admin.tls.cert"]);
    check(
        "[gateway]\nsend_queue = \"4KiB\"",
        &["gateway.send_queue_soft", "must not exceed gateway.send_queue"],
    );
    check("[log]\nlevel = \"loud\"", &["log.level", "level"]);
    check("[server]\npublic_url = \"example.com\"", &["server.public_url", "https://"]);
    for (key, tls) in [("mqtt", "mqtts"), ("xmpp", "xmpps")] {
        let given = |url: &str| format!("[{key}]\npublic_url = \"{url}\"");
        let told = |config: &Config| match key {
            "mqtt" => config.mqtt.public_url.clone(),
            _ => config.xmpp.public_url.clone(),
        };
        for rest in ["push.example.com:443", "192.0.2.7:1883", "[2001:db8::7]:65535"] {
            for url in [format!("{tls}://{rest}"), format!("{key}://{rest}")] {
                assert_eq!(told(&load(&given(&url)).expect(&url)), Some(url));
            }
        }
        assert_eq!(told(&load("").expect("nothing is set")), None);
        let other = if key == "mqtt" { "xmpp" } else { "mqtt" };
        for wrong in [
            "push.example.com:443".to_owned(),
            format!("{tls}://push.example.com"),
            format!("{tls}://push.example.com:"),
            format!("{tls}://push.example.com:0"),
            format!("{tls}://push.example.com:+1"),
            format!("{tls}://push.example.com:65536"),
            format!("{tls}://push.example.com:443/"),
            format!("{tls}://:443"),
            format!("{tls}://a b:443"),
            format!("{tls}://u@h:443"),
            format!("{tls}://2001:db8::7:443"),
            format!("{tls}://[x]:443"),
            format!("{tls}s://push.example.com:443"),
            format!("{other}://push.example.com:443"),
            "https://push.example.com:443".to_owned(),
        ] {
            let expected = format!("expected {tls}://HOST:PORT or {key}://HOST:PORT");
            // The text before the host may contain a password.
            let shown = wrong.replace("u@", "…@");
            check(&given(&wrong), &[&format!("{key}.public_url"), &expected, &shown]);
        }
    }
    check("[server\n", &["noroshi.toml:1", "not TOML"]);
    // One mistake is one problem, whatever the rest of the line or file is.
    check("[gateway]\nping_interval = \nping_timeout = \"30m\"", &["noroshi.toml:2", "not TOML"]);
    check("[gateway\nfoo = 1\nbar = \"x\"", &["noroshi.toml:1", "not TOML"]);
    check("ping interval = \"30s\"", &["noroshi.toml:1", "not TOML"]);
}

#[test]
fn a_named_file_must_exist() {
    let folder = tempfile::tempdir().expect("folder");
    let inputs = Inputs { file: Some(folder.path().join("absent.toml")), ..Inputs::default() };
    let problems = Config::load(&inputs).expect_err("no file");
    assert!(problems.to_string().contains("absent.toml: cannot be read"), "{problems}");
}

#[test]
fn the_printed_configuration_parses_to_the_same_values() {
    let config =
        load("[gateway.drain]\nrate = 3\n[limits]\ndata = \"1KiB\"\n[server]\ndata='b \"c\"'").expect("ok");
    let printed = print(&config);
    assert!(printed.contains("rate = 3  # from noroshi.toml:2\n"), "{printed}");
    let again = load(&printed).unwrap_or_else(|problems| panic!("{problems}\n{printed}"));
    for (one, two) in config.entries.iter().zip(&again.entries) {
        assert_eq!((one.key, &one.value), (two.key, &two.value));
    }
}

/// The proxy used for a URL.
fn proxy_for(config: &Config, url: &str) -> Option<String> {
    let (target, _) = noroshi_egress::target::Target::of_url(url).expect(url);
    config.egress.proxies.choose(&target).map(|proxy| proxy.to_string())
}

#[test]
fn networks_are_lists_in_every_source() {
    let allowed =
        |config: Config| -> Vec<String> { config.egress.allow.iter().map(|net| net.to_string()).collect() };
    let ours = ["10.1.0.0/16", "fd00:1::/32"];
    assert_eq!(allowed(load("").expect("ok")), [""; 0]);
    assert_eq!(allowed(load("[server]\ndev = true").expect("ok")), ["127.0.0.0/8", "::1/128"]);
    assert_eq!(allowed(load("[egress]\nallow = [\"10.1.0.0/16\", 'fd00:1::/32']").expect("ok")), ours);
    assert_eq!(allowed(load("[egress]\nallow = \"10.1.0.0/16, fd00:1::/32\"").expect("ok")), ours);
    assert_eq!(allowed(load("[server]\ndev = true\n[egress]\nallow = []").expect("ok")), [""; 0]);
    let again = load(&print(&load("[egress]\nallow = [\"10.1.0.0/16\", \"fd00:1::/32\"]").expect("ok")));
    assert_eq!(allowed(again.expect("ok")), ours);

    check("[egress]\nallow = [\"10.1.0.0\"]", &["egress.allow", "10.1.0.0/16", "got \"10.1.0.0\""]);
    check("[egress]\nallow = [\"10.1.2.3/16\"]", &["egress.allow", "did you mean 10.1.0.0/16?"]);
    check("[egress]\nallow = [1]", &["egress.allow", "list of networks", "array"]);
    check("[egress]\nallow = true", &["egress.allow", "list of networks"]);
    check("[gateway]\nping_interval = [\"1m\"]", &["a duration", "got [\"1m\"]"]);
}

#[test]
fn a_proxy_comes_from_the_configuration_or_the_environment() {
    let folder = tempfile::tempdir().expect("folder");
    let loaded = |file: &str, environment: &[(&str, &str)]| {
        let environment =
            environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Config::load(&Inputs { environment, ..inputs(folder.path(), file) })
    };
    let there = "https://push.example";
    let given = [("HTTPS_PROXY", "http://theirs:3128"), ("NO_PROXY", "inside.example")];
    let ours = "[egress]\nproxy = \"http://u:hunter2@ours:3128\"\n";
    assert_eq!(proxy_for(&loaded("", &[]).expect("ok"), there), None);
    let config = loaded("", &given).expect("ok");
    assert_eq!(proxy_for(&config, there).as_deref(), Some("http://theirs:3128"));
    assert_eq!(proxy_for(&config, "https://inside.example"), None);
    let config = loaded(ours, &given).expect("ok");
    assert_eq!(proxy_for(&config, there).as_deref(), Some("http://ours:3128"));
    assert_eq!(proxy_for(&config, "https://inside.example"), None);
    assert!(!print(&config).contains("hunter2") && !format!("{config:?}").contains("hunter2"));
    let config = loaded(&format!("{ours}no_proxy = \"other.example\""), &given).expect("ok");
    assert_eq!(proxy_for(&config, "https://inside.example").as_deref(), Some("http://ours:3128"));
    assert_eq!(proxy_for(&config, "https://other.example"), None);
    let config = loaded("[egress]\nproxy = \"direct\"", &given).expect("ok");
    assert_eq!(proxy_for(&config, there), None);

    let problems = loaded("", &[("all_proxy", "socks4://u:secret@p:1")]).expect_err("socks4").to_string();
    assert!(problems.contains("egress.proxy (all_proxy)") && !problems.contains("secret"), "{problems}");
    loaded("[egress]\nproxy = \"direct\"", &[("all_proxy", "socks4://p:1")]).expect("not asked");
    let problems = loaded("[egress]\nproxy = \"ftp://u:secret@p\"", &[]).expect_err("ftp").to_string();
    assert!(problems.contains("egress.proxy (noroshi.toml:2)") && !problems.contains("secret"), "{problems}");
}

#[test]
fn egress_files_must_be_usable() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("file");
    let (ca, key) = (format!("[egress]\nca_file = {path:?}"), format!("[push]\nkey_file = {path:?}"));
    check(&ca, &["egress.ca_file", "file"]);
    check(&key, &["push.key_file", "cannot be read"]);
    std::fs::write(&path, "neither").expect("written");
    check(&ca, &["egress.ca_file", "holds no certificate"]);
    check(&key, &["push.key_file", "32 bytes"]);
    std::fs::write(&path, "ab".repeat(32)).expect("written");
    assert_eq!(load(&key).expect("ok").push.key_file.as_deref(), Some(path.as_path()));
}

#[tokio::test]
async fn push_credentials_need_a_key_except_in_development() {
    use noroshi_node::{data::Secrets, push_key};
    let folder = tempfile::tempdir().expect("folder");
    let secrets = Secrets::new(folder.path(), None);
    let data = format!("data = {:?}\n", folder.path());
    let config = load(&format!("[server]\n{data}")).expect("ok");
    assert_eq!(
        push_key::open(config.push.key_file.as_deref(), config.server.dev, &secrets).await.expect("no key"),
        None
    );
    let config = load(&format!("[server]\ndev = true\n{data}")).expect("ok");
    let made = push_key::open(config.push.key_file.as_deref(), config.server.dev, &secrets)
        .await
        .expect("a key")
        .expect("made");
    assert_eq!(
        push_key::open(config.push.key_file.as_deref(), config.server.dev, &secrets).await.expect("a key"),
        Some(made),
        "it stays"
    );
    let path = folder.path().join("given");
    std::fs::write(&path, "ab".repeat(32)).expect("written");
    let config = load(&format!("[server]\ndev = true\n{data}[push]\nkey_file = {path:?}")).expect("ok");
    assert_eq!(
        push_key::open(config.push.key_file.as_deref(), config.server.dev, &secrets).await.expect("a key"),
        Some([0xab; 32])
    );
}

#[test]
fn a_cluster_needs_a_shared_store() {
    check("[cluster]\nredis = \"redis://127.0.0.1\"", &["cluster.redis", "requires store.url"]);
    check("[cluster]\nredis_ca_file = \"none\"", &["cluster.redis_ca_file", "requires a cluster.redis"]);
    check(
        "[store]\nurl = \"postgres://u@h/d\"\n[cluster]\nredis = \"rediss://h\"\nredis_ca_file = \"none\"",
        &["cluster.redis_ca_file", "none cannot be used"],
    );
    check("[cluster]\nbus = \"direct\"", &["cluster.bus", "direct requires cluster.redis"]);
    check("[cluster.links]\nadvertise = \"host\"", &["cluster.links.advertise", "HOST:PORT"]);
    check("[cluster.links]\nadvertise = \"0.0.0.0:7600\"", &["cluster.links.advertise", "can reach"]);
    check("[node]\nroles = [\"api\"]", &["node.roles", "requires cluster.redis"]);
    check("[node]\nroles = [\"front\", \"api\"]", &["node.roles", "only front"]);
    check("[node]\nroles = \"apu\"", &["node.roles", "expected a list of api, gateway and sender"]);
    check("[store]\nurl = \"mysql://h/d\"", &["store.url", "postgres://"]);
    let config = load(
        "[store]\nurl = \"postgres://u:hunter2@h/d?password=hunter2\"\n\
         [cluster]\nredis = \"redis://:hunter2@h\"\n[node]\nroles = \"api,sender\"",
    )
    .expect("ok");
    assert_eq!(config.node.roles.names(), ["api", "sender"]);
    let shown = print(&config) + &format!("{config:?}");
    assert!(shown.contains("postgres://u:…@h/d?password=…") && !shown.contains("hunter2"), "{shown}");
}

#[test]
fn a_collector_has_a_base_url_and_headers_from_the_environment_only() {
    let folder = tempfile::tempdir().expect("folder");
    let headers = folder.path().join("headers");
    let tracing =
        |rest: &str| format!("[tracing]\nheaders_file = {:?}\n{rest}", headers.display().to_string());
    std::fs::write(&headers, "Authorization: Bearer abc\n").expect("written");
    let config = load(&tracing("attributes = \"a=b, c=d\"")).expect("ok").tracing;
    assert_eq!(config.headers, [("authorization".to_owned(), "Bearer abc".to_owned())]);
    assert_eq!(config.attributes.len(), 2);
    assert_eq!((config.metrics_interval, config.push_services), (None, false));
    std::fs::write(&headers, "SECRET\n").expect("written");
    let problems = load(&tracing("")).expect_err("no header").to_string();
    assert!(problems.contains("tracing.headers_file") && problems.contains("line 1"), "{problems}");
    assert!(!problems.contains("SECRET"), "{problems}");
    check("[tracing]\nattributes = \"a\"", &["tracing.attributes", "key=value"]);
    check("[tracing]\nsample_per_million = 1000001", &["tracing.sample_per_million", "0 to 1000000"]);
    for wrong in ["collector:4318", "http://", "http://c:4318/v1/traces", "http://u:p@c", "ftp://c"] {
        check(&format!("[tracing]\nendpoint = \"{wrong}\""), &["tracing.endpoint"]);
    }
}

/// A build without export names itself and the build that has it.
#[test]
fn an_endpoint_needs_a_build_that_can_export() {
    let file = "[tracing]\nendpoint = \"http://collector:4318\"";
    match cfg!(feature = "otel") {
        true => assert!(load(file).expect("ok").tracing.endpoint.is_some()),
        false => check(file, &["tracing.endpoint", "feature `otel`", "`make dist`"]),
    }
}

#[test]
fn kafka_needs_brokers_and_a_build_with_support() {
    let file = "[events.kafka]\ntopic = \"events\"";
    match noroshi_events::sink::KAFKA {
        true => check(file, &["events.kafka.brokers", "1 to 64 brokers"]),
        false => check(file, &["events.kafka.topic", "feature `kafka`", "`make dist`"]),
    }
}

#[test]
fn profile_push_needs_a_server_and_a_build_with_support() {
    check("[profiling]\nserver = \"pyroscope:4040\"", &["profiling.server", "http://"]);
    check("[profiling]\nserver = \"http://u:p@pyroscope\"", &["profiling.server"]);
    check("[profiling]\nlabels = \"node=x\"", &["profiling.labels", "set by the node"]);
    check("[profiling]\nhz = 251", &["profiling.hz"]);
    check("[profiling]\ninterval = \"1s\"", &["profiling.interval"]);
    let server = "[profiling]\nserver = \"http://10.0.0.5:4040\"\n";
    if !noroshi_profiling::CPU {
        return check(server, &["profiling.server", "feature `profiling`"]);
    }
    assert!(load(server).is_ok_and(|config| config.profiling.push.is_some()));
    check(&format!("{server}user = \"u\""), &["profiling.password_file"]);
    check(
        &format!("{server}user = \"u\"\npassword_file = \"/nowhere\""),
        &["profiling.password_file", "/nowhere"],
    );
}

/// Every key, as the documentation lists them.
fn every_key() -> Vec<noroshi_node::config::Entry> {
    load("").expect("the defaults").entries
}

/// A new key named like a credential is marked secret unless its kind cannot hold one.
#[test]
fn keys_named_like_secrets_are_marked_secret() {
    const WORDS: [&str; 14] = [
        "password",
        "passwords",
        "passphrase",
        "secret",
        "secrets",
        "token",
        "tokens",
        "account",
        "accounts",
        "credential",
        "credentials",
        "key",
        "keys",
        "headers",
    ];
    // A path names a file; a count, size, duration or switch is no credential.
    const PLAIN: [&str; 7] = ["path", "duration", "size", "switch", "address", "word", "keys"];
    let mut secrets = 0;
    for entry in every_key() {
        let name = entry.key.rsplit_once('.').map_or(entry.key, |(_, name)| name);
        let sounds = name.split('_').any(|word| WORDS.contains(&word));
        let says = ["PASSWORD", "SECRET", "TOKEN"].iter().any(|word| entry.range.contains(word));
        let can = !PLAIN.contains(&entry.unit) && entry.range.parse::<u64>().is_err();
        let counts = entry.default.parse::<u64>().is_ok();
        if (sounds || says) && can && !counts {
            assert!(matches!(entry.unit, "credential" | "url"), "{} is a {}", entry.key, entry.unit);
        }
        secrets += usize::from(entry.unit == "credential");
    }
    assert!(secrets > 0, "xmpp.accounts is one");
}

#[test]
fn credentials_are_shown_nowhere() {
    const MARKER: &str = "marked-value-5f3a";
    let folder = tempfile::tempdir().expect("folder");
    let mut shown = String::new();
    for entry in every_key().iter().filter(|entry| matches!(entry.unit, "credential" | "url")) {
        let schemes = ["https", "http", "postgres", "postgresql", "redis", "rediss", "xmpps", "mqtts", "ftp"];
        let urls =
            schemes.map(|scheme| format!("{scheme}://u:{MARKER}@h.example:1/?password={MARKER}&k={MARKER}"));
        let wrong = [MARKER, &format!("u:{MARKER}@h"), &format!("name:{MARKER},x"), ""].map(str::to_owned);
        for value in urls.into_iter().chain(wrong) {
            if entry.unit == "url" && !value.contains("://") && !value.contains('@') {
                continue;
            }
            let variable = format!("NOROSHI__{}", entry.key.to_ascii_uppercase().replace('.', "__"));
            let environment = vec![
                (variable, value.clone()),
                ("NOROSHI__SERVER__CONFORMANCE".to_owned(), "true".to_owned()),
            ];
            match Config::load(&Inputs { environment, ..inputs(folder.path(), "") }) {
                Ok(config) => {
                    shown += &print(&config);
                    shown += &format!("{:?}", config.entries);
                }
                Err(problems) => shown += &problems.to_string(),
            }
            assert!(!shown.contains(MARKER), "{} = {value}", entry.key);
        }
    }
    let accounts = "[server]\nconformance = true\n[xmpp]\naccounts = \"a:marked-value-5f3a\"\n";
    let config = load(accounts).expect("accounts");
    let line = print(&config).lines().find(|line| line.starts_with("accounts")).map(str::to_owned);
    assert_eq!(line.as_deref(), Some("accounts = \"…\"  # from noroshi.toml:4"));
}
