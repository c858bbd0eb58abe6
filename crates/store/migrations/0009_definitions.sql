-- What an app defines under a name and what ends: experiments and maintenance notices. What is over is archived: it
-- stays to be looked up by name, and is in no index that is read otherwise.
CREATE TABLE definitions (
    num INTEGER PRIMARY KEY AUTOINCREMENT,
    app INTEGER NOT NULL,
    kind INTEGER NOT NULL, -- store::DefinitionKind
    name TEXT NOT NULL,
    spec TEXT NOT NULL,    -- as its owner wrote it
    ends_at INTEGER,       -- NULL: it does not by itself
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    archived_at INTEGER    -- NULL: it is live
) STRICT;
CREATE UNIQUE INDEX definitions_live ON definitions (app, kind, name) WHERE archived_at IS NULL;
CREATE INDEX definitions_ending ON definitions (ends_at) WHERE archived_at IS NULL AND ends_at IS NOT NULL;
CREATE INDEX definitions_archived ON definitions (app, kind, num) WHERE archived_at IS NOT NULL;
CREATE INDEX definitions_archived_by_name ON definitions (app, kind, name, num) WHERE archived_at IS NOT NULL;
