-- Apps that were deleted and whose rows are still being removed, or may still come from nodes that have not heard.
CREATE TABLE deleted_apps (
    app INTEGER PRIMARY KEY,
    cursor INTEGER NOT NULL DEFAULT 0, -- notifications up to here were looked at
    since INTEGER                      -- when nothing was left for the first time
) STRICT;
