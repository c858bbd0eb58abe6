/** Generated from crates/api/openapi.json by `npm run types`. Do not edit. */

/** A button. */
export interface Action {
    /** What the app learns when the user presses it. */
    id: string;
    title: string;
    /**
     * Absolute URL that it opens. The schemes `javascript`, `data` and `vbscript` are rejected.
     */
    url?: string | null;
}
export interface Activities {
    activities: Activity[];
    /** `after` of the next page. */
    next: string | null;
}
export interface Activity {
    /** The id of the activity: 1 to 64 letters, digits and `.`, `_`, `-`. */
    id: string;
    /**
     * `expired`: its time was over.
     */
    state: "active" | "ended" | "expired";
    /** Of the state: 1 at the start, one more with each change. */
    version: number;
    attributes_type: string;
    attributes: Record<string, unknown> | null;
    content_state: Record<string, unknown> | null;
    /**
     * RFC 3339, UTC.
     */
    stale_date: string | null;
    relevance: number | null;
    android: ActivityAndroid | null;
    when: "active" | "connected" | "stored";
    ios_via: "apns" | "fcm" | null;
    frequent_updates: boolean;
    join: "invited" | "anyone";
    /**
     * RFC 3339, UTC.
     */
    created_at: string;
    /**
     * RFC 3339, UTC.
     */
    updated_at: string;
    /**
     * RFC 3339, UTC.
     */
    expires_at: string;
    /**
     * RFC 3339, UTC.
     */
    ended_at: string | null;
    /**
     * RFC 3339, UTC.
     */
    dismissal_date: string | null;
    /** Devices that take part, as far as they are collected. */
    devices: number;
    /** Updates with a high urgency that the budget allows now. */
    high_priority_left: number;
    /** Only for a single activity. */
    target?: {
        kind: "users" | "devices" | "topic" | "condition" | "everyone";
        topic?: string;
        condition?: string;
        named?: number;
    };
    /** Only for a single activity. */
    progress?: {
        /** All devices of the target are collected. */
        collected: boolean;
        /** Devices that have the newest state, or cannot get it by push. */
        current: number;
        /** Devices that wait for the newest state. */
        waiting: number;
        /** Pushes by outcome, over all versions. */
        counts: {
            [key: string]: number;
        };
        reasons: {
            outcome: "kept" | "written" | "acked" | "offline" | "inactive" | "slow" | "expired" | "collapsed" | "cancelled" | "evicted" | "unknown" | "push_not_configured" | "pushed" | "push_refused" | "push_token_gone" | "push_token_suspect" | "no_push_token" | "push_not_needed" | "push_expired" | "opened" | "held_out" | "muted" | "channel_off" | "quiet" | "capped" | "push_muted" | "push_channel_off" | "push_capped";
            reason: string | null;
            count: number;
        }[];
    };
    /** Only in the answer to a change. */
    change?: {
        /**
         * 5 if the update did not ask for a high urgency, or the budget is used up.
         */
        priority: 5 | 10;
        /**
         * The message for connected devices. `null`: the node had no room for it; the next state replaces it.
         */
        notification: string | null;
    };
}
/** Lights up the screen. Devices show the texts where they cannot show the activity. A title, a body, or both. */
export interface ActivityAlert {
    title?: string | null;
    body?: string | null;
    /** `default`, or a sound of the app. */
    sound?: string | null;
}
/** What Android devices show: the fields of `Notification.ProgressStyle` (Android 16). At most 4,096 bytes. */
export interface ActivityAndroid {
    title?: string | null;
    text?: string | null;
    /** For the status bar chip; Android shows about seven characters. */
    short_text?: string | null;
    progress?: {
        value?: number | null;
        /** Default: the sum of the segments, or 100. */
        max?: number | null;
        indeterminate?: boolean | null;
        segments?: {
            length: number;
            color?: string | null;
        }[] | null;
        points?: {
            position: number;
            color?: string | null;
        }[] | null;
        /** A resource of the app. */
        tracker_icon?: string | null;
        start_icon?: string | null;
        end_icon?: string | null;
    } | null;
}
export interface ActivityDevice {
    /** The id of the activity: 1 to 64 letters, digits and `.`, `_`, `-`. */
    id: string;
    /** One installed app: 1 to 128 bytes without control characters. */
    device: string;
    /**
     * `summary` explains it.
     */
    state: "not_invited" | "invited" | "started" | "joined" | "android" | "live_only" | "other_user";
    /** The newest version that was sent to the device; 0: none. */
    version: number;
    current_version: number;
    /** The device waits for the newest version. */
    waiting: boolean;
    /**
     * When it is sent at the earliest.
     */
    due_at: string | null;
    /**
     * When the device was last included in a send.
     */
    sent_at: string | null;
    /** The version with which a push started the activity on the device. */
    started_version: number | null;
    /**
     * Of the start, or of the last failure.
     */
    outcome: "kept" | "written" | "acked" | "offline" | "inactive" | "slow" | "expired" | "collapsed" | "cancelled" | "evicted" | "unknown" | "push_not_configured" | "pushed" | "push_refused" | "push_token_gone" | "push_token_suspect" | "no_push_token" | "push_not_needed" | "push_expired" | "opened" | "held_out" | "muted" | "channel_off" | "quiet" | "capped" | "push_muted" | "push_channel_off" | "push_capped" | null;
    reason: string | null;
    /**
     * RFC 3339, UTC.
     */
    at: string | null;
    connected: boolean;
    /**
     * What made it an activity for the device: its own name, its user, a durable subscription, a condition, everyone, or a token of the activity that the device reported. `none`: it is not for the device.
     */
    targeted_by: "device" | "user" | "subscription" | "condition" | "everyone" | "joined" | "none" | "unknown";
    /** A sentence about `targeted_by`. */
    targeting: string;
    /**
     * Why no push brought the newest state to the device, or not yet. Absent if one did, or if nothing that prevented it is known.
     */
    cause?: "not_targeted" | "registered_later" | "user_changed_later" | "subscribed_later" | "not_reached" | "not_recorded" | "push_pending" | "quota" | "push_service_paused" | "no_token" | "awaiting_token" | "next_state" | "invalid_token" | "expired_token" | "suspended_token" | "push_not_configured" | "push_refused" | "push_expired" | "ended";
    /** What `state` means, and why the device lacks the newest state. */
    summary: string;
    /** The attempts at pushes to the device that the node recorded, oldest first. Absent if there is none. */
    attempts?: PushAttempt[];
}
export interface ActivityEnd {
    /** An object with the fields of the app's `ContentState`, at most 4,096 bytes. Push services limit the whole payload to 4,096 bytes. */
    content_state?: Record<string, unknown> | null;
    /**
     * When iOS removes the activity: at most 4 hours from now. A past time removes it at once. Default: iOS decides, after 4 hours at the latest.
     */
    dismissal_date?: string | null;
    /** The greatest one of an app's activities is in the Dynamic Island. */
    relevance?: number | null;
    alert?: ActivityAlert | null;
    android?: ActivityAndroid | null;
}
/** Absent fields stay. */
export interface ActivityUpdate {
    /** An object with the fields of the app's `ContentState`, at most 4,096 bytes. Push services limit the whole payload to 4,096 bytes. */
    content_state?: Record<string, unknown> | null;
    /**
     * `null`: the state does not become outdated.
     */
    stale_date?: string | null;
    /** The greatest one of an app's activities is in the Dynamic Island. */
    relevance?: number | null;
    alert?: ActivityAlert | null;
    android?: ActivityAndroid | null;
    /**
     * `high` asks for priority 10, while the budget of the activity allows it.
     * @default normal
     */
    urgency?: "normal" | "high" | null;
}
export interface App {
    name: string;
    /**
     * RFC 3339, UTC.
     */
    created_at: string;
    jwt_secret_set: boolean;
    jwks_url: string | null;
    jwks_set: boolean;
    /** Required `iss` of the app's JWTs. Default: any. Only the operator can change it. */
    issuer: string | null;
    /** Required element of `aud` of the app's JWTs. Default: the app's name, if the JWT has an `aud`. Only the operator can change it. */
    audience: string | null;
    /** MQTT topic filters that devices of the app may publish to. */
    client_publish: string[];
    /** Categories that ignore preferences. */
    essential_categories: string[];
}
/** The app's JWT settings. Absent fields stay; null clears a field. */
export interface AppChange {
    /** HS256. */
    jwt_secret?: string | null;
    /**
     * URL of the RS256 and ES256 keys.
     */
    jwks_url?: string | null;
    /** RS256 and ES256 keys, inline (RFC 7517). */
    jwks?: {
        keys: Record<string, unknown>[];
    } | null;
    /** MQTT topic filters that devices of the app may publish to. Default: none. null changes nothing. */
    client_publish?: string[] | null;
    /** Required `iss` of the app's JWTs. Default: any. Only the operator can change it. */
    issuer?: string | null;
    /** Required element of `aud` of the app's JWTs. Default: the app's name, if the JWT has an `aud`. Only the operator can change it. */
    audience?: string | null;
    /** Categories that ignore preferences. `[]` clears the list. `null` keeps it. */
    essential_categories?: string[] | null;
}
export interface AppleChannels {
    channels: {
        apns_id: string;
        /** `null`: no channel of the app has this id. */
        name: string | null;
    }[];
}
/** Exactly one of `everyone`, `topic`, `condition`, `upload`, `devices`; `devices` may also be combined with one of the first three. */
export interface Audience {
    everyone?: true | null;
    /** 1 to 255 bytes of UTF-8 without control characters, `+` and `#`, not starting with `$`. */
    topic?: string | null;
    /** FCM condition syntax, at most 5 topics: `'a' in topics && !('b' in topics)`. */
    condition?: string | null;
    /**
     * The users uploaded to `/v1/campaigns/{id}/recipients`.
     */
    upload?: true | null;
    /** Filters all devices, or those of `everyone`, `topic` or `condition`. */
    devices?: DeviceFilter | null;
}
/** An update or the end of a Live Activity. The payload has at most 5,120 bytes. */
export interface Broadcast {
    /**
     * Nothing starts an activity through a channel.
     */
    event: "update" | "end";
    /** The fields of the app's `ContentState`. Required for `update`; an `end` without it leaves the last state. */
    content_state?: Record<string, unknown> | null;
    /**
     * When the state was true. Devices drop a state that is older than the one they show. Default: the time of acceptance.
     */
    timestamp?: string | null;
    /**
     * From then on the activity counts as outdated.
     */
    stale_at?: string | null;
    /**
     * With `end` only: when the activity leaves the Lock Screen. Default: after four hours.
     */
    dismiss_at?: string | null;
    /** The greatest one of an app's activities is in the Dynamic Island. */
    relevance?: number | null;
    /** Lights up the screen. Has a title or a body. */
    alert?: {
        title?: string | null;
        body?: string | null;
        /** `default`, or a sound of the app. */
        sound?: string | null;
    } | null;
    /**
     * `apns-priority`. 10 is at once.
     * @default 10
     */
    priority?: 1 | 5 | 10 | null;
    /**
     * A newer broadcast of the channel replaces it while it waits: for states of which only the newest matters.
     * @default false
     */
    replaceable?: boolean | null;
}
export interface BroadcastState {
    /**
     * Also `apns-request-id` of every attempt.
     */
    id: string;
    channel: string;
    /**
     * The notification that it was published with.
     */
    notification: string | null;
    /**
     * `sent`: Apple accepted it. Apple does not report what devices received.
     */
    state: "waiting" | "sent" | "refused" | "expired" | "replaced" | "cancelled";
    /** Of Apple or of Noroshi, for the last attempt. */
    reason: string | null;
    attempts: number;
    priority: 1 | 5 | 10;
    replaceable: boolean;
    /**
     * RFC 3339, UTC.
     */
    accepted_at: string;
    /**
     * RFC 3339, UTC.
     */
    expires_at: string;
    /**
     * RFC 3339, UTC.
     */
    ended_at: string | null;
    /** The attempts that the node recorded (`push.record_retention`), oldest first: the newest 100. Only in the answer to a request for this broadcast. Absent if there is none. */
    requests?: PushAttempt[];
}
/** A campaign and its progress. */
export interface Campaign {
    /** Format: uuid */
    id: string;
    name: string | null;
    /**
     * `scheduled`: waits for `start_at`.
     */
    state: "draft" | "scheduled" | "running" | "paused" | "done" | "aborted";
    audience: Audience;
    message: CampaignMessage;
    /** Languages that have a variant. */
    locales: string[];
    /** Results by variant. Null if the campaign has no variants. */
    experiment: CampaignReport | null;
    lane: "campaign" | "extra";
    /** When devices are due, and how fast it sends, as the request states it. */
    schedule: {
        /** Time on each device's clock, such as `09:00`. Null: at once. */
        local_time: string | null;
        quiet_hours: {
            from: string;
            to: string;
        } | null;
        /** Wanted maximum of recipients per second. Null: none. The measured rate is `rate_per_second` of the campaign. */
        rate_per_second: number | null;
        /** Recipients in one batch. */
        batch_size: number;
    };
    /**
     * The notification id of its outcomes: `/v1/notifications/{id}/devices/{device}` explains why a device received it or not.
     */
    notification: string;
    /**
     * RFC 3339, UTC.
     */
    created_at: string;
    /**
     * RFC 3339, UTC.
     */
    start_at: string | null;
    /**
     * RFC 3339, UTC.
     */
    started_at: string | null;
    /**
     * RFC 3339, UTC.
     */
    finished_at: string | null;
    /** Number of uploaded users. */
    uploaded: number;
    /** Number of devices queued so far. */
    recipients: number;
    /** Those without a final outcome. */
    queued: number;
    /** Those with a final outcome. */
    done: number;
    /** Total number of devices. Null until counted. */
    total: number | null;
    /** Number of devices by outcome. Outcomes that are not listed are zero. */
    counts: Partial<Record<"kept" | "written" | "acked" | "offline" | "inactive" | "slow" | "expired" | "collapsed" | "cancelled" | "evicted" | "unknown" | "push_not_configured" | "pushed" | "push_refused" | "push_token_gone" | "push_token_suspect" | "no_push_token" | "push_not_needed" | "push_expired" | "opened" | "held_out" | "muted" | "channel_off" | "quiet" | "capped" | "push_muted" | "push_channel_off" | "push_capped", number>>;
    /** The same by reason, most frequent first. */
    reasons: {
        outcome: "kept" | "written" | "acked" | "offline" | "inactive" | "slow" | "expired" | "collapsed" | "cancelled" | "evicted" | "unknown" | "push_not_configured" | "pushed" | "push_refused" | "push_token_gone" | "push_token_suspect" | "no_push_token" | "push_not_needed" | "push_expired" | "opened" | "held_out" | "muted" | "channel_off" | "quiet" | "capped" | "push_muted" | "push_channel_off" | "push_capped";
        reason: string | null;
        count: number;
    }[];
    /** Devices that no push service accepted it for: refused, token gone, suspended, expired, not configured. */
    errors: number;
    /** Devices per second: current while it runs, otherwise on average. */
    rate_per_second: number;
    /** Estimated seconds until the end: at this rate, before the first results at the wanted one, and at least until the last known batch is due. Null if unknown. */
    eta_s: number | null;
    /** Batches that wait for their time, such as the local time of their devices: one entry for all that are due within a minute, the earliest first. Only in the answer for one campaign; absent if none waits. */
    steps?: {
        /**
         * RFC 3339, UTC.
         */
        due_at: string;
        batches: number;
    }[];
    /** Time from the queue to the push service's answer. */
    latency: {
        p50_ms: number | null;
        p99_ms: number | null;
    };
    /** Each change of the request or of the recipients adds 1. */
    revision: number;
    /** False: a draft that lacks something, and cannot start. `audience` and `message` then show only what is valid; `definition` has everything. */
    complete: boolean;
    /** E-mail address of a person, or `key:` and the name of an API key. Null: an earlier version created it. */
    created_by: string | null;
    /** Who changed it last, in the format of `created_by`. */
    edited_by: string | null;
    /**
     * RFC 3339, UTC.
     */
    edited_at: string | null;
    /** Who created it, changed any of its revisions or uploaded recipients, in the format of `created_by`. None of them may approve it. A change by a further author gets `409` with the code `limit_exceeded`. */
    authors: string[];
    /** The approval of the present revision. Every change and new recipients remove it. */
    approval: {
        /** E-mail address of the second person. */
        by: string;
        /**
         * RFC 3339, UTC.
         */
        at: string;
    } | null;
    /** The request as its author wrote it. Absent in lists, and for campaigns that cannot be changed. */
    definition?: Record<string, unknown>;
    /** What is missing or invalid in a draft. Absent if there is nothing, and in lists. */
    problems?: CampaignProblem[];
    /** What push services of the app do not show of the typed fields. Only when the campaign is created and while it is a draft; absent if there is nothing to warn of. */
    warnings?: Warning[];
}
/** Each field replaces that of the draft; null removes it. Fields may be incomplete or invalid: `problems` of the response says what is missing. */
export interface CampaignChange {
    /** The revision that the author has changed. */
    revision: number;
    name?: string | null;
    /** As in `NewCampaign`. */
    audience?: Record<string, unknown> | null;
    /** As in `NewCampaign`. */
    message?: Record<string, unknown> | null;
    /** As in `NewCampaign`. */
    locales?: Record<string, unknown> | null;
    /** As in `NewCampaign`. */
    experiment?: Record<string, unknown> | null;
    /** As in `NewCampaign`. */
    variables?: Record<string, unknown> | null;
    start_at?: string | null;
    local_time?: string | null;
    /** As in `NewCampaign`. */
    quiet_hours?: Record<string, unknown> | null;
    rate_per_second?: number | null;
    lane?: string | null;
    batch_size?: number | null;
}
/** The current audience of a campaign. */
export interface CampaignCount {
    /** Devices in the audience. */
    devices: number;
    /** Users of these devices. Null if there are too many to count. */
    users: number | null;
    /** Devices without a push token. */
    no_push_token: number;
    /** Devices with a suspended push token. */
    suspect: number;
    /** Devices that the filter `devices` excludes. */
    filtered: number;
    /** Devices that push services can reach. */
    by_service: Partial<Record<"apns" | "fcm" | "webpush" | "webhook" | "hms" | "wns", number>>;
    /** What push services of the app do not show of the typed fields. Absent if there is nothing to warn of. */
    warnings?: Warning[];
}
/** How many devices a campaign would reach, and until when. */
export interface CampaignEstimate {
    /** True: everything was counted. False: the sizes are estimates from a stratified sample. */
    exact: boolean;
    /** Devices that were read. */
    examined: number;
    /** The revision of the campaign that was estimated. */
    revision: number;
    devices: EstimatedSize;
    users: EstimatedSize;
    no_push_token: EstimatedSize;
    suspect: EstimatedSize;
    /** Devices that push services can reach. */
    by_service: Partial<Record<"apns" | "fcm" | "webpush" | "webhook" | "hms" | "wns", EstimatedSize>>;
    /** Devices by language, largest first. */
    by_locale: {
        /** Null: devices without a language. */
        locale: string | null;
        devices: EstimatedSize;
    }[];
    other_locales: EstimatedSize;
    /** Devices of the audience, chosen at random. */
    sample: {
        device: string;
        user: string | null;
        platform: string | null;
        locale: string | null;
        timezone: string | null;
        /** The push service that reaches it. */
        service: ("apns" | "fcm" | "webpush" | "webhook" | "hms" | "wns") | null;
    }[];
    forecast: {
        /**
         * When the first device is due, if the campaign starts now.
         */
        starts_at: string;
        /**
         * When the last device gets it, at this rate. Null: the rate is unknown.
         */
        ends_at: string | null;
        rate_per_second: number | null;
        /**
         * `limit`: the campaign's own limit. `measured`: the median of the app's last campaigns that neither a limit nor local times slowed down.
         */
        rate_from: "limit" | "measured" | "unknown";
        /** How many campaigns the measured rate comes from. */
        measured_campaigns: number;
        /** Devices by the time that they are due, after local times and quiet hours. */
        steps: {
            /**
             * RFC 3339, UTC.
             */
            due_at: string;
            devices: number;
        }[];
    };
    /** A campaign with more recipients needs the approval of a second person, if this caller starts it. Null: none does. */
    approval_above: number | null;
    /** Whether it may be that large. */
    needs_approval: boolean;
}
export interface CampaignExperiment {
    /** The name of an experiment that runs when the campaign starts. */
    name: string;
    /** The variant that others are compared with. Default: the first that sends a message. */
    control?: string | null;
    /** By variant of the experiment. Variants that are not listed get the campaign's message. */
    variants?: {
        [key: string]: CampaignTreatment;
    } | null;
}
/** `notification`, `data` or both, unless uploaded lines have their own. */
export interface CampaignMessage {
    /** Texts may contain placeholders: `{{name}}`. */
    notification?: Shown | null;
    /** Any JSON. Default limit: 4 KiB. Strings may contain placeholders. */
    data?: unknown;
    /**
     * RFC 8030 §5.3.
     * @default normal
     */
    urgency?: "very-low" | "low" | "normal" | "high" | null;
    /** 0 to 28 days from the time when a device is due. Default: 7 days. */
    ttl?: Duration | null;
    /** A newer notification with the same key replaces an undelivered older one. */
    collapse_key?: string | null;
    /** Preferences apply to this category. */
    category?: string | null;
    /**
     * As in a notification. Absent: only through push services.
     */
    when?: "active" | "connected" | "stored" | null;
    push?: Push | null;
}
/** What is missing or invalid in a draft. */
export interface CampaignProblem {
    /** Path of the field, such as `message.notification.title`. Null: the campaign as a whole. */
    field: string | null;
    code: string;
    detail: string;
}
/** What one user of an uploaded audience gets. */
export interface CampaignRecipient {
    user: string;
    /** Values of placeholders. */
    variables?: {
        [key: string]: string;
    };
    notification?: Record<string, unknown>;
    data?: unknown;
}
/** Results by variant, in the order of the experiment. */
export interface CampaignReport {
    name: string;
    /** The variant that the others are compared with. */
    control: string;
    variants: CampaignVariantReport[];
}
/** Absent fields of a variant are those of the campaign's message. */
export interface CampaignTreatment {
    /** Texts may contain placeholders: `{{name}}`. */
    notification?: Shown | null;
    /** Any JSON. Default limit: 4 KiB. Strings may contain placeholders. */
    data?: unknown;
    /** By language tag. The campaign's own `locales` do not apply to this variant. */
    locales?: {
        [key: string]: CampaignVariant;
    } | null;
    /** Sends nothing to the devices of this variant, but counts them. Excludes other fields. */
    hold_out?: boolean | null;
}
/** Absent fields are those of the message. */
export interface CampaignVariant {
    /** Texts may contain placeholders: `{{name}}`. */
    notification?: Shown | null;
    /** Any JSON. Default limit: 4 KiB. Strings may contain placeholders. */
    data?: unknown;
}
export interface CampaignVariantReport {
    name: string;
    /** Sends nothing to its devices. */
    held_out: boolean;
    /**
     * The notification id of its pushes and outcomes.
     */
    notification: string;
    /** Devices that were assigned it and have a final outcome. */
    targeted: number;
    /** Accepted by a push service. */
    pushed: number;
    /** Written to connections. Counts a device again if it reconnects before it acknowledges the message. */
    written: number;
    /** Acknowledged `stored` messages. */
    acked: number;
    /** `pushed` if only push services deliver it, `acked` with `when` "stored", otherwise `written`. */
    delivered: {
        count: number;
        /** Share of the targeted devices. Null if there are none or nothing is sent. */
        rate: number | null;
        /** Lower bound of Wilson's 95 % interval. */
        low: number | null;
        /** Its upper bound. */
        high: number | null;
    };
    /** `POST /v1/me/opened`, once per device. */
    opened: {
        count: number;
        /** Share of the targeted devices. Null if there are none or nothing is sent. */
        rate: number | null;
        /** Lower bound of Wilson's 95 % interval. */
        low: number | null;
        /** Its upper bound. */
        high: number | null;
    };
    /** Null for the control itself, and if nothing is sent. */
    against_control: {
        /** Null while either has no devices. */
        delivered: {
            /** The rate minus the control's. */
            difference: number;
            /** Lower bound of Newcombe's 95 % interval. */
            low: number;
            /** Its upper bound. */
            high: number;
            /** p-value of the two-sided test of no difference. */
            p_value: number;
            /** The interval excludes 0. */
            distinguishable: boolean;
        } | null;
        /** Null while either has no devices. */
        opened: {
            /** The rate minus the control's. */
            difference: number;
            /** Lower bound of Newcombe's 95 % interval. */
            low: number;
            /** Its upper bound. */
            high: number;
            /** p-value of the two-sided test of no difference. */
            p_value: number;
            /** The interval excludes 0. */
            distinguishable: boolean;
        } | null;
    } | null;
}
export interface Campaigns {
    campaigns: Campaign[];
    /** `after` of the next page. */
    next: string | null;
}
export interface Cancelled {
    /**
     * UUIDv7: ids sort by the time they were accepted.
     */
    id: string;
    /** Number of inbox rows removed. */
    removed: number;
}
/** Preferences for one category. */
export interface CategoryPreference {
    /** Noroshi does not deliver its notifications. `false` at a device overrides `true` at its user. */
    muted?: boolean | null;
    /** Its channels, instead of `channels` of the preferences. */
    channels?: ("live" | "push" | "inbox")[] | null;
    /** How many of its notifications may interrupt a device on one day of its calendar, live and by push. Default: any number. */
    daily_max?: number | null;
}
export interface Channel {
    name: string;
    environment: "production" | "sandbox";
    /** Of the credential with which it was created. */
    bundle_id: string;
    storage: "none" | "latest";
    /** Apple's id, with which the app subscribes. `null` while it is being created. */
    apns_id: string | null;
    /** 1 to 255 bytes of UTF-8 without control characters, `+` and `#`. A topic that begins with `$` is `$maintenance`, or one that topic rules allow to MQTT clients. */
    topic: string | null;
    /** Broadcasts that wait; at most 1,000. */
    waiting: number;
    /**
     * RFC 3339, UTC.
     */
    created_at: string;
    /** The 20 newest, newest first. Only in the answer about one channel. */
    broadcasts?: BroadcastState[];
}
export interface ChannelChange {
    /** 1 to 255 bytes of UTF-8 without control characters, `+` and `#`. A topic that begins with `$` is `$maintenance`, or one that topic rules allow to MQTT clients. */
    topic: string | null;
}
export interface Channels {
    channels: Channel[];
    /** Value of `after` for the next page; `null` at the end. */
    next: string | null;
}
export interface Device {
    /** One installed app: 1 to 128 bytes without control characters. */
    device: string;
    /** A user id, chosen by the app: 1 to 255 bytes without control characters. */
    user: string | null;
    platform: Platform | null;
    locale: string | null;
    timezone: string | null;
    app_version: string | null;
    tags: {
        [key: string]: string;
    };
    topics: string[];
    /** As registered. Removed once the push service reports it invalid. */
    push_token: PushToken | null;
    /** The push token is suspended since then, because the push service reported that it belongs to another environment, topic or sender. Registering it again resumes it. */
    push_suspect: {
        /**
         * RFC 3339, UTC.
         */
        at: string;
        /** The push service's reason. */
        reason: string;
    } | null;
    /** All push tokens without the tokens themselves, the main one first. */
    push_tokens: DevicePushToken[];
    presence: Presence;
    /**
     * RFC 3339, UTC.
     */
    created_at: string;
    /**
     * The day (UTC) when the device was last seen; see the filters of the list of devices. Null: not since the database was upgraded to a version that records it. Absent in answers of older versions.
     */
    last_seen?: string | null;
    /** Number of Web Push endpoints. Only for a single device, not in lists. */
    endpoints?: number;
}
/** All lists must match. A device without the attribute does not match. */
export interface DeviceFilter {
    platforms?: Platform[] | null;
    /** Language ranges: `ja` means `ja-JP` too (RFC 4647 §3.3.1). */
    locales?: string[] | null;
    /** Existing IANA time zones. */
    timezones?: string[] | null;
    app_version?: {
        min?: string | null;
        max?: string | null;
    } | null;
    /** The device has each of these tags, with one of the listed values. */
    tags?: {
        [key: string]: string[];
    } | null;
}
/** The result of one line. */
export type DeviceLine = {
    /** One installed app: 1 to 128 bytes without control characters. */
    device: string;
    token: string;
} | {
    error: Problem;
};
/** A push token of a device. `token` is as registered, and only in lists of tokens. */
export interface DevicePushToken {
    kind: "alert" | "webpush" | "fcm" | "voip" | "complication" | "fileprovider" | "widgets" | "controls" | "live-activity-start" | "live-activity" | "webhook" | "hms" | "wns";
    /** Empty: none. */
    name: string;
    service: "apns" | "fcm" | "webpush" | "webhook" | "hms" | "wns";
    environment: "production" | "sandbox";
    /** APNs: the app's bundle id, if the token has its own. */
    topic: string | null;
    /**
     * RFC 3339, UTC.
     */
    registered_at: string;
    /**
     * Nothing is sent to the token from then on. `null`: never.
     */
    expires_at: string | null;
    /** The token is suspended since then, until it is registered again. */
    suspect: {
        /**
         * RFC 3339, UTC.
         */
        at: string;
        /** The push service's reason. */
        reason: string;
    } | null;
    /** Ordinary pushes go to this token: the message token that was registered last. */
    main: boolean;
    token?: PushToken;
}
export interface DevicePushTokens {
    /** The main token first. */
    push_tokens: DevicePushToken[];
}
/** All fields are optional. An update changes the given fields and adds tags and topics. */
export interface DeviceRegistration {
    /** An id chosen by the app. An existing device is updated. Default: random. */
    device?: string | null;
    /** A user id, chosen by the app: 1 to 255 bytes without control characters. */
    user?: string | null;
    platform?: Platform | null;
    /** BCP 47. */
    locale?: string | null;
    /** An existing IANA time zone. */
    timezone?: string | null;
    app_version?: string | null;
    tags?: {
        [key: string]: string;
    } | null;
    /** Durable subscriptions, from each topic's current position. */
    topics?: string[] | null;
    push_token?: PushToken | null;
    /** Added to the device's tokens, or replace those of the same kind and name. A device has at most 32. Of several message tokens, the last one becomes the main token; `push_token` comes after all of them. Tokens that have expired are left out. */
    push_tokens?: NamedPushToken[] | null;
}
export interface Devices {
    devices: Device[];
    /** `after` of the next page. Null on the last page. */
    next: string | null;
}
/** `"90s"`, `"24h"`, or whole seconds. */
export type Duration = string | number;
export interface Endpoint {
    /** The value of `data.web_push.endpoint` in its messages. */
    id: string;
    /**
     * The address for application servers: anyone who knows it may post. Only in the response that creates it.
     */
    url?: string;
    /** A name given by the device. */
    label: string | null;
    /** VAPID public key: an uncompressed P-256 point in base64url. Only its owner may post (RFC 8292). */
    vapid_key: string | null;
    /**
     * An idle device receives messages of at least this urgency; others wait until it is in use (RFC 8030 §5.3). Default: `normal`.
     */
    idle_urgency: "very-low" | "low" | "normal" | "high";
    /**
     * RFC 3339, UTC.
     */
    created_at: string;
    /**
     * RFC 3339, UTC.
     */
    expires_at: string | null;
}
export interface Endpoints {
    endpoints: Endpoint[];
}
/** A number with its 95 % interval. All three are equal if it was counted. */
export interface EstimatedSize {
    value: number;
    low: number;
    high: number;
}
export interface Experiment {
    name: string;
    state: "scheduled" | "running" | "killed" | "ended" | "archived";
    description: string | null;
    variants: ExperimentVariant[];
    /**
     * RFC 3339, UTC.
     */
    starts_at: string | null;
    /**
     * RFC 3339, UTC.
     */
    ends_at: string | null;
    audience: ExperimentAudience;
    /** Fixed variants, regardless of audience and weights. A device's entry takes precedence over its user's. At most 1,000 in total. */
    overrides: {
        users: {
            [key: string]: string;
        };
        devices: {
            [key: string]: string;
        };
    };
    killed: boolean;
    /**
     * RFC 3339, UTC.
     */
    created_at: string;
    /**
     * RFC 3339, UTC.
     */
    updated_at: string;
    /**
     * RFC 3339, UTC.
     */
    archived_at: string | null;
}
export interface ExperimentAssigned {
    experiment: string;
    device: string;
    user: string | null;
    /** Whether it runs now. */
    running: boolean;
    /** Null: the device is not in its audience. */
    variant: string | null;
}
/** Both must match. Empty: every device. */
export interface ExperimentAudience {
    /** A condition on the device's durable subscriptions, in FCM syntax, at most 5 topics: `'a' in topics && !('b' in topics)`. */
    condition?: string | null;
    /** Attributes of the device. */
    devices?: DeviceFilter | null;
}
export interface ExperimentChange {
    killed: boolean;
}
export interface ExperimentVariant {
    /** The name in the app's code. */
    name: string;
    /** Its share of the sum of weights. 0: assigned to no device. */
    weight: number;
    /** Any JSON for the app's code, at most 4 KiB. */
    data?: unknown;
}
export interface Experiments {
    experiments: Experiment[];
    /** `after` of the next page. Absent on the last page. */
    next: string | null;
}
/** A push service invalidated a token. */
export interface Invalidation {
    /** Its position: `after` of the next page. */
    seq: string;
    /**
     * RFC 3339, UTC.
     */
    at: string;
    /** One installed app: 1 to 128 bytes without control characters. */
    device: string;
    service: "apns" | "fcm" | "webpush" | "webhook" | "hms" | "wns";
    kind: "alert" | "webpush" | "fcm" | "voip" | "complication" | "fileprovider" | "widgets" | "controls" | "live-activity-start" | "live-activity" | "webhook" | "hms" | "wns";
    /** Empty: none. */
    name: string;
    environment: "production" | "sandbox";
    /** The push service's reason. */
    reason: string;
    /** `false`: suspended, because it seems to belong to another environment, topic or sender. */
    removed: boolean;
}
export interface Invalidations {
    invalidations: Invalidation[];
    next: string | null;
}
/** An entry of a user's notification centre. */
export interface Item {
    /**
     * The notification.
     */
    id: string;
    state: "unread" | "read" | "archived";
    category?: string;
    /**
     * When the notification was accepted. RFC 3339, UTC.
     */
    created_at: string;
    /**
     * When the state changed last. RFC 3339, UTC.
     */
    changed_at: string;
    /**
     * It is not listed from then on. RFC 3339, UTC.
     */
    expires_at: string;
    notification?: Shown;
    /** Any JSON, as in the request. */
    data?: unknown;
}
export interface ItemCounts {
    /** All unread items. */
    unread: number;
    /** Unread items by category, at most 100 categories. Items of no category are only in `unread`. */
    categories: {
        [key: string]: number;
    };
}
export interface Items {
    items: Item[];
    /** The value of `after` for the next page; null on the last one. */
    next: string | null;
}
export interface ItemsDeleted {
    deleted: number;
}
export interface Key {
    id: string;
    name: string;
    scopes: Scope[];
    /**
     * RFC 3339, UTC.
     */
    created_at: string;
    /**
     * RFC 3339, UTC. From then on requests with the key get `401`. `null`: never.
     */
    expires_at: string | null;
    /** Only in the response that creates it. */
    key?: string;
}
export interface Keys {
    keys: Key[];
}
export interface ListedNotification {
    /**
     * UUIDv7: ids sort by the time they were accepted.
     */
    id: string;
    /**
     * RFC 3339, UTC.
     */
    sent_at: string;
    /**
     * RFC 3339, UTC.
     */
    expires_at: string;
    when: "active" | "connected" | "stored";
    urgency: "very-low" | "low" | "normal" | "high";
    target: {
        kind: "users" | "devices" | "topic" | "condition" | "everyone" | "campaign";
        /** 1 to 255 bytes of UTF-8 without control characters, `+` and `#`. A topic that begins with `$` is `$maintenance`, or one that topic rules allow to MQTT clients. */
        topic?: string;
        condition?: string;
    };
    targets: number | null;
    /** At most 200 characters of it. */
    title: string | null;
    /** At most 200 characters of the body. */
    text: string | null;
    category: string | null;
    /** The campaign that published it. */
    campaign: string | null;
    /**
     * `null` if it has too many outcomes for a list: read it alone.
     */
    state: "pending" | "done" | "cancelled" | "expired" | null;
    /** Number of devices by outcome. `null` like `state`. */
    counts: Partial<Record<"kept" | "written" | "acked" | "offline" | "inactive" | "slow" | "expired" | "collapsed" | "cancelled" | "evicted" | "unknown" | "push_not_configured" | "pushed" | "push_refused" | "push_token_gone" | "push_token_suspect" | "no_push_token" | "push_not_needed" | "push_expired" | "opened" | "held_out" | "muted" | "channel_off" | "quiet" | "capped" | "push_muted" | "push_channel_off" | "push_capped", number>>;
    /** With a filter by user or device: its devices that the notification reached or waits for. */
    recipients?: NotificationRecipient[];
}
/** The same object that a device receives over its connection. */
export interface Message {
    t: "msg";
    /**
     * UUIDv7: ids sort by the time they were accepted.
     */
    id: string;
    topic?: string;
    epoch?: string;
    offset?: number;
    notification?: Record<string, unknown>;
    /** As published. */
    data?: unknown;
    /**
     * Present if the device must acknowledge it.
     */
    ack?: true;
    /**
     * RFC 3339, UTC.
     */
    sent_at: string;
}
/** A push token with its kind and name. */
export interface NamedPushToken {
    /**
     * What the token is for. Default: the message kind of `service`.
     */
    kind?: "alert" | "webpush" | "fcm" | "voip" | "complication" | "fileprovider" | "widgets" | "controls" | "live-activity-start" | "live-activity" | "webhook" | "hms" | "wns" | null;
    /** Distinguishes tokens of a kind, for example the control; for `live-activity` the id of the activity, which is required. Message kinds have no name, except `webhook`: a named one gets only pushes that name it. Default: empty. */
    name?: string | null;
    /**
     * The service of the kind; may be left out.
     */
    service?: "apns" | "fcm" | "webpush" | "webhook" | "hms" | "wns" | null;
    /** APNs, FCM, webhook and HMS: as in `PushToken`. */
    token?: string | null;
    /**
     * APNs only.
     */
    environment?: "production" | "sandbox" | null;
    /** APNs only: the app's bundle id without a suffix, if it differs from the credential's. */
    topic?: string | null;
    /** Web Push only. */
    endpoint?: string | null;
    /** Web Push only. */
    keys?: {
        p256dh: string;
        auth: string;
    } | null;
    /** Webhook only: the name of the provider's credential. Default: the name of the token. */
    provider?: string | null;
    /** WNS only: as in `PushToken`. */
    channel?: string | null;
    /**
     * Nothing is sent to the token from then on. Not for message kinds without a name. For `live-activity`, 12 hours from now by default; otherwise tokens do not expire.
     */
    expires_at?: string | null;
    /** Keep an existing token of this kind and name. */
    only_if_missing?: boolean | null;
}
export interface NewActivity {
    to: To;
    /** Default: a UUIDv7. Devices name their token of the activity with it. */
    id?: string | null;
    /**
     * Which devices receive each state as a message too, which replaces the message of the state before.
     * @default connected
     */
    when?: "active" | "connected" | "stored" | null;
    /** 1 s to 12 h. Default: 12 h. The node ends the activity then. */
    ttl?: Duration | null;
    /** The Swift type of the attributes. */
    attributes_type: string;
    /** At most 4,096 bytes. Noroshi adds the id as `noroshiActivity`. */
    attributes?: Record<string, unknown> | null;
    /** An object with the fields of the app's `ContentState`, at most 4,096 bytes. Push services limit the whole payload to 4,096 bytes. */
    content_state: Record<string, unknown>;
    /**
     * From then on the state counts as outdated.
     */
    stale_date?: string | null;
    /** The greatest one of an app's activities is in the Dynamic Island. */
    relevance?: number | null;
    alert: ActivityAlert;
    android?: ActivityAndroid | null;
    /**
     * Default: `apns` if the app has a credential for it, otherwise `fcm`.
     */
    ios_via?: "apns" | "fcm" | null;
    /**
     * The app declares `NSSupportsLiveActivitiesFrequentUpdates`: a larger budget of high priorities.
     * @default false
     */
    frequent_updates?: boolean | null;
    /**
     * Who may join by reporting a token: devices of the target, or any device of the app.
     * @default invited
     */
    join?: "invited" | "anyone" | null;
}
/** A broadcast to one channel. */
export interface NewBroadcast {
    /**
     * Nothing starts an activity through a channel.
     */
    event: "update" | "end";
    /** The fields of the app's `ContentState`. Required for `update`; an `end` without it leaves the last state. */
    content_state?: Record<string, unknown> | null;
    /**
     * When the state was true. Devices drop a state that is older than the one they show. Default: the time of acceptance.
     */
    timestamp?: string | null;
    /**
     * From then on the activity counts as outdated.
     */
    stale_at?: string | null;
    /**
     * With `end` only: when the activity leaves the Lock Screen. Default: after four hours.
     */
    dismiss_at?: string | null;
    /** The greatest one of an app's activities is in the Dynamic Island. */
    relevance?: number | null;
    /** Lights up the screen. Has a title or a body. */
    alert?: {
        title?: string | null;
        body?: string | null;
        /** `default`, or a sound of the app. */
        sound?: string | null;
    } | null;
    /**
     * `apns-priority`. 10 is at once.
     * @default 10
     */
    priority?: 1 | 5 | 10 | null;
    /**
     * A newer broadcast of the channel replaces it while it waits: for states of which only the newest matters.
     * @default false
     */
    replaceable?: boolean | null;
    /** How long it is tried, and, in a channel with `storage` `latest`, how long Apple keeps it. Default: 1 h. */
    ttl?: Duration | null;
}
/** One message to many devices. */
export interface NewCampaign {
    /** A name for you to recognize it. */
    name?: string | null;
    audience: Audience;
    message: CampaignMessage;
    /** By language tag. The best match for the device's locale applies (RFC 4647 §3.4), otherwise the message itself. */
    locales?: {
        [key: string]: CampaignVariant;
    } | null;
    /** Sends the variants of an experiment, as defined when the campaign is created. */
    experiment?: CampaignExperiment | null;
    /** Default values of placeholders, for recipients without their own. */
    variables?: {
        [key: string]: string;
    } | null;
    /**
     * Earliest start.
     */
    start_at?: string | null;
    /** At this local time of each device, today or tomorrow. Devices without a time zone use UTC. */
    local_time?: string | null;
    quiet_hours?: {
        from: string;
        to: string;
    } | null;
    /** Maximum recipients per second. */
    rate_per_second?: number | null;
    /**
     * `extra` goes before other campaigns from the next batch on.
     * @default campaign
     */
    lane?: "campaign" | "extra" | null;
    /**
     * Recipients per batch.
     * @default 500
     */
    batch_size?: number | null;
    /** `false`: a draft until it is started. Default: `true`; always `false` for an upload. */
    start?: boolean | null;
}
export interface NewChannel {
    /** Your name for it. */
    name: string;
    /**
     * @default production
     */
    environment?: "production" | "sandbox" | null;
    /**
     * What Apple keeps for devices that are offline: nothing, or the last broadcast until it expires. Cannot be changed.
     * @default none
     */
    storage?: "none" | "latest" | null;
    /** Bind it to this topic. A topic has at most one channel in each environment. */
    topic?: string | null;
    /** Adopt the channel with this id of Apple, instead of creating one. */
    apns_id?: string | null;
}
export interface NewExperiment {
    /** For humans. */
    description?: string | null;
    variants: ExperimentVariant[];
    /**
     * No device is in it before. Absent: starts at once.
     */
    starts_at?: string | null;
    /**
     * It ends and is archived. Absent: runs until archived.
     */
    ends_at?: string | null;
    audience?: ExperimentAudience | null;
    /** Fixed variants, regardless of audience and weights. A device's entry takes precedence over its user's. At most 1,000 in total. */
    overrides?: {
        users?: {
            [key: string]: string;
        } | null;
        devices?: {
            [key: string]: string;
        } | null;
    } | null;
    /**
     * While true, no device is in it.
     * @default false
     */
    killed?: boolean | null;
}
/** Adds an item to the notification centre of each named user, or of the user of each named device. */
export interface NewItem {
    /** For counts and filters: a-z, 0-9, '-', '_' and '.'. */
    category?: string | null;
    /** How long the item is listed: 1 minute to 365 days, whatever the ttl. Default: 30 days. */
    retention?: Duration | null;
}
export interface NewKey {
    name: string;
    scopes: Scope[];
    /**
     * From then on requests with the key get `401`. In the future, at most 10 years ahead. Default: never.
     */
    expires_at?: string | null;
}
/** With `notification`, `data` or both. */
export interface NewNotice {
    /**
     * Shown from then on, as `announced`. Absent: at once.
     */
    announced_at?: string | null;
    /**
     * When it becomes `active`.
     */
    starts_at: string;
    /**
     * When it is no longer shown.
     */
    ends_at: string;
    /** At most 2 KiB. */
    notification?: Shown | null;
    /** Any JSON for the app's code, at most 2 KiB. */
    data?: unknown;
    /** By language tag. Absent fields are those of the notice. */
    locales?: {
        [key: string]: {
            /** At most 2 KiB. */
            notification?: Shown | null;
            /** Any JSON for the app's code, at most 2 KiB. */
            data?: unknown;
        };
    } | null;
}
/** One for each push service and environment; of `webhook`, one for each name. Stored encrypted and never shown again. */
export interface NewPushCredential {
    service: "apns" | "fcm" | "webpush" | "webhook" | "hms" | "wns";
    /**
     * APNs only.
     * @default production
     */
    environment?: "production" | "sandbox" | null;
    /** A name for you to recognize it. Webhook: required, the name of the provider in tokens, 1 to 64 letters, digits and `.`, `_`, `-`. */
    name?: string | null;
    /** APNs: the signing key (.p8), PEM. */
    key?: string;
    /** APNs: the signing key's id. */
    key_id?: string;
    /** APNs: the team's id. */
    team_id?: string;
    /** APNs, instead of `key`: the certificate chain, PEM. */
    certificate?: string;
    /** APNs: the certificate's key, PEM. Web Push: the VAPID key, PEM or its 32 bytes as base64url. */
    private_key?: string;
    /** APNs: the app's bundle id. */
    topic?: string;
    /** FCM: Google's JSON file, unchanged. HMS: Huawei's. */
    service_account?: Record<string, unknown>;
    /** Web Push: a contact for push services, `mailto:` or `https:`. */
    subject?: string;
    /** Webhook: the https URL that receives batches; http for a loopback address only. */
    url?: string;
    /** Webhook: the secret that signs requests by Standard Webhooks, `whsec_` and 24 to 64 bytes in base64. */
    secret?: string;
    /** Webhook: while a secret is being replaced, the old one. Requests then have a signature by each. */
    previous_secret?: string;
    /**
     * Webhook: recipients of one request.
     * @default 100
     */
    batch_size?: number;
    /**
     * Webhook: requests at a time.
     * @default 4
     */
    concurrency?: number;
    /**
     * Webhook: how long a request waits for its answer.
     * @default 10
     */
    timeout_seconds?: number;
    /**
     * Webhook: devices may register tokens themselves. Otherwise only an API key may, because an e-mail address or a phone number may belong to another person.
     * @default false
     */
    device_tokens?: boolean;
    /**
     * HMS: the category of notifications that name none.
     * @default MARKETING
     */
    category?: string;
    /** WNS: the id of the application in Microsoft Entra ID, or the package SID (`ms-app://…`) of a Store app. */
    client_id?: string;
    /** WNS: the client secret. */
    client_secret?: string;
    /** WNS: the id of the tenant in Microsoft Entra ID; not for a package SID. */
    tenant_id?: string;
    /** APNs, FCM, HMS and WNS: a different server, for tests. */
    endpoint?: string;
    /** APNs: the server for broadcasts to channels. Default: `endpoint`. */
    broadcast_endpoint?: string;
    /** APNs: the server on which channels are managed, for tests. */
    channels_endpoint?: string;
    /** FCM and WNS: a different server for access tokens, for tests. */
    token_endpoint?: string;
    /** `{"per_second": 100}`: maximum pushes per second, instead of the push service's own limit. */
    quota?: Record<string, unknown>;
}
/** A push token of the kind in the path. */
export interface NewPushToken {
    /**
     * The service of the kind; may be left out.
     */
    service?: "apns" | "fcm" | "webpush" | "webhook" | "hms" | "wns" | null;
    /** APNs, FCM, webhook and HMS: as in `PushToken`. */
    token?: string | null;
    /**
     * APNs only.
     */
    environment?: "production" | "sandbox" | null;
    /** APNs only: the app's bundle id without a suffix, if it differs from the credential's. */
    topic?: string | null;
    /** Web Push only. */
    endpoint?: string | null;
    /** Web Push only. */
    keys?: {
        p256dh: string;
        auth: string;
    } | null;
    /** Webhook only: the name of the provider's credential. Default: the name of the token. */
    provider?: string | null;
    /** WNS only: as in `PushToken`. */
    channel?: string | null;
    /**
     * Nothing is sent to the token from then on. Not for message kinds without a name. For `live-activity`, 12 hours from now by default; otherwise tokens do not expire.
     */
    expires_at?: string | null;
    /** Keep an existing token of this kind and name. */
    only_if_missing?: boolean | null;
}
export interface Notice {
    name: string;
    state: "scheduled" | "announced" | "active" | "over";
    /**
     * RFC 3339, UTC.
     */
    announced_at: string | null;
    /**
     * RFC 3339, UTC.
     */
    starts_at: string;
    /**
     * RFC 3339, UTC.
     */
    ends_at: string;
    notification?: Record<string, unknown>;
    /** As defined. */
    data?: unknown;
    locales: {
        [key: string]: {
            notification?: Record<string, unknown>;
            /** As defined. */
            data?: unknown;
        };
    };
    /**
     * RFC 3339, UTC.
     */
    created_at: string;
    /**
     * RFC 3339, UTC.
     */
    updated_at: string;
}
export interface Notices {
    notices: Notice[];
    /** `after` of the next page. Absent on the last page. */
    next: string | null;
}
/** One notification, to one user or to millions. */
export interface Notification {
    to: To;
    /**
     * Which devices receive it: those in use now, connected ones, or all. `stored` messages are kept until `ttl`.
     * @default stored
     */
    when?: "active" | "connected" | "stored" | null;
    /** 0 to 28 days. Default: 7 days. */
    ttl?: Duration | null;
    /**
     * RFC 8030 §5.3.
     * @default normal
     */
    urgency?: "very-low" | "low" | "normal" | "high" | null;
    /** A newer notification with the same key replaces an undelivered older one. */
    collapse_key?: string | null;
    /**
     * For topics and everyone only: store as the retained message, delivered at each log-in.
     * @default false
     */
    retain?: boolean | null;
    notification?: Shown | null;
    /** Any JSON, passed through unchanged. Default limit: 4 KiB. `notification`, `data` or both are required. */
    data?: unknown;
    push?: Push | null;
    /** Only with `to.users` or `to.devices`, at most 1,000 of them. */
    item?: NewItem | null;
    /** Preferences apply to this category. The item has the same category; `item.category` may name it instead. */
    category?: string | null;
}
export interface NotificationRecipient {
    /** One installed app: 1 to 128 bytes without control characters. */
    device: string;
    /**
     * The newest step on the device. `null`: none is recorded, or there are too many to look for it.
     */
    outcome: "kept" | "written" | "acked" | "offline" | "inactive" | "slow" | "expired" | "collapsed" | "cancelled" | "evicted" | "unknown" | "push_not_configured" | "pushed" | "push_refused" | "push_token_gone" | "push_token_suspect" | "no_push_token" | "push_not_needed" | "push_expired" | "opened" | "held_out" | "muted" | "channel_off" | "quiet" | "capped" | "push_muted" | "push_channel_off" | "push_capped" | null;
    /**
     * When. RFC 3339, UTC.
     */
    at: string | null;
    /** The push service's own reason. */
    reason?: string;
    /** It waits in the device's inbox. */
    in_inbox: boolean;
}
export interface NotificationState {
    /**
     * UUIDv7: ids sort by the time they were accepted.
     */
    id: string;
    /**
     * `pending`: in an inbox or a topic's log, not expired.
     */
    state: "pending" | "done" | "cancelled" | "expired";
    when: "active" | "connected" | "stored";
    urgency: "very-low" | "low" | "normal" | "high";
    target: {
        kind: "users" | "devices" | "topic" | "condition" | "everyone" | "campaign";
        /** 1 to 255 bytes of UTF-8 without control characters, `+` and `#`. A topic that begins with `$` is `$maintenance`, or one that topic rules allow to MQTT clients. */
        topic?: string;
        condition?: string;
    };
    targets: number | null;
    /** Number of devices by outcome. Outcomes that are not listed are zero. */
    counts: Partial<Record<"kept" | "written" | "acked" | "offline" | "inactive" | "slow" | "expired" | "collapsed" | "cancelled" | "evicted" | "unknown" | "push_not_configured" | "pushed" | "push_refused" | "push_token_gone" | "push_token_suspect" | "no_push_token" | "push_not_needed" | "push_expired" | "opened" | "held_out" | "muted" | "channel_off" | "quiet" | "capped" | "push_muted" | "push_channel_off" | "push_capped", number>>;
    collapse_key: string | null;
    category: string | null;
    /** The category was essential when Noroshi accepted the notification: preferences do not apply. Absent if not. */
    essential?: boolean;
    retain: boolean;
    /**
     * RFC 3339, UTC.
     */
    sent_at: string;
    /**
     * RFC 3339, UTC.
     */
    expires_at: string;
    /** Its trace, from the request's `traceparent` (docs/tracing.md). Absent if it was not traced. */
    trace?: string;
    /** Its broadcasts to channels. Absent if there are none. */
    broadcasts?: BroadcastState[];
}
export interface Notifications {
    notifications: ListedNotification[];
    /** Position of the next page. */
    next: string | null;
    /**
     * The list is complete back to this time. Absent on the last page.
     */
    searched_to?: string;
}
export type Platform = "ios" | "android" | "web" | "console" | "other";
/** With preferences, a user selects which notifications arrive, and how. One device may differ. If a field is absent, the next level decides: the user's preferences, then the default. */
export interface Preferences {
    /** The allowed channels. A category may override them. `live`: over the connection. `push`: through push services. `inbox`: items of the user's notification centre. Default: all. */
    channels?: ("live" | "push" | "inbox")[] | null;
    /** Noroshi does not deliver messages to these topics. */
    muted_topics?: string[] | null;
    /** Preferences by category. */
    categories?: {
        [key: string]: CategoryPreference;
    } | null;
    /** Pushes wait for their end. */
    quiet_hours?: QuietHours | null;
}
export type Presence = "active" | "idle" | "offline";
export interface PresenceAnswer {
    users: {
        [key: string]: {
            presence: Presence;
            /** Connected devices. */
            devices: {
                /** One installed app: 1 to 128 bytes without control characters. */
                device: string;
                presence: Presence;
            }[];
        };
    };
}
export interface PresenceQuery {
    users: string[];
}
/** RFC 9457. */
export interface Problem {
    /**
     * The documentation of the code: `/docs#<code>`.
     */
    type: string;
    title: string;
    status: number;
    /**
     * Stable. Rely on it, not on the texts.
     */
    code: "invalid_json" | "corrupt_encoding" | "invalid_field" | "unknown_field" | "invalid_parameter" | "too_many_targets" | "unauthorized" | "forbidden" | "csrf" | "confirm_log_in" | "not_found" | "method_not_allowed" | "body_timeout" | "idempotency_conflict" | "already_exists" | "endpoint_gone" | "not_connected" | "misdirected" | "not_at_a_front" | "wrong_state" | "revision_conflict" | "campaign_incomplete" | "approval_required" | "own_approval" | "credential_test_failed" | "push_key_missing" | "limit_exceeded" | "body_too_large" | "data_too_large" | "push_payload_too_large" | "too_many_lines" | "unsupported_media_type" | "unsupported_encoding" | "too_many_requests" | "quota_exceeded" | "internal" | "not_built" | "push_service_rejected" | "push_service_failed" | "overloaded" | "unavailable" | "cell_unavailable" | "disk_full" | "bad_handshake" | "bad_last_event_id" | "bad_topic" | "malformed_request" | "too_many_topics" | "expired" | "revoked" | "request_timeout" | "replaced" | "upgrade_required" | "websocket_version" | "head_too_large";
    /** For humans. */
    detail: string;
    /** Path of the field, or name of the parameter. */
    field?: string;
}
/** Delivery through push services. A message that is too large for one of them is rejected with `push_payload_too_large`. */
export interface Push {
    /**
     * `fallback`: only if the device does not acknowledge it within `after`.
     * @default never
     */
    mode?: "never" | "fallback" | "always" | null;
    /** With `fallback` only. At most the ttl. Default: 10 s. */
    after?: Duration | null;
    /** Send the push to this token of each device, by kind and name, such as `voip` or `controls/lamp`. A device without it gets no push. Default: the main token. The mode is then `always` unless given. Refused with `unavailable` while a node of the cell runs a version that does not know it. */
    token?: string | null;
    /** Passed to APNs, at most 4 KiB. Overrides derived fields. */
    apns?: Record<string, unknown> | null;
    /** Passed to FCM, at most 4 KiB. Overrides derived fields. */
    fcm?: Record<string, unknown> | null;
    /** Passed to Web Push, at most 4 KiB. Overrides derived fields. */
    webpush?: Record<string, unknown> | null;
    /** For a message to a topic: also send this to the channels of APNs that are bound to the topic, one in each environment. Without it nothing is broadcast. Independent of the mode; the ttl is the notification's. Refused with `wrong_state` if no channel is bound to the topic. Not in campaigns. */
    broadcast?: Broadcast | null;
    /** Passed to providers behind webhooks as `options`, at most 4 KiB. */
    webhook?: Record<string, unknown> | null;
    /** Passed to Huawei Push Kit, at most 4 KiB: `push_type`, `payload`, `pushOptions`. Overrides derived fields. */
    hms?: Record<string, unknown> | null;
    /** Passed to WNS, at most 4 KiB: `type`, `payload`, `headers`. Overrides derived fields. */
    wns?: Record<string, unknown> | null;
}
/** A request to a push service, and its response. */
export interface PushAttempt {
    /**
     * RFC 3339, UTC.
     */
    sent_at: string;
    /** Milliseconds until the response, or until the node gave up. */
    took_ms: number;
    /** It contains the push token, or names the subscription, for APNs and Web Push. */
    url: string;
    /** Without `authorization`. */
    headers: {
        [key: string]: string;
    };
    /** The payload: JSON as it was sent, other text as a string, anything else as `{"base64": …}`. For Web Push it is the content before encryption. */
    body: unknown;
    /** Absent if there was no response. */
    response?: {
        status: number;
        /** As `body` above, at most 1,024 bytes. Absent if it is empty. */
        body?: unknown;
    };
    /** Why the push service did not accept the push, such as `BadDeviceToken`, or why there was no response, such as `timeout`. Absent if it was accepted. */
    reason?: string;
}
/** A credential without its secrets. */
export interface PushCredential {
    id: string;
    service: "apns" | "fcm" | "webpush" | "webhook" | "hms" | "wns";
    environment: "production" | "sandbox";
    name: string;
    /** Public parts: ids, and a fingerprint. */
    settings: Record<string, unknown>;
    /**
     * RFC 3339, UTC.
     */
    created_at: string;
}
export interface PushCredentials {
    credentials: PushCredential[];
}
/** Exactly one of `device` and `push_token`. */
export interface PushRotation {
    /** The fields to change, as in `NewPushCredential`; `null` removes one. `service`, `environment` and the name of a provider cannot change. `previous_secret` is not kept: give it again if it still counts. */
    credential: Record<string, unknown>;
    /** A registered device, by its main token; with a credential of `webhook`, by its token of that provider. */
    device?: string | null;
    push_token?: PushToken | null;
}
/** Exactly one of the two. */
export interface PushTest {
    /** A registered device, by its main token; with a credential of `webhook`, by its token of that provider. */
    device?: string | null;
    push_token?: PushToken | null;
}
/** The answer of the push service. */
export interface PushTested {
    /**
     * `accepted`: the push service accepted it.
     */
    answer: "accepted" | "gone" | "suspect" | "refused" | "later" | "not_configured" | "expired" | "no_answer";
    /** The push service's reason, or ours. */
    reason: string | null;
    explain: string;
}
/** The device's token of a push service. At most 4 KiB of JSON. */
export type PushToken = {
    service: "apns";
    token: string;
    environment?: "production" | "sandbox" | null;
    /** The app's bundle id, if it differs from the credential's. */
    topic?: string | null;
} | {
    service: "fcm";
    token: string;
} | {
    service: "webpush";
    endpoint: string;
    keys: {
        /** 65 bytes, base64url. */
        p256dh: string;
        /** 16 bytes, base64url. */
        auth: string;
    };
} | {
    service: "webhook";
    /** The name of the provider's credential. */
    provider: string;
    /** An address that the provider understands: a vendor's token, an e-mail address, a phone number. At most 1,024 bytes. */
    token: string;
} | {
    service: "hms";
    token: string;
} | {
    service: "wns";
    /** The channel URI. Its host is below notify.windows.com. */
    channel: string;
};
/** From `from` until before `to`, each day. It spans midnight if `to` is earlier. */
export interface QuietHours {
    /** Hours and minutes of a local clock. */
    from: string;
    /** Another time than `from`. */
    to: string;
    /** IANA name. Default: the time zone of the device, or UTC if it has none. */
    timezone?: string | null;
}
export interface Quota {
    quota: "connections" | "connects_per_second" | "devices" | "subscriptions_per_device" | "topics" | "publishes_per_second" | "deliveries_per_second" | "inbox_rows" | "inbox_bytes" | "retained_bytes" | "campaigns" | "pushes_per_second" | "endpoints" | "experiments" | "keys";
    /** Null: unlimited. */
    limit: number | null;
    /**
     * `app`: its own limit; `default`: the node's.
     */
    source: "app" | "default";
    /** Null if not counted. For a rate: the used tokens. */
    used: number | null;
    /** Rejections by this node since its start. */
    refused: number;
    /**
     * `node`: enforced per node; `store`: enforced across all nodes that share a store.
     */
    scope: "node" | "store";
}
export interface Quotas {
    app: string;
    quotas: Quota[];
}
export interface Receipt {
    /**
     * UUIDv7: ids sort by the time they were accepted.
     */
    id: string;
    /** Number of distinct users or devices in the request. Null for topics, conditions and everyone. */
    targets: number | null;
    /** What push services of the app do not show of the notification's typed fields. Absent if there is nothing to warn of, and with `push.mode` `never`. Fronts of cells do not know it. */
    warnings?: Warning[];
}
/** The result of one line. */
export type ReceiptLine = Receipt | {
    error: Problem;
};
/** A line of an upload. A later line replaces an earlier one of the same user. */
export interface Recipient {
    user: string;
    /** Values of the message's placeholders. */
    variables?: {
        [key: string]: string;
    } | null;
    /** Replaces the message's, without placeholders. */
    notification?: Shown | null;
    /** Replaces the message's, without placeholders. */
    data?: unknown;
}
export interface Registered {
    /** One installed app: 1 to 128 bytes without control characters. */
    device: string;
    /** For `Authorization: Bearer` on `/v1/me`, and to connect. */
    token: string;
    /**
     * RFC 3339, UTC.
     */
    expires_at: string;
    /** Where to connect, by protocol. MQTT and XMPP over TCP are present if the operator set `mqtt.public_url` and `xmpp.public_url`. */
    connect: {
        websocket: string;
        sse: string;
        socketio: string;
        mqtt: string;
        xmpp: string;
        /** `mqtts://host:port` or `mqtt://host:port`. */
        mqtt_tcp?: string;
        /** `xmpps://host:port` for direct TLS, `xmpp://host:port` for STARTTLS. */
        xmpp_tcp?: string;
    };
}
export interface RestoreTokens {
    /**
     * Only tokens that were suspended at this time or later, RFC 3339. Absent: all.
     */
    since?: string | null;
    /** Only tokens that were suspended for this reason of the push service, such as `BadDeviceToken`. Absent: for any. */
    reason?: string | null;
}
export interface RestoredTokens {
    /** Tokens. */
    restored: number;
}
export interface Revoked {
    /** One installed app: 1 to 128 bytes without control characters. */
    device: string;
    token_version: number;
}
export type Scope = "publish" | "devices" | "read" | "admin";
export interface Series {
    /**
     * The begin of the first step, a multiple of the step.
     */
    from: string;
    /**
     * The end of the last step.
     */
    until: string;
    /** Seconds of a step. */
    step_s: number;
    /** How many seconds of each step were measured, by at least one node. 0: a gap. */
    covered_s: number[];
    series: SeriesFigure[];
    /** Every node that wrote something in the range, with the times for which it wrote nothing. `null` for an app. */
    nodes: {
        name: string;
        missing: SeriesSpan[];
    }[] | null;
    /** Nodes that wrote something in the range. */
    nodes_count: number;
    /** Times for which one or more of these nodes wrote nothing. */
    missing: SeriesSpan[];
}
export interface SeriesFigure {
    name: "connections" | "log_ins" | "log_ins_refused" | "publishes" | "deliveries" | "acks" | "delivery_p50" | "delivery_p99" | "ack_p50" | "ack_p99" | "pushes_accepted" | "pushes_refused" | "push_retries" | "push_p50" | "push_p99" | "push_backlog" | "delivery_backlog" | "store_backlog" | "requests" | "request_errors" | "request_p50" | "request_p99" | "drops" | "overloads" | "quota_refusals" | "cpu" | "memory" | "bytes_written";
    /** `seconds` for times; of counts, what is counted in each step. */
    unit: string;
    kind: "gauge" | "count" | "time";
    /** One for each step. `null`: not measured, or nothing to measure. */
    points: (number | null)[];
}
export interface SeriesSpan {
    /** Format: date-time */
    from: string;
    /** Format: date-time */
    until: string;
}
/** What the user sees, hears and can press. At least one of `title`, `body`, `image`, `url`, `badge`; at most 4 KiB of JSON in total. Live and inbox clients receive it unchanged; docs/push.md says what each push service makes of it. */
export interface Shown {
    title?: string | null;
    body?: string | null;
    /**
     * An http or https URL.
     */
    image?: string | null;
    /**
     * Absolute URL that a tap opens. The schemes `javascript`, `data` and `vbscript` are rejected.
     */
    url?: string | null;
    /**
     * How much it may interrupt, in Apple's terms (`interruption-level`). `passive` is silent in browsers too. Android before 8: the priority; later versions use the channel's importance.
     */
    level?: "passive" | "active" | "time-sensitive" | "critical" | null;
    /** iOS features the notification with the highest score in its summary (`relevance-score`). */
    relevance?: number | null;
    /** `default`, or a sound file of the app. Android reads the name without its extension. */
    sound?: string | Sound | null;
    /** The number on the app's icon. 0 clears it, except on Android. `"unread"`: the number of the user's unread items when the push is sent. */
    badge?: number | "unread" | null;
    /** Groups notifications on iOS (`thread-id`). */
    thread?: string | null;
    /** Buttons, with distinct ids. Browsers show at most two. iOS shows those that the app registered for the `category`; Android's app builds them from `noroshi_actions` in the data. */
    actions?: Action[] | null;
    /** The app may change the notification before the user sees it: `mutable-content` on iOS (default: true with an image), `mutable` in declarative Web Push (default: true). */
    mutable?: boolean | null;
    /** Also wakes the app on iOS (`content-available`). */
    content_available?: boolean | null;
    /** A category that the app registered on iOS, with its buttons. */
    category?: string | null;
    /**
     * An http or https URL, for browsers.
     */
    icon?: string | null;
    /** Language tag of the texts, for browsers. */
    lang?: string | null;
    /**
     * Direction of the texts, for browsers.
     */
    dir?: "auto" | "ltr" | "rtl" | null;
    /** Notification channel of the app (FCM's `channel_id`). */
    android_channel?: string | null;
    /** Drawable resource of the app. */
    android_icon?: string | null;
    /** Colour of the icon, `#rrggbb`. */
    android_color?: string | null;
    /** Intent action that a tap starts, instead of the app's launcher activity. */
    android_click_action?: string | null;
    /** Label in FCM's statistics. FCM allows 100 different labels a day. */
    fcm_analytics_label?: string | null;
}
/** A sound with its options. */
export interface Sound {
    /** @default default */
    name?: string | null;
    /**
     * Plays on iOS while the device is muted. The app needs Apple's entitlement for critical alerts.
     * @default false
     */
    critical?: boolean | null;
    /** With `critical` only. */
    volume?: number | null;
}
/** Exactly one. Unknown users and devices count; they are no error. */
export type To = {
    users: string[];
    devices?: never;
    topic?: never;
    condition?: never;
    everyone?: never;
} | {
    devices: string[];
    users?: never;
    topic?: never;
    condition?: never;
    everyone?: never;
} | {
    /** 1 to 255 bytes of UTF-8 without control characters, `+` and `#`, not starting with `$`. */
    topic: string;
    users?: never;
    devices?: never;
    condition?: never;
    everyone?: never;
} | {
    /** FCM condition syntax, at most 5 topics: `'a' in topics && !('b' in topics)`. */
    condition: string;
    users?: never;
    devices?: never;
    topic?: never;
    everyone?: never;
} | {
    everyone: true;
    users?: never;
    devices?: never;
    topic?: never;
    condition?: never;
};
export interface Topic {
    /** 1 to 255 bytes of UTF-8 without control characters, `+` and `#`. A topic that begins with `$` is `$maintenance`, or one that topic rules allow to MQTT clients. */
    topic: string;
    /** Devices with a durable subscription. */
    subscribers: number;
    /** Connections that receive it now. */
    connected: number;
    /** Identifies one lifetime of the topic's log. Null if nothing was ever published. */
    epoch: string | null;
    /** The last assigned offset. */
    offset: number;
    /** Messages in the log. */
    log: number;
    retained: boolean;
}
export interface TopicPermission {
    device: string;
    user: string | null;
    topic: string;
    action: "subscribe" | "publish";
    decision: "allowed" | "denied" | "ask";
    /** If denied: `no_rule`, `server_only`, `not_in_token` or `overlap`. */
    reason: string | null;
    detail: string;
    /** The rule that decides. */
    rule: null | {
        /** Its index in the list, from 0. */
        number: number;
        topic: string;
        allow: string;
    };
}
export interface TopicRule {
    /** A pattern of text, `+` for a level, `#` as the last level, `*` within a level, and the variables `{user}`, `{device}`, `{claim:name}`. */
    topic: string;
    allow: "anyone" | "token" | "server" | "ask";
}
/** Who may use which topics (docs/authorization.md). The first rule with a matching pattern decides; without a match the action is denied. Without a list, no rules apply to the action. */
export interface TopicRules {
    subscribe?: TopicRule[] | null;
    publish?: TopicRule[] | null;
    ask?: TopicWebhook | null;
}
export interface TopicWebhook {
    /** An https URL. The operator may also set an http URL. */
    url: string;
    /** `whsec_` and 24 to 64 bytes in base64. Signs the requests (Standard Webhooks). Never shown. Absent: unchanged. */
    secret?: string | null;
    /** In responses. */
    secret_set?: boolean | null;
    /**
     * At most 10 seconds. Default: 3 seconds.
     * @default 3s
     */
    timeout?: string | null;
    /**
     * How long to cache an answer without its own duration. At most one day.
     * @default 5m
     */
    expires_in?: string | null;
}
export interface Topics {
    topics: Topic[];
    /** `after` of the next page. Null on the last page. */
    next: string | null;
}
export interface Trace {
    /**
     * UUIDv7: ids sort by the time they were accepted.
     */
    id: string;
    /** One installed app: 1 to 128 bytes without control characters. */
    device: string;
    steps: {
        /**
         * RFC 3339, UTC.
         */
        at: string;
        outcome: "kept" | "written" | "acked" | "offline" | "inactive" | "slow" | "expired" | "collapsed" | "cancelled" | "evicted" | "unknown" | "push_not_configured" | "pushed" | "push_refused" | "push_token_gone" | "push_token_suspect" | "no_push_token" | "push_not_needed" | "push_expired" | "opened" | "held_out" | "muted" | "channel_off" | "quiet" | "capped" | "push_muted" | "push_channel_off" | "push_capped";
        explain: string;
        /** The push service's reason, such as `BadDeviceToken`, or ours, such as `timeout`. Absent if there is none. */
        reason?: string;
    }[];
    /** It is in the device's inbox now. */
    in_inbox: boolean;
    /** The device is connected now. */
    connected: boolean;
    /** The device has a durable subscription to its topic. */
    subscribed: boolean;
    /**
     * What made it a notification for the device: its own name, its user, a durable subscription, a subscription of a session, a condition, everyone, the audience or the uploaded users of a campaign. `none`: it was not for the device. `unknown`: not recorded.
     */
    targeted_by: "device" | "user" | "subscription" | "session" | "condition" | "everyone" | "campaign" | "upload" | "none" | "unknown";
    /** A sentence about `targeted_by`. It also states what is no longer known, such as subscriptions that have ended. */
    targeting: string;
    /**
     * Why it did not arrive, or not yet. If several reasons apply, it is the one that ended the notification, otherwise that of the push service, otherwise that of connection and inbox. Absent if it arrived, or if nothing that prevented it is known.
     */
    reason?: "not_targeted" | "registered_later" | "user_changed_later" | "subscribed_later" | "not_reached" | "not_recorded" | "offline" | "inactive" | "slow" | "pending" | "unacknowledged" | "expired" | "collapsed" | "evicted" | "cancelled" | "held_out" | "push_pending" | "quota" | "no_token" | "invalid_token" | "suspended_token" | "push_not_configured" | "push_refused" | "push_expired" | "muted" | "channel_off" | "quiet" | "capped" | "push_muted" | "push_channel_off" | "push_capped";
    /**
     * When the waiting push for the device is due. Absent if none waits.
     */
    push_due_at?: string;
    /**
     * When a sender took this push; the push service has not answered yet. Absent while no sender has it.
     */
    push_taken_at?: string;
    /** The attempts at pushes to the device that the node recorded (`push.record_retention`), oldest first: at most those of the 100 newest records. Absent if there is none. */
    attempts?: PushAttempt[];
    /** Its trace, from the request's `traceparent` (docs/tracing.md). Absent if it was not traced. */
    trace?: string;
    /** Why the device received it or not: first connection and inbox, then push services. */
    summary: string;
}
export interface UserRevoked {
    user: string;
    /** Number of devices whose tokens were revoked. */
    devices: number;
}
/** What a push service of the app does not show. */
export interface Warning {
    service: "apns" | "fcm" | "webpush" | "webhook" | "hms" | "wns";
    /** Its path in the request. */
    field: string;
    warning: string;
}
export interface NotificationsQuery {
    /** Accepted at this time or later. */
    since?: string;
    /** Accepted at this time or earlier. */
    until?: string;
    /** Only notifications with this kind of target. */
    target?: "users" | "devices" | "topic" | "condition" | "everyone" | "campaign";
    /** Only notifications for this user. Not together with `device`. */
    user?: string;
    /** Only notifications for this device. */
    device?: string;
    /** Only notifications to this topic; `$everyone` for those to everyone. */
    topic?: string;
    /** Only notifications of this campaign. */
    campaign?: string;
    /** Only notifications of this category. */
    category?: string;
    /** Only notifications of this urgency. */
    urgency?: "very-low" | "low" | "normal" | "high";
    /** `next` of the previous page. */
    after?: string;
    /** Entries per page. */
    limit?: number;
}
export interface TopicsQuery {
    /** `next` of the previous page. */
    after?: string;
    /** Entries per page. */
    limit?: number;
}
export interface DevicesQuery {
    /** Only devices of this user. */
    user?: string;
    /** Only devices of this platform. */
    platform?: "ios" | "android" | "web" | "console" | "other";
    /** `none`: devices without a push token, also those whose token a push service invalidated. `any`, `usable`, `suspended`: devices with a token, with one that is in use, or with one that a push service reported as suspect. */
    token?: "none" | "any" | "usable" | "suspended";
    /** Only devices with a token of this push service; together with `token`, in that state. */
    service?: "apns" | "fcm" | "webpush" | "webhook" | "hms" | "wns";
    /** Only devices with a token of this kind; together with `token`, in that state. */
    kind?: "alert" | "webpush" | "fcm" | "voip" | "complication" | "fileprovider" | "widgets" | "controls" | "live-activity-start" | "live-activity" | "webhook" | "hms" | "wns";
    /** `never`: devices that were not seen since the database was upgraded to a version that records it. They are in no list by `seen_after` or `seen_before`. */
    seen?: "never";
    /** Only devices that were last seen on the day of this time (UTC) or later. */
    seen_after?: string;
    /** Only devices that were last seen before the day of this time (UTC). Devices that were never seen are not among them: `seen=never`. */
    seen_before?: string;
    /** `next` of the previous page. */
    after?: string;
    /** Entries per page. */
    limit?: number;
}
export interface RegisterDeviceQuery {
    /** The app that signed the JWT, if the JWT does not name it and several apps sign JWTs. */
    app?: string;
}
export interface ItemsOfUserQuery {
    /** Without it: all that are not archived. */
    state?: "unread" | "read" | "archived" | "all";
    /** Only items of this category. */
    category?: string;
    /** `next` of the previous page. */
    after?: string;
    /** Entries per page. */
    limit?: number;
}
export interface AddPushCredentialQuery {
    /** Replace the existing credential. */
    replace?: boolean;
}
export interface ExperimentsQuery {
    /** Archived ones, newest first, in pages. Otherwise all live ones. */
    archived?: boolean;
    /** `next` of the previous page. */
    after?: string;
    /** Entries per page. */
    limit?: number;
}
export interface NoticesQuery {
    /** Archived ones, newest first, in pages. Otherwise all live ones. */
    archived?: boolean;
    /** `next` of the previous page. */
    after?: string;
    /** Entries per page. */
    limit?: number;
}
export interface CampaignsQuery {
    /** `next` of the previous page. */
    after?: string;
    /** Entries per page. */
    limit?: number;
    /** States, separated by commas: `draft`, `scheduled`, `running`, `paused`, `done`, `aborted`. */
    state?: string;
    /** A part of the name, whatever its case. */
    name?: string;
    /** Who created it: the e-mail address of a person, or `key:` and the name of an API key. */
    created_by?: string;
    /** Created at or after this time. */
    created_since?: string;
    /** Created before this time. */
    created_until?: string;
    /** `start_at` is at or after this time. */
    start_since?: string;
    /** `start_at` is before this time. */
    start_until?: string;
}
export interface CreateCampaignQuery {
    /** Only count. */
    dry_run?: boolean;
    /** Keeps the request as a draft although parts are missing or invalid. `problems` of the response says what. Not with `dry_run`, and without `start` in the body. */
    draft?: boolean;
}
export interface StartCampaignQuery {
    /** Starts only this revision; otherwise `409` with the code `revision_conflict`. Without it, the present one. */
    revision?: number;
}
export interface ActivitiesQuery {
    /** `next` of the previous page. */
    after?: string;
    /** Entries per page. */
    limit?: number;
}
export interface InvalidationsQuery {
    /** `next` of the previous page, or the last `seq`. */
    after?: string;
    /** Entries per page. */
    limit?: number;
}
export interface ChannelsQuery {
    /** `next` of the previous page. */
    after?: string;
    /** Entries per page. */
    limit?: number;
}
export interface DeleteChannelQuery {
    /** Only forget it here; it stays at Apple. */
    forget?: boolean;
}
export interface AppleChannelsQuery {
    /** Apple's environment. */
    environment?: "production" | "sandbox";
}
export interface DeleteAppleChannelQuery {
    /** Apple's environment. */
    environment?: "production" | "sandbox";
}
export interface TopicPermissionQuery {
    /** The action of the device. */
    action?: "subscribe" | "publish";
}
export interface AppSeriesQuery {
    /** Series, comma-separated. All without it. `connections` (gauge): open connections; `log_ins` (count): log-ins; of an app: connections whose token was verified; `publishes` (count): accepted notifications; `deliveries` (count): notifications written to connections; `pushes_accepted` (count): pushes that push services accepted; `pushes_refused` (count): pushes that push services rejected; `quota_refusals` (count): requests refused because of quotas. */
    names?: string;
    /** Without it, one hour before `until`. Moved back to the begin of a step. */
    from?: string;
    /** Without it, now. */
    until?: string;
    /** Without it, the shortest step that is kept for the range and gives at most 1,500 points. */
    step?: "10s" | "1m" | "1h";
    /** Only this node's figures. With steps of 10 s only, and not for an app: rejected here. */
    node?: string;
}
