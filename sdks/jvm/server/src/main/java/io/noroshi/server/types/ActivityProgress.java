// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.List;
import java.util.Map;

/**
 * Only for a single activity.
 *
 * @param collected All devices of the target are collected.
 * @param current Devices that have the newest state, or cannot get it by push.
 * @param waiting Devices that wait for the newest state.
 * @param counts Pushes by outcome, over all versions.
 * @param reasons {@code reasons}
 */
public record ActivityProgress(
        boolean collected,
        long current,
        long waiting,
        Map<String, Long> counts,
        List<ActivityProgressReason> reasons) {}
