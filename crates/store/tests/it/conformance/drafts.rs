//! Drafts of campaigns: revisions, approval, start, filtered lists.

use noroshi_store::{
    CampaignFilter, CampaignState, Error, NewCampaign, NewDraft, NewVariant, StartDraft, Store, Unready,
    UploadLine, Uploader,
};
use noroshi_types::{AppId, CampaignId, JsonText, UserId, When};

use super::fixture::*;
use super::push_fixture::*;

fn draft(app: AppId, name: &str, by: &str) -> NewCampaign {
    let draft = NewDraft {
        name: name.to_owned(),
        definition: Some(JsonText::from_valid(format!("{{\"name\":\"{name}\"}}"))),
        by: by.to_owned(),
        ..NewDraft::default()
    };
    NewCampaign { draft, ..new_campaign(app, CampaignState::Draft) }
}

async fn made(store: &dyn Store, new: NewCampaign, seconds: u64) -> CampaignId {
    store.create_campaign(new, at(seconds)).await.expect("created").campaign.id
}

async fn start(
    store: &dyn Store,
    app: AppId,
    id: CampaignId,
    revision: u64,
    needs_approval: bool,
) -> Result<(), Unready> {
    let start = StartDraft {
        app,
        id,
        revision,
        needs_approval,
        from: CampaignState::Draft,
        to: CampaignState::Running,
    };
    store.start_draft(start, at(9)).await.expect("known")
}

async fn approve(store: &dyn Store, app: AppId, id: CampaignId, revision: u64) -> Result<(), Unready> {
    store.approve_campaign(app, id, revision, Some("ben".to_owned()), at(5)).await.expect("known")
}

pub(crate) async fn a_draft_is_changed_at_its_revision(store: &dyn Store) {
    let (app, other) = (app(store, "shop").await, app(store, "news").await);
    let two = vec![NewVariant { notification: None, data: None }; 2];
    let id = made(store, NewCampaign { variants: two, ..draft(app, "one", "ann") }, 0).await;
    let found = store.campaign(app, id, NOW).await.expect("read").expect("found");
    assert_eq!((found.draft.revision, found.draft.is_complete, &*found.draft.created_by), (1, true, "ann"));
    assert_eq!((found.variants.len(), found.draft.edited_at), (2, None));
    let changed = NewCampaign {
        notification: Some(JsonText::from_valid(r#"{"title":"new"}"#)),
        when: Some(When::Stored),
        variants: vec![NewVariant { notification: None, data: None }],
        ..draft(app, "two", "ben")
    };
    let edit =
        async |revision| store.edit_campaign(id, revision, changed.clone(), at(3)).await.expect("known");
    assert_eq!(edit(1).await, Ok(2));
    assert_eq!(edit(1).await, Err(Unready::Revision(2)), "somebody else was faster");
    let found = store.campaign(app, id, NOW).await.expect("read").expect("found");
    assert_eq!((found.draft.revision, &*found.draft.created_by, &*found.draft.edited_by), (2, "ann", "ben"));
    assert_eq!((found.draft.edited_at, found.variants.len()), (Some(at(3)), 1));
    let shown = store.notification(app, found.notification, NOW).await.expect("read").expect("kept");
    assert_eq!(shown.message.notification, changed.notification);
    let definition = store.definition_of_campaign(app, id).await.expect("read").expect("kept");
    assert_eq!((definition.0, definition.1.as_str()), (2, r#"{"name":"two"}"#));
    assert_eq!(store.definition_of_campaign(other, id).await.expect("read"), None);
    let theirs = NewCampaign { app: other, ..changed.clone() };
    assert!(matches!(store.edit_campaign(id, 2, theirs, at(3)).await, Err(Error::NotFound)));
    // A scheduled campaign becomes a draft; a running one is not changed.
    let scheduled = StartDraft {
        app,
        id,
        revision: 2,
        needs_approval: false,
        from: CampaignState::Draft,
        to: CampaignState::Scheduled,
    };
    assert_eq!(store.start_draft(scheduled, at(4)).await.expect("known"), Ok(()));
    let due = |revision| StartDraft {
        app,
        id,
        revision,
        needs_approval: false,
        from: CampaignState::Scheduled,
        to: CampaignState::Running,
    };
    // Its time has come for a revision that is gone.
    let gone = store.start_draft(due(1), at(4)).await.expect("known");
    assert_eq!(gone, Err(Unready::Revision(2)));
    assert_eq!(edit(2).await, Ok(3));
    let gone = store.start_draft(due(3), at(4)).await.expect("known");
    assert_eq!(gone, Err(Unready::State(CampaignState::Draft)));
    assert_eq!(store.campaign(app, id, NOW).await.expect("read").expect("found").state, CampaignState::Draft);
    assert_eq!(start(store, app, id, 3, false).await, Ok(()));
    assert_eq!(edit(3).await, Err(Unready::State(CampaignState::Running)));
    assert_eq!(store.campaign(app, id, NOW).await.expect("read").expect("found").started_at, Some(at(9)));
}

pub(crate) async fn only_an_approved_revision_starts(store: &dyn Store) {
    let app = app(store, "shop").await;
    let id = made(store, draft(app, "one", "ann"), 0).await;
    assert_eq!(start(store, app, id, 1, true).await, Err(Unready::Unapproved));
    assert_eq!(approve(store, app, id, 2).await, Err(Unready::Revision(1)));
    assert_eq!(approve(store, app, id, 1).await, Ok(()));
    let found = store.campaign(app, id, NOW).await.expect("read").expect("found");
    assert_eq!(found.draft.approved, Some(("ben".to_owned(), at(5))));
    assert_eq!(store.edit_campaign(id, 1, draft(app, "two", "ann"), at(6)).await.expect("known"), Ok(2));
    assert_eq!(start(store, app, id, 1, true).await, Err(Unready::Revision(2)));
    assert_eq!(start(store, app, id, 2, true).await, Err(Unready::Unapproved), "a change ends the approval");
    assert_eq!(approve(store, app, id, 2).await, Ok(()));
    let withdrawn = store.approve_campaign(app, id, 2, None, at(7)).await.expect("known");
    assert_eq!((withdrawn, start(store, app, id, 2, true).await), (Ok(()), Err(Unready::Unapproved)));
    let mut gap = draft(app, "three", "ann");
    gap.draft.is_complete = false;
    assert_eq!(store.edit_campaign(id, 2, gap, at(8)).await.expect("known"), Ok(3));
    assert_eq!(approve(store, app, id, 3).await, Err(Unready::Incomplete));
    assert_eq!(start(store, app, id, 3, false).await, Err(Unready::Incomplete));
    assert_eq!(store.edit_campaign(id, 3, draft(app, "four", "ann"), at(8)).await.expect("known"), Ok(4));
    assert_eq!(approve(store, app, id, 4).await, Ok(()));
    assert_eq!(start(store, app, id, 4, true).await, Ok(()));
    assert_eq!(approve(store, app, id, 4).await, Err(Unready::State(CampaignState::Running)));
}

pub(crate) async fn no_author_of_any_revision_approves_it(store: &dyn Store) {
    let app = app(store, "shop").await;
    let id = made(store, draft(app, "one", "ann"), 0).await;
    let edit = async |revision, by: &str| {
        store
            .edit_campaign(id, revision, draft(app, "two", by), at(3))
            .await
            .map(|edited| edited.expect("ready"))
    };
    let approve = async |by: &str, revision| {
        store.approve_campaign(app, id, revision, Some(by.to_owned()), at(5)).await
    };
    assert_eq!(approve("ann", 1).await.expect("known"), Err(Unready::Author));
    assert_eq!(edit(1, "ben").await.expect("changed"), 2);
    let line = UploadLine { user: UserId::parse("u1").expect("a user"), line: JsonText::from_valid("{}") };
    let uploader = Uploader { by: "cid".to_owned(), scheduled_max: None };
    store.upload(app, id, vec![line], uploader, at(4)).await.expect("uploaded");
    assert_eq!(edit(3, "key:backend").await.expect("changed"), 4);
    assert_eq!(edit(4, "ben").await.expect("changed"), 5);
    assert_eq!(edit(5, "key:backend").await.expect("changed"), 6);
    let authors = ["ann", "ben", "cid", "key:backend"];
    let mut found = store.campaign(app, id, NOW).await.expect("read").expect("found").draft.authors;
    found.sort();
    assert_eq!(found, authors);
    for author in authors {
        assert_eq!(approve(author, 6).await.expect("known"), Err(Unready::Author), "{author}");
    }
    // Eve may be writing the next revision now.
    assert_eq!(approve("eve", 7).await.expect("known"), Err(Unready::Revision(6)));
    assert_eq!(approve("eve", 6).await.expect("known"), Ok(()));
    for number in 4..100 {
        edit(number + 2, &format!("author {number}")).await.expect("changed");
    }
    assert!(matches!(edit(102, "one more").await, Err(Error::Limit(_))));
    edit(102, "ann").await.expect("no new author");
}

pub(crate) async fn new_recipients_change_a_draft(store: &dyn Store) {
    let app = app(store, "shop").await;
    let id = made(store, draft(app, "one", "ann"), 0).await;
    let line = |user: &str| UploadLine {
        user: UserId::parse(user).expect("a user"),
        line: JsonText::from_valid("{}"),
    };
    let upload = async |users: &[&str], scheduled_max| {
        let uploader = Uploader { by: "cid".to_owned(), scheduled_max };
        store.upload(app, id, users.iter().map(|user| line(user)).collect(), uploader, at(2)).await
    };
    assert_eq!(approve(store, app, id, 1).await, Ok(()));
    assert_eq!(upload(&[], None).await.expect("nothing to do"), 0);
    assert_eq!(start(store, app, id, 1, true).await, Ok(()), "nothing was added");
    let id = made(store, draft(app, "two", "ann"), 1).await;
    let upload = async |users: &[&str], scheduled_max| {
        let uploader = Uploader { by: "cid".to_owned(), scheduled_max };
        store.upload(app, id, users.iter().map(|user| line(user)).collect(), uploader, at(2)).await
    };
    assert_eq!(approve(store, app, id, 1).await, Ok(()));
    assert_eq!(upload(&["u1", "u2"], Some(1)).await.expect("a draft"), 2);
    let found = store.campaign(app, id, NOW).await.expect("read").expect("found");
    assert_eq!((found.draft.revision, &*found.draft.edited_by, found.draft.approved), (2, "cid", None));
    assert_eq!(start(store, app, id, 1, false).await, Err(Unready::Revision(2)));
    let scheduled = StartDraft {
        app,
        id,
        revision: 2,
        needs_approval: false,
        from: CampaignState::Draft,
        to: CampaignState::Scheduled,
    };
    assert_eq!(store.start_draft(scheduled, at(4)).await.expect("known"), Ok(()));
    assert!(matches!(upload(&["u3"], Some(2)).await, Err(Error::Limit(_))));
    let found = store.campaign(app, id, NOW).await.expect("read").expect("found");
    assert_eq!((found.uploaded, found.draft.revision), (2, 2), "nothing was changed");
    assert_eq!(upload(&["u3"], Some(3)).await.expect("fits"), 3);
    assert_eq!(upload(&["u4"], None).await.expect("trusted"), 4);
    let line = store.uploaded_line(app, id, &UserId::parse("u4").expect("a user")).await.expect("read");
    assert_eq!(line.expect("uploaded").as_str(), "{}");
    let none = UserId::parse("u9").expect("a user");
    assert_eq!(store.uploaded_line(app, id, &none).await.expect("read"), None);
}

pub(crate) async fn campaigns_are_filtered(store: &dyn Store) {
    use CampaignState::{Draft, Running};
    let (app, other) = (app(store, "shop").await, app(store, "news").await);
    let named = |name: &str, by: &str, state| NewCampaign { state, ..draft(app, name, by) };
    let spring = made(store, named("Spring SALE", "ann", Draft), 10).await;
    let winter = made(store, named("Winter sale", "ben", Running), 20).await;
    let mut summer = named("Sommer ÄRGER", "ann", Draft);
    summer.draft.start_at = Some(at(500));
    let summer = made(store, summer, 30).await;
    made(store, draft(other, "Spring sale", "ann"), 15).await;
    let list = async |filter: CampaignFilter| {
        let page = store.list_campaigns(app, filter, NOW).await.expect("read");
        (page.campaigns.iter().map(|one| one.id).collect::<Vec<_>>(), page.next)
    };
    let all = || CampaignFilter::first(9);
    assert_eq!(list(all()).await, (vec![summer, winter, spring], None));
    let by = CampaignFilter { created_by: Some("ann".into()), ..all() };
    assert_eq!(list(by.clone()).await.0, [summer, spring]);
    assert_eq!(list(CampaignFilter { states: vec![Running], ..all() }).await.0, [winter]);
    assert_eq!(list(CampaignFilter { states: vec![Draft, Running], ..all() }).await.0.len(), 3);
    assert_eq!(list(CampaignFilter { name: Some("sale".into()), ..all() }).await.0, [winter, spring]);
    assert_eq!(list(CampaignFilter { name: Some("ärg".into()), ..all() }).await.0, [summer]);
    assert_eq!(list(CampaignFilter { since: Some(at(20)), ..all() }).await.0, [summer, winter]);
    assert_eq!(list(CampaignFilter { until: Some(at(20)), ..all() }).await.0, [spring]);
    assert_eq!(list(CampaignFilter { start_since: Some(at(500)), ..all() }).await.0, [summer]);
    assert_eq!(list(CampaignFilter { start_until: Some(at(500)), ..all() }).await.0, []);
    // Pages, with and without a filter.
    assert_eq!(list(CampaignFilter::first(2)).await, (vec![summer, winter], Some(winter)));
    let rest = CampaignFilter { before: Some(winter), ..CampaignFilter::first(2) };
    assert_eq!(list(rest).await, (vec![spring], None));
    let (first, next) = list(CampaignFilter { limit: 1, ..by.clone() }).await;
    assert_eq!(first, [summer]);
    assert_eq!(list(CampaignFilter { limit: 1, before: next, ..by }).await.0, [spring]);
}

pub(crate) async fn a_definition_ends_with_its_campaign(store: &dyn Store) {
    let app = app(store, "shop").await;
    let id = made(store, draft(app, "one", "ann"), 0).await;
    let (from, to) = ([CampaignState::Draft], CampaignState::Aborted);
    store.set_campaign_state(app, id, &from, to, at(1)).await.expect("aborted");
    assert!(store.definition_of_campaign(app, id).await.expect("read").is_some());
    store.delete_campaign(app, id).await.expect("deleted");
    assert_eq!(store.definition_of_campaign(app, id).await.expect("read"), None);
}

pub(crate) async fn ids_of_devices_are_read(store: &dyn Store) {
    let (app, other) = (app(store, "shop").await, app(store, "news").await);
    let one = join(store, app, "d1", "u1", &[]).await;
    let theirs = join(store, other, "d2", "u1", &[]).await;
    let found = store.device_ids(app, vec![one, theirs]).await.expect("read");
    assert_eq!(found.iter().map(|(num, id)| (*num, id.as_str())).collect::<Vec<_>>(), [(one, "d1")]);
}
