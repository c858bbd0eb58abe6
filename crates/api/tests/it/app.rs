//! Apps and keys, managed by operators and by admin keys.

use http::{Method, StatusCode};
use noroshi_types::Scope;
use serde_json::{Value, json};

use crate::service::{OPERATOR, Service};

#[tokio::test]
async fn the_operator_creates_changes_and_deletes_apps() {
    let service = Service::start().await;
    let made = service.operate(Method::POST, "/v1/apps", OPERATOR, r#"{"name": "shop"}"#).await;
    assert_eq!((made.status, &made.json()["jwt_secret_set"]), (StatusCode::CREATED, &json!(false)));
    service
        .operate(Method::POST, "/v1/apps", OPERATOR, r#"{"name": "shop"}"#)
        .await
        .problem(409, "already_exists");
    let secret = json!({"jwt_secret": "s".repeat(32)}).to_string();
    let changed = service.operate(Method::PATCH, "/v1/apps/shop", OPERATOR, &secret).await;
    assert_eq!(changed.json()["jwt_secret_set"], true);
    assert!(!changed.text.contains("ssss"), "a secret is never shown");
    let names = |body: serde_json::Value| -> Vec<String> {
        body["apps"]
            .as_array()
            .expect("apps")
            .iter()
            .map(|app| app["name"].as_str().expect("a name").to_owned())
            .collect()
    };
    let all = service.operate(Method::GET, "/v1/apps", OPERATOR, "").await.json();
    assert_eq!(names(all), ["dev", "other", "shop"]);
    assert_eq!(
        service.operate(Method::DELETE, "/v1/apps/shop", OPERATOR, "").await.status,
        StatusCode::NO_CONTENT
    );
    service.operate(Method::GET, "/v1/apps/shop", OPERATOR, "").await.problem(404, "not_found");
    service.operate(Method::DELETE, "/v1/apps/shop", OPERATOR, "").await.problem(404, "not_found");
}

#[tokio::test]
async fn deleting_an_app_deletes_its_credentials() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    assert_eq!(
        service.operate(Method::DELETE, "/v1/apps/dev", OPERATOR, "").await.status,
        StatusCode::NO_CONTENT
    );
    service.get("/v1/topics", &service.key).await.problem(401, "unauthorized");
    service.get("/v1/me", &token).await.problem(401, "unauthorized");
}

#[tokio::test]
async fn only_the_operator_token_grants_access_to_the_admin_listener() {
    let service = Service::start().await;
    for bearer in ["", "wrong", &service.key] {
        service.operate(Method::GET, "/v1/apps", bearer, "").await.problem(401, "unauthorized");
        service.operate(Method::DELETE, "/v1/apps/dev", bearer, "").await.problem(401, "unauthorized");
    }
    service.get("/v1/apps/dev", OPERATOR).await.problem(401, "unauthorized");
    service.get("/v1/apps", OPERATOR).await.problem(404, "not_found");
    service.delete("/v1/apps/dev", &service.key).await.problem(405, "method_not_allowed");
    let closed = Service::with(|state| state.operator_token = None).await;
    closed.operate(Method::GET, "/v1/apps", OPERATOR, "").await.problem(401, "unauthorized");
}

#[tokio::test]
async fn a_key_may_expire_within_ten_years() {
    let service = Service::start().await;
    let create = async |expires_at: Value| {
        let body = json!({"name": "k", "scopes": ["read"], "expires_at": expires_at}).to_string();
        service.post("/v1/apps/dev/keys", &service.key, &body).await
    };
    // The service's clock says 2027-01-15T08:00:00Z.
    for (given, shown) in [
        (json!("2027-01-15T08:00:01+00:00"), json!("2027-01-15T08:00:01.000Z")),
        (json!("2037-01-15T08:00:00Z"), json!("2037-01-15T08:00:00.000Z")),
        (Value::Null, Value::Null),
    ] {
        let made = create(given).await;
        assert_eq!((made.status, &made.json()["expires_at"]), (StatusCode::CREATED, &shown), "{}", made.text);
        let listed = service.get("/v1/apps/dev/keys", &service.key).await.json();
        let id = made.json()["id"].clone();
        let found = listed["keys"].as_array().into_iter().flatten().find(|key| key["id"] == id).cloned();
        assert_eq!(found.expect("listed")["expires_at"], shown);
    }
    for (given, rule) in [
        (json!("2027-01-15T08:00:00Z"), "must be in the future"),
        (json!("2026-01-15T08:00:00Z"), "must be in the future"),
        (json!("2037-01-20T08:00:00Z"), "at most 3653 days"),
        (json!("tomorrow"), "must be a time with its offset"),
        (json!(1_900_000_000), "time"),
    ] {
        let problem = create(given.clone()).await.problem(400, "invalid_field");
        let detail = problem["detail"].as_str().expect("a detail");
        assert!(problem["field"] == "expires_at" && detail.contains(rule), "{given}: {detail}");
    }
}

#[tokio::test]
async fn keys_are_created_used_and_revoked() {
    let service = Service::start().await;
    let body = r#"{"name": "backend", "scopes": ["publish", "read", "read"]}"#;
    let made = service.post("/v1/apps/dev/keys", &service.key, body).await;
    assert_eq!((made.status, &made.json()["scopes"]), (StatusCode::CREATED, &json!(["publish", "read"])));
    let (id, key) = (made.json()["id"].clone(), made.json()["key"].as_str().expect("the key").to_owned());
    assert_eq!(service.get("/v1/topics", &key).await.status, StatusCode::OK);
    service.get("/v1/apps/dev/keys", &key).await.problem(403, "forbidden");
    let listed = service.get("/v1/apps/dev/keys", &service.key).await;
    assert!(listed.json()["keys"].as_array().is_some_and(|keys| keys.iter().any(|key| key["id"] == id)));
    assert!(!listed.text.contains(&key), "a key is shown once");
    let path = format!("/v1/apps/dev/keys/{}", id.as_str().expect("an id"));
    assert_eq!(service.delete(&path, &service.key).await.status, StatusCode::NO_CONTENT);
    service.get("/v1/topics", &key).await.problem(401, "unauthorized");
    service.delete(&path, &service.key).await.problem(404, "not_found");
    service.delete("/v1/apps/dev/keys/x", &service.key).await.problem(404, "not_found");
    for (bad, field) in [
        (r#"{"name": "k", "scopes": []}"#, "scopes"),
        (r#"{"name": "k", "scopes": ["root"]}"#, "scopes[0]"),
        (r#"{"name": "", "scopes": ["read"]}"#, "name"),
    ] {
        assert_eq!(
            service.post("/v1/apps/dev/keys", &service.key, bad).await.problem(400, "invalid_field")["field"],
            field
        );
    }
}

#[tokio::test]
async fn an_admin_key_changes_its_own_apps_settings() {
    let service = Service::start().await;
    let admin = service.key_with(&[Scope::Admin]).await;
    let patch = async |body: &str| service.call(Method::PATCH, "/v1/apps/dev", &admin, body).await;
    // In one change: without a key it could not re-enable app JWTs itself, as the other app has one.
    let url = patch(r#"{"jwt_secret": null, "jwks_url": "https://id.example.com/keys"}"#).await.json();
    assert_eq!(
        (&url["jwks_url"], &url["jwt_secret_set"]),
        (&json!("https://id.example.com/keys"), &json!(false))
    );
    for (bad, field) in [
        (r#"{"jwt_secret": "short"}"#, "jwt_secret"),
        (r#"{"jwks_url": "http://169.254.169.254/keys"}"#, "jwks_url"),
        (r#"{"jwks": {"keys": []}}"#, "jwks"),
        (r#"{"jwks": "x"}"#, "jwks"),
    ] {
        assert_eq!(patch(bad).await.problem(400, "invalid_field")["field"], field, "{bad}");
    }
    patch(r#"{"name": "new"}"#).await.problem(400, "unknown_field");
}

#[tokio::test]
async fn only_the_operator_sets_issuer_and_audience() {
    let service = Service::start().await;
    let admin = service.key_with(&[Scope::Admin]).await;
    let tenant = async |body: &str| service.call(Method::PATCH, "/v1/apps/dev", &admin, body).await;
    let operator = async |method, path: &str, body: &str| service.operate(method, path, OPERATOR, body).await;
    for field in ["issuer", "audience"] {
        let refused = tenant(&format!(r#"{{"{field}": "https://id.example"}}"#)).await;
        assert_eq!(refused.problem(403, "forbidden")["field"], field);
        assert_eq!(tenant(&format!(r#"{{"{field}": null}}"#)).await.status, StatusCode::OK, "no change");
    }
    let declared = r#"{"issuer": "https://id.example", "audience": "shop-api"}"#;
    let changed = operator(Method::PATCH, "/v1/apps/dev", declared).await.json();
    assert_eq!(
        (&changed["issuer"], &changed["audience"]),
        (&json!("https://id.example"), &json!("shop-api"))
    );
    // A token never belongs to two apps.
    let same = r#"{"name": "shop", "issuer": "https://id.example", "audience": "shop-api"}"#;
    assert_eq!(
        operator(Method::POST, "/v1/apps", same).await.problem(409, "already_exists")["field"],
        "audience"
    );
    let open = r#"{"name": "shop", "audience": "shop-api"}"#;
    operator(Method::POST, "/v1/apps", open).await.problem(409, "already_exists");
    let different = r#"{"name": "shop", "issuer": "https://other.example", "audience": "shop-api"}"#;
    assert_eq!(operator(Method::POST, "/v1/apps", different).await.status, StatusCode::CREATED);
    let named_so = r#"{"name": "third", "audience": "fourth"}"#;
    assert_eq!(operator(Method::POST, "/v1/apps", named_so).await.status, StatusCode::CREATED);
    operator(Method::POST, "/v1/apps", r#"{"name": "fourth"}"#).await.problem(409, "already_exists");
    let cleared =
        operator(Method::PATCH, "/v1/apps/dev", r#"{"issuer": null, "audience": null}"#).await.json();
    assert_eq!((&cleared["issuer"], &cleared["audience"]), (&json!(null), &json!(null)));
}

#[tokio::test]
async fn a_tenant_cannot_invalidate_tokens_without_app_of_another_tenant() {
    let service = Service::start().await;
    let secret = r#""jwt_secret": "a secret of at least thirty-two bytes""#;
    let off = service.operate(Method::PATCH, "/v1/apps/other", OPERATOR, r#"{"jwt_secret": null}"#).await;
    assert_eq!(off.status, StatusCode::OK);
    let key = r#"{"name": "admin", "scopes": ["admin"]}"#;
    let key = service.operate(Method::POST, "/v1/apps/other/keys", OPERATOR, key).await.json();
    let key = key["key"].as_str().expect("a key").to_owned();
    let body = format!("{{{secret}}}");
    // Only the app `dev` signs tokens without an app.
    service.call(Method::PATCH, "/v1/apps/other", &key, &body).await.problem(403, "forbidden");
    let turned_on = service.operate(Method::PATCH, "/v1/apps/other", OPERATOR, &body).await;
    assert_eq!(turned_on.status, StatusCode::OK);
    assert_eq!(service.call(Method::PATCH, "/v1/apps/other", &key, &body).await.status, StatusCode::OK);
}
