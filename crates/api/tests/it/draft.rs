//! Drafts of campaigns: two authors, what is missing, approval by a second person, estimates, filtered lists.

use http::{Method, StatusCode};
use noroshi_api::CampaignRules;
use noroshi_types::{Role, Timestamp};
use serde_json::{Value, json};

use crate::console::{Browser, PASSWORD, person};
use crate::service::{Answer, NOW, Service};

const PATH: &str = "/v1/campaigns";

/// A campaign with more than two recipients needs an approval.
async fn service(keys_need_approval: bool) -> Service {
    let service = Service::without_push(|state| {
        state.config.campaigns = CampaignRules { large: 2, keys_need_approval };
    })
    .await;
    for (device, user) in [("d1", "u1"), ("d2", "u1"), ("d3", "u2")] {
        service.device(device, user).await;
    }
    service
}

async fn author(service: &Service, email: &str) -> Browser {
    person(service, email, vec![(Some(service.app()), Role::Author)]).await
}

fn whole(name: &str) -> Value {
    json!({"name": name, "audience": {"everyone": true}, "message": {"notification": {"title": "Hello"}}})
}

async fn drafted(service: &Service, by: &Browser, body: Value) -> (String, Value) {
    let made = by.call(service, Method::POST, &format!("{PATH}?draft=true"), &body.to_string()).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text);
    let body = made.json();
    (format!("{PATH}/{}", body["id"].as_str().expect("an id")), body)
}

async fn patch(service: &Service, by: &Browser, path: &str, body: Value) -> Answer {
    by.call(service, Method::PATCH, path, &body.to_string()).await
}

#[tokio::test]
async fn an_incomplete_draft_is_kept_and_says_what_is_missing() {
    let service = service(false).await;
    let ann = author(&service, "ann@example.com").await;
    let (path, made) = drafted(&service, &ann, json!({"name": "Spring"})).await;
    assert_eq!(
        (&made["complete"], &made["revision"], &made["state"]),
        (&json!(false), &json!(1), &json!("draft"))
    );
    let fields = |body: &Value| -> Vec<String> {
        let problems = body["problems"].as_array().cloned().unwrap_or_default();
        problems.iter().map(|problem| problem["field"].as_str().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(fields(&made), ["audience", "message"]);
    assert_eq!(
        (&made["definition"], &made["created_by"]),
        (&json!({"name": "Spring"}), &json!("ann@example.com"))
    );
    let refused = ann.call(&service, Method::POST, &format!("{path}/start"), "").await;
    assert!(refused.text.contains("audience: ") && refused.text.contains("message: "), "{}", refused.text);
    refused.problem(409, "campaign_incomplete");
    // Unknown fields and a start are typing errors, not gaps.
    for body in [json!({"nmae": "x"}), json!({"start": true})] {
        let refused =
            ann.call(&service, Method::POST, &format!("{PATH}?draft=true"), &body.to_string()).await;
        assert_eq!(refused.status, 400, "{}", refused.text);
    }
    let changed =
        patch(&service, &ann, &path, json!({"revision": 1, "audience": {"topic": ""}})).await.json();
    assert_eq!(
        (fields(&changed), &changed["revision"]),
        (vec!["audience.topic".into(), "message".into()], &json!(2))
    );
    let whole =
        json!({"revision": 2, "audience": {"topic": "news"}, "message": {"notification": {"title": "Hi"}}});
    let changed = patch(&service, &ann, &path, whole).await.json();
    assert_eq!((&changed["complete"], fields(&changed).len()), (&json!(true), 0));
    assert_eq!(changed["audience"], json!({"topic": "news"}));
    // What is missing may be an experiment.
    let trial = json!({"revision": 3, "experiment": {"name": "none"}});
    let changed = patch(&service, &ann, &path, trial).await.json();
    assert!(fields(&changed).iter().any(|field| field.starts_with("experiment")), "{changed}");
    let removed = patch(&service, &ann, &path, json!({"revision": 4, "experiment": null})).await.json();
    assert_eq!(removed["complete"], json!(true));
    let started = ann.call(&service, Method::POST, &format!("{path}/start?revision=5"), "").await;
    assert_eq!(started.status, 200, "{}", started.text);
    patch(&service, &ann, &path, json!({"revision": 5, "name": "x"})).await.problem(409, "wrong_state");
}

#[tokio::test]
async fn two_authors_do_not_overwrite_each_other() {
    let service = service(false).await;
    let (ann, ben) = (author(&service, "ann@example.com").await, author(&service, "ben@example.com").await);
    let (path, _) = drafted(&service, &ann, whole("One")).await;
    assert_eq!(patch(&service, &ben, &path, json!({"revision": 1, "name": "Two"})).await.status, 200);
    let late = patch(&service, &ann, &path, json!({"revision": 1, "name": "Three"})).await;
    assert!(late.text.contains("its revision is 2"), "{}", late.text);
    late.problem(409, "revision_conflict");
    let now = ann.call(&service, Method::GET, &path, "").await.json();
    assert_eq!((&now["name"], &now["edited_by"]), (&json!("Two"), &json!("ben@example.com")));
    patch(&service, &ann, &path, json!({"name": "Four"})).await.problem(400, "invalid_field");
    ann.call(&service, Method::POST, &format!("{path}/start?revision=1"), "")
        .await
        .problem(409, "revision_conflict");
    let audit = person(&service, "olga@example.com", vec![(None, Role::Owner)]).await;
    let entries = audit.call(&service, Method::GET, "/v1/audit", "").await.json();
    let entry = entries["entries"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|entry| entry["action"].as_str().is_some_and(|action| action.starts_with("PATCH")));
    let entry = entry.expect("the change").clone();
    assert_eq!((&entry["before"]["name"], &entry["after"]["name"]), (&json!("One"), &json!("Two")));
}

#[tokio::test]
async fn a_large_campaign_needs_a_second_person_and_a_recent_log_in() {
    let service = service(false).await;
    let (ann, ben) = (author(&service, "ann@example.com").await, author(&service, "ben@example.com").await);
    let (path, made) = drafted(&service, &ann, whole("Large")).await;
    let (start, approve) = (format!("{path}/start"), format!("{path}/approve"));
    let approval = |revision: u64| json!({"revision": revision}).to_string();
    assert_eq!(made["approval"], Value::Null);
    ann.call(&service, Method::POST, &start, "").await.problem(409, "approval_required");
    ann.call(&service, Method::POST, &approve, &approval(1)).await.problem(403, "own_approval");
    ben.call(&service, Method::POST, &approve, &approval(2)).await.problem(409, "revision_conflict");
    let approved = ben.call(&service, Method::POST, &approve, &approval(1)).await;
    assert_eq!(approved.json()["approval"]["by"], json!("ben@example.com"), "{}", approved.text);

    // A change ends the approval, and makes its author one who cannot approve.
    let changed = patch(&service, &ben, &path, json!({"revision": 1, "name": "Larger"})).await.json();
    assert_eq!(changed["approval"], Value::Null);
    ann.call(&service, Method::POST, &start, "").await.problem(409, "approval_required");
    for both in [&ann, &ben] {
        both.call(&service, Method::POST, &approve, &approval(2)).await.problem(403, "own_approval");
    }
    let authors = json!(["ann@example.com", "ben@example.com"]);
    assert_eq!(changed["authors"], authors);
    // Ben wrote some of it, although Ann changed it last.
    let changed = patch(&service, &ann, &path, json!({"revision": 2, "name": "Largest"})).await.json();
    assert_eq!((&changed["edited_by"], &changed["authors"]), (&json!("ann@example.com"), &authors));
    ben.call(&service, Method::POST, &approve, &approval(3)).await.problem(403, "own_approval");
    let cid = author(&service, "cid@example.com").await;
    assert_eq!(cid.call(&service, Method::POST, &approve, &approval(3)).await.status, 200);
    assert_eq!(cid.call(&service, Method::DELETE, &approve, "").await.json()["approval"], Value::Null);
    ann.call(&service, Method::POST, &start, "").await.problem(409, "approval_required");
    assert_eq!(cid.call(&service, Method::POST, &approve, &approval(3)).await.status, 200);

    service.clock.set(Timestamp(NOW.0 + 600_000));
    ann.call(&service, Method::POST, &start, "").await.problem(403, "confirm_log_in");
    let password = json!({"password": PASSWORD}).to_string();
    assert_eq!(ann.call(&service, Method::POST, "/v1/session/confirm", &password).await.status, 200);
    let started = ann.call(&service, Method::POST, &start, "").await;
    assert_eq!(started.json()["state"], json!("running"), "{}", started.text);
    cid.call(&service, Method::POST, &approve, &approval(3)).await.problem(409, "wrong_state");
}

#[tokio::test]
async fn no_way_leads_around_the_approval() {
    let service = service(false).await;
    let ann = author(&service, "ann@example.com").await;
    // Created and started at once.
    let at_once = ann.call(&service, Method::POST, PATH, &whole("At once").to_string()).await;
    at_once.problem(409, "approval_required");
    // Small when it is scheduled, large afterwards.
    let later =
        json!({"audience": {"upload": true}, "message": {"data": 1}, "start_at": "2036-01-01T00:00:00Z"});
    let (path, _) = drafted(&service, &ann, later).await;
    let upload = format!("{path}/recipients");
    let two = "{\"user\":\"u2\"}\n{\"user\":\"u9\"}\n";
    assert_eq!(ann.call(&service, Method::POST, &upload, two).await.status, 200);
    let scheduled = ann.call(&service, Method::POST, &format!("{path}/start"), "").await;
    assert_eq!(scheduled.status, 200, "{}", scheduled.text);
    let scheduled = scheduled.json();
    assert_eq!((&scheduled["state"], &scheduled["revision"]), (&json!("scheduled"), &json!(2)));
    ann.call(&service, Method::POST, &upload, "{\"user\":\"u3\"}\n").await.problem(409, "limit_exceeded");
    // A change makes it a draft again, with another audience.
    let changed =
        patch(&service, &ann, &path, json!({"revision": 2, "audience": {"everyone": true}})).await.json();
    assert_eq!(changed["state"], json!("draft"));
    ann.call(&service, Method::POST, &format!("{path}/start"), "").await.problem(409, "approval_required");
    // New recipients end an approval.
    let (path, _) =
        drafted(&service, &ann, json!({"audience": {"upload": true}, "message": {"data": 1}})).await;
    let upload = format!("{path}/recipients");
    let three = "{\"user\":\"u1\"}\n{\"user\":\"u2\"}\n{\"user\":\"u3\"}\n";
    assert_eq!(ann.call(&service, Method::POST, &upload, three).await.status, 200);
    let ben = author(&service, "ben@example.com").await;
    let approve = format!("{path}/approve");
    assert_eq!(ben.call(&service, Method::POST, &approve, r#"{"revision": 2}"#).await.status, 200);
    assert_eq!(ann.call(&service, Method::POST, &upload, "{\"user\":\"u4\"}\n").await.status, 200);
    ann.call(&service, Method::POST, &format!("{path}/start"), "").await.problem(409, "approval_required");
}

#[tokio::test]
async fn keys_are_trusted_unless_the_operator_says_otherwise() {
    let trusting = service(false).await;
    let made = trusting.post(PATH, &trusting.key, &whole("By a key").to_string()).await;
    assert_eq!((made.status, &made.json()["created_by"]), (StatusCode::CREATED, &json!("key:all")));
    let strict = service(true).await;
    strict.post(PATH, &strict.key, &whole("By a key").to_string()).await.problem(409, "approval_required");
    let mut body = whole("By a key");
    body["start"] = json!(false);
    let made = strict.post(PATH, &strict.key, &body.to_string()).await.json();
    let path = format!("{PATH}/{}", made["id"].as_str().expect("an id"));
    strict.post(&format!("{path}/start"), &strict.key, "").await.problem(409, "approval_required");
    let ben = author(&strict, "ben@example.com").await;
    let approved = ben.call(&strict, Method::POST, &format!("{path}/approve"), r#"{"revision": 1}"#).await;
    assert_eq!(approved.status, 200, "{}", approved.text);
    assert_eq!(strict.post(&format!("{path}/start"), &strict.key, "").await.status, 200);
    // A key approves nothing: the console has the route.
    strict
        .post(&format!("{path}/approve"), &strict.key, r#"{"revision": 1}"#)
        .await
        .problem(404, "not_found");
}

#[tokio::test]
async fn an_estimate_counts_devices_users_and_languages() {
    let service = service(false).await;
    let ann = author(&service, "ann@example.com").await;
    let body = json!({"device": "d4", "user": "u3", "locale": "ja", "timezone": "Asia/Tokyo", "platform": "ios",
        "push_token": {"service": "fcm", "token": "t"}});
    assert_eq!(service.post("/v1/devices", &service.key, &body.to_string()).await.status, 201);
    let (path, _) =
        drafted(&service, &ann, json!({"audience": {"everyone": true}, "rate_per_second": 2})).await;
    let estimate = format!("{path}/estimate");
    let found = ann.call(&service, Method::POST, &estimate, "").await.json();
    let exact = |value: u64| json!({"value": value, "low": value, "high": value});
    assert_eq!((&found["exact"], &found["examined"]), (&json!(true), &json!(4)));
    assert_eq!((&found["devices"], &found["users"]), (&exact(4), &exact(3)));
    assert_eq!((&found["by_service"], &found["no_push_token"]), (&json!({"fcm": exact(1)}), &exact(3)));
    assert_eq!(
        found["by_locale"],
        json!([{"locale": null, "devices": exact(3)}, {"locale": "ja", "devices": exact(1)}])
    );
    assert_eq!(found["sample"].as_array().map(Vec::len), Some(4));
    assert_eq!((&found["needs_approval"], &found["approval_above"]), (&json!(true), &json!(2)));
    let forecast = &found["forecast"];
    assert_eq!((&forecast["rate_from"], &forecast["rate_per_second"]), (&json!("limit"), &json!(2.0)));
    assert!(forecast["ends_at"].is_string(), "{forecast}");
    let as_key = service.post(&estimate, &service.key, "").await.json();
    assert_eq!((&as_key["needs_approval"], &as_key["approval_above"]), (&json!(false), &Value::Null));
    let (path, _) = drafted(&service, &ann, json!({"name": "x"})).await;
    ann.call(&service, Method::POST, &format!("{path}/estimate"), "").await.problem(400, "invalid_field");
}

#[tokio::test]
async fn an_uploaded_recipient_is_shown() {
    let service = service(false).await;
    let ann = author(&service, "ann@example.com").await;
    let (path, _) = drafted(&service, &ann, json!({"audience": {"upload": true}})).await;
    let line = json!({"user": "u1", "variables": {"name": "Ann"}}).to_string();
    assert_eq!(ann.call(&service, Method::POST, &format!("{path}/recipients"), &line).await.status, 200);
    let shown = ann.call(&service, Method::GET, &format!("{path}/recipients/u1"), "").await.json();
    assert_eq!(shown, json!({"user": "u1", "variables": {"name": "Ann"}}));
    ann.call(&service, Method::GET, &format!("{path}/recipients/u2"), "").await.problem(404, "not_found");
    let (path, _) = drafted(&service, &ann, json!({"audience": {"everyone": true}})).await;
    ann.call(&service, Method::POST, &format!("{path}/recipients"), &line).await.problem(409, "wrong_state");
}

#[tokio::test]
async fn lists_are_filtered() {
    let service = service(false).await;
    let ann = author(&service, "ann@example.com").await;
    let (_, draft) = drafted(&service, &ann, json!({"name": "Spring Sale"})).await;
    service.clock.set(Timestamp(NOW.0 + 1));
    let mut later = whole("Winter sale");
    later["start_at"] = json!("2036-01-01T00:00:00Z");
    let scheduled = service.post(PATH, &service.key, &later.to_string()).await.json();
    service.clock.set(Timestamp(NOW.0 + 2));
    service.post(PATH, &service.key, &whole("News").to_string()).await;
    let names = async |query: &str| -> Vec<String> {
        let answer = service.get(&format!("{PATH}?{query}"), &service.key).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let body = answer.json();
        let list = body["campaigns"].as_array().expect("a list");
        list.iter().map(|one| one["name"].as_str().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(names("").await, ["News", "Winter sale", "Spring Sale"]);
    assert_eq!(names("state=draft").await, ["Spring Sale"]);
    assert_eq!(names("state=draft,scheduled").await, ["Winter sale", "Spring Sale"]);
    assert_eq!(names("name=SALE").await, ["Winter sale", "Spring Sale"]);
    assert_eq!(names("created_by=ann@example.com").await, ["Spring Sale"]);
    assert_eq!(names("created_by=key:all&name=news").await, ["News"]);
    assert_eq!(
        names("start_since=2035-12-31T00:00:00Z&start_until=2036-02-01T00:00:00Z").await,
        ["Winter sale"]
    );
    assert_eq!(names("created_since=2999-01-01T00:00:00Z").await, Vec::<String>::new());
    let after = scheduled["id"].as_str().expect("an id");
    assert_eq!(names(&format!("name=sale&after={after}")).await, ["Spring Sale"]);
    for wrong in ["state=open", "created_since=today", "stat=draft"] {
        service.get(&format!("{PATH}?{wrong}"), &service.key).await.problem(400, "invalid_parameter");
    }
    let listed = service.get(&format!("{PATH}?state=draft"), &service.key).await.json();
    assert_eq!(
        (&listed["campaigns"][0]["id"], &listed["campaigns"][0]["definition"]),
        (&draft["id"], &Value::Null)
    );
}
