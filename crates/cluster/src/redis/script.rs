//! Atomic operations as Lua scripts on the server.
//!
//! A bucket of the directory is two hashes, one of devices and one of users: looking up a field costs a third less than
//! looking up a key. A device's value is 16 bytes: epoch, generation. A user's value is entries of 24 bytes: device (8
//! bytes of its key), epoch, generation. Numbers are big-endian; a generation has more bits than a Lua number, so
//! halves are compared.
//!
//! All scripts are idempotent and do not write unchanged values.

use std::sync::LazyLock;

use ::redis::Cmd;

use super::slot::Command;

/// The maximum number of entries in a user's value; the oldest is evicted. 256 × 24 = 6 KiB.
pub(crate) const USER_DEVICES_MAX: usize = 256;

pub(crate) struct Script {
    body: LazyLock<String>,
    sha: LazyLock<String>,
}

/// `reach(a, b)`: a >= b, 8 bytes each.
const REACH: &str = r"
local function reach(a, b)
  local ah, al = struct.unpack('>I4I4', a)
  local bh, bl = struct.unpack('>I4I4', b)
  return ah > bh or (ah == bh and al >= bl)
end
";

macro_rules! script {
    ($(#[$doc:meta])* $name:ident, $body:expr) => {
        $(#[$doc])*
        pub(crate) static $name: Script = Script {
            body: LazyLock::new(|| format!("{REACH}{}", $body)),
            sha: LazyLock::new(|| ::redis::Script::new(&$name.body).get_hash().to_owned()),
        };
    };
}

script!(
    /// Arguments: epoch, then each device and its generation. Answers for each: 16 bytes, the previous holder; 8 bytes,
    /// the greater generation that holds it; empty, none before (or this very one).
    TAKE,
    r"
local answers = {}
for i = 2, #ARGV, 2 do
  local mine = ARGV[1] .. ARGV[i + 1]
  local value = redis.call('HGET', KEYS[1], ARGV[i])
  if value and value ~= mine and reach(string.sub(value, 9), ARGV[i + 1]) then
    answers[#answers + 1] = string.sub(value, 9)
  elseif value == mine then
    answers[#answers + 1] = ''
  else
    redis.call('HSET', KEYS[1], ARGV[i], mine)
    answers[#answers + 1] = value or ''
  end
end
return answers
"
);

script!(
    /// Arguments: epoch, then each device and its generation. Answers for each: 1, it is ours; 0, a greater generation
    /// holds it.
    KEEP,
    r"
local answers = {}
for i = 2, #ARGV, 2 do
  local mine = ARGV[1] .. ARGV[i + 1]
  local value = redis.call('HGET', KEYS[1], ARGV[i])
  if value and value ~= mine and not reach(ARGV[i + 1], string.sub(value, 9)) then
    answers[#answers + 1] = 0
  else
    if value ~= mine then redis.call('HSET', KEYS[1], ARGV[i], mine) end
    answers[#answers + 1] = 1
  end
end
return answers
"
);

script!(
    /// Arguments: the maximum number of entries, epoch, then each user with the device and generation of the session.
    ADD,
    r"
local most, epoch = tonumber(ARGV[1]) * 24, ARGV[2]
for i = 3, #ARGV, 2 do
  local device, generation = string.sub(ARGV[i + 1], 1, 8), string.sub(ARGV[i + 1], 9)
  local entry = device .. epoch .. generation
  local value = redis.call('HGET', KEYS[1], ARGV[i]) or ''
  local at = 1
  while at <= #value and string.sub(value, at, at + 7) ~= device do at = at + 24 end
  if at > #value then
    if #value >= most then value = string.sub(value, #value - most + 25) end
    redis.call('HSET', KEYS[1], ARGV[i], value .. entry)
  elseif string.sub(value, at, at + 23) ~= entry and reach(generation, string.sub(value, at + 16, at + 23)) then
    redis.call('HSET', KEYS[1], ARGV[i], string.sub(value, 1, at - 1) .. entry .. string.sub(value, at + 24))
  end
end
return 1
"
);

script!(
    /// Arguments: each device or user, with device, epoch and generation. Removes entries that match exactly.
    FORGET,
    r"
for i = 1, #ARGV, 2 do
  local field, entry = ARGV[i], ARGV[i + 1]
  local value = redis.call('HGET', KEYS[1], field) or ''
  if #value == 16 then
    if value == string.sub(entry, 9) then redis.call('HDEL', KEYS[1], field) end
  else
    for at = 1, #value, 24 do
      if string.sub(value, at, at + 23) == entry then
        local rest = string.sub(value, 1, at - 1) .. string.sub(value, at + 24)
        if rest == '' then redis.call('HDEL', KEYS[1], field) else redis.call('HSET', KEYS[1], field, rest) end
        break
      end
    end
  end
end
return 1
"
);

script!(
    /// Arguments: epoch, generation, then devices and users. Removes entries of the epoch with a lower generation.
    ABSENT,
    r"
local function stale(epoch, generation) return epoch == ARGV[1] and not reach(generation, ARGV[2]) end
for i = 3, #ARGV do
  local field = ARGV[i]
  local value = redis.call('HGET', KEYS[1], field) or ''
  if #value == 16 then
    if stale(string.sub(value, 1, 8), string.sub(value, 9)) then redis.call('HDEL', KEYS[1], field) end
  else
    local rest = {}
    for at = 1, #value, 24 do
      if not stale(string.sub(value, at + 8, at + 15), string.sub(value, at + 16, at + 23)) then
        rest[#rest + 1] = string.sub(value, at, at + 23)
      end
    end
    if #rest == 0 then
      if value ~= '' then redis.call('HDEL', KEYS[1], field) end
    elseif #rest * 24 < #value then
      redis.call('HSET', KEYS[1], field, table.concat(rest))
    end
  end
end
return 1
"
);

script!(
    /// The leases (epoch by deadline) and the nodes' infos. Arguments: the action, epoch, ttl in milliseconds, info, an
    /// epoch to release. Answers: whether it was done, then epoch, remaining milliseconds and info of each live lease.
    /// A missing or expired lease is never renewed. A deadline beyond the ttl (the server's clock was set back) is cut.
    NODES,
    r"
local leases, infos = KEYS[1], KEYS[2]
local act, epoch, ttl, info, given_up = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local done = 0
local function drop(which)
  redis.call('ZREM', leases, which)
  redis.call('HDEL', infos, which)
end
if given_up ~= '' then drop(given_up) end
if act ~= 'list' then
  local deadline = redis.call('ZSCORE', leases, epoch)
  if (act == 'acquire' and not deadline) or (act == 'renew' and deadline and tonumber(deadline) > now) then
    redis.call('ZADD', leases, now + ttl, epoch)
    redis.call('HSET', infos, epoch, info)
    done = 1
  end
end
for _, dead in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', now)) do drop(dead) end
for _, odd in ipairs(redis.call('ZRANGEBYSCORE', leases, '(' .. (now + ttl), '+inf')) do
  redis.call('ZADD', leases, now + ttl, odd)
end
local answer = {done}
local live = redis.call('ZRANGE', leases, 0, -1, 'WITHSCORES')
for first = 1, #live, 1000 do
  local names = {}
  for i = first, math.min(first + 999, #live), 2 do names[#names + 1] = live[i] end
  for at, said in ipairs(redis.call('HMGET', infos, unpack(names))) do
    answer[#answer + 1] = names[at]
    answer[#answer + 1] = tonumber(live[first + 2 * at - 1]) - now
    answer[#answer + 1] = said or ''
  end
end
return answer
"
);

impl Script {
    /// The beginning of a call; keys and arguments follow.
    pub(crate) fn call(&self, keys: usize) -> Cmd {
        let mut cmd = ::redis::cmd("EVALSHA");
        cmd.arg(self.sha.as_str()).arg(keys);
        cmd
    }
}

/// Commands that load all scripts on the server of the slot.
pub(crate) fn loads(slot: u16) -> Vec<Command> {
    let load = |script: &&Script| {
        let mut cmd = ::redis::cmd("SCRIPT");
        cmd.arg("LOAD").arg(script.body.as_str());
        Command { slot, cmd }
    };
    [&TAKE, &KEEP, &ADD, &FORGET, &ABSENT, &NODES].iter().map(load).collect()
}
