//! Proxies by configuration and environment.

use super::*;

fn target(url: &str) -> Target {
    Target::of_url(url).expect(url).0
}

fn environment(variables: &[(&str, &str)]) -> Result<Proxies, ConfigError> {
    let variables: Vec<_> =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Proxies::from_environment(&variables)
}

fn chosen(proxies: &Proxies, url: &str) -> Option<String> {
    proxies.choose(&target(url)).map(ProxyUrl::to_string)
}

#[test]
fn a_proxy_url_is_parsed_and_its_password_never_shown() {
    let check = |text: &str, shown: &str, authorization: Option<&str>| {
        let proxy = ProxyUrl::parse(text).expect(text);
        assert_eq!(proxy.to_string(), shown);
        let expected = authorization.map(|plain| format!("Basic {}", STANDARD.encode(plain)));
        let Protocol::Http { authorization, .. } = &proxy.protocol else { panic!("{text}") };
        assert_eq!(*authorization, expected, "{text}");
        assert!(!format!("{proxy:?}").contains("secret"));
    };
    check("http://proxy.example:3128", "http://proxy.example:3128", None);
    check("proxy.example:3128", "http://proxy.example:3128", None);
    check("proxy.example", "http://proxy.example:80", None);
    check("http://u:secret@10.0.0.1:3128/", "http://10.0.0.1:3128", Some("u:secret"));
    check("u:secret@[::1]:3128", "http://[::1]:3128", Some("u:secret"));
    check("http://u%40x:p%3A%2Fsecret@p:1", "http://p:1", Some("u@x:p:/secret"));
    check("http://u@p:1", "http://p:1", Some("u:"));
    check("https://u:secret@proxy.example", "https://proxy.example:443", Some("u:secret"));
    check("https://proxy.example:8443", "https://proxy.example:8443", None);
    let check = |text: &str, shown: &str, login: Option<(&str, &str)>| {
        let proxy = ProxyUrl::parse(text).expect(text);
        assert_eq!(proxy.to_string(), shown);
        let login = login.map(|(user, password)| Login { user: user.into(), password: password.into() });
        assert!(proxy.protocol == Protocol::Socks5 { login }, "{text}");
        assert!(!format!("{proxy:?}").contains("secret"));
    };
    check("socks5://proxy.example", "socks5://proxy.example:1080", None);
    check("socks5h://PROXY.example:80", "socks5://proxy.example:80", None);
    check("socks5://u%40x:a%3Asecret@10.0.0.1:1081", "socks5://10.0.0.1:1081", Some(("u@x", "a:secret")));
    check("socks5://[::1]:1080", "socks5://[::1]:1080", None);
    assert_eq!(
        ProxyUrl::parse("socks5://127.1").expect("an address").host,
        Host::<String>::Ipv4([127, 0, 0, 1].into())
    );
    let long = format!("socks5://u:{}secret@p", "x".repeat(250));
    for bad in [
        "",
        "socks4://p:1",
        "socks5://u@p:1",
        "socks5://:secret@p:1",
        "socks5://p:1/path",
        "socks5://",
        &long,
        "http://p:1/path",
        "http://p:1/?q",
        "http://p:0",
        "http://p:99999",
        "http://",
        "http://a%3Ab:secret@p:1",
    ] {
        let why = ProxyUrl::parse(bad).expect_err(bad);
        assert!(!why.contains("secret"), "{why}");
    }
}

#[test]
fn environment_variables_apply_by_scheme() {
    let proxies = environment(&[("http_proxy", "a:1"), ("HTTPS_PROXY", "b:2")]).expect("proxies");
    assert_eq!(chosen(&proxies, "http://x.example"), Some("http://a:1".to_owned()));
    assert_eq!(chosen(&proxies, "https://x.example"), Some("http://b:2".to_owned()));
    let proxies = environment(&[("HTTP_PROXY", "a:1"), ("ALL_PROXY", "c:3")]).expect("proxies");
    assert_eq!(chosen(&proxies, "http://x.example"), Some("http://a:1".to_owned()));
    assert_eq!(chosen(&proxies, "https://x.example"), Some("http://c:3".to_owned()));
    let proxies = environment(&[("HTTPS_PROXY", "capitals:1"), ("https_proxy", "small:1")]).expect("proxies");
    assert_eq!(chosen(&proxies, "https://x.example"), Some("http://small:1".to_owned()));
    assert_eq!(chosen(&proxies, "http://x.example"), None);
    let proxies = environment(&[("https_proxy", ""), ("HTTPS_PROXY", "capitals:1")]).expect("proxies");
    assert_eq!(chosen(&proxies, "https://x.example"), Some("http://capitals:1".to_owned()));
    assert_eq!(chosen(&Proxies::default(), "https://x.example"), None);

    let error = environment(&[("ALL_PROXY", "socks4://u:secret@p:1")]).expect_err("socks4").to_string();
    assert!(error.starts_with("ALL_PROXY: ") && !error.contains("secret"), "{error}");
}

#[test]
fn loopback_never_uses_a_proxy() {
    let proxies = environment(&[("all_proxy", "p:1")]).expect("proxies");
    for url in [
        "https://localhost:1/",
        "http://a.localhost/",
        "http://127.0.0.1/",
        "http://127.9.9.9/",
        "https://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://2130706433/",
    ] {
        assert_eq!(chosen(&proxies, url), None, "{url}");
    }
    assert!(chosen(&proxies, "http://10.0.0.1/").is_some());
}

#[test]
fn no_proxy_lists_names_addresses_and_networks() {
    let check = |no_proxy: &str, url: &str, direct: bool| {
        let proxies = Proxies::one(ProxyUrl::parse("p:1").expect("a proxy")).except(no_proxy);
        assert_eq!(chosen(&proxies, url).is_none(), direct, "{no_proxy:?} {url}");
    };
    check("*", "https://x.example", true);
    check("", "https://x.example", false);
    for no_proxy in
        ["example.com", ".example.com", "*.example.com", "EXAMPLE.com.", "a, example.com", "a example.com"]
    {
        check(no_proxy, "https://example.com", true);
        check(no_proxy, "https://a.b.example.com:8443", true);
        check(no_proxy, "https://notexample.com", false);
        check(no_proxy, "https://example.com.org", false);
    }
    check("example.com:8443", "https://a.example.com:8443", true);
    check("example.com:8443", "https://a.example.com", false);
    check("10.1.2.3", "http://10.1.2.3", true);
    check("10.1.2.3:80", "http://10.1.2.3", true);
    check("10.1.2.3:81", "http://10.1.2.3", false);
    check("10.1.2.3", "http://10.1.2.34", false);
    check("10.0.0.0/8", "http://10.1.2.3", true);
    check("10.0.0.0/8", "http://[::ffff:10.1.2.3]", true);
    check("10.0.0.0/8", "http://11.1.2.3", false);
    check("2001:db8::/32", "http://[2001:db8::1]", true);
    check("2001:db8::1", "http://[2001:db8::1]", true);
    check("[2001:db8::1]", "http://[2001:db8::1]", true);
    check("[2001:db8::1]:80", "http://[2001:db8::1]", true);
    check("[2001:db8::1]:81", "http://[2001:db8::1]", false);
    check(".", "https://x.example", false);
    check("1.2.3.4", "https://x1.2.3.4.example", false);
}
