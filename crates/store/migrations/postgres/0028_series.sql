-- The time series of the console: what a node counted in a step, or, in steps of a minute and an hour, all nodes.
CREATE TABLE IF NOT EXISTS series (
    step BIGINT NOT NULL,          -- seconds
    at BIGINT NOT NULL,            -- the begin of the step
    node TEXT NOT NULL,            -- its name; '': all nodes together
    data BYTEA NOT NULL,
    PRIMARY KEY (step, at, node)
);
