/** Generated from crates/api/openapi.json by `npm run types`. Do not edit. */

import type { Activities, ActivitiesQuery, Activity, ActivityDevice, ActivityEnd, ActivityUpdate, AddPushCredentialQuery, App, AppChange, AppSeriesQuery, AppleChannels, AppleChannelsQuery, BroadcastState, Campaign, CampaignChange, CampaignCount, CampaignEstimate, CampaignRecipient, Campaigns, CampaignsQuery, Cancelled, Channel, ChannelChange, Channels, ChannelsQuery, CreateCampaignQuery, DeleteAppleChannelQuery, DeleteChannelQuery, Device, DevicePushTokens, DeviceRegistration, Devices, DevicesQuery, Endpoints, Experiment, ExperimentAssigned, ExperimentChange, Experiments, ExperimentsQuery, Invalidations, InvalidationsQuery, ItemCounts, Items, ItemsDeleted, ItemsOfUserQuery, Key, Keys, Message, NewActivity, NewBroadcast, NewCampaign, NewChannel, NewExperiment, NewKey, NewNotice, NewPushCredential, NewPushToken, Notice, Notices, NoticesQuery, Notification, NotificationState, Notifications, NotificationsQuery, Preferences, PresenceAnswer, PresenceQuery, PushCredential, PushCredentials, PushRotation, PushTest, PushTested, Quotas, Receipt, RegisterDeviceQuery, Registered, RestoreTokens, RestoredTokens, Revoked, Series, StartCampaignQuery, Topic, TopicPermission, TopicPermissionQuery, TopicRules, Topics, TopicsQuery, Trace, UserRevoked } from './api.js'

export interface paths {
    "/v1/notifications": {
        /**
         * List notifications
         *
         * The notifications that Noroshi still keeps, newest first. Every filter that is given must hold. Requires the scope `read`.
         *
         * A page reads at most 20,000 notifications of the app, whatever the filter. So a page may have fewer entries than `limit`, or none, although more follow: continue with `next` while it is not null. `searched_to` is the time back to which the list is complete.
         *
         * With `user` or `device`, the list has the notifications that name it, those to topics to which its devices durably subscribed before, those that wait in an inbox, and those to conditions and of campaigns whose outcomes list a device. It cannot know topics that a device followed for a session only, subscriptions that have ended, and former users of a device. Of a user, the newest 20 devices count.
         */
        get: {
            parameters: {
                query?: NotificationsQuery;
            };
            responses: {
                /** Newest first. */
                200: {
                    content: {
                        "application/json": Notifications;
                    };
                };
            };
        };
        /**
         * Notify users, devices, a topic, a condition, or everyone
         *
         * One call for up to ten thousand targets. `active` and `connected` are delivered at most once; `stored` at least once, with the same id.
         *
         * Requires the scope `publish`.
         */
        post: {
            requestBody: {
                content: {
                    "application/json": Notification;
                };
            };
            responses: {
                /** Accepted. Stored notifications are on stable storage. */
                202: {
                    content: {
                        "application/json": Receipt;
                    };
                };
            };
        };
    };
    "/v1/notifications/batch": {
        /**
         * Publish up to 10,000 notifications
         *
         * One notification per line. Each line succeeds or fails independently. Lines are accepted in order. With an `Idempotency-Key`, each line is idempotent by the key and its line number.
         *
         * Requires the scope `publish`.
         */
        post: {
            requestBody: {
                content: {
                    "application/x-ndjson": string;
                };
            };
            responses: {
                /** One line for each, in the same order: the receipt, or `{"error": …}` with the problem. */
                200: {
                    content: {
                        "application/x-ndjson": string;
                    };
                };
            };
        };
    };
    "/v1/notifications/{id}": {
        /**
         * State and counts of a notification
         *
         * Requires the scope `read`.
         */
        get: {
            parameters: {
                path: {
                    /** Id of the notification. */
                    id: string;
                };
            };
            responses: {
                /** Its state so far. */
                200: {
                    content: {
                        "application/json": NotificationState;
                    };
                };
            };
        };
        /**
         * Cancel undelivered copies
         *
         * Requires the scope `publish`.
         */
        delete: {
            parameters: {
                path: {
                    /** Id of the notification. */
                    id: string;
                };
            };
            responses: {
                /** Removed from inboxes, from the topic's log and from the retained message. */
                200: {
                    content: {
                        "application/json": Cancelled;
                    };
                };
            };
        };
    };
    "/v1/notifications/{id}/devices/{device}": {
        /**
         * Why a device received it, or did not
         *
         * Requires the scope `read`.
         */
        get: {
            parameters: {
                path: {
                    /** Id of the notification, or of a campaign: then the answer covers everything that the campaign sends to the device. */
                    id: string;
                    /** Id of the device. */
                    device: string;
                };
            };
            responses: {
                /** Every step, and a summary. */
                200: {
                    content: {
                        "application/json": Trace;
                    };
                };
            };
        };
    };
    "/v1/presence": {
        /**
         * Which of up to 1,000 users are online
         *
         * Requires the scope `read`.
         */
        post: {
            requestBody: {
                content: {
                    "application/json": PresenceQuery;
                };
            };
            responses: {
                /** By user. An unknown user is offline. */
                200: {
                    content: {
                        "application/json": PresenceAnswer;
                    };
                };
            };
        };
    };
    "/v1/topics": {
        /**
         * List topics
         *
         * Requires the scope `read`.
         */
        get: {
            parameters: {
                query?: TopicsQuery;
            };
            responses: {
                /** Sorted by name. */
                200: {
                    content: {
                        "application/json": Topics;
                    };
                };
            };
        };
    };
    "/v1/topics/{topic}": {
        /**
         * Subscribers and position of a topic
         *
         * Requires the scope `read`.
         */
        get: {
            parameters: {
                path: {
                    /** Name of the topic, percent-encoded: `news/jp` is `news%2Fjp`. */
                    topic: string;
                };
            };
            responses: {
                /** A topic that was never used has zeros. */
                200: {
                    content: {
                        "application/json": Topic;
                    };
                };
            };
        };
    };
    "/v1/topics/{topic}/retained": {
        /**
         * The retained message
         *
         * Requires the scope `read`.
         */
        get: {
            parameters: {
                path: {
                    /** Name of the topic, percent-encoded: `news/jp` is `news%2Fjp`. */
                    topic: string;
                };
            };
            responses: {
                /** As devices receive it at each log-in. */
                200: {
                    content: {
                        "application/json": Message;
                    };
                };
            };
        };
        /**
         * Delete the retained message
         *
         * Requires the scope `publish`.
         */
        delete: {
            parameters: {
                path: {
                    /** Name of the topic, percent-encoded: `news/jp` is `news%2Fjp`. */
                    topic: string;
                };
            };
            responses: {
                /** Deleted. */
                204: {
                    content?: never;
                };
            };
        };
    };
    "/v1/devices": {
        /**
         * List devices
         *
         * Requires the scope `read`. Every filter that is given must hold.
         *
         * With a filter other than `user`, a page reads at most 20,000 devices, or the days of 200,000 devices if `seen_after` and `seen_before` are the only filters. So it may have fewer entries than `limit`, or none, although more follow: continue with `next` while it is not null. Tokens that have expired do not count.
         *
         * The day when a device was last seen is a day in UTC. A device is seen when it logs in, when it calls the API itself, and while it is connected. Nodes write the day within seconds, or minutes after a storm of log-ins, and for devices that stay connected within about an hour after midnight (UTC). The order of the list does not depend on it.
         */
        get: {
            parameters: {
                query?: DevicesQuery;
            };
            responses: {
                /** In order of creation. */
                200: {
                    content: {
                        "application/json": Devices;
                    };
                };
            };
        };
        /**
         * Register or update a device
         *
         * With an API key with the scope `devices`, or by the device itself: with its app's JWT, which names device and user, or with its device token, to renew it.
         */
        post: {
            parameters: {
                query?: RegisterDeviceQuery;
            };
            requestBody?: {
                content: {
                    "application/json": DeviceRegistration;
                };
            };
            responses: {
                /** The new or updated device, with a new token and the addresses to connect to. */
                201: {
                    content: {
                        "application/json": Registered;
                    };
                };
            };
        };
    };
    "/v1/devices/batch": {
        /**
         * Register up to 10,000 devices
         *
         * One registration per line.
         *
         * Requires the scope `devices`.
         */
        post: {
            requestBody: {
                content: {
                    "application/x-ndjson": string;
                };
            };
            responses: {
                /** One line for each, in the same order: device and token, or `{"error": …}` with the problem. */
                200: {
                    content: {
                        "application/x-ndjson": string;
                    };
                };
            };
        };
    };
    "/v1/devices/{device}": {
        /**
         * One device
         *
         * Requires the scope `read`.
         */
        get: {
            parameters: {
                path: {
                    /** Id of the device. */
                    device: string;
                };
            };
            responses: {
                /** As stored. */
                200: {
                    content: {
                        "application/json": Device;
                    };
                };
            };
        };
        /**
         * Delete a device
         *
         * Requires the scope `devices`.
         */
        delete: {
            parameters: {
                path: {
                    /** Id of the device. */
                    device: string;
                };
            };
            responses: {
                /** Deleted with its inbox and subscriptions. Its tokens stop working and its connection closes. */
                204: {
                    content?: never;
                };
            };
        };
    };
    "/v1/devices/{device}/revoke": {
        /**
         * Revoke a device's tokens and app JWTs
         *
         * Requires the scope `devices`.
         */
        post: {
            parameters: {
                path: {
                    /** Id of the device. */
                    device: string;
                };
            };
            responses: {
                /** All device tokens, and all app JWTs issued until now, stop working. The connection closes. */
                200: {
                    content: {
                        "application/json": Revoked;
                    };
                };
            };
        };
    };
    "/v1/devices/{device}/push-tokens": {
        /**
         * List push tokens
         *
         * Requires the scope `devices`.
         */
        get: {
            parameters: {
                path: {
                    /** Id of the device. */
                    device: string;
                };
            };
            responses: {
                /** All push tokens, as registered. */
                200: {
                    content: {
                        "application/json": DevicePushTokens;
                    };
                };
            };
        };
    };
    "/v1/devices/{device}/push-tokens/{kind}": {
        /**
         * Set a push token without a name
         *
         * Requires the scope `devices`.
         */
        put: {
            parameters: {
                path: {
                    /** Id of the device. */
                    device: string;
                    /** What the token is for. */
                    kind: "alert" | "webpush" | "fcm" | "voip" | "complication" | "fileprovider" | "widgets" | "controls" | "live-activity-start" | "live-activity" | "webhook" | "hms" | "wns";
                };
            };
            requestBody: {
                content: {
                    "application/json": NewPushToken;
                };
            };
            responses: {
                /** Stored. A message token becomes the main token. */
                204: {
                    content?: never;
                };
            };
        };
        /**
         * Remove a push token without a name
         *
         * Requires the scope `devices`.
         */
        delete: {
            parameters: {
                path: {
                    /** Id of the device. */
                    device: string;
                    /** What the token is for. */
                    kind: "alert" | "webpush" | "fcm" | "voip" | "complication" | "fileprovider" | "widgets" | "controls" | "live-activity-start" | "live-activity" | "webhook" | "hms" | "wns";
                };
            };
            responses: {
                /** Removed. If it was the main token, the message token that was registered last takes its place. */
                204: {
                    content?: never;
                };
            };
        };
    };
    "/v1/devices/{device}/push-tokens/{kind}/{name}": {
        /**
         * Set a push token with a name
         *
         * Requires the scope `devices`.
         */
        put: {
            parameters: {
                path: {
                    /** Id of the device. */
                    device: string;
                    /** What the token is for. */
                    kind: "alert" | "webpush" | "fcm" | "voip" | "complication" | "fileprovider" | "widgets" | "controls" | "live-activity-start" | "live-activity" | "webhook" | "hms" | "wns";
                    /** Distinguishes tokens of the kind. */
                    name: string;
                };
            };
            requestBody: {
                content: {
                    "application/json": NewPushToken;
                };
            };
            responses: {
                /** Stored. A message token becomes the main token. */
                204: {
                    content?: never;
                };
            };
        };
        /**
         * Remove a push token with a name
         *
         * Requires the scope `devices`.
         */
        delete: {
            parameters: {
                path: {
                    /** Id of the device. */
                    device: string;
                    /** What the token is for. */
                    kind: "alert" | "webpush" | "fcm" | "voip" | "complication" | "fileprovider" | "widgets" | "controls" | "live-activity-start" | "live-activity" | "webhook" | "hms" | "wns";
                    /** Distinguishes tokens of the kind. */
                    name: string;
                };
            };
            responses: {
                /** Removed. If it was the main token, the message token that was registered last takes its place. */
                204: {
                    content?: never;
                };
            };
        };
    };
    "/v1/users/{user}/revoke": {
        /**
         * Revoke a user's app JWTs and the tokens of the user's devices
         *
         * Requires the scope `devices`. App JWTs of this user that were issued until now (claim `iat`, in seconds) stop working permanently on all devices, as do those without `iat`. The user may be unknown.
         */
        post: {
            parameters: {
                path: {
                    /** Id of the user. */
                    user: string;
                };
            };
            responses: {
                /** The tokens stop working. The connections of the user's devices close. */
                200: {
                    content: {
                        "application/json": UserRevoked;
                    };
                };
            };
        };
    };
    "/v1/users/{user}/items": {
        /**
         * List the items of a user
         *
         * Requires the scope `read`. The user may be unknown.
         */
        get: {
            parameters: {
                query?: ItemsOfUserQuery;
                path: {
                    /** Id of the user. */
                    user: string;
                };
            };
            responses: {
                /** Newest first. */
                200: {
                    content: {
                        "application/json": Items;
                    };
                };
            };
        };
        /**
         * Delete all items of a user
         *
         * Requires the scope `devices`. For example when the user's account is deleted. The user may be unknown, and may get items again.
         */
        delete: {
            parameters: {
                path: {
                    /** Id of the user. */
                    user: string;
                };
            };
            responses: {
                /** They are deleted. */
                200: {
                    content: {
                        "application/json": ItemsDeleted;
                    };
                };
            };
        };
    };
    "/v1/users/{user}/items/counts": {
        /**
         * Count the unread items of a user
         *
         * Requires the scope `read`. The user may be unknown.
         */
        get: {
            parameters: {
                path: {
                    /** Id of the user. */
                    user: string;
                };
            };
            responses: {
                /** In all, and by category. */
                200: {
                    content: {
                        "application/json": ItemCounts;
                    };
                };
            };
        };
    };
    "/v1/users/{user}/preferences": {
        /**
         * Get the preferences of a user
         *
         * Requires the scope `read`. The user may be unknown.
         */
        get: {
            parameters: {
                path: {
                    /** Id of the user. */
                    user: string;
                };
            };
            responses: {
                /** The preferences; `{}` if there are none. */
                200: {
                    content: {
                        "application/json": Preferences;
                    };
                };
            };
        };
        /**
         * Replace the preferences of a user
         *
         * Requires the scope `devices`. All devices of the user follow them, unless their own preferences differ. The user may be unknown.
         */
        put: {
            parameters: {
                path: {
                    /** Id of the user. */
                    user: string;
                };
            };
            requestBody: {
                content: {
                    "application/json": Preferences;
                };
            };
            responses: {
                /** Durable. As stored. */
                200: {
                    content: {
                        "application/json": Preferences;
                    };
                };
            };
        };
        /**
         * Delete the preferences of a user
         *
         * Requires the scope `devices`.
         */
        delete: {
            parameters: {
                path: {
                    /** Id of the user. */
                    user: string;
                };
            };
            responses: {
                /** Deleted, or there were none. */
                204: {
                    content?: never;
                };
            };
        };
    };
    "/v1/devices/{device}/preferences": {
        /**
         * Get the preferences of a device
         *
         * Requires the scope `read`.
         */
        get: {
            parameters: {
                path: {
                    /** Id of the device. */
                    device: string;
                };
            };
            responses: {
                /** The preferences; `{}` if there are none. */
                200: {
                    content: {
                        "application/json": Preferences;
                    };
                };
            };
        };
        /**
         * Replace the preferences of a device
         *
         * Requires the scope `devices`. They come before those of the device's user.
         */
        put: {
            parameters: {
                path: {
                    /** Id of the device. */
                    device: string;
                };
            };
            requestBody: {
                content: {
                    "application/json": Preferences;
                };
            };
            responses: {
                /** Durable. As stored. */
                200: {
                    content: {
                        "application/json": Preferences;
                    };
                };
            };
        };
        /**
         * Delete the preferences of a device
         *
         * Requires the scope `devices`.
         */
        delete: {
            parameters: {
                path: {
                    /** Id of the device. */
                    device: string;
                };
            };
            responses: {
                /** Deleted, or there were none. */
                204: {
                    content?: never;
                };
            };
        };
    };
    "/v1/devices/{device}/endpoints": {
        /**
         * List a device's endpoints
         *
         * Without their URLs, which are not stored. Requires the scope `read`.
         */
        get: {
            parameters: {
                path: {
                    /** Id of the device. */
                    device: string;
                };
            };
            responses: {
                /** Oldest first. */
                200: {
                    content: {
                        "application/json": Endpoints;
                    };
                };
            };
        };
    };
    "/v1/devices/{device}/endpoints/{id}": {
        /**
         * Delete an endpoint of a device
         *
         * Requires the scope `devices`.
         */
        delete: {
            parameters: {
                path: {
                    /** Id of the device. */
                    device: string;
                    /** Id of the endpoint. */
                    id: string;
                };
            };
            responses: {
                /** Deleted. Posts to it get 410. */
                204: {
                    content?: never;
                };
            };
        };
    };
    "/v1/apps/{app}": {
        /**
         * Get the app's JWT settings
         *
         * Requires the scope `admin`.
         */
        get: {
            parameters: {
                path: {
                    /** Name of the app. */
                    app: string;
                };
            };
            responses: {
                /** Shows whether secrets are set, never the secrets. */
                200: {
                    content: {
                        "application/json": App;
                    };
                };
            };
        };
        /**
         * Change the app's JWT settings
         *
         * Requires the scope `admin`.
         */
        patch: {
            parameters: {
                path: {
                    /** Name of the app. */
                    app: string;
                };
            };
            requestBody: {
                content: {
                    "application/json": AppChange;
                };
            };
            responses: {
                /** The new settings. */
                200: {
                    content: {
                        "application/json": App;
                    };
                };
            };
        };
    };
    "/v1/apps/{app}/keys": {
        /**
         * List API keys
         *
         * Requires the scope `admin`.
         */
        get: {
            parameters: {
                path: {
                    /** Name of the app. */
                    app: string;
                };
            };
            responses: {
                /** Oldest first; also keys that have expired. */
                200: {
                    content: {
                        "application/json": Keys;
                    };
                };
            };
        };
        /**
         * Create an API key
         *
         * Requires the scope `admin`.
         */
        post: {
            parameters: {
                path: {
                    /** Name of the app. */
                    app: string;
                };
            };
            requestBody: {
                content: {
                    "application/json": NewKey;
                };
            };
            responses: {
                /** Only this response contains the key. */
                201: {
                    content: {
                        "application/json": Key;
                    };
                };
            };
        };
    };
    "/v1/apps/{app}/keys/{key}": {
        /**
         * Revoke an API key
         *
         * Requires the scope `admin`.
         */
        delete: {
            parameters: {
                path: {
                    /** Name of the app. */
                    app: string;
                    /** Id of the key. */
                    key: string;
                };
            };
            responses: {
                /** It stops working at once. */
                204: {
                    content?: never;
                };
            };
        };
    };
    "/v1/apps/{app}/quotas": {
        /** Get quotas: limits, usage and rejections */
        get: {
            parameters: {
                path: {
                    /** Name of the app. */
                    app: string;
                };
            };
            responses: {
                /** All quotas. */
                200: {
                    content: {
                        "application/json": Quotas;
                    };
                };
            };
        };
    };
    "/v1/apps/{app}/push": {
        /**
         * List credentials of push services
         *
         * Requires the scope `admin`.
         */
        get: {
            parameters: {
                path: {
                    /** Name of the app. */
                    app: string;
                };
            };
            responses: {
                /** Without their secrets. */
                200: {
                    content: {
                        "application/json": PushCredentials;
                    };
                };
            };
        };
        /**
         * Add a push service credential
         *
         * The secret is stored encrypted with the node's key, and never appears in a response or log. An app has one credential for each push service and environment, and of `webhook` one for each name. Services other than APNs, FCM and Web Push are refused with `unavailable` while a node of the cell runs a version that does not know them. `?replace=true` replaces it without interruption.
         *
         * Requires the scope `admin`.
         */
        post: {
            parameters: {
                query?: AddPushCredentialQuery;
                path: {
                    /** Name of the app. */
                    app: string;
                };
            };
            requestBody: {
                content: {
                    "application/json": NewPushCredential;
                };
            };
            responses: {
                /** Stored and in use. */
                201: {
                    content: {
                        "application/json": PushCredential;
                    };
                };
            };
        };
    };
    "/v1/apps/{app}/push/{id}": {
        /**
         * Remove a credential
         *
         * Pushes in progress complete. Later pushes to devices of this push service end with `push_not_configured`.
         *
         * Requires the scope `admin`.
         */
        delete: {
            parameters: {
                path: {
                    /** Name of the app. */
                    app: string;
                    /** Id of the credential. */
                    id: string;
                };
            };
            responses: {
                /** Deleted. */
                204: {
                    content?: never;
                };
            };
        };
    };
    "/v1/apps/{app}/push/{id}/test": {
        /**
         * Push to one device now
         *
         * Sends a short visible notification to the device and returns the push service's answer. Nothing is recorded, and no token is removed.
         *
         * Requires the scope `admin`.
         */
        post: {
            parameters: {
                path: {
                    /** Name of the app. */
                    app: string;
                    /** Id of the credential. */
                    id: string;
                };
            };
            requestBody: {
                content: {
                    "application/json": PushTest;
                };
            };
            responses: {
                /** The push service's answer. */
                200: {
                    content: {
                        "application/json": PushTested;
                    };
                };
            };
        };
    };
    "/v1/apps/{app}/push/{id}/rotate": {
        /**
         * Replace the secret of a credential
         *
         * Changes the fields in `credential`, keeps the others, and pushes a short visible notification to the device with the changed credential. Only if the push service accepts it, the changed credential replaces the former one, in one step. Pushes that are queued or in flight are finished with the former one. Otherwise nothing changes, and the answer is `credential_test_failed` with the answer of the push service. If the credential is changed or removed during the test, the answer is `wrong_state`.
         *
         * Requires the scope `admin`.
         */
        post: {
            parameters: {
                path: {
                    /** Name of the app. */
                    app: string;
                    /** Id of the credential. */
                    id: string;
                };
            };
            requestBody: {
                content: {
                    "application/json": PushRotation;
                };
            };
            responses: {
                /** The credential as it is now, without its secret. */
                200: {
                    content: {
                        "application/json": PushCredential;
                    };
                };
            };
        };
    };
    "/v1/apps/{app}/push/{id}/restore": {
        /**
         * Use suspended tokens again
         *
         * Restores push tokens of the credential's push service and environment that the node suspended because the push service reported another app, topic or environment. Call it after you have corrected the credential. A token that the push service reports again is suspended again.
         *
         * Requires the scope `admin`.
         */
        post: {
            parameters: {
                path: {
                    /** Name of the app. */
                    app: string;
                    /** Id of the credential. */
                    id: string;
                };
            };
            requestBody: {
                content: {
                    "application/json": RestoreTokens;
                };
            };
            responses: {
                /** How many tokens were restored. */
                200: {
                    content: {
                        "application/json": RestoredTokens;
                    };
                };
            };
        };
    };
    "/v1/apps/{app}/experiments": {
        /**
         * List experiments
         *
         * Requires the scope `admin`.
         */
        get: {
            parameters: {
                query?: ExperimentsQuery;
                path: {
                    /** Name of the app. */
                    app: string;
                };
            };
            responses: {
                /** Sorted by name; archived ones newest first. */
                200: {
                    content: {
                        "application/json": Experiments;
                    };
                };
            };
        };
    };
    "/v1/apps/{app}/experiments/{name}": {
        /**
         * Get an experiment
         *
         * The live one with this name, otherwise the last archived one.
         *
         * Requires the scope `admin`.
         */
        get: {
            parameters: {
                path: {
                    /** Name of the app. */
                    app: string;
                    /** Name of the experiment. */
                    name: string;
                };
            };
            responses: {
                /** As stored. */
                200: {
                    content: {
                        "application/json": Experiment;
                    };
                };
            };
        };
        /**
         * Create or replace an experiment
         *
         * Devices receive it with their next first call (`GET /v1/me`). Changing a weight moves users only to or from that variant.
         *
         * Requires the scope `admin`.
         */
        put: {
            parameters: {
                path: {
                    /** Name of the app. */
                    app: string;
                    /** Name of the experiment. */
                    name: string;
                };
            };
            requestBody: {
                content: {
                    "application/json": NewExperiment;
                };
            };
            responses: {
                /** Stored and in effect. */
                200: {
                    content: {
                        "application/json": Experiment;
                    };
                };
            };
        };
        /**
         * End an experiment
         *
         * Archives it: no device is in it any longer, and its name is free for another one.
         *
         * Requires the scope `admin`.
         */
        delete: {
            parameters: {
                path: {
                    /** Name of the app. */
                    app: string;
                    /** Name of the experiment. */
                    name: string;
                };
            };
            responses: {
                /** Archived. */
                204: {
                    content?: never;
                };
            };
        };
        /**
         * Stop or restart an experiment
         *
         * Requires the scope `admin`.
         */
        patch: {
            parameters: {
                path: {
                    /** Name of the app. */
                    app: string;
                    /** Name of the experiment. */
                    name: string;
                };
            };
            requestBody: {
                content: {
                    "application/json": ExperimentChange;
                };
            };
            responses: {
                /** In effect. */
                200: {
                    content: {
                        "application/json": Experiment;
                    };
                };
            };
        };
    };
    "/v1/apps/{app}/experiments/{name}/devices/{device}": {
        /**
         * Get the variant of a device
         *
         * Requires the scope `admin`.
         */
        get: {
            parameters: {
                path: {
                    /** Name of the app. */
                    app: string;
                    /** Name of the experiment. */
                    name: string;
                    /** Device id. */
                    device: string;
                };
            };
            responses: {
                /** By the current definition. */
                200: {
                    content: {
                        "application/json": ExperimentAssigned;
                    };
                };
            };
        };
    };
    "/v1/apps/{app}/notices": {
        /**
         * List maintenance notices
         *
         * Requires the scope `admin`.
         */
        get: {
            parameters: {
                query?: NoticesQuery;
                path: {
                    /** Name of the app. */
                    app: string;
                };
            };
            responses: {
                /** Sorted by name; archived ones newest first. */
                200: {
                    content: {
                        "application/json": Notices;
                    };
                };
            };
        };
    };
    "/v1/apps/{app}/notices/{name}": {
        /**
         * Get a maintenance notice
         *
         * The live one with this name, otherwise the last archived one.
         *
         * Requires the scope `admin`.
         */
        get: {
            parameters: {
                path: {
                    /** Name of the app. */
                    app: string;
                    /** Name of the notice. */
                    name: string;
                };
            };
            responses: {
                /** As stored. */
                200: {
                    content: {
                        "application/json": Notice;
                    };
                };
            };
        };
        /**
         * Create or replace a maintenance notice
         *
         * Included in `GET /v1/me`, and published to the topic `$maintenance` when it is announced, starts, changes and ends.
         *
         * Requires the scope `admin`.
         */
        put: {
            parameters: {
                path: {
                    /** Name of the app. */
                    app: string;
                    /** Name of the notice. */
                    name: string;
                };
            };
            requestBody: {
                content: {
                    "application/json": NewNotice;
                };
            };
            responses: {
                /** Stored. Shown at its time. */
                200: {
                    content: {
                        "application/json": Notice;
                    };
                };
            };
        };
        /**
         * End a maintenance notice now
         *
         * Requires the scope `admin`.
         */
        delete: {
            parameters: {
                path: {
                    /** Name of the app. */
                    app: string;
                    /** Name of the notice. */
                    name: string;
                };
            };
            responses: {
                /** Ended. Subscribers of the topic are notified within seconds. */
                204: {
                    content?: never;
                };
            };
        };
    };
    "/v1/campaigns": {
        /**
         * List campaigns
         *
         * Requires the scope `read`.
         *
         * With a filter, one call examines at most 5,000 campaigns: a page may then have fewer than `limit` although `next` is set.
         */
        get: {
            parameters: {
                query?: CampaignsQuery;
            };
            responses: {
                /** Newest first. */
                200: {
                    content: {
                        "application/json": Campaigns;
                    };
                };
            };
        };
        /**
         * Create a campaign
         *
         * It starts at once or at `start_at`, unless `start` is `false` or its audience is uploaded. The audience is read with a durable cursor and sent in batches, so a restart of the node skips no device. With `?dry_run=true`, the audience is only counted.
         *
         * Requires the scope `publish`.
         */
        post: {
            parameters: {
                query?: CreateCampaignQuery;
            };
            requestBody: {
                content: {
                    "application/json": NewCampaign;
                };
            };
            responses: {
                /** With `dry_run`: nothing was created. */
                200: {
                    content: {
                        "application/json": CampaignCount;
                    };
                };
                /** Created, by this or an earlier request with the same `Idempotency-Key`. */
                201: {
                    content: {
                        "application/json": Campaign;
                    };
                };
            };
        };
    };
    "/v1/campaigns/{id}": {
        /**
         * Get a campaign and its progress
         *
         * Requires the scope `read`.
         */
        get: {
            parameters: {
                path: {
                    /** Id of the campaign. */
                    id: string;
                };
            };
            responses: {
                /** The new settings. */
                200: {
                    content: {
                        "application/json": Campaign;
                    };
                };
            };
        };
        /**
         * Delete an ended campaign
         *
         * Requires the scope `publish`.
         */
        delete: {
            parameters: {
                path: {
                    /** Id of the campaign. */
                    id: string;
                };
            };
            responses: {
                /** Deleted with its uploaded recipients. */
                204: {
                    content?: never;
                };
            };
        };
        /**
         * Change a campaign that has not started
         *
         * Replaces the fields of the body. A scheduled campaign becomes a draft, which must be started again. The body names the revision that the author has changed; if another author changed the campaign since, the response is `409` with the code `revision_conflict`, and nothing is changed.
         *
         * The approval of the campaign ends.
         *
         * Requires the scope `publish`.
         */
        patch: {
            parameters: {
                path: {
                    /** Id of the campaign. */
                    id: string;
                };
            };
            requestBody: {
                content: {
                    "application/json": CampaignChange;
                };
            };
            responses: {
                /** The changed draft. */
                200: {
                    content: {
                        "application/json": Campaign;
                    };
                };
            };
        };
    };
    "/v1/campaigns/{id}/estimate": {
        /**
         * Estimate a campaign's audience
         *
         * Counts up to 20,000 devices; a larger audience is estimated from a sample of at most 12,800 more, with 95 % intervals. Also tells when the devices would get the message, by their clocks, quiet hours and the rate of earlier campaigns. A draft needs only its audience. One estimate of an app runs at a time; another gets `429`.
         *
         * Requires the scope `read`.
         */
        post: {
            parameters: {
                path: {
                    /** Id of the campaign. */
                    id: string;
                };
            };
            responses: {
                /** The estimate. */
                200: {
                    content: {
                        "application/json": CampaignEstimate;
                    };
                };
            };
        };
    };
    "/v1/campaigns/{id}/recipients/{user}": {
        /**
         * Get an uploaded recipient
         *
         * What one user of an uploaded audience gets. `404` if the user was not uploaded.
         *
         * Requires the scope `read`.
         */
        get: {
            parameters: {
                path: {
                    /** Id of the campaign. */
                    id: string;
                    /** Id of the user. */
                    user: string;
                };
            };
            responses: {
                /** The recipient. */
                200: {
                    content: {
                        "application/json": CampaignRecipient;
                    };
                };
            };
        };
    };
    "/v1/campaigns/{id}/recipients": {
        /**
         * Upload up to 10,000 recipients
         *
         * One user per line, in any number of requests. For a draft or scheduled campaign. Each line succeeds or fails independently. Repeating a line changes nothing, so an interrupted upload can be repeated.
         *
         * Requires the scope `publish`.
         */
        post: {
            parameters: {
                path: {
                    /** Id of the campaign. */
                    id: string;
                };
            };
            requestBody: {
                content: {
                    "application/x-ndjson": string;
                };
            };
            responses: {
                /** One line for each, in the same order: the user, or `{"error": …}` with the problem. */
                200: {
                    content: {
                        "application/x-ndjson": string;
                    };
                };
            };
        };
    };
    "/v1/campaigns/{id}/start": {
        /**
         * Start a campaign
         *
         * Starts a draft now or at its `start_at`. A draft that lacks something gets `409` with the code `campaign_incomplete`.
         *
         * A campaign with more recipients than `console.large_campaign` (10,000) needs the approval of a second person for its present revision, if a person starts it: otherwise `409` with the code `approval_required`. The person must have logged in within the last 10 minutes. API keys need the approval only with `console.approve_keys`.
         *
         * Requires the scope `publish`.
         */
        post: {
            parameters: {
                query?: StartCampaignQuery;
                path: {
                    /** Id of the campaign. */
                    id: string;
                };
            };
            responses: {
                /** The new settings. */
                200: {
                    content: {
                        "application/json": Campaign;
                    };
                };
            };
        };
    };
    "/v1/campaigns/{id}/pause": {
        /**
         * Pause a campaign
         *
         * For a running or scheduled campaign. Batches in progress complete; no further batch is sent.
         *
         * Requires the scope `publish`.
         */
        post: {
            parameters: {
                path: {
                    /** Id of the campaign. */
                    id: string;
                };
            };
            responses: {
                /** The new settings. */
                200: {
                    content: {
                        "application/json": Campaign;
                    };
                };
            };
        };
    };
    "/v1/campaigns/{id}/resume": {
        /**
         * Resume a campaign
         *
         * Continues where it was paused.
         *
         * Requires the scope `publish`.
         */
        post: {
            parameters: {
                path: {
                    /** Id of the campaign. */
                    id: string;
                };
            };
            responses: {
                /** The new settings. */
                200: {
                    content: {
                        "application/json": Campaign;
                    };
                };
            };
        };
    };
    "/v1/campaigns/{id}/abort": {
        /**
         * End a campaign
         *
         * Batches in progress complete; the rest counts as `cancelled`.
         *
         * Requires the scope `publish`.
         */
        post: {
            parameters: {
                path: {
                    /** Id of the campaign. */
                    id: string;
                };
            };
            responses: {
                /** The new settings. */
                200: {
                    content: {
                        "application/json": Campaign;
                    };
                };
            };
        };
    };
    "/v1/activities": {
        /**
         * List Live Activities
         *
         * Requires the scope `read`.
         */
        get: {
            parameters: {
                query?: ActivitiesQuery;
            };
            responses: {
                /** Newest first. Activities are listed until a day after their end. */
                200: {
                    content: {
                        "application/json": Activities;
                    };
                };
            };
        };
        /**
         * Start a Live Activity
         *
         * Starts an activity on the devices of the target: by push on iOS and Android, and as a message on connected devices (docs/activities.md).
         *
         * Requires the scope `publish`.
         */
        post: {
            requestBody: {
                content: {
                    "application/json": NewActivity;
                };
            };
            responses: {
                /** Stored. Pushes follow. */
                201: {
                    content: {
                        "application/json": Activity;
                    };
                };
            };
        };
    };
    "/v1/activities/{id}": {
        /**
         * Get a Live Activity and its progress
         *
         * Requires the scope `read`.
         */
        get: {
            parameters: {
                path: {
                    /** Id of the activity. */
                    id: string;
                };
            };
            responses: {
                /** The newest state, and how far it has come. */
                200: {
                    content: {
                        "application/json": Activity;
                    };
                };
            };
        };
        /**
         * End a Live Activity
         *
         * Ends it on all devices with its last state. The body may be absent.
         *
         * Requires the scope `publish`.
         */
        delete: {
            parameters: {
                path: {
                    /** Id of the activity. */
                    id: string;
                };
            };
            requestBody?: {
                content: {
                    "application/json": ActivityEnd;
                };
            };
            responses: {
                /** Stored. Pushes follow. */
                200: {
                    content: {
                        "application/json": Activity;
                    };
                };
            };
        };
        /**
         * Update a Live Activity
         *
         * Sets a new state. If several updates come before a device got the first, it gets the newest only.
         *
         * Requires the scope `publish`.
         */
        patch: {
            parameters: {
                path: {
                    /** Id of the activity. */
                    id: string;
                };
            };
            requestBody: {
                content: {
                    "application/json": ActivityUpdate;
                };
            };
            responses: {
                /** Stored. Pushes follow. */
                200: {
                    content: {
                        "application/json": Activity;
                    };
                };
            };
        };
    };
    "/v1/activities/{id}/devices/{device}": {
        /**
         * Why a device has the newest state of a Live Activity, or not
         *
         * Requires the scope `read`.
         */
        get: {
            parameters: {
                path: {
                    /** Id of the activity. */
                    id: string;
                    /** Id of the device. */
                    device: string;
                };
            };
            responses: {
                /** What the device has, and why. */
                200: {
                    content: {
                        "application/json": ActivityDevice;
                    };
                };
            };
        };
    };
    "/v1/push/invalidations": {
        /**
         * List invalidated push tokens
         *
         * Oldest first, for as long as traces are stored. With `Accept: application/x-ndjson`, one per line without `next`: continue after the last line's `seq`.
         *
         * Requires the scope `read`.
         */
        get: {
            parameters: {
                query?: InvalidationsQuery;
            };
            responses: {
                /** Removed or suspended tokens. */
                200: {
                    content: {
                        "application/json": Invalidations;
                        "application/x-ndjson": string;
                    };
                };
            };
        };
    };
    "/v1/push/channels": {
        /**
         * List channels
         *
         * By name.
         *
         * Requires the scope `read`.
         */
        get: {
            parameters: {
                query?: ChannelsQuery;
            };
            responses: {
                /** Channels. */
                200: {
                    content: {
                        "application/json": Channels;
                    };
                };
            };
        };
        /**
         * Create a channel
         *
         * Creates it at Apple with the app's credential for APNs. A channel that exists under the name with the same settings is returned with `200`, so the request may be repeated: after `push_service_failed`, Apple may have created a channel that nobody knows (`GET /v1/push/apns-channels` lists it), and the repetition creates another one. The app subscribes to `apns_id` (docs/broadcast.md).
         *
         * Requires the scope `admin`.
         */
        post: {
            requestBody: {
                content: {
                    "application/json": NewChannel;
                };
            };
            responses: {
                /** It exists. */
                200: {
                    content: {
                        "application/json": Channel;
                    };
                };
                /** Created. */
                201: {
                    content: {
                        "application/json": Channel;
                    };
                };
            };
        };
    };
    "/v1/push/channels/{name}": {
        /**
         * Show a channel
         *
         * With its newest broadcasts.
         *
         * Requires the scope `read`.
         */
        get: {
            parameters: {
                path: {
                    /** Name of the channel. */
                    name: string;
                };
            };
            responses: {
                /** The channel. */
                200: {
                    content: {
                        "application/json": Channel;
                    };
                };
            };
        };
        /**
         * Delete a channel
         *
         * At Apple and here. Broadcasts that wait are cancelled. Repeat it after an error.
         *
         * Requires the scope `admin`.
         */
        delete: {
            parameters: {
                query?: DeleteChannelQuery;
                path: {
                    /** Name of the channel. */
                    name: string;
                };
            };
            responses: {
                /** Deleted. */
                204: {
                    content?: never;
                };
            };
        };
        /**
         * Bind a channel to a topic
         *
         * `null` binds it to none.
         *
         * Requires the scope `admin`.
         */
        patch: {
            parameters: {
                path: {
                    /** Name of the channel. */
                    name: string;
                };
            };
            requestBody: {
                content: {
                    "application/json": ChannelChange;
                };
            };
            responses: {
                /** The channel. */
                200: {
                    content: {
                        "application/json": Channel;
                    };
                };
            };
        };
    };
    "/v1/push/channels/{name}/broadcasts": {
        /**
         * Send to a channel
         *
         * Accepted means stored: it is sent once after a crash too, and repeated with the same `apns-request-id` if Apple's answer was lost. Broadcasts of a channel are sent in order.
         *
         * Requires the scope `publish`.
         */
        post: {
            parameters: {
                path: {
                    /** Name of the channel. */
                    name: string;
                };
            };
            requestBody: {
                content: {
                    "application/json": NewBroadcast;
                };
            };
            responses: {
                /** Accepted. */
                202: {
                    content: {
                        "application/json": BroadcastState;
                    };
                };
            };
        };
    };
    "/v1/push/broadcasts/{id}": {
        /**
         * Show a broadcast
         *
         * Kept for as long as traces, and at least a day.
         *
         * Requires the scope `read`.
         */
        get: {
            parameters: {
                path: {
                    /** Id of the broadcast. */
                    id: string;
                };
            };
            responses: {
                /** What became of it. */
                200: {
                    content: {
                        "application/json": BroadcastState;
                    };
                };
            };
        };
    };
    "/v1/push/apns-channels": {
        /**
         * List the channels at Apple
         *
         * Those of the credential's bundle id. One without a name belongs to no channel of the app: its creation was interrupted, or another program made it.
         *
         * Requires the scope `admin`.
         */
        get: {
            parameters: {
                query?: AppleChannelsQuery;
            };
            responses: {
                /** Channels at Apple. */
                200: {
                    content: {
                        "application/json": AppleChannels;
                    };
                };
            };
        };
    };
    "/v1/push/apns-channels/{id}": {
        /**
         * Delete a channel at Apple
         *
         * Only one that no channel of the app names.
         *
         * Requires the scope `admin`.
         */
        delete: {
            parameters: {
                query?: DeleteAppleChannelQuery;
                path: {
                    /** Apple's id, percent-encoded. */
                    id: string;
                };
            };
            responses: {
                /** Deleted. */
                204: {
                    content?: never;
                };
            };
        };
    };
    "/v1/devices/{device}/topics/{topic}/permission": {
        /**
         * Whether a device may use a topic, and why
         *
         * Requires the scope `read`. Returns what the app's topic rules decide for the device and its user. Does not consider claims of a JWT, and calls no webhook.
         */
        get: {
            parameters: {
                query?: TopicPermissionQuery;
                path: {
                    /** Id of the device. */
                    device: string;
                    /** Name of the topic, percent-encoded: `news/jp` is `news%2Fjp`. */
                    topic: string;
                };
            };
            responses: {
                /** The decision of the rules. */
                200: {
                    content: {
                        "application/json": TopicPermission;
                    };
                };
            };
        };
    };
    "/v1/apps/{app}/topic-rules": {
        /**
         * Get the topic rules of an app
         *
         * Requires the scope `admin`.
         */
        get: {
            parameters: {
                path: {
                    /** Name of the app. */
                    app: string;
                };
            };
            responses: {
                /** As stored, without the secret. */
                200: {
                    content: {
                        "application/json": TopicRules;
                    };
                };
            };
        };
        /**
         * Replace the topic rules of an app
         *
         * Requires the scope `admin`.
         */
        put: {
            parameters: {
                path: {
                    /** Name of the app. */
                    app: string;
                };
            };
            requestBody: {
                content: {
                    "application/json": TopicRules;
                };
            };
            responses: {
                /** In effect. Subscriptions without permission end. */
                200: {
                    content: {
                        "application/json": TopicRules;
                    };
                };
            };
        };
        /**
         * Remove the topic rules of an app
         *
         * Requires the scope `admin`.
         */
        delete: {
            parameters: {
                path: {
                    /** Name of the app. */
                    app: string;
                };
            };
            responses: {
                /** The app has no rules: every device may subscribe to every topic, and `client_publish` lists the topics that devices may publish to. */
                204: {
                    content?: never;
                };
            };
        };
    };
    "/v1/apps/{app}/series": {
        /**
         * Figures over time of an app
         *
         * Figures of all nodes together, which the service keeps itself: in steps of 10 s for 2 hours, of a minute for 3 days, and of an hour for 31 days. A `count` is the number of events in the step; divide it by `covered_s` for a rate. A `gauge` is a mean, a `time` a quantile in seconds. A point that was not measured is `null`, never 0. A time without events is `null` too. An app has figures of its own. They are `null` in steps in which so many apps were busier that the row had no room for it.
         */
        get: {
            parameters: {
                query?: AppSeriesQuery;
                path: {
                    /** Name of the app. */
                    app: string;
                };
            };
            responses: {
                /** The series. */
                200: {
                    content: {
                        "application/json": Series;
                    };
                };
            };
        };
    };
}
