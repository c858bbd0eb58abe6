//! What each method of the store's traits runs, written once for both engines.
//!
//! A row of a table is a method: its transaction, its signature, and the function that runs in the transaction.
//!
//! - `read`: one consistent read. `ask`: a read of a single statement, which PostgreSQL sends without a transaction.
//! - `write(rows)`: one commit; `rows` estimates how many rows it writes.
//! - `call`: the function takes the store instead, and chooses its transactions.
//!
//! `shared` functions are in [`crate::engine`], written on a `Session`. `own` functions have the same path and the same
//! parameters in [`crate::sqlite`] and [`crate::postgres`]. `here` functions are in this file. A function takes its
//! transaction, and then the values that the row lists. Each value is an expression of the method's arguments. Inside
//! it, arguments are references, because PostgreSQL may run a write again. An argument `&name: Type` is a reference in the trait too.
//!
//! [`crate::Notifications`] and [`crate::Usages`] have no table: the engines have little in common there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_types::{
    ActivityId, AppId, AppName, BatchId, BroadcastId, CampaignId, CredentialId, DeviceId, DeviceNum,
    EndpointId, ItemCounts, JsonText, KeyId, Label, Message, NotificationId, PersonId, Preferences, Role,
    Timestamp, TokenKey, Topic, UserId, UtcDay,
};

use crate::cells::{
    Assign, CellChange, CellNum, CellRecord, Depth, Move, MoveStep, NewMessage, Part, PartEnd, Population,
    Relayed, Relocated, Relocation, Residence, Taken as Kept, Wanted,
};
use crate::engine::campaign::{CampaignNum, PURGE_ROWS};
use crate::engine::item::DELETED_ROWS;
use crate::engine::purge;
use crate::sqlite::statement::ready;
use crate::*;

/// Implements a trait for both engines.
macro_rules! calls {
    ($trait:ident { $($table:tt)* }) => {
        calls!($trait for Sqlite, $($table)*);
        calls!($trait for Postgres, $($table)*);
    };
    ($trait:ident for $engine:ident, $(
        $kind:ident $(($rows:expr))? $name:ident($($(& $lent:ident)? $($own:ident)?: $type:ty),*) -> $answer:ty
            = $home:ident $($path:ident)::+($($value:expr),*);
    )* $({ $($more:tt)* })?) => {
        #[async_trait::async_trait]
        impl $trait for $engine {
            $(async fn $name(&self, $($($lent: &$type)? $($own: $type)?),*) -> Result<$answer, Error> {
                run!(
                    $trait: $engine $kind $(($rows))? self [$($($lent)? $($own)?)*] [$($($lent: $type,)?)*]
                    $home [$($path)::+] [$($value),*]
                )
            })*
            $($($more)*)?
        }
    };
}

/// Runs the function of a row in its transaction.
macro_rules! run {
    ($trait:ident: $engine:ident call $self:ident $args:tt $lent:tt $home:ident $path:tt $values:tt) => {
        apply!($engine $home $path $self $values).await
    };
    ($trait:ident: Sqlite read $self:ident [$($arg:ident)*] [$($lent:ident: $type:ty,)*] $home:ident $path:tt
        $values:tt) => {{
        $(let $lent = ToOwned::to_owned($lent);)*
        let work = move |read: crate::sqlite::reader::Read<'_>| {
            $(let $arg = &$arg;)*
            $(let $lent: &$type = $lent;)*
            settled!(read $home $path $values)
        };
        $self.read(work).await
    }};
    ($trait:ident: Sqlite ask $($row:tt)*) => { run!($trait: Sqlite read $($row)*) };
    ($trait:ident: Sqlite write($rows:expr) $self:ident [$($arg:ident)*] [$($lent:ident: $type:ty,)*] $home:ident
        $path:tt $values:tt) => {{
        let rows = $rows;
        $(let $lent = ToOwned::to_owned($lent);)*
        let work = move |w: &mut crate::sqlite::writer::Write<'_>| {
            w.held.set(crate::metrics::Held::by(stringify!($trait)));
            $(let $arg = &$arg;)*
            $(let $lent: &$type = $lent;)*
            settled!(w $home $path $values)
        };
        $self.write(rows, work).await
    }};
    ($trait:ident: Postgres write($rows:expr) $self:ident [$($arg:ident)*] [$($lent:ident: $type:ty,)*] $home:ident
        $path:tt $values:tt) => {{
        $(let $lent = ToOwned::to_owned($lent);)*
        let args = Arc::new(($($arg,)*));
        let work = move |tx: crate::postgres::transaction::Tx| {
            let args = Arc::clone(&args);
            async move {
                let ($($arg,)*) = &*args;
                $(let $lent: &$type = $lent;)*
                apply!(Postgres $home $path (&tx) $values).await
            }
        };
        $self.write(work).await
    }};
    ($trait:ident: Postgres $read:ident $self:ident [$($arg:ident)*] [$($lent:ident: $type:ty,)*] $home:ident $path:tt
        $values:tt) => {{
        $(let $arg = &$arg;)*
        $(let $lent: &$type = $lent;)*
        let work = move |tx: crate::postgres::transaction::Tx| async move {
            apply!(Postgres $home $path (&tx) $values).await
        };
        $self.$read(work).await
    }};
}

/// Calls the function of a row.
macro_rules! apply {
    ($engine:ident here [$($path:ident)::+] $first:tt [$($value:expr),*]) => { $($path)::+($first, $($value),*) };
    ($engine:ident shared [$($path:ident)::+] $first:tt [$($value:expr),*]) => {
        crate::engine::$($path)::+($first, $($value),*)
    };
    (Sqlite own [$($path:ident)::+] $first:tt [$($value:expr),*]) => {
        crate::sqlite::$($path)::+($first, $($value),*)
    };
    (Postgres own [$($path:ident)::+] $first:tt [$($value:expr),*]) => {
        crate::postgres::$($path)::+($first, $($value),*)
    };
}

/// Calls the function of a row on SQLite: shared ones are written for engines that answer later.
macro_rules! settled {
    ($context:ident shared $path:tt $values:tt) => { ready(apply!(Sqlite shared $path ($context.db) $values)) };
    ($context:ident own $path:tt $values:tt) => { apply!(Sqlite own $path $context $values) };
}

calls! { Apps {
    read apps() -> Vec<App> = shared app::apps();
    write(1) create_app(name: AppName, settings: AppSettings, now: Timestamp) -> App
        = shared app::create(name, settings, *now);
    write(1) update_app(app: AppId, settings: AppSettings) -> App = shared app::update(*app, settings);
    write(1) set_topic_rules(app: AppId, rules: Option<String>) -> App
        = shared app::set_topic_rules(*app, rules.as_ref());
    write(1) set_quotas(app: AppId, before: Before, quotas: Option<String>) -> App
        = shared app::set_quotas(*app, before, quotas.as_ref());
    call delete_app(app: AppId) -> () = here delete_app(app);
    read keys() -> Vec<Key> = shared app::keys();
    write(1) create_key(key: NewKey, now: Timestamp) -> Key = shared app::create_key(key, *now);
    write(1) revoke_key(app: AppId, key: KeyId) -> () = shared app::revoke_key(*app, *key);
    write(1) secret(&name: str, fresh: Vec<u8>) -> Vec<u8> = shared app::secret(name, fresh);
}}

calls! { Devices {
    call register(app: AppId, devices: Vec<Registration>, now: Timestamp) -> Vec<Result<Device, Error>>
        = own device::register_many(app, devices, now);
    ask device(app: AppId, &device: DeviceId) -> Option<Device> = own device::find(*app, device);
    read devices(app: AppId, filter: DeviceFilter) -> Vec<Device> = own device::list(*app, filter);
    write(1) update_device(app: AppId, &device: DeviceId, change: DeviceChange, now: Timestamp) -> Device
        = own device::update(*app, device, change.clone(), *now);
    write(1) delete_device(app: AppId, &device: DeviceId, now: Timestamp) -> DeviceNum
        = own device::delete(*app, device, *now);
    write(2) revoke_tokens(app: AppId, &device: DeviceId, now: Timestamp) -> u32
        = own device::revoke_tokens(*app, device, *now);
    write(devices.len()) record_seen(devices: Vec<DeviceNum>, day: UtcDay) -> ()
        = shared device_seen::record(devices, *day);
    call revoke_user(app: AppId, &user: UserId, now: Timestamp) -> Vec<DeviceId>
        = own device::revoke_user(app, user, now);
    write(1) subscribe(app: AppId, &device: DeviceId, &topic: Topic, now: Timestamp) -> bool
        = own device::subscribe(*app, device, topic, *now);
    write(1) unsubscribe(app: AppId, &device: DeviceId, &topic: Topic) -> bool
        = own device::unsubscribe(*app, device, topic);
}}

calls! { Listings {
    read list_notifications(app: AppId, filter: NotificationFilter, now: Timestamp) -> NotificationPage
        = own listing::notifications(*app, filter, *now);
    read search_devices(app: AppId, search: DeviceSearch, now: Timestamp) -> DevicePage
        = shared device_search::search(*app, search, *now);
}}

calls! { Lookups {
    read lookup(keys: LookupKeys) -> Found = own lookup::lookup(keys);
}}

calls! { Sessions {
    call log_in(logins: Vec<Login>) -> Vec<Result<LoggedIn, LoginRefused>> = own session::log_in(logins);
    read recheck(checks: Vec<Recheck>) -> Vec<Rechecked> = own session::recheck(checks);
    write(1) keep_session(device: DeviceNum, kept: Option<Vec<u8>>) -> ()
        = shared login::keep(*device, kept.as_ref());
    read backlog(asked: Backlog) -> BacklogPage = own backlog::next_page(asked);
    read recover(asked: Recover) -> BacklogPage = own backlog::recover(asked);
    read outstanding(asked: Outstanding) -> Vec<Arc<Message>> = own backlog::outstanding(asked);
    call ack(acks: Vec<Ack>, now: Timestamp) -> Vec<Acked> = own ack::ack(acks, now);
    write(ids.len()) open(device: DeviceNum, ids: Vec<NotificationId>, now: Timestamp) -> Vec<NotificationId>
        = own opened::open(*device, ids, *now);
    read inbox(app: AppId, &device: DeviceId, limit: usize, now: Timestamp) -> (Vec<Arc<Message>>, u64)
        = own inbox::list(*app, device, *limit, *now);
    read inbox_range(asked: InboxRange) -> Option<InboxPage> = own inbox::range(asked);
    ask first_call(app: AppId, &device: DeviceId, newest: usize, now: Timestamp) -> Option<FirstCall>
        = own session::first_call(*app, device, *newest, *now);
    {
        fn inbox_rows(&self) -> u32 {
            self.inbox_rows()
        }

        fn read_log_ins(&self, logins: Vec<Login>, done: Box<dyn FnOnce(FirstRead) + Send>) {
            self.read_log_ins(logins, done);
        }
    }
}}

calls! { Topics {
    read topic(app: AppId, &topic: Topic) -> TopicState = shared topic::state(*app, topic);
    call topics(app: AppId, after: Option<&Topic>, limit: usize) -> Vec<TopicState>
        = here topics(app, after, limit);
    read retained(app: AppId, &topic: Topic, now: Timestamp) -> Option<Arc<Message>>
        = own topic::retained(*app, topic, *now);
    read retained_page(scan: RetainedScan, wanted: RetainedFilter) -> RetainedPage
        = own topic::retained_page(scan, wanted);
    read log_page(app: AppId, since: Place, rows_max: usize, now: Timestamp) -> LogPage
        = own topic::log_page(*app, *since, *rows_max, *now);
    write(1) delete_retained(app: AppId, &topic: Topic) -> bool = shared topic::delete_retained(*app, topic);
    read topics_since(since: Place, rows_max: usize) -> TopicsSince = shared topic::since(*since, *rows_max);
}}

calls! { Maintenance {
    call prune(now: Timestamp, rows_max: usize) -> Pruned = own maintenance::prune(now, rows_max);
    call check() -> () = here check();
    read place() -> Place = own maintenance::place();
    call lead(&task: str, holder: u64, lease: Duration) -> bool = own maintenance::lead(task, holder, lease);
    call release_lead(&task: str, holder: u64) -> () = own maintenance::release_lead(task, holder);
    {
        async fn close(&self) {
            self.close_and_wait().await;
        }
    }
}}

calls! { Credentials {
    read credentials() -> Vec<StoredCredential> = shared credential::all();
    write(1) put_credential(credential: NewCredential, now: Timestamp) -> StoredCredential
        = shared credential::put(credential, *now);
    write(1) rotate_credential(credential: RotatedCredential, now: Timestamp) -> StoredCredential
        = shared credential::rotate(credential, *now);
    write(1) delete_credential(app: AppId, id: CredentialId) -> () = shared credential::delete(*app, *id);
}}

calls! { Endpoints {
    write(1) create_endpoint(endpoint: NewEndpoint, now: Timestamp) -> Endpoint
        = shared endpoint::create(endpoint, *now);
    read endpoints(app: AppId, &device: DeviceId, now: Timestamp) -> Vec<Endpoint>
        = shared endpoint::of_device(*app, device, *now);
    read endpoint(&hash: EndpointHash, now: Timestamp) -> Option<Endpoint> = shared endpoint::find(hash, *now);
    write(1) delete_endpoint(app: AppId, &device: DeviceId, id: EndpointId) -> ()
        = shared endpoint::delete(*app, device, *id);
}}

calls! { PushQueue {
    call take(take: Take) -> Taken = own push::take::take(take);
    write(leases.len()) renew(leases: Vec<Lease>, until: Timestamp, lease: Duration, why: Renewal) -> Vec<BatchId>
        = own push_queue::renew(leases, *until, *lease, *why);
    write(finished.iter().map(|one| 4 + one.parts.len() + one.again.len() + one.gone.len()).sum())
        finish(finished: Vec<Finished>, now: Timestamp) -> FinishedCounts
        = own push::finish::finish(finished, *now);
    read push_recipients(app: AppId, work: Work, campaign: Option<CampaignId>, token: Option<TokenKey>,
        devices: Vec<DeviceNum>) -> Vec<PushRecipient>
        = own push::recipient::find(*app, *work, *campaign, token.as_ref(), devices);
    read push_content(app: AppId, id: NotificationId) -> Option<PushContent>
        = own push::recipient::content(*app, *id);
    read walks(now: Timestamp, limit: usize) -> Walks = own push::walk::due(*now, *limit);
    write(2 + batches.len() + parts.len())
        walked(&walk: Walk, batches: Vec<NewBatch>, cursor: Option<u64>, parts: Vec<PushPart>, now: Timestamp)
        -> bool
        = own push::walk::walked(walk, batches, *cursor, parts, *now);
    read audience(app: AppId, &audience: Audience, after: u64, limit: usize, token: Option<TokenKey>) -> AudiencePage
        = own audience::page(*app, audience, *after, *limit, token.as_ref());
    write(restore.tokens_max) restore_tokens(app: AppId, restore: RestoreTokens) -> Vec<DeviceNum>
        = shared push_token::restore(*app, restore);
    read invalidations(app: AppId, after: u64, limit: usize) -> Vec<Invalidation>
        = shared push::invalidations(*app, *after, *limit);
}}

calls! { Channels {
    write(1) reserve_channel(new: NewChannel, claim: Claim, channels_max: usize, now: Timestamp) -> Reserved
        = shared channel::reserve(new, *claim, *channels_max, *now);
    write(1) complete_channel(app: AppId, &name: Label, claim: u64, apple: String) -> Channel
        = shared channel::complete(*app, name, *claim, apple);
    write(1) abandon_channel(app: AppId, &name: Label, claim: u64) -> ()
        = shared channel::abandon(*app, name, *claim);
    read channel(app: AppId, &name: Label) -> Option<Channel> = shared channel::find(*app, name);
    read channels(app: AppId, after: Option<Label>, limit: usize) -> Vec<Channel>
        = shared channel::list(*app, after.as_ref(), *limit);
    read channels_of_topic(app: AppId, &topic: Topic) -> Vec<Channel> = shared channel::of_topic(*app, topic);
    read known_channels(app: AppId, apple: Vec<String>) -> Vec<(String, Label)> = shared channel::known(*app, apple);
    write(1) bind_channel(app: AppId, &name: Label, topic: Option<Topic>) -> Channel
        = shared channel::bind(*app, name, topic.as_ref());
    write(1) delete_channel(app: AppId, &name: Label, now: Timestamp) -> ()
        = shared channel::delete(*app, name, *now);
    write(1) broadcast(new: NewBroadcast, waiting_max: usize, now: Timestamp) -> (StoredBroadcast, bool)
        = shared broadcast::accept(new, *waiting_max, *now);
    read stored_broadcast(app: AppId, id: BroadcastId) -> Option<StoredBroadcast>
        = shared broadcast::find(*app, *id);
    read broadcast_attempts(app: AppId, id: BroadcastId) -> Vec<Vec<u8>>
        = shared push_record::of_broadcast(*app, *id);
    read broadcasts(app: AppId, of: BroadcastsOf, limit: usize) -> Vec<StoredBroadcast>
        = shared broadcast::list(*app, of, *limit);
    write(3 * limit) take_broadcasts(now: Timestamp, lease: Duration, limit: usize) -> TakenBroadcasts
        = shared broadcast::take(*now, *lease, *limit);
    write(3 * finished.len()) finish_broadcasts(finished: Vec<FinishedBroadcast>, now: Timestamp) -> ()
        = shared broadcast::finish(finished, *now);
    read channel_counts() -> ChannelCounts = shared channel::counts();
}}

calls! { Campaigns {
    write(2) create_campaign(campaign: NewCampaign, now: Timestamp) -> CreatedCampaign
        = own campaign::create(campaign, *now);
    read created_campaign(app: AppId, idempotency: Idempotency, now: Timestamp) -> Option<Campaign>
        = own campaign::created_before(*app, idempotency, *now);
    read campaign(app: AppId, id: CampaignId, now: Timestamp) -> Option<Campaign>
        = own campaign::find(*app, *id, *now);
    read waiting_batches(app: AppId, id: CampaignId, now: Timestamp, limit: usize) -> Waiting
        = shared campaign::waiting(*app, *id, *now, *limit);
    read active_campaigns(now: Timestamp) -> Vec<Campaign> = own campaign::active(*now);
    write(lines.len()) upload(app: AppId, id: CampaignId, lines: Vec<UploadLine>, uploader: Uploader, now: Timestamp)
        -> u64
        = own campaign::upload(*app, *id, lines, uploader, *now);
    call set_campaign_state(app: AppId, id: CampaignId, &from: [CampaignState], to: CampaignState, now: Timestamp)
        -> (CampaignState, RemovedMessages)
        = here set_campaign_state(app, id, from, to, now);
    write(2 + batches.len() + parts.len())
        enqueue(id: CampaignId, from: u64, batches: Vec<NewBatch>, cursor: u64, walked: bool, parts: Vec<PushPart>,
            now: Timestamp) -> CampaignState
        = own campaign::enqueue(*id, *from, batches, *cursor, *walked, parts, *now);
    write(64) make_due(id: CampaignId, started_at: Timestamp, now: Timestamp) -> u64
        = shared campaign::make_due(*id, *started_at, *now);
    call delete_campaign(app: AppId, id: CampaignId) -> () = here delete_campaign(app, id);
}}

calls! { CampaignDrafts {
    read list_campaigns(app: AppId, filter: CampaignFilter, now: Timestamp) -> CampaignPage
        = own campaign::list(*app, filter, *now);
    ask definition_of_campaign(app: AppId, id: CampaignId) -> Option<(u64, JsonText)>
        = shared draft::definition(*app, *id);
    write(4) edit_campaign(id: CampaignId, revision: u64, campaign: NewCampaign, now: Timestamp)
        -> Result<u64, Unready>
        = own campaign::edit(*id, *revision, campaign, *now);
    write(1) start_draft(start: StartDraft, now: Timestamp) -> Result<(), Unready>
        = shared draft::start(start, *now);
    write(1) approve_campaign(app: AppId, id: CampaignId, revision: u64, by: Option<String>, now: Timestamp)
        -> Result<(), Unready>
        = shared draft::approve(*app, *id, *revision, by.as_ref(), *now);
    ask uploaded_line(app: AppId, id: CampaignId, &user: UserId) -> Option<JsonText>
        = shared draft::line(*app, *id, user);
    ask device_ids(app: AppId, devices: Vec<DeviceNum>) -> Vec<(DeviceNum, DeviceId)>
        = shared draft::device_ids(*app, devices);
}}

calls! { Definitions {
    read live_definitions(app: Option<AppId>) -> Vec<Definition> = shared definition::live(*app);
    read definition(app: AppId, kind: DefinitionKind, &name: Label) -> Option<Definition>
        = shared definition::named(*app, *kind, name);
    read archived_definitions(app: AppId, kind: DefinitionKind, before: Option<u64>, limit: usize)
        -> Vec<Definition>
        = shared definition::archived(*app, *kind, *before, *limit);
    write(1) put_definition(new: NewDefinition, live_max: usize, now: Timestamp) -> Definition
        = shared definition::put(new, *live_max, *now);
    write(1) archive_definition(app: AppId, kind: DefinitionKind, &name: Label, now: Timestamp) -> Definition
        = shared definition::archive(*app, *kind, name, *now);
    write(rows_max) archive_ended(kind: DefinitionKind, now: Timestamp, rows_max: usize) -> u64
        = shared definition::archive_ended(*kind, *now, *rows_max);
}}

calls! { Shares {
    write(join.shares.len()) join_shares(join: JoinShares) -> () = own share::join(join);
    write(1) leave_shares(leave: LeaveShares) -> bool = own share::leave(leave);
    write(members.len()) return_to_shares(members: Vec<(DeviceNum, u64)>) -> bool
        = own share::return_members(members);
    read share_groups() -> Vec<ShareGroup> = shared share::groups();
    write(settle.since.len() + settle.over.len()) settle_shares(settle: SettleShares) -> ()
        = own share::settle(settle);
}}

calls! { Activities {
    write(2) create_activity(activity: NewActivity, now: Timestamp) -> CreatedActivity
        = shared activity::create(activity, *now);
    read activity(app: AppId, &id: ActivityId) -> Option<Activity> = shared activity::find(*app, id);
    read activity_progress(num: u64) -> ActivityProgress = shared activity::progress(*num);
    read activity_member(activity: u64, &device: DeviceId, &attributes: str) -> Option<ActivityMember>
        = shared activity::member(*activity, device, attributes);
    read activities(app: AppId, before: Option<u64>, limit: usize) -> Vec<Activity>
        = shared activity::page(*app, *before, *limit);
    write(16) change_activity(change: ActivityChange, now: Timestamp) -> Activity
        = shared activity::change(change, *now);
    read activities_to_collect(limit: usize) -> Vec<Activity> = shared activity::to_collect(*limit);
    read named_devices(app: AppId, names: Names) -> Vec<DeviceNum> = shared activity::named(*app, names);
    write(2 + devices.len())
        add_activity_devices(activity: u64, cursor: u64, next: Option<u64>, devices: Vec<DeviceNum>, now: Timestamp)
        -> bool
        = shared activity::add(*activity, *cursor, *next, devices, *now);
    write(2) join_activity(app: AppId, &id: ActivityId, device: DeviceNum, now: Timestamp) -> Joined
        = shared activity::join(*app, id, *device, *now);
    write(take.slices_max) take_slices(take: TakeSlices) -> TakenSlices = shared activity::take(take);
    write(slices.len()) renew_slices(holder: u64, slices: Vec<u64>, lease: Duration, now: Timestamp) -> ()
        = shared activity::renew(*holder, slices, *lease, *now);
    read slice_recipients(activity: Activity, slice: Slice, attributes: String) -> Vec<ActivityRecipient>
        = shared activity::recipients(activity, slice, attributes);
    write(settled.iter().map(|one| 6 + one.started.len() + one.again.len()).sum())
        settle_slices(holder: u64, settled: Vec<SettledSlice>, now: Timestamp) -> Option<Timestamp>
        = shared activity::settle(*holder, settled, *now);
    write(reports.iter().map(|report| 3 * (report.gone.len() + report.suspects.len())).sum())
        invalidate_tokens(reports: Vec<TokenReport>, now: Timestamp) -> (u64, u64)
        = own push::token::invalidate(reports, *now);
    read expired_activities(now: Timestamp, limit: usize) -> Vec<(AppId, ActivityId)>
        = shared activity::expired(*now, *limit);
    write(rows_max) prune_activities(now: Timestamp, rows_max: usize) -> (u64, bool)
        = shared activity::prune(*now, *rows_max);
}}

calls! { Items {
    read items(asked: ItemPage) -> Vec<Item> = own item::list(asked);
    read item_counts(app: AppId, users: Vec<UserId>, now: Timestamp) -> Vec<ItemCounts>
        = own item::counts(*app, users, *now);
    write(100) change_items(change: ItemChange) -> ChangedItems = own item::change(change);
    call delete_items(app: AppId, &user: UserId) -> u64 = here delete_items(app, user);
}}

calls! { PreferenceStore {
    ask preferences(app: AppId, &of: Preferring) -> Option<Preferences> = shared preferences::get(*app, of);
    write(2) set_preferences(app: AppId, &of: Preferring, preferences: Option<Preferences>) -> ()
        = shared preferences::set(*app, of, preferences.as_ref());
    read followed_preferences(app: AppId, devices: Vec<DeviceId>) -> Vec<Followed>
        = shared preferences::followed(*app, devices);
    write(counted.len()) count_for_caps(counted: Vec<Counted>) -> Vec<bool>
        = shared preferences::count(counted);
}}

calls! { People {
    write(1) create_person(new: NewPerson, now: Timestamp) -> Person = shared person::create(new, *now);
    read person(id: PersonId) -> Option<Person> = shared person::find(*id);
    read person_with_email(&email: str) -> Option<Person> = shared person::with_email(email);
    read person_with_openid(openid: OpenId) -> Option<Person> = shared person::with_openid(openid);
    read people(after: PersonId, limit: usize) -> Vec<Person> = shared person::page(*after, *limit);
    read people_of_app(app: AppId, after: PersonId, limit: usize) -> Vec<Person>
        = shared person::of_app(*app, *after, *limit);
    write(2) change_person(id: PersonId, change: PersonChange, now: Timestamp) -> Person
        = shared person::change(*id, change, *now);
    write(3) delete_person(id: PersonId) -> () = shared person::delete(*id);
    write(1) set_role(id: PersonId, app: Option<AppId>, role: Option<Role>) -> Person
        = shared person::set_role(*id, *app, *role);
    write(2) map_roles(id: PersonId, roles: Vec<(Option<AppId>, Role)>) -> Person
        = shared person::map_roles(*id, roles);
    write(1) use_totp(id: PersonId, step: u64) -> bool = shared person::use_totp(*id, *step);
    write(1) use_recovery_code(id: PersonId, code: TokenHash) -> bool
        = shared person::use_recovery_code(*id, code);
    write(1) create_session(new: NewPersonSession, now: Timestamp) -> PersonSession
        = shared person_session::create(new, *now);
    read person_session(hash: TokenHash, idle_since: Timestamp, now: Timestamp)
        -> Option<(PersonSession, Person)>
        = shared person_session::find(hash, *idle_since, *now);
    write(1) touch_session(id: u64, now: Timestamp) -> () = shared person_session::touch(*id, *now);
    write(1) confirm_session(id: u64, now: Timestamp) -> () = shared person_session::confirm(*id, *now);
    read person_sessions(person: PersonId, idle_since: Timestamp, now: Timestamp) -> Vec<PersonSession>
        = shared person_session::list(*person, *idle_since, *now);
    write(1) end_session(person: PersonId, id: u64) -> () = shared person_session::end(*person, *id);
    write(1) end_other_sessions(person: PersonId, except: Option<u64>) -> u64
        = shared person_session::end_others(*person, *except);
    write(1) create_ticket(new: NewTicket, now: Timestamp) -> Ticket = shared ticket::create(new, *now);
    read ticket(hash: TokenHash, now: Timestamp) -> Option<Ticket> = shared ticket::find(hash, *now);
    write(1) take_ticket(hash: TokenHash, now: Timestamp) -> Option<Ticket> = shared ticket::take(hash, *now);
    read invitations(now: Timestamp) -> Vec<Ticket> = shared ticket::invitations(*now);
    write(1) delete_ticket(id: u64) -> () = shared ticket::delete(*id);
    write(changes.len()) record_audit(changes: Vec<Audited>, now: Timestamp) -> ()
        = shared audit::record(changes, *now);
    read audit(filter: AuditFilter) -> Vec<AuditEntry> = shared audit::list(filter);
    write(4 * rows_max)
        prune_people(now: Timestamp, idle_since: Timestamp, audit_since: Timestamp, rows_max: usize) -> u64
        = shared audit::prune(*now, *idle_since, *audit_since, *rows_max);
}}

calls! { SeriesStore {
    write(rows.len()) write_series(rows: Vec<SeriesRow>) -> () = shared series::write(rows);
    read series(range: SeriesRange) -> Vec<SeriesRow> = shared series::read(range);
    read newest_series(step_s: u32, before: Timestamp) -> Option<Timestamp>
        = shared series::newest(*step_s, *before);
    write(bounds.iter().map(|bound| bound.removed_max).sum())
        prune_series(bounds: Vec<SeriesBound>) -> u64 = shared series::prune(bounds);
}}

calls! { Cells {
    write(names.len()) enrol(names: Vec<String>) -> Vec<CellRecord> = shared cells::enrol(names);
    write(1) adjust(cell: CellNum, change: CellChange) -> CellRecord = shared cells::adjust(*cell, *change);
    read populations() -> Vec<Population> = shared cells::residence::populations();

    write(devices.len() * 2)
        assign(app: AppId, devices: Vec<Assign>, now: Timestamp) -> Vec<Result<Residence, Error>>
        = own cells::residence::assign(*app, devices, *now);
    write(devices.len()) arrived(app: AppId, devices: Vec<(DeviceId, CellNum)>) -> Vec<DeviceId>
        = own cells::residence::arrived(*app, devices);
    read residences(&apps: [AppId], &device: DeviceId) -> Vec<Residence>
        = own cells::residence::of_device(apps, device);
    read cells_of_users(app: AppId, users: Vec<UserId>, now: Timestamp) -> Vec<Vec<CellNum>>
        = own cells::residence::of_users(*app, users, *now);
    write(1) forget_device(app: AppId, &device: DeviceId) -> () = shared cells::residence::forget(*app, device);

    write(if let Relocation::Some { limit, .. } = &who { limit * 3 } else { 3 })
        relocate(who: Relocation, to: CellNum, now: Timestamp, asked_until: Timestamp) -> Relocated
        = shared cells::residence::relocate(who, *to, *now, *asked_until);
    read moves(from: CellNum, step: MoveStep, after: Option<(AppId, DeviceId)>, limit: usize) -> Vec<Move>
        = shared cells::residence::moves(*from, *step, after.as_ref(), *limit);
    write(1) advance(app: AppId, &device: DeviceId, from: MoveStep, to: MoveStep) -> ()
        = shared cells::residence::advance(*app, device, *from, *to);

    write(messages.len() * 4) keep(messages: Vec<NewMessage>, now: Timestamp) -> Vec<Result<Kept, Error>>
        = own cells::outbox::keep(messages, *now);
    read waiting(cell: CellNum, wanted: Wanted, rows_max: usize, bytes_max: usize) -> Vec<Part>
        = own cells::outbox::waiting(*cell, wanted, *rows_max, *bytes_max);
    call newest() -> u64 = own cells::outbox::newest();
    read waits_before(cell: CellNum, app: AppId, num: u64) -> bool
        = shared cells::outbox::waits_before(*cell, *app, *num);
    write(ended.len() * 2) end(cell: CellNum, ended: Vec<(u64, PartEnd)>) -> ()
        = own cells::outbox::end(*cell, ended);
    read relayed(app: AppId, id: NotificationId) -> Option<Relayed> = shared cells::outbox::relayed(*app, *id);
    read relayed_as(cell: CellNum, remote: NotificationId) -> Option<Relayed>
        = shared cells::outbox::relayed_as(*cell, *remote);
    write(8) cancel_relayed(app: AppId, id: NotificationId) -> Option<Relayed>
        = shared cells::outbox::cancel(*app, *id);
    read cancelling(cell: CellNum, limit: usize) -> Vec<(u64, AppId, NotificationId)>
        = shared cells::outbox::cancelling(*cell, *limit);
    write(nums.len()) cancelled(cell: CellNum, nums: Vec<u64>) -> () = own cells::outbox::cancelled(*cell, nums);
    read depths() -> Vec<Depth> = shared cells::outbox::depths();
    write(rows_max)
        prune_relayed(now: Timestamp, expired: Timestamp, forgotten: Timestamp, rows_max: usize) -> bool
        = own cells::outbox::prune(*now, *expired, *forgotten, *rows_max);

    read provisioned(cell: CellNum) -> Vec<(AppName, [u8; 32])> = shared cells::provisioned(*cell);
    write(1) set_provisioned(cell: CellNum, app: AppName, digest: Option<[u8; 32]>) -> ()
        = shared cells::set_provisioned(*cell, app, *digest);
}}

/// Transactions of the calls that take several.
#[async_trait::async_trait]
trait Steps: Send + Sync {
    async fn remove_app(&self, app: AppId) -> Result<(), Error>;
    async fn purge_app(&self, app: AppId) -> Result<bool, Error>;
    async fn change_campaign(
        &self,
        app: AppId,
        id: CampaignId,
        from: &[CampaignState],
        to: CampaignState,
        now: Timestamp,
    ) -> Result<(CampaignNum, CampaignState), Error>;
    async fn purge_batches(
        &self,
        app: AppId,
        campaign: CampaignNum,
        now: Timestamp,
    ) -> Result<(RemovedMessages, bool), Error>;
    async fn ended_campaign(&self, app: AppId, id: CampaignId) -> Result<CampaignNum, Error>;
    async fn purge_lines(&self, campaign: CampaignNum) -> Result<usize, Error>;
    async fn remove_campaign(&self, campaign: CampaignNum) -> Result<(), Error>;
    async fn purge_items(&self, app: AppId, user: &UserId) -> Result<u64, Error>;
    async fn topics_after(&self, app: AppId, name: &str, limit: usize) -> Result<Vec<TopicState>, Error>;
    async fn write_check(&self, value: [u8; 16]) -> Result<(), Error>;
    async fn read_check(&self) -> Result<usize, Error>;
}

calls! { Steps {
    write(1) remove_app(app: AppId) -> () = shared app::delete(*app);
    write(purge::ROWS as usize) purge_app(app: AppId) -> bool = shared purge::page(*app, purge::ROWS);
    write(1) change_campaign(app: AppId, id: CampaignId, &from: [CampaignState], to: CampaignState, now: Timestamp)
        -> (CampaignNum, CampaignState)
        = own campaign::set_state(*app, *id, from, *to, *now);
    write(PURGE_ROWS) purge_batches(app: AppId, campaign: CampaignNum, now: Timestamp) -> (RemovedMessages, bool)
        = own campaign::purge_batches(*app, *campaign, *now);
    write(1) ended_campaign(app: AppId, id: CampaignId) -> CampaignNum = shared campaign::ended(*app, *id);
    write(PURGE_ROWS) purge_lines(campaign: CampaignNum) -> usize
        = shared campaign::purge_lines(*campaign, PURGE_ROWS);
    write(1) remove_campaign(campaign: CampaignNum) -> () = own campaign::remove(*campaign);
    write(DELETED_ROWS) purge_items(app: AppId, &user: UserId) -> u64 = shared item::delete(*app, user);
    read topics_after(app: AppId, &name: str, limit: usize) -> Vec<TopicState>
        = shared topic::states(*app, name, *limit);
    write(1) write_check(value: [u8; 16]) -> () = shared app::write_check(value);
    read read_check() -> usize = shared app::read_check();
}}

async fn delete_app(store: &impl Steps, app: AppId) -> Result<(), Error> {
    store.remove_app(app).await?;
    let started = Instant::now();
    while started.elapsed() < purge::INLINE_LIMIT && store.purge_app(app).await.unwrap_or(false) {}
    Ok(())
}

async fn set_campaign_state(
    store: &impl Steps,
    app: AppId,
    id: CampaignId,
    from: &[CampaignState],
    to: CampaignState,
    now: Timestamp,
) -> Result<(CampaignState, RemovedMessages), Error> {
    let (num, state) = store.change_campaign(app, id, from, to, now).await?;
    let mut departed = RemovedMessages::default();
    let mut more = to == CampaignState::Aborted;
    while more {
        // `take` removes the rest if this stops early.
        let Ok(page) = store.purge_batches(app, num, now).await else { break };
        departed.append(page.0);
        more = page.1;
    }
    Ok((state, departed))
}

async fn delete_campaign(store: &impl Steps, app: AppId, id: CampaignId) -> Result<(), Error> {
    let num = store.ended_campaign(app, id).await?;
    while store.purge_lines(num).await? == PURGE_ROWS {}
    store.remove_campaign(num).await
}

async fn delete_items(store: &impl Steps, app: AppId, user: &UserId) -> Result<u64, Error> {
    let mut deleted = 0;
    loop {
        let rows = store.purge_items(app, user).await?;
        deleted += rows;
        if rows < DELETED_ROWS as u64 {
            return Ok(deleted);
        }
    }
}

async fn topics(
    store: &impl Steps,
    app: AppId,
    after: Option<&Topic>,
    limit: usize,
) -> Result<Vec<TopicState>, Error> {
    store.topics_after(app, after.map_or("", Topic::as_str), limit).await
}

async fn check(store: &impl Steps) -> Result<(), Error> {
    let value = ids::draw_key();
    store.write_check(value).await?;
    // A concurrent check may have written since, so only the presence of a value is checked.
    match store.read_check().await? == value.len() {
        true => Ok(()),
        false => Err(Error::Engine("a written value could not be read back".to_owned())),
    }
}
