-- Apps that were deleted and whose rows are still being removed, or may still come from nodes that have not heard.
CREATE TABLE deleted_apps (
    app BIGINT PRIMARY KEY,
    cursor BIGINT NOT NULL DEFAULT 0, -- notifications up to here were looked at
    since BIGINT                      -- when nothing was left for the first time
);
