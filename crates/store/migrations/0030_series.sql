-- The time series of the console: what a node counted in a step, or, in steps of a minute and an hour, all nodes.
CREATE TABLE series (
    step INTEGER NOT NULL,         -- seconds
    at INTEGER NOT NULL,           -- the begin of the step
    node TEXT NOT NULL,            -- its name; '': all nodes together
    data BLOB NOT NULL,
    PRIMARY KEY (step, at, node)
) STRICT;
