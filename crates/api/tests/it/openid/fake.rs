//! A strict OpenID provider: it checks each request as the standards say and gives wrong answers where a test wants them.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use noroshi_console::{AppRef, Mapping, Provider};
use noroshi_types::{Role, Timestamp};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use url::{Url, form_urlencoded};

use crate::service::NOW;

const SECRET: &str = "a secret: of 100%";
const ACCESS_TOKEN: &str = "access-token";

pub(super) struct Signer(EcdsaKeyPair);

impl Signer {
    pub(super) fn new() -> Self {
        let (random, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        Self(EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).expect("a key"))
    }

    fn jwk(&self, kid: &str) -> Value {
        let point = self.0.public_key().as_ref();
        let [x, y] = [&point[1..33], &point[33..]].map(|part| URL_SAFE_NO_PAD.encode(part));
        json!({"kty": "EC", "crv": "P-256", "kid": kid, "x": x, "y": y, "use": "sig"})
    }

    fn sign(&self, message: &str) -> Vec<u8> {
        self.0.sign(&SystemRandom::new(), message.as_bytes()).expect("signed").as_ref().to_vec()
    }
}

/// A code that was given out.
struct Grant {
    challenge: String,
    redirect_uri: String,
    nonce: String,
    claims: Value,
}

/// How the provider behaves. Each field is changed by a test.
pub(super) struct Behaviour {
    pub(super) signer: Arc<Signer>,
    pub(super) published: Vec<(String, Arc<Signer>)>,
    pub(super) kid: String,
    pub(super) algorithm: &'static str,
    /// Of the ID token.
    pub(super) forge: fn(&mut Value),
    pub(super) metadata: fn(&mut Value),
    /// Answers of the user info endpoint; `None`: there is none.
    pub(super) user_info: Option<Value>,
    pub(super) checks_pkce: bool,
    /// The paths that get no answer.
    pub(super) hangs_at: Option<&'static str>,
    /// The paths that get this answer.
    pub(super) answers: Option<(&'static str, &'static str)>,
    /// Time of the tokens.
    pub(super) now: Timestamp,
    /// Requests by path.
    pub(super) requests: HashMap<String, usize>,
    grants: HashMap<String, Grant>,
    /// Codes that were given out.
    codes: usize,
}

#[derive(Clone)]
pub(super) struct Fake {
    pub(super) name: &'static str,
    pub(super) issuer: String,
    pub(super) behaviour: Arc<Mutex<Behaviour>>,
}

impl Fake {
    pub(super) async fn start(name: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let issuer = format!("http://{}", listener.local_addr().expect("an address"));
        let signer = Arc::new(Signer::new());
        let behaviour = Behaviour {
            published: vec![("first".to_owned(), signer.clone())],
            signer,
            kid: "first".to_owned(),
            algorithm: "ES256",
            forge: |_| {},
            metadata: |_| {},
            user_info: None,
            checks_pkce: true,
            hangs_at: None,
            answers: None,
            now: NOW,
            requests: HashMap::new(),
            grants: HashMap::new(),
            codes: 0,
        };
        let fake = Self { name, issuer, behaviour: Arc::new(Mutex::new(behaviour)) };
        let server = fake.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(server.clone().serve(socket));
            }
        });
        fake
    }

    pub(super) fn set(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.behaviour.lock());
    }

    pub(super) fn requests(&self, path: &str) -> usize {
        self.behaviour.lock().requests.get(path).copied().unwrap_or_default()
    }

    /// As the operator configures it.
    pub(super) fn provider(&self) -> Provider {
        let mapping =
            |value: &str, app: &str, role| Mapping { value: value.to_owned(), app: AppRef::parse(app), role };
        Provider {
            name: self.name.to_owned(),
            title: format!("The {}", self.name),
            issuer: self.issuer.clone(),
            client_id: "noroshi".to_owned(),
            client_secret: SECRET.to_owned(),
            scopes: "openid email profile".to_owned(),
            roles_claim: "groups".to_owned(),
            mappings: vec![mapping("admins", "*", Role::Owner), mapping("helpers", "dev", Role::Support)],
            default_role: None,
            email_domains: Vec::new(),
            accepts_unverified_email: false,
            links_by_email: false,
        }
    }

    fn redirect_uri(&self) -> String {
        format!("https://push.example.com/console/api/v1/session/oidc/{}/callback", self.name)
    }

    /// What the authorization endpoint does when a person logs in: checks the request, and returns the query of the response.
    pub(super) fn authorize(&self, location: &str, claims: &Value) -> String {
        let url = Url::parse(location).expect("a URL");
        assert_eq!(
            format!("{}{}", url.origin().ascii_serialization(), url.path()),
            format!("{}/auth", self.issuer)
        );
        let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
        let query: HashMap<String, String> = pairs.iter().cloned().collect();
        assert_eq!(query.len(), pairs.len(), "no parameter is repeated: {location}");
        assert_eq!(query["tenant"], "1", "the parameters of the endpoint stay");
        assert_eq!(query["response_type"], "code");
        assert_eq!(query["client_id"], "noroshi");
        assert_eq!(query["redirect_uri"], self.redirect_uri());
        assert_eq!(query["scope"], "openid email profile");
        assert_eq!(query["code_challenge_method"], "S256");
        for random in ["state", "nonce", "code_challenge"] {
            assert_eq!(query[random].len(), 43, "{random}");
        }
        let mut behaviour = self.behaviour.lock();
        behaviour.codes += 1;
        let code = format!("code+{}/=", behaviour.codes);
        let grant = Grant {
            challenge: query["code_challenge"].clone(),
            redirect_uri: query["redirect_uri"].clone(),
            nonce: query["nonce"].clone(),
            claims: claims.clone(),
        };
        behaviour.grants.insert(code.clone(), grant);
        let mut response = form_urlencoded::Serializer::new(String::new());
        response
            .append_pair("code", &code)
            .append_pair("state", &query["state"])
            .append_pair("iss", &self.issuer)
            .append_pair("session_state", "of another standard");
        response.finish()
    }

    async fn serve(self, mut socket: TcpStream) {
        let Some((head, body)) = read(&mut socket).await else { return };
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let (hangs, answers) = {
            let mut behaviour = self.behaviour.lock();
            *behaviour.requests.entry(path.clone()).or_default() += 1;
            (behaviour.hangs_at == Some(&*path), behaviour.answers.filter(|(of, _)| *of == path))
        };
        if hangs {
            // Until the client gives up.
            let _ = socket.read(&mut [0; 1]).await;
            return;
        }
        if let Some((_, answer)) = answers {
            let _ = socket.write_all(answer.as_bytes()).await;
            return;
        }
        let (status, answer) = match path.as_str() {
            "/.well-known/openid-configuration" => (200, self.configuration()),
            "/jwks" => (200, self.jwks()),
            "/token" => match self.token(&head, &body) {
                Ok(answer) => (200, answer),
                Err(error) => (400, json!({"error": error})),
            },
            "/me" if header(&head, "authorization") == Some(&format!("Bearer {ACCESS_TOKEN}")) => {
                (200, self.behaviour.lock().user_info.clone().unwrap_or_default())
            }
            _ => (404, json!({})),
        };
        let text = answer.to_string();
        let answer = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
            text.len()
        );
        let _ = socket.write_all(answer.as_bytes()).await;
    }

    fn configuration(&self) -> Value {
        let of = |path: &str| format!("{}{path}", self.issuer);
        let mut metadata = json!({
            "issuer": self.issuer,
            "authorization_endpoint": of("/auth?tenant=1"),
            "token_endpoint": of("/token"),
            "jwks_uri": of("/jwks"),
            "authorization_response_iss_parameter_supported": true,
        });
        let behaviour = self.behaviour.lock();
        if behaviour.user_info.is_some() {
            metadata["userinfo_endpoint"] = of("/me").into();
        }
        (behaviour.metadata)(&mut metadata);
        metadata
    }

    fn jwks(&self) -> Value {
        let keys =
            self.behaviour.lock().published.iter().map(|(kid, signer)| signer.jwk(kid)).collect::<Value>();
        json!({"keys": keys})
    }

    fn token(&self, head: &str, body: &str) -> Result<Value, &'static str> {
        let form: HashMap<String, String> = form_urlencoded::parse(body.as_bytes()).into_owned().collect();
        let mut behaviour = self.behaviour.lock();
        let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let basic = format!("Basic {}", STANDARD.encode(format!("noroshi:{}", encoded(SECRET))));
        let is_basic = header(head, "authorization") == Some(&basic) && !form.contains_key("client_secret");
        let is_post = form.get("client_secret").is_some_and(|secret| secret == SECRET)
            && form.get("client_id").is_some_and(|id| id == "noroshi")
            && header(head, "authorization").is_none();
        if !head.starts_with("POST ")
            || header(head, "content-type") != Some("application/x-www-form-urlencoded")
        {
            return Err("invalid_request");
        }
        if !(is_basic || is_post) {
            return Err("invalid_client");
        }
        if form.get("grant_type").is_none_or(|kind| kind != "authorization_code") {
            return Err("unsupported_grant_type");
        }
        // Each code works once.
        let grant = form.get("code").and_then(|code| behaviour.grants.remove(code)).ok_or("invalid_grant")?;
        let verifier = form.get("code_verifier").map(String::as_str).unwrap_or_default();
        let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()));
        if behaviour.checks_pkce && challenge != grant.challenge {
            return Err("invalid_grant");
        }
        if form.get("redirect_uri") != Some(&grant.redirect_uri) {
            return Err("invalid_grant");
        }
        let now_s = behaviour.now.0 / 1_000;
        let mut claims = json!({
            "iss": self.issuer, "aud": "noroshi", "nonce": grant.nonce, "iat": now_s, "exp": now_s + 300,
        });
        for (name, value) in grant.claims.as_object().expect("claims") {
            claims[name] = value.clone();
        }
        (behaviour.forge)(&mut claims);
        let header = json!({"alg": behaviour.algorithm, "kid": behaviour.kid});
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", encode(&header), encode(&claims));
        let signature = match behaviour.algorithm {
            "none" => Vec::new(),
            // What a verifier that takes the public key for a secret would accept.
            "HS256" => {
                let secret = behaviour.signer.0.public_key().as_ref();
                let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
                ring::hmac::sign(&key, message.as_bytes()).as_ref().to_vec()
            }
            _ => behaviour.signer.sign(&message),
        };
        let id_token = format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature));
        Ok(json!({"access_token": ACCESS_TOKEN, "token_type": "Bearer", "id_token": id_token}))
    }
}

/// Head and body of a request.
async fn read(socket: &mut TcpStream) -> Option<(String, String)> {
    let mut received = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&received).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = header(head, "content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
            if body.len() >= length {
                return Some((head.to_owned(), body.to_owned()));
            }
        }
        if socket.read_buf(&mut received).await.ok()? == 0 {
            return None;
        }
    }
}

fn header<'a>(head: &'a str, wanted: &str) -> Option<&'a str> {
    let lines = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    lines.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value)
}
