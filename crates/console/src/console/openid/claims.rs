//! What the claims say about a person: address, name, and the roles that the operator's mappings give.

use noroshi_types::{AppId, Role, Timestamp};
use serde_json::{Map, Value};

use super::{AppOf, AppRef, Failed, OpenIdFailure, Provider};
use crate::console::{check_email, check_name};

/// A person as the provider describes them.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub subject: String,
    /// When the person logged in at the provider.
    pub auth_time: Option<Timestamp>,
    pub(super) claims: Map<String, Value>,
}

/// The address of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Email {
    /// In lower case.
    pub address: String,
    pub is_verified: bool,
}

impl Identity {
    /// Whether the provider may have more to say at its user info endpoint.
    pub(super) fn lacks_claims(&self, provider: &Provider) -> bool {
        let lacks_roles = || !provider.mappings.is_empty() && self.claim(&provider.roles_claim).is_none();
        self.claim("email").is_none() || lacks_roles()
    }

    /// Adds claims that the ID token does not have.
    pub(super) fn add(&mut self, more: Map<String, Value>) {
        // An address and whether it is verified belong together.
        let has_email = self.claims.contains_key("email");
        for (name, value) in more {
            match name.as_str() {
                "email_verified" if has_email => {}
                "email_verified" => drop(self.claims.insert(name, value)),
                _ => drop(self.claims.entry(name).or_insert(value)),
            }
        }
    }

    /// A claim by its name. If there is none, dots lead into objects: `realm_access.roles`.
    fn claim(&self, name: &str) -> Option<&Value> {
        if let Some(value) = self.claims.get(name) {
            return Some(value);
        }
        let (first, rest) = name.split_once('.')?;
        rest.split('.').try_fold(self.claims.get(first)?, |value, part| value.get(part))
    }

    /// The address, if the operator accepts it.
    pub(super) fn email(&self, provider: &Provider) -> Result<Email, Failed> {
        let text = self.claim("email").and_then(Value::as_str);
        let text = text.ok_or_else(|| Failed::new(OpenIdFailure::NoEmail, "the claims have no `email`"))?;
        let invalid = |_| Failed::new(OpenIdFailure::NoEmail, "the claim `email` is no address");
        let address = check_email(text).map_err(invalid)?;
        // Some providers write the boolean as a string.
        let is_verified = match self.claim("email_verified") {
            Some(Value::Bool(is_verified)) => *is_verified,
            Some(Value::String(text)) => text == "true",
            _ => false,
        };
        if !is_verified && !provider.accepts_unverified_email {
            let detail = "the provider does not say that it verified the address (`email_verified`)";
            return Err(Failed::new(OpenIdFailure::UnverifiedEmail, detail));
        }
        let domain = address.rsplit_once('@').map(|(_, domain)| domain).unwrap_or_default();
        if !provider.email_domains.is_empty() && !provider.email_domains.iter().any(|one| one == domain) {
            let detail = format!("the domain {domain:?} is not among the allowed ones");
            return Err(Failed::new(OpenIdFailure::EmailDomain, detail));
        }
        Ok(Email { address, is_verified })
    }

    /// The name, or the address in its place.
    pub(super) fn name(&self, email: &str) -> String {
        let mut names =
            ["name", "preferred_username"].into_iter().filter_map(|name| self.claim(name)?.as_str());
        let name = names.find_map(|name| check_name(name).ok());
        name.unwrap_or_else(|| email[..email.floor_char_boundary(100)].to_owned())
    }

    /// The roles that the mappings give. Mappings to apps that do not exist give none.
    pub(super) fn roles(&self, provider: &Provider, app_of: AppOf<'_>) -> Vec<(Option<AppId>, Role)> {
        let claim = self.claim(&provider.roles_claim);
        let has = |wanted: &str| match claim {
            Some(Value::String(one)) => one == wanted,
            Some(Value::Array(many)) => many.iter().any(|one| one.as_str() == Some(wanted)),
            _ => false,
        };
        let id_of = |app: &AppRef| match app {
            AppRef::All => Some(None),
            AppRef::Named(name) => app_of(name).map(Some),
        };
        let mut roles: Vec<(Option<AppId>, Role)> = Vec::new();
        for mapping in provider.mappings.iter().filter(|mapping| has(&mapping.value)) {
            let app = id_of(&mapping.app).filter(|app| roles.iter().all(|(known, _)| known != app));
            roles.extend(app.map(|app| (app, mapping.role)));
        }
        if roles.is_empty() {
            let default = provider.default_role.as_ref();
            roles.extend(default.and_then(|(app, role)| Some((id_of(app)?, *role))));
        }
        roles
    }
}

#[cfg(test)]
mod tests {
    use super::super::Mapping;
    use super::*;
    use serde_json::json;

    fn provider() -> Provider {
        let mapping =
            |value: &str, app: &str, role| Mapping { value: value.to_owned(), app: AppRef::parse(app), role };
        Provider {
            name: "corp".to_owned(),
            title: "Corp".to_owned(),
            issuer: "https://id.example".to_owned(),
            client_id: "noroshi".to_owned(),
            client_secret: "secret".to_owned(),
            scopes: "openid email profile".to_owned(),
            roles_claim: "groups".to_owned(),
            mappings: vec![
                mapping("admins", "*", Role::Owner),
                mapping("shop", "shop", Role::Support),
                mapping("writers", "shop", Role::Author),
                mapping("ghosts", "gone", Role::Owner),
            ],
            default_role: None,
            email_domains: Vec::new(),
            accepts_unverified_email: false,
            links_by_email: false,
        }
    }

    fn identity(claims: Value) -> Identity {
        let Value::Object(claims) = claims else { panic!("an object") };
        Identity { subject: "1".to_owned(), auth_time: None, claims }
    }

    fn app_of(name: &str) -> Option<AppId> {
        (name == "shop").then_some(AppId(7))
    }

    #[test]
    fn mappings_give_one_role_in_each_app() {
        let mut provider = provider();
        let roles =
            |provider: &Provider, groups: Value| identity(json!({"groups": groups})).roles(provider, &app_of);
        let shop = Some(AppId(7));
        assert_eq!(roles(&provider, json!(["shop", "x"])), [(shop, Role::Support)]);
        assert_eq!(roles(&provider, json!("writers")), [(shop, Role::Author)], "a string");
        let both = [(shop, Role::Support)];
        assert_eq!(roles(&provider, json!(["writers", "shop"])), both, "the first mapping decides");
        assert_eq!(roles(&provider, json!(["shop", "admins"])), [(None, Role::Owner), (shop, Role::Support)]);
        for nothing in
            [json!(["ghosts"]), json!(["Shop"]), json!([]), json!([1, null]), json!({"shop": true})]
        {
            assert_eq!(roles(&provider, nothing.clone()), [], "{nothing}");
        }
        provider.default_role = Some((AppRef::All, Role::Viewer));
        assert_eq!(roles(&provider, json!([])), [(None, Role::Viewer)]);
        assert_eq!(roles(&provider, json!(["shop"])), [(shop, Role::Support)], "not in addition");
        provider.default_role = Some((AppRef::Named("gone".to_owned()), Role::Viewer));
        assert_eq!(roles(&provider, json!([])), []);
    }

    #[test]
    fn the_claim_may_be_inside_of_another() {
        let mut provider = provider();
        provider.roles_claim = "realm_access.roles".to_owned();
        let nested = identity(json!({"realm_access": {"roles": ["admins"]}}));
        assert_eq!(nested.roles(&provider, &app_of), [(None, Role::Owner)]);
        provider.roles_claim = "https://corp.example/roles".to_owned();
        let with_dots = identity(json!({"https://corp.example/roles": ["admins"]}));
        assert_eq!(with_dots.roles(&provider, &app_of), [(None, Role::Owner)]);
        assert_eq!(nested.roles(&provider, &app_of), []);
    }

    #[test]
    fn the_address_must_be_verified_and_of_an_allowed_domain() {
        let mut provider = provider();
        let email = |provider: &Provider, claims: Value| {
            identity(claims).email(provider).map(|email| email.address).map_err(|failed| failed.failure)
        };
        let verified = json!({"email": "Ann@Example.com", "email_verified": true});
        assert_eq!(email(&provider, verified.clone()), Ok("ann@example.com".to_owned()));
        assert!(email(&provider, json!({"email": "ann@example.com", "email_verified": "true"})).is_ok());
        for unverified in [json!(false), json!("false"), json!(null), json!(1)] {
            let claims = json!({"email": "ann@example.com", "email_verified": unverified});
            assert_eq!(email(&provider, claims), Err(OpenIdFailure::UnverifiedEmail));
        }
        for none in [json!({}), json!({"email": "ann"}), json!({"email": 1})] {
            assert_eq!(email(&provider, none), Err(OpenIdFailure::NoEmail));
        }
        provider.email_domains = vec!["corp.example".to_owned()];
        assert_eq!(email(&provider, verified), Err(OpenIdFailure::EmailDomain));
        let sub = json!({"email": "a@x.corp.example", "email_verified": true});
        assert_eq!(email(&provider, sub), Err(OpenIdFailure::EmailDomain));
        let inside = json!({"email": "a@corp.example", "email_verified": true});
        assert!(email(&provider, inside).is_ok());
        provider.accepts_unverified_email = true;
        let unverified = identity(json!({"email": "a@corp.example"})).email(&provider).expect("accepted");
        assert!(!unverified.is_verified);
    }

    #[test]
    fn user_info_adds_and_never_replaces() {
        let provider = provider();
        let mut identity = identity(json!({"email": "ann@example.com", "groups": ["shop"]}));
        assert!(!identity.lacks_claims(&provider));
        let Value::Object(more) =
            json!({"email": "x@example.com", "email_verified": true, "groups": [], "name": "Ann"})
        else {
            panic!("an object")
        };
        identity.add(more);
        let failure = identity.email(&provider).expect_err("not the address that is verified").failure;
        assert_eq!(failure, OpenIdFailure::UnverifiedEmail);
        assert_eq!(identity.roles(&provider, &app_of).len(), 1);
        assert_eq!(identity.name("x"), "Ann");
        identity.claims.remove("groups");
        assert!(identity.lacks_claims(&provider));
        identity.claims.remove("email");
        identity.claims.insert("email_verified".to_owned(), json!(true));
        let Value::Object(more) = json!({"email": "x@example.com", "email_verified": false}) else {
            panic!("an object")
        };
        identity.add(more);
        let failure = identity.email(&provider).expect_err("not the address of the token").failure;
        assert_eq!(failure, OpenIdFailure::UnverifiedEmail);
        identity.claims.insert("name".to_owned(), json!("a\nb"));
        assert_eq!(identity.name("ann@example.com"), "ann@example.com");
    }
}
