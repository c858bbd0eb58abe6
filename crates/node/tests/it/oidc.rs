//! The configuration of OpenID providers: a good one, and the error of each rule.

use noroshi_console::{AppRef, Mapping};
use noroshi_node::config::{Config, Flag, Inputs, Problems, print};
use noroshi_types::Role;

const GOOD: &str = r#"
[console]
url = "https://push.example.com"

[console.oidc.corp]
title = "Example Corp"
issuer = "https://id.example.com/realms/main"
client_id = "noroshi"
client_secret = "hidden"
roles_claim = "realm_access.roles"
mappings = [{ value = "Push Admins, all", app = "*", role = "owner" }, { value = "shop", app = "shop", role = "support" }]
default_role = "viewer"
default_app = "shop"
allowed_email_domains = ["Example.com"]
"#;

fn load_with(file: &str, change: impl FnOnce(&mut Inputs)) -> Result<Config, Problems> {
    let folder = tempfile::tempdir().expect("folder");
    std::fs::write(folder.path().join("noroshi.toml"), file).expect("file");
    let mut inputs = Inputs { folder: folder.path().to_owned(), ..Inputs::default() };
    change(&mut inputs);
    Config::load(&inputs)
}

fn load(file: &str) -> Result<Config, Problems> {
    load_with(file, |_| {})
}

#[test]
fn a_provider_has_its_keys_in_a_table_with_its_name() {
    let config = load(GOOD).expect("valid");
    let [provider] = config.console.oidc.providers.as_slice() else { panic!("one provider") };
    assert_eq!((provider.name.as_str(), provider.title.as_str()), ("corp", "Example Corp"));
    assert_eq!(provider.scopes, "openid email profile");
    assert_eq!(provider.email_domains, ["example.com"]);
    assert_eq!(provider.default_role, Some((AppRef::Named("shop".to_owned()), Role::Viewer)));
    let owner = Mapping { value: "Push Admins, all".to_owned(), app: AppRef::All, role: Role::Owner };
    assert_eq!(provider.mappings[0], owner);
    assert_eq!(provider.mappings.len(), 2);
    assert!(!provider.links_by_email && !provider.accepts_unverified_email);

    let text = print(&config);
    assert!(!text.contains("hidden"), "{text}");
    assert!(text.contains("[console.oidc.corp]\n"), "{text}");
    // What is printed means the same, apart from the secret.
    let again = load(&text).expect("valid");
    assert_eq!(again.console.oidc.providers[0].mappings, provider.mappings);
}

#[test]
fn variables_and_flags_set_mappings_too() {
    let mappings = r#"[{ value = "a", app = "*", role = "viewer" }]"#;
    let config = load_with(GOOD, |inputs| {
        inputs.environment = vec![("NOROSHI__CONSOLE__OIDC__CORP__MAPPINGS".to_owned(), mappings.to_owned())];
        let flag =
            |key: &str, value: &str| Flag { name: "--set", key: key.to_owned(), value: value.to_owned() };
        inputs.flags = vec![flag("console.oidc.corp.allowed_email_domains", "a.example, b.example")];
    });
    let config = config.expect("valid");
    let provider = &config.console.oidc.providers[0];
    assert_eq!(provider.mappings, [Mapping { value: "a".to_owned(), app: AppRef::All, role: Role::Viewer }]);
    assert_eq!(provider.email_domains, ["a.example", "b.example"]);
}

#[test]
fn each_rule_names_the_key() {
    let cases = [
        ("url = \"https://push.example.com\"", "", "console.oidc.corp.issuer", "requires console.url"),
        (
            "https://id.example.com/",
            "http://id.example.com/",
            "console.oidc.corp.issuer",
            "must begin with https://",
        ),
        ("https://id.example.com/", "http://127.0.0.1/", "console.oidc.corp.issuer", "server.dev"),
        ("/realms/main", "/?a=b", "console.oidc.corp.issuer", "https URL"),
        ("https://id.example.com/realms/main", "id", "console.oidc.corp.issuer", "https URL"),
        ("client_id = \"noroshi\"", "", "console.oidc.corp.client_id", "must be set"),
        ("client_secret = \"hidden\"", "", "console.oidc.corp.client_secret", "or client_secret_file"),
        (
            "client_secret = \"hidden\"",
            "client_secret_file = \"/none\"",
            "console.oidc.corp.client_secret_file",
            "cannot be read",
        ),
        (
            "title =",
            "client_secret_file = \"x\"\ntitle =",
            "console.oidc.corp.client_secret_file",
            "together",
        ),
        ("title =", "scopes = \"email\"\ntitle =", "console.oidc.corp.scopes", "openid among them"),
        (
            "role = \"owner\"",
            "role = \"boss\"",
            "console.oidc.corp.mappings",
            "[0].role: expected one of viewer",
        ),
        ("app = \"shop\", role", "app = \"no app\", role", "console.oidc.corp.mappings", "[1].app: expected"),
        ("value = \"shop\", ", "", "console.oidc.corp.mappings", "[1].value: must be set"),
        ("value = \"shop\"", "valeu = \"shop\"", "console.oidc.corp.mappings", "[1].valeu: unknown key"),
        (
            "default_role = \"viewer\"",
            "default_role = \"owner\"",
            "console.oidc.corp.default_role",
            "only a mapping makes owners",
        ),
        ("\"Example.com\"", "\"ann@example.com\"", "console.oidc.corp.allowed_email_domains", "a domain"),
        (
            "title =",
            "titel = \"x\"\ntitle =",
            "console.oidc.corp.titel",
            "did you mean `console.oidc.corp.title`",
        ),
        ("oidc.corp]", "oidc.Corp]", "console.oidc.Corp", "begins with a letter"),
        (
            "realm_access.roles\"",
            "email\"\nunverified_email = true",
            "console.oidc.corp.unverified_email",
            "address of an owner",
        ),
    ];
    for (old, new, key, text) in cases {
        assert!(GOOD.contains(old), "{old}");
        let problems = load(&GOOD.replacen(old, new, 1)).expect_err(new);
        assert_eq!(problems.0.len(), 1, "{new}: {problems}");
        assert_eq!(problems.0[0].key, key, "{problems}");
        assert!(problems.to_string().contains(text), "{new}: {problems}");
        assert!(!problems.to_string().contains("hidden"), "{problems}");
    }
    let nobody = GOOD.replacen("default_role = \"viewer\"", "", 1);
    let at = nobody.find("mappings").expect("a key");
    let end = at + nobody[at..].find('\n').expect("a line");
    let problems = load(&format!("{}{}", &nobody[..at], &nobody[end..])).expect_err("nobody could log in");
    assert_eq!(problems.0[0].key, "console.oidc.corp.mappings", "{problems}");
}

#[test]
fn providers_are_few_and_different() {
    let provider = |name: usize| {
        format!(
            "[console.oidc.p{name}]\nissuer = \"https://id{name}.example\"\nclient_id = \"a\"\nclient_secret = \"b\"\ndefault_role = \"viewer\"\n"
        )
    };
    let many = |count: usize| (0..count).map(provider).collect::<String>();
    let url = "[console]\nurl = \"https://push.example.com\"\n";
    assert_eq!(load(&format!("{url}{}", many(8))).expect("valid").console.oidc.providers.len(), 8);
    let problems = load(&format!("{url}{}", many(9))).expect_err("too many");
    assert_eq!((problems.0.len(), problems.0[0].key.as_str()), (1, "console.oidc.p8"), "{problems}");
    let same = many(2).replace("https://id1", "https://id0");
    let problems = load(&format!("{url}{same}")).expect_err("the same issuer");
    assert_eq!(problems.0[0].key, "console.oidc.p1.issuer", "{problems}");
}

#[test]
fn a_development_node_may_use_a_provider_of_the_same_machine() {
    let file = "[server]\ndev = true\n[console.oidc.here]\nissuer = \"http://localhost:1234\"\nclient_id = \"a\"\nclient_secret = \"b\"\ndefault_role = \"viewer\"\n";
    let config = load(file).expect("valid");
    assert_eq!(config.console.url.as_deref(), Some("http://127.0.0.1:9090"));
    assert_eq!(config.console.oidc.providers[0].title, "here");
    load(&file.replace("localhost", "id.example.com")).expect_err("elsewhere");
}
